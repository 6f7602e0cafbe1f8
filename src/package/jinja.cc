#include "package/jinja.h"

#include "base/error.h"
#include "dovetail_rust.h"

namespace dovetail::package {
namespace {

std::string take(DovetailRustText text) {
  std::string out(text.data, text.size);
  dovetail_rust_free_text(text);
  return out;
}

}  // namespace

std::string render_jinja(std::string_view text, const Json& values) {
  const std::string json = values.dump();
  DovetailRustText out, error;
  if (dovetail_template_render(text.data(), text.size(), json.data(), json.size(), &out, &error))
    return take(out);
  throw Error(ErrorCode::kUnsupported,
              Problem{.message = "the template can't be rendered: " + take(error), .field = "chat_template"});
}

}  // namespace dovetail::package
