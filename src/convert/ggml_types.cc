#include "convert/ggml_types.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/dtype.h"

namespace dovetail::convert {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr int64_t kSuper = 256;  // values in a block of the K types

constexpr std::array<GgmlTypeInfo, 34> kTypes{{
    {0, "F32", 1, 4, true},
    {1, "F16", 1, 2, true},
    {2, "Q4_0", 32, 18, true},
    {3, "Q4_1", 32, 20, true},
    {6, "Q5_0", 32, 22, true},
    {7, "Q5_1", 32, 24, true},
    {8, "Q8_0", 32, 34, true},
    {9, "Q8_1", 32, 40, false},
    {10, "Q2_K", kSuper, 84, true},
    {11, "Q3_K", kSuper, 110, true},
    {12, "Q4_K", kSuper, 144, true},
    {13, "Q5_K", kSuper, 176, true},
    {14, "Q6_K", kSuper, 210, true},
    {15, "Q8_K", kSuper, 292, false},
    {16, "IQ2_XXS", kSuper, 66, false},
    {17, "IQ2_XS", kSuper, 74, false},
    {18, "IQ3_XXS", kSuper, 98, false},
    {19, "IQ1_S", kSuper, 50, false},
    {20, "IQ4_NL", 32, 18, true},
    {21, "IQ3_S", kSuper, 110, false},
    {22, "IQ2_S", kSuper, 82, false},
    {23, "IQ4_XS", kSuper, 136, true},
    {24, "I8", 1, 1, false},
    {25, "I16", 1, 2, false},
    {26, "I32", 1, 4, false},
    {27, "I64", 1, 8, false},
    {28, "F64", 1, 8, false},
    {29, "IQ1_M", kSuper, 56, false},
    {30, "BF16", 1, 2, true},
    {34, "TQ1_0", kSuper, 54, false},
    {35, "TQ2_0", kSuper, 66, false},
    {39, "MXFP4", 32, 17, false},
    {40, "NVFP4", 64, 36, false},
    {41, "Q1_0", 128, 18, false},
}};

// The 16 levels of IQ4_NL and IQ4_XS.
constexpr std::array<float, 16> kLevels{-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

uint8_t byte_at(const std::byte* data, int64_t i) { return static_cast<uint8_t>(data[i]); }
int8_t signed_at(const std::byte* data, int64_t i) { return static_cast<int8_t>(data[i]); }

template <typename Word>
Word load(const std::byte* data) {
  Word word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

float half_at(const std::byte* data) { return f16_to_f32(load<uint16_t>(data)); }

void q4_0(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (int i = 0; i < 16; ++i) {
    const int q = byte_at(b, 2 + i);
    out[i] = d * static_cast<float>((q & 15) - 8);
    out[i + 16] = d * static_cast<float>((q >> 4) - 8);
  }
}

void q4_1(const std::byte* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int i = 0; i < 16; ++i) {
    const int q = byte_at(b, 4 + i);
    out[i] = d * static_cast<float>(q & 15) + m;
    out[i + 16] = d * static_cast<float>(q >> 4) + m;
  }
}

// The fifth bits of a block's 32 values are one word.
void q5_0(const std::byte* b, float* out) {
  const float d = half_at(b);
  const uint32_t high = load<uint32_t>(b + 2);
  for (int i = 0; i < 16; ++i) {
    const int q = byte_at(b, 6 + i);
    out[i] = d * static_cast<float>(((q & 15) | static_cast<int>(high >> i & 1) << 4) - 16);
    out[i + 16] = d * static_cast<float>(((q >> 4) | static_cast<int>(high >> (i + 16) & 1) << 4) - 16);
  }
}

void q5_1(const std::byte* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  const uint32_t high = load<uint32_t>(b + 4);
  for (int i = 0; i < 16; ++i) {
    const int q = byte_at(b, 8 + i);
    out[i] = d * static_cast<float>((q & 15) | static_cast<int>(high >> i & 1) << 4) + m;
    out[i + 16] = d * static_cast<float>((q >> 4) | static_cast<int>(high >> (i + 16) & 1) << 4) + m;
  }
}

void q8_0(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(signed_at(b, 2 + i));
}

// 16 groups of 16 values, each with a 4-bit scale and a 4-bit minimum. A byte holds 2 bits of four values
// that are 32 apart.
void q2_k(const std::byte* b, float* out) {
  const std::byte* scales = b;
  const std::byte* quants = b + 16;
  const float d = half_at(b + 80), m = half_at(b + 82);
  for (int i = 0; i < kSuper; ++i) {
    const int group = i / 16, scale = byte_at(scales, group);
    const int q = byte_at(quants, i / 128 * 32 + i % 32) >> (2 * (i / 32 % 4)) & 3;
    out[i] = d * static_cast<float>(scale & 15) * static_cast<float>(q) - m * static_cast<float>(scale >> 4);
  }
}

// The 16 scales have 6 bits: the low four in bytes 0 … 7, the high two in bytes 8 … 11.
void q3_k(const std::byte* b, float* out) {
  const std::byte* mask = b;
  const std::byte* quants = b + 32;
  const std::byte* packed = b + 96;
  const float d = half_at(b + 108);
  for (int group = 0; group < 16; ++group) {
    const int low = group < 8 ? byte_at(packed, group) & 15 : byte_at(packed, group - 8) >> 4;
    const int high = byte_at(packed, 8 + group % 4) >> (2 * (group / 4)) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (int i = 16 * group; i < 16 * group + 16; ++i) {
      const int q = byte_at(quants, i / 128 * 32 + i % 32) >> (2 * (i / 32 % 4)) & 3;
      const int bit = byte_at(mask, i % 32) >> (i / 32) & 1;
      out[i] = scale * static_cast<float>(q - (bit != 0 ? 0 : 4));
    }
  }
}

struct ScaleAndMin {
  float scale, min;
};

// The 8 scales and minima of Q4_K and Q5_K have 6 bits each, in 12 bytes.
ScaleAndMin scale_and_min(const std::byte* packed, int group) {
  if (group < 4) {
    return {static_cast<float>(byte_at(packed, group) & 63),
            static_cast<float>(byte_at(packed, group + 4) & 63)};
  }
  const int low = byte_at(packed, group + 4);
  return {static_cast<float>((low & 15) | byte_at(packed, group - 4) >> 6 << 4),
          static_cast<float>(low >> 4 | byte_at(packed, group) >> 6 << 4)};
}

void q4_k(const std::byte* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  const std::byte* quants = b + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMin s = scale_and_min(b + 4, group);
    const float scale = d * s.scale, min = m * s.min;
    for (int i = 0; i < 32; ++i) {
      const int q = byte_at(quants, group / 2 * 32 + i) >> (4 * (group % 2)) & 15;
      out[32 * group + i] = scale * static_cast<float>(q) - min;
    }
  }
}

void q5_k(const std::byte* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  const std::byte* high = b + 16;
  const std::byte* quants = b + 48;
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMin s = scale_and_min(b + 4, group);
    const float scale = d * s.scale, min = m * s.min;
    for (int i = 0; i < 32; ++i) {
      const int q = (byte_at(quants, group / 2 * 32 + i) >> (4 * (group % 2)) & 15) |
                    (byte_at(high, i) >> group & 1) << 4;
      out[32 * group + i] = scale * static_cast<float>(q) - min;
    }
  }
}

