#include "models/quantization.h"

#include <array>

#include "base/error.h"

namespace dovetail::models {
namespace {

constexpr std::array<Quantization, 12> kQuantizations{{
    {"q4f16_1", DType::kFloat16, 4},
    {"q4f16_0", DType::kFloat16, 4, true},
    {"q4f16_2", DType::kFloat16, 4, false, false},
    {"q4bf16_1", DType::kBFloat16, 4},
    {"q4bf16_0", DType::kBFloat16, 4, true},
    {"q4f32_1", DType::kFloat32, 4},
    {"q3f16_1", DType::kFloat16, 3},
    {"q3f16_0", DType::kFloat16, 3, true},
    {"q8f16_1", DType::kFloat16, 8},
    {"q0f16", DType::kFloat16, 0},
    {"q0f32", DType::kFloat32, 0},
    {"q0bf16", DType::kBFloat16, 0},
}};

}  // namespace

std::span<const Quantization> quantizations() { return kQuantizations; }

std::string quantization_names() {
  std::string out;
  for (const Quantization& quantization : kQuantizations)
    out += (out.empty() ? "" : ", ") + std::string(quantization.name);
  return out;
}

const Quantization& find_quantization(std::string_view name) {
  for (const Quantization& quantization : kQuantizations) {
    if (quantization.name == name) return quantization;
  }
  throw Error(ErrorCode::kUnsupported, Problem{.message = "unknown quantization \"" + printable(name) + "\"",
                                               .hint = "known quantizations: " + quantization_names()});
}

}  // namespace dovetail::models
