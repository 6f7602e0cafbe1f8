// The C++ file that becomes a compiled library, and the metadata in it.
#pragma once

#include <string>
#include <vector>

#include "models/plan.h"
#include "ops/types.h"

namespace dovetail::compile {

// The text of `_metadata`: MLC's fields, the parameters in the order that the functions take them, the
// contract, and under "dovetail" what the loader checks before it loads the library. ASCII only. `levels` are
// built in, lowest first.
std::string library_metadata(const models::ModelPlan& plan, const std::vector<ops::Level>& levels);

// A whole C++ file. Throws Error kInternal when the plan asks for a function that no model exports.
std::string library_source(const models::ModelPlan& plan, const std::string& metadata);

}  // namespace dovetail::compile
