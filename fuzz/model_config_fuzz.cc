// Hostile config.json files: refused with an Error or planned, nothing else.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "models/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail;
  try {
    const Json config = parse_json({reinterpret_cast<const char*>(data), size}, "config.json");
    const models::ModelPlan plan =
        models::plan_model(config, models::find_quantization("q4f16_1"), "config.json");
    (void)plan.artifact(models::Target::kWebGpu);
  } catch (const Error&) {
  }
  return 0;
}
