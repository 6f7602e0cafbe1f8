// --quantization of the commands that take a checkpoint.
#pragma once

#include <string>

#include "models/quantization.h"

namespace dovetail::cli {

// Throws Error kUsage for a name that is not known, with the list of those that are.
const models::Quantization& quantization_argument(const std::string& name);

}  // namespace dovetail::cli
