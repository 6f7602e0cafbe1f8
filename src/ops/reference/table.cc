#include "ops/reference/reference.h"

using namespace dovetail::ops;  // NOLINT: the table lies outside the namespaces

extern "C" const KernelTable dovetail_ops_table_reference = {
    .level = Level::kReference,
    .unit_groups = reference::kUnitGroups,
    .quantized_row_bytes = reference::quantized_row_bytes,
    .quantize_row = reference::quantize_row,
    .matmul_int8_scratch = reference::no_int8_scratch,
    .matmul_int8 = reference::matmul_int8,
    .matmul_f32_scratch = reference::no_matmul_scratch,
    .matmul_f32 = reference::matmul_f32,
    .dequantize_row = reference::dequantize_row,
    .rms_norm = reference::rms_norm,
    .layer_norm = reference::layer_norm,
    .gelu_tanh_gate = reference::gelu_tanh_gate,
    .gelu_tanh_mul = reference::gelu_tanh_mul,
    .silu = reference::silu,
    .silu_gate = reference::silu_gate,
    .activate = reference::activate,
    .add_bias = reference::add_bias,
    .glu = reference::glu,
    .add_scaled = reference::add_scaled,
    .scale = reference::scale,
    .clamp = reference::clamp,
    .softcap = reference::softcap,
    .rope = reference::rope,
    .store_kv = reference::store_kv,
    .attention_scratch = reference::attention_scratch,
    .attention = reference::attention,
    .local_relative_attention = reference::local_relative_attention,
    .depthwise_causal_conv = reference::depthwise_causal_conv,
};
