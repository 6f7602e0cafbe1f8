#include "models/quantization.h"

#include <array>

#include "base/error.h"

namespace dovetail::models {
namespace {

constexpr std::array<Quantization, 5> kQuantizations{{
    {"q4f16_1", DType::kFloat16, true},
    {"q4f32_1", DType::kFloat32, true},
    {"q0f16", DType::kFloat16, false},
    {"q0f32", DType::kFloat32, false},
    {"q0bf16", DType::kBFloat16, false},
}};

}  // namespace

std::span<const Quantization> quantizations() { return kQuantizations; }

const Quantization& find_quantization(std::string_view name) {
  std::string known;
  for (const Quantization& quantization : kQuantizations) {
    if (quantization.name == name) return quantization;
    known += (known.empty() ? "" : ", ") + std::string(quantization.name);
  }
  throw Error(ErrorCode::kUnsupported, Problem{.message = "unknown quantization \"" + printable(name) + "\"",
                                               .hint = "known quantizations: " + known});
}

}  // namespace dovetail::models
