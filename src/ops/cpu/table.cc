#include "ops/cpu/grouped.h"
#include "ops/cpu/kernels.h"

namespace dovetail::ops::DOVETAIL_LEVEL {

#if defined(DOVETAIL_WIDE)
constexpr Level kLevel = Level::kAvx512;
#else
constexpr Level kLevel = Level::kAvx2;
#endif

}  // namespace dovetail::ops::DOVETAIL_LEVEL

namespace level = dovetail::ops::DOVETAIL_LEVEL;

extern "C" const dovetail::ops::KernelTable DOVETAIL_TABLE __attribute__((visibility("hidden"))) = {
    .level = level::kLevel,
    .unit_groups = level::kInterleave,
    .quantized_row_bytes = level::quantized_row_bytes,
    .quantize_row = level::quantize_row,
    .matmul_int8_scratch = level::matmul_int8_scratch,
    .matmul_int8 = level::matmul_int8,
    .matmul_f32_scratch = level::matmul_f32_scratch,
    .matmul_f32 = level::matmul_f32,
    .dequantize_row = level::dequantize_row,
    .rms_norm = level::rms_norm,
    .layer_norm = level::layer_norm,
    .gelu_tanh_gate = level::gelu_tanh_gate,
    .gelu_tanh_mul = level::gelu_tanh_mul,
    .silu = level::silu,
    .silu_gate = level::silu_gate,
    .activate = level::activate,
    .add_bias = level::add_bias,
    .glu = level::glu,
    .add_scaled = level::add_scaled,
    .scale = level::scale,
    .clamp = level::clamp,
    .softcap = level::softcap,
    .rope = level::rope,
    .store_kv = level::store_kv,
    .attention_scratch = level::attention_scratch,
    .attention = level::attention,
    .local_relative_attention = level::local_relative_attention,
    .depthwise_causal_conv = level::depthwise_causal_conv,
};
