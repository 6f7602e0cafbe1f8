#include "cli/quantization_argument.h"

#include "base/error.h"

namespace dovetail::cli {

const models::Quantization& quantization_argument(const std::string& name) {
  try {
    return models::find_quantization(name);
  } catch (const Error& error) {
    throw Error(ErrorCode::kUsage, error.problems());
  }
}

}  // namespace dovetail::cli
