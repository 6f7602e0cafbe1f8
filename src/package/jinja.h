// Jinja templates, as Hugging Face's tokenizers render them: whitespace control on, Python's methods of
// texts, raise_exception().
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace dovetail::package {

// `values` is an object: the variables. Bounded in time and depth. Throws Error kUnsupported with what the
// template or its reader says.
std::string render_jinja(std::string_view text, const Json& values);

}  // namespace dovetail::package