// Halves of 128 values: the low four bits in 64 bytes, values 64 apart in one; the high two in 32 bytes,
// values 32 apart in one.
void q6_k(const std::byte* b, float* out) {
  const std::byte* scales = b + 192;
  const float d = half_at(b + 208);
  for (int i = 0; i < kSuper; ++i) {
    const int half = i / 128, j = i % 128;
    const int low = byte_at(b, 64 * half + j % 64) >> (4 * (j / 64)) & 15;
    const int high = byte_at(b, 128 + 32 * half + j % 32) >> (2 * (j / 32)) & 3;
    out[i] = d * static_cast<float>(signed_at(scales, i / 16)) * static_cast<float>((low | high << 4) - 32);
  }
}

void iq4_nl(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (int i = 0; i < 16; ++i) {
    const unsigned q = byte_at(b, 2 + i);
    out[i] = d * kLevels[q & 15];
    out[i + 16] = d * kLevels[q >> 4];
  }
}

void iq4_xs(const std::byte* b, float* out) {
  const float d = half_at(b);
  const int high = load<uint16_t>(b + 2);
  for (int group = 0; group < 8; ++group) {
    const int low = byte_at(b, 4 + group / 2) >> (4 * (group % 2)) & 15;
    const float scale = d * static_cast<float>((low | (high >> (2 * group) & 3) << 4) - 32);
    for (int i = 0; i < 16; ++i) {
      const unsigned q = byte_at(b, 8 + 16 * group + i);
      out[32 * group + i] = scale * kLevels[q & 15];
      out[32 * group + i + 16] = scale * kLevels[q >> 4];
    }
  }
}

using Decoder = void (*)(const std::byte* block, float* out);

Decoder decoder(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0:
      return q4_0;
    case GgmlType::kQ4_1:
      return q4_1;
    case GgmlType::kQ5_0:
      return q5_0;
    case GgmlType::kQ5_1:
      return q5_1;
    case GgmlType::kQ8_0:
      return q8_0;
    case GgmlType::kQ2_K:
      return q2_k;
    case GgmlType::kQ3_K:
      return q3_k;
    case GgmlType::kQ4_K:
      return q4_k;
    case GgmlType::kQ5_K:
      return q5_k;
    case GgmlType::kQ6_K:
      return q6_k;
    case GgmlType::kIQ4_NL:
      return iq4_nl;
    case GgmlType::kIQ4_XS:
      return iq4_xs;
    case GgmlType::kF32:
      return [](const std::byte* b, float* out) { *out = load<float>(b); };
    case GgmlType::kF16:
      return [](const std::byte* b, float* out) { *out = half_at(b); };
    case GgmlType::kBF16:
      return [](const std::byte* b, float* out) { *out = bf16_to_f32(load<uint16_t>(b)); };
  }
  return nullptr;
}

}  // namespace

const GgmlTypeInfo* find_ggml_type(uint32_t number) {
  const auto it = std::find_if(kTypes.begin(), kTypes.end(),
                               [&](const GgmlTypeInfo& info) { return info.number == number; });
  return it == kTypes.end() ? nullptr : &*it;
}

const GgmlTypeInfo& ggml_type_info(GgmlType type) { return *find_ggml_type(static_cast<uint32_t>(type)); }

std::string readable_ggml_types() {
  std::string out;
  for (const GgmlTypeInfo& info : kTypes) {
    if (info.readable) out += (out.empty() ? "" : ", ") + std::string(info.name);
  }
  return out;
}

void dequantize(GgmlType type, const std::byte* blocks, std::span<float> out) {
  const GgmlTypeInfo& info = ggml_type_info(type);
  const Decoder decode = decoder(type);
  float* end = out.data() + out.size();
  for (float* at = out.data(); at != end; at += info.block_values, blocks += info.block_bytes)
    decode(blocks, at);
}

}  // namespace dovetail::convert
