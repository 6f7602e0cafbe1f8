// The documents of the contract, from any bytes. The first byte chooses the document; whatever is accepted
// must survive being written and read again, and its canonical form must be stable.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "contract/match.h"

using namespace dovetail;
using namespace dovetail::contract;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_problems(const std::vector<Problem>& problems) {
  for (const Problem& problem : problems) require(!problem.text().empty());
}

void run_manifest(std::string_view bytes) {
  const PackageManifest manifest = parse_package_manifest(bytes);
  require(parse_package_manifest(to_json(manifest).dump()) == manifest);
  require(interface_id(manifest.tasks) == manifest.interface_id);
  check_problems(match(manifest, LibraryMetadata()));
}

void run_tasks(std::string_view bytes) {
  const Tasks tasks = parse_tasks(parse_json(bytes, "tasks"));
  require(parse_tasks(to_json(tasks)) == tasks);
  require(parse_tasks(canonical_tasks(tasks)) == tasks);
  PackageManifest manifest;
  manifest.tasks = tasks;
  manifest.interface_id = interface_id(tasks);
  LibraryMetadata library;
  library.artifact.emplace();
  library.artifact->programs = {{"generation", Program{.kind = "token_generation"}}};
  MatchContext context;
  context.vocab_size = 1000;
  context.functions.emplace();
  check_problems(match(manifest, library, context));
}

void run_metadata(std::string_view bytes) {
  const LibraryMetadata library = parse_metadata(bytes);
  if (library.artifact) require(parse_artifact(to_json(*library.artifact)) == *library.artifact);
  if (library.params) parameter_schema_id(*library.params);
  MatchContext context;
  context.named_dimensions = {{"vocab_size", 1000}};
  context.device = Device{std::set<std::string>{"shader-f16"}, 1 << 20};
  check_problems(match(PackageManifest(), library, context));
  check_problems(review(library, context));
}

void run_canonical(std::string_view bytes) {
  const std::string canonical = canonical_json(parse_json(bytes, "json"));
  require(canonical_json(parse_json(canonical, "canonical")) == canonical);
}

void run_context(std::string_view bytes) {
  MatchContext context;
  add_chat_config(context, bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 5) {
      case 0:
        run_manifest(bytes);
        break;
      case 1:
        run_tasks(bytes);
        break;
      case 2:
        run_metadata(bytes);
        break;
      case 3:
        run_canonical(bytes);
        break;
      case 4:
        run_context(bytes);
        break;
    }
  } catch (const Error& error) {
    check_problems(error.problems());
  }
  return 0;
}
