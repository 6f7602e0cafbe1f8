// The public conformance corpus: every verdict at level must and should, every vector of both identifiers.
#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "contract/match.h"

namespace dovetail::contract {
namespace {

Json corpus(const std::string& file) {
  return Json::parse(read_file(std::string(DOVETAIL_TEST_DATA "/conformance/") + file));
}

std::string decode_base64(const std::string& text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    if ((count += 6) >= 8) bytes += static_cast<char>((bits >> (count -= 8)) & 0xff);
  }
  return bytes;
}

std::set<std::string, std::less<>> functions_of(const Json& test) {
  std::set<std::string, std::less<>> names;
  if (test.contains("functions")) {
    for (const Json& name : test["functions"]) names.insert(name.get<std::string>());
    return names;
  }
  names = {"prefill",          "decode", "batch_prefill", "batch_decode", "create_tir_paged_kv_cache",
           "create_rnn_state", "embed",  "image_embed"};
  if (!test.contains("metadata") || !test["metadata"].is_object()) return names;
  const Json::json_pointer programs("/artifact/programs");
  if (!test["metadata"].value("artifact", Json()).is_object() || !test["metadata"].contains(programs))
    return names;
  for (const Json& program : test["metadata"][programs]) {
    for (const char* const map : {"exports", "adapters"}) {
      if (!program.is_object() || !program.contains(map)) continue;
      for (const Json& name : program[map]) {
        if (name.is_string()) names.insert(name.get<std::string>());
      }
    }
  }
  return names;
}

// Loads like a frontend does. Empty: accepted.
std::vector<Problem> load(const Json& test) {
  const std::string metadata =
      test.contains("metadata_raw") ? test["metadata_raw"].get<std::string>() : test["metadata"].dump();
  try {
    const LibraryMetadata library = parse_metadata(metadata);
    std::string sidecar;
    if (test.contains("sidecar_base64")) {
      sidecar = decode_base64(test["sidecar_base64"].get<std::string>());
    } else if (test["sidecar"].is_null()) {
      return {};
    } else {
      sidecar = test["sidecar"].is_string() ? test["sidecar"].get<std::string>() : test["sidecar"].dump();
    }
    MatchContext context;
    add_chat_config(context, test["chat_config"].dump());
    Json device{{"features", {"shader-f16", "subgroups"}}, {"maxStorageBufferBindingSize", 1073741824}};
    if (test.contains("device")) device.update(test["device"]);
    add_device(context, device.dump(), "device");
    context.functions = functions_of(test);
    return match(parse_package_manifest(sidecar), library, context);
  } catch (const Error& error) {
    return error.problems();
  }
}

TEST(Corpus, VerdictsAgree) {
  const Json document = corpus("manifest-cases.json");
  ASSERT_EQ(document["cases"].size(), 287u);
  std::map<std::string, int> agreed;
  for (const Json& test : document["cases"]) {
    const std::string name = test["name"].get<std::string>();
    const std::vector<Problem> problems = load(test);
    for (const Problem& problem : problems) EXPECT_FALSE(problem.message.empty()) << name;
    const std::string verdict = problems.empty() ? "accept" : "reject";
    const std::string reason = problems.empty() ? "" : problems.front().text();
    const std::string level = test["level"].get<std::string>();
    if (verdict == test["expect"]) {
      ++agreed[level];
    } else if (level == "may") {
      std::cout << "may differs: " << name << ": " << verdict << ": " << reason << "\n";
    } else {
      ADD_FAILURE() << name << " (" << level << "): " << verdict << ": " << reason << "\n" << test["why"];
    }
  }
  EXPECT_EQ(agreed["must"], 212);
  EXPECT_EQ(agreed["should"], 42);
  std::cout << "may: " << agreed["may"] << " of 33 as recommended\n";
}

TEST(Corpus, InterfaceIdVectors) {
  const Json document = corpus("vectors/interface_id.json");
  ASSERT_EQ(document["vectors"].size(), 12u);
  for (const Json& vector : document["vectors"]) {
    const Tasks tasks = parse_tasks(vector["tasks"]);
    Json wrapped = Json::object();
    wrapped["tasks"] = canonical_tasks(tasks);
    EXPECT_EQ(canonical_json(wrapped), vector["canonical_json"]) << vector["name"];
    EXPECT_EQ(interface_id(tasks), vector["interface_id"]) << vector["name"];
  }
}

TEST(Corpus, ParameterSchemaIdVectors) {
  const Json document = corpus("vectors/parameter_schema_id.json");
  ASSERT_EQ(document["vectors"].size(), 4u);
  for (const Json& vector : document["vectors"]) {
    Json metadata = Json::object();
    metadata["params"] = vector["params"];
    const LibraryMetadata library = parse_metadata(metadata.dump());
    EXPECT_EQ(canonical_parameters(*library.params), vector["canonical_json"]);
    EXPECT_EQ(parameter_schema_id(*library.params), vector["parameter_schema_id"]);
  }
}

}  // namespace
}  // namespace dovetail::contract
