#include "engine/media.h"

#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "media/audio.h"
#include "media/image.h"

namespace dovetail::engine {
namespace {

// The media input of a processor type.
template <class Processor>
const std::pair<std::string, contract::Input>& find_input(const library::Model& model,
                                                          const std::string& kind,
                                                          const std::string& source) {
  std::string names;
  for (const auto& input : model.task.inputs) {
    if (std::holds_alternative<Processor>(input.second.processor)) return input;
    names += (names.empty() ? "" : ", ") + input.first;
  }
  throw Error(ErrorCode::kUnsupported,
              Problem{.message = "this package does not take " + kind,
                      .source = source,
                      .expected = names,
                      .hint = model.manifest ? "'dovetail inspect' lists what a package takes"
                                             : "a package without " + std::string(contract::kManifestFile) +
                                                   " takes text only: convert the checkpoint "
                                                   "with a manifest"});
}

const auto& audio_input(const library::Model& model, const std::string& source) {
  return find_input<contract::AudioDecode>(model, "audio", source);
}

const auto& image_input(const library::Model& model, const std::string& source) {
  return find_input<contract::ImageDecode>(model, "pictures", source);
}

[[noreturn]] void refuse_processor(const char* what, std::string expected, std::string actual) {
  throw Error(ErrorCode::kUnsupported,
              Problem{.message = std::string("the package asks for an impossible ") + what,
                      .source = std::string(contract::kManifestFile),
                      .expected = std::move(expected),
                      .actual = std::move(actual)});
}

media::AudioTarget audio_target(const contract::AudioDecode& processor) {
  if (processor.sample_rate_hz > std::numeric_limits<int32_t>::max()) {
    refuse_processor("sample rate", "at most " + std::to_string(std::numeric_limits<int32_t>::max()),
                     std::to_string(processor.sample_rate_hz));
  }
  return {.sample_rate_hz = static_cast<int32_t>(processor.sample_rate_hz),
          .min_samples = processor.min_samples,
          .max_samples = processor.max_samples};
}

// `description` is a medium that lacks what its samples say.
std::shared_ptr<const Media> make_audio(const library::Model& model,
                                        const std::pair<std::string, contract::Input>& input,
                                        std::vector<float> samples, Media description) {
  const auto& processor = std::get<contract::AudioDecode>(input.second.processor);
  auto media = std::make_shared<Media>(std::move(description));
  media->input = input.first;
  media->adapter = *input.second.adapter;
  media->sha256 = media_hash(input.first, processor, samples);
  media->seconds = static_cast<double>(samples.size()) / static_cast<double>(processor.sample_rate_hz);
  media->rows = model.program.adapter_rows(media->adapter, static_cast<int64_t>(samples.size()));
  media->samples = std::move(samples);
  return media;
}

// The same for pixels, which have the size that the processor declares.
std::shared_ptr<const Media> make_image(const std::pair<std::string, contract::Input>& input,
                                        std::vector<uint8_t> pixels, Media description) {
  const auto& processor = std::get<contract::ImageDecode>(input.second.processor);
  auto media = std::make_shared<Media>(std::move(description));
  media->input = input.first;
  media->adapter = *input.second.adapter;
  media->sha256 = media_hash(input.first, processor, pixels);
  media->height = processor.resize.height;
  media->width = processor.resize.width;
  media->rows = processor.num_embeddings;
  media->pixels = std::move(pixels);
  return media;
}

std::string size_text(int64_t width, int64_t height) {
  return std::to_string(width) + " x " + std::to_string(height);
}

// How the upright picture became the adapter's, so that people see what a crop took away.
std::string resize_note(const media::ImageSource& source, const contract::Resize& resize) {
  const media::ResizePlan plan =
      media::plan_resize(resize.mode, source.width, source.height, resize.width, resize.height);
  const std::string target = size_text(resize.width, resize.height);
  if (plan.width != resize.width || plan.height != resize.height) {
    return "scaled to " + size_text(plan.width, plan.height) + ", of which the middle " + target + " is kept";
  }
  return (resize.mode == contract::ResizeMode::kStretch ? "stretched to " : "scaled to ") + target;
}

}  // namespace

std::string media_hash(std::string_view input, const contract::AudioDecode& processor,
                       std::span<const float> samples) {
  Hasher hasher(Hasher::Kind::kSha256);
  const std::array<int64_t, 5> header = {processor.sample_rate_hz, processor.channels, processor.min_samples,
                                         processor.max_samples, static_cast<int64_t>(samples.size())};
  hasher.update(input);
  hasher.update(std::string_view("\0pcm_f32\0", 9));
  hasher.update(std::as_bytes(std::span(header)));
  hasher.update(std::as_bytes(samples));
  return hasher.hex();
}

std::string media_hash(std::string_view input, const contract::ImageDecode& processor,
                       std::span<const uint8_t> pixels) {
  Hasher hasher(Hasher::Kind::kSha256);
  const std::array<int64_t, 4> header = {static_cast<int64_t>(processor.resize.mode), processor.resize.height,
                                         processor.resize.width, processor.num_embeddings};
  hasher.update(input);
  hasher.update(std::string_view("\0rgb_u8\0", 8));
  hasher.update(std::as_bytes(std::span(header)));
  hasher.update(std::as_bytes(pixels));
  return hasher.hex();
}

std::shared_ptr<const Media> read_audio(const library::Model& model, std::string_view bytes,
                                        const std::string& source) {
  const auto& input = audio_input(model, source);
  const media::AudioTarget target = audio_target(std::get<contract::AudioDecode>(input.second.processor));
  media::Audio decoded = media::decode_audio(std::as_bytes(std::span(bytes)), target, source);
  Media description{.source = source,
                    .format = std::move(decoded.source.format),
                    .warnings = std::move(decoded.source.notes)};
  if (decoded.source.sample_rate_hz != target.sample_rate_hz) {
    description.notes.push_back("resampled from " + std::to_string(decoded.source.sample_rate_hz) + " to " +
                                std::to_string(target.sample_rate_hz) + " Hz");
  }
  return make_audio(model, input, std::move(decoded.samples), std::move(description));
}

std::shared_ptr<const Media> read_image(const library::Model& model, std::string_view bytes,
                                        const std::string& source) {
  const auto& input = image_input(model, source);
  const contract::Resize& resize = std::get<contract::ImageDecode>(input.second.processor).resize;
  if (std::max(resize.width, resize.height) > media::kMaxTargetSide) {
    refuse_processor("picture size", "sides of at most " + std::to_string(media::kMaxTargetSide),
                     size_text(resize.width, resize.height));
  }
  media::Image decoded = media::decode_image(std::as_bytes(std::span(bytes)),
                                             {.mode = resize.mode,
                                              .height = resize.height,
                                              .width = resize.width,
                                              .filter = media::usual_filter(resize.mode)},
                                             source);
  decoded.source.notes.push_back(resize_note(decoded.source, resize));
  return make_image(input, std::move(decoded.pixels),
                    {.source = source,
                     .format = std::move(decoded.source.format),
                     .source_height = decoded.source.height,
                     .source_width = decoded.source.width,
                     .warnings = std::move(decoded.source.omissions),
                     .notes = std::move(decoded.source.notes)});
}

std::shared_ptr<const Media> audio_from_samples(const library::Model& model, std::span<const float> samples) {
  const auto& input = audio_input(model, "");
  const media::AudioTarget target = audio_target(std::get<contract::AudioDecode>(input.second.processor));
  media::Audio checked = media::canonical_audio(samples, target.sample_rate_hz, target, "samples");
  return make_audio(model, input, std::move(checked.samples), {});
}

std::shared_ptr<const Media> image_from_pixels(const library::Model& model, std::vector<uint8_t> pixels) {
  const auto& input = image_input(model, "");
  const contract::Resize& resize = std::get<contract::ImageDecode>(input.second.processor).resize;
  const auto size = static_cast<int64_t>(pixels.size());
  // Divided, because the product of a package's numbers may not fit.
  if (size % 3 != 0 || size / 3 / resize.height != resize.width || size / 3 % resize.height != 0) {
    throw Error(ErrorCode::kMismatch,
                Problem{.message = "a picture of another size than the package's",
                        .expected = size_text(resize.width, resize.height) + " RGB pixels",
                        .actual = std::to_string(size) + " bytes"});
  }
  return make_image(input, std::move(pixels), {});
}

}  // namespace dovetail::engine
