// preprocessor_config.json against what a package will do with pictures.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/plan.h"

namespace dovetail::convert {

// A checkpoint's picture processor (preprocessor_config.json, or "image_processor" of processor_config.json)
// must prepare pictures as the package's manifest and adapter do: size, crop, filter, scale, mean and
// standard deviation. Throws Error kMismatch with every value that differs. A checkpoint without the file
// gives a note.
void check_preprocessor(const models::ModelPlan& plan, const std::filesystem::path& checkpoint,
                        std::vector<std::string>& notes);

}  // namespace dovetail::convert
