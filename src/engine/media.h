// From a file's bytes to what an adapter of a model takes. Nothing is computed and no weight is read, so a
// frontend can refuse what can't be used before it makes an Engine.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/manifest.h"
#include "engine/conversation.h"
#include "library/model.h"

namespace dovetail::engine {

// Decodes an audio file for the package's audio input. `source` names it in errors. Throws Error kUnsupported
// when the package takes no audio, and what media::decode_audio throws.
std::shared_ptr<const Media> read_audio(const library::Model& model, std::string_view bytes,
                                        const std::string& source);
// Decodes and resizes a picture file for the package's picture input, with the filter that belongs to the
// input's resize mode (media::usual_filter). Throws Error kUnsupported when the package takes no pictures,
// and what media::decode_image throws.
std::shared_ptr<const Media> read_image(const library::Model& model, std::string_view bytes,
                                        const std::string& source);

// Samples that are already mono at the input's rate; as many as the input takes, and finite. Throws what
// media::canonical_audio throws.
std::shared_ptr<const Media> audio_from_samples(const library::Model& model, std::span<const float> samples);
// RGB pixels [height, width, 3] that already have the input's size. Throws Error kMismatch for another number
// of bytes.
std::shared_ptr<const Media> image_from_pixels(const library::Model& model, std::vector<uint8_t> pixels);

// SHA-256 over the input's name, everything its processor declares, and all of the decoded content: equal
// bytes of another shape are another medium.
std::string media_hash(std::string_view input, const contract::AudioDecode& processor,
                       std::span<const float> samples);
std::string media_hash(std::string_view input, const contract::ImageDecode& processor,
                       std::span<const uint8_t> pixels);

}  // namespace dovetail::engine
