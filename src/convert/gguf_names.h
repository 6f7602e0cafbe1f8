// The names that llama.cpp gives to tensors, and those of the same tensors in a Hugging Face checkpoint.
// Source: https://pypi.org/project/gguf (tensor_mapping.py).
#pragma once

#include <string>
#include <string_view>

namespace dovetail::convert {

enum class GgufArchitecture { kLlama, kGemma3, kGemma4 };

// A tensor of the text model; a name that is not known stays as it is.
std::string gguf_text_name(GgufArchitecture architecture, std::string_view name);

enum class GgufProjector { kLlava, kGemma3, kGemma4 };

// A tensor of an encoder file ("mmproj"). `swapped`: the file calls the first matrix of the vision tower's
// feed-forward networks "ffn_down", as those that were made for LLaVA do.
std::string gguf_encoder_name(GgufProjector projector, std::string_view name, bool swapped);

}  // namespace dovetail::convert
