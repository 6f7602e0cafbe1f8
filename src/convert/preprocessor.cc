#include "convert/preprocessor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "package/fields.h"

namespace dovetail::convert {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPreprocessor = "preprocessor_config.json";
constexpr const char* kProcessor = "processor_config.json";
constexpr int64_t kMaxBytes = int64_t{16} << 20;
constexpr const char* kFilters[] = {"nearest", "Lanczos", "bilinear", "bicubic", "box", "Hamming"};

std::string number_text(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80);
}

struct Size {
  int64_t height = 0;
  int64_t width = 0;
};

std::string size_text(int64_t height, int64_t width) {
  return std::to_string(height) + " × " + std::to_string(width);
}

class Checker {
 public:
  Checker(const models::PicturePreparation& picture, const contract::ImageDecode& processor,
          std::string source, std::string path, const Json& document)
      : picture_(picture),
        processor_(processor),
        source_(std::move(source)),
        path_(std::move(path)),
        document_(document) {}

  void run() {
    if (!document_.is_object()) {
      problem("", "wrong type", "an object", std::string(package::json_type_name(document_)));
    } else {
      for (const char* step : {"do_resize", "do_rescale", "do_normalize"}) flag(step, true);
      const bool crop = processor_.resize.mode == contract::ResizeMode::kCenterCrop;
      flag("do_center_crop", crop);
      flag("do_pan_and_scan", false);
      if (crop) {
        check_crop();
      } else {
        check_stretch();
      }
      check_filter();
      check_values();
    }
    if (!problems_.empty()) throw Error(ErrorCode::kMismatch, std::move(problems_));
  }

 private:
  void problem(const std::string& field, std::string message, std::string expected, std::string actual) {
    problems_.push_back(
        {.message = std::move(message),
         .source = source_,
         .field = path_.empty() || field.empty() ? path_ + field : path_ + "." + field,
         .expected = std::move(expected),
         .actual = std::move(actual),
         .hint = "the model was trained with another preparation of pictures than this version has for its "
                 "architecture"});
  }

  void differs(const std::string& field, std::string expected, std::string actual) {
    problem(field, "the checkpoint prepares pictures otherwise than a package can", std::move(expected),
            std::move(actual));
  }

  const Json* find(const char* name) const {
    const auto found = document_.find(name);
    return found == document_.end() || found->is_null() ? nullptr : &*found;
  }

  // Absent steps are as the architecture's own processor has them.
  void flag(const char* name, bool wanted) {
    const Json* value = find(name);
    if (value != nullptr && *value != wanted) differs(name, wanted ? "true" : "false", number_text(*value));
  }

  static std::optional<int64_t> integer(const Json& object, const char* name) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_number_integer()) return std::nullopt;
    return found->get<int64_t>();
  }

  // {"height": h, "width": w}, or a number for both.
  static std::optional<Size> size_of(const Json& value) {
    if (value.is_number_integer()) return Size{value.get<int64_t>(), value.get<int64_t>()};
    if (!value.is_object()) return std::nullopt;
    const auto height = integer(value, "height"), width = integer(value, "width");
    if (!height || !width) return std::nullopt;
    return Size{*height, *width};
  }

  void exact_size(const char* name) {
    const Json* value = find(name);
    if (value == nullptr) return;
    const std::optional<Size> size = size_of(*value);
    if (!size || size->height != processor_.resize.height || size->width != processor_.resize.width)
      differs(name, size_text(processor_.resize.height, processor_.resize.width), number_text(*value));
  }

  void check_stretch() { exact_size("size"); }

  // The shorter edge becomes as long as the square that is then cut out.
  void check_crop() {
    exact_size("crop_size");
    const Json* value = find("size");
    if (value == nullptr) return;
    const std::optional<int64_t> edge = value->is_number_integer() ? value->get<int64_t>()
                                        : value->is_object()       ? integer(*value, "shortest_edge")
                                                                   : std::nullopt;
    const int64_t wanted = std::max(processor_.resize.height, processor_.resize.width);
    if (edge != wanted) differs("size", "shortest_edge " + std::to_string(wanted), number_text(*value));
  }

  void check_filter() {
    const Json* value = find("resample");
    if (value == nullptr || *value == picture_.resample) return;
    const auto name = [](int64_t id) {
      const std::string text = std::to_string(id);
      return id >= 0 && id < 6 ? text + " (" + kFilters[id] + ")" : text;
    };
    differs("resample", name(picture_.resample),
            value->is_number_integer() ? name(value->get<int64_t>()) : number_text(*value));
  }

  void check_values() {
    if (const Json* value = find("rescale_factor")) {
      if (!value->is_number() || std::abs(value->get<double>() * 255 - 1) > 1e-6)
        differs("rescale_factor", "0.00392156862745098 (1 / 255)", number_text(*value));
    }
    three("image_mean", picture_.mean);
    three("image_std", picture_.deviation);
  }

  void three(const char* name, const std::array<float, 3>& wanted) {
    const Json* value = find(name);
    if (value == nullptr) return;
    bool same = value->is_array() && value->size() == 3;
    for (size_t i = 0; same && i < 3; ++i) {
      const Json& number = (*value)[i];
      same = number.is_number() && std::abs(number.get<double>() - static_cast<double>(wanted[i])) <= 1e-6;
    }
    if (same) return;
    char text[64];
    std::snprintf(text, sizeof text, "[%.8g, %.8g, %.8g]", static_cast<double>(wanted[0]),
                  static_cast<double>(wanted[1]), static_cast<double>(wanted[2]));
    differs(name, text, number_text(*value));
  }

  const models::PicturePreparation& picture_;
  const contract::ImageDecode& processor_;
  std::string source_;
  std::string path_;
  const Json& document_;
  std::vector<Problem> problems_;
};

const contract::ImageDecode* find_processor(const contract::Tasks& tasks) {
  for (const auto& [task_name, task] : tasks) {
    for (const auto& [name, input] : task.inputs) {
      if (const auto* image = std::get_if<contract::ImageDecode>(&input.processor)) return image;
    }
  }
  return nullptr;
}

}  // namespace

void check_preprocessor(const models::ModelPlan& plan, const fs::path& checkpoint,
                        std::vector<std::string>& notes) {
  const contract::ImageDecode* processor = find_processor(plan.tasks);
  if (!plan.picture || processor == nullptr) return;
  std::error_code ec;
  if (fs::exists(checkpoint / kPreprocessor, ec)) {
    const Json document = parse_json(read_file(checkpoint / kPreprocessor, kMaxBytes), kPreprocessor);
    Checker(*plan.picture, *processor, kPreprocessor, "", document).run();
    return;
  }
  if (fs::exists(checkpoint / kProcessor, ec)) {
    const Json document = parse_json(read_file(checkpoint / kProcessor, kMaxBytes), kProcessor);
    if (document.is_object() && document.contains("image_processor")) {
      Checker(*plan.picture, *processor, kProcessor, "image_processor", document["image_processor"]).run();
      return;
    }
  }
  notes.push_back(std::string("no ") + kPreprocessor +
                  ": pictures are prepared as the architecture's own processor does");
}

}  // namespace dovetail::convert
