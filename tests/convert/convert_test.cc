#include "convert/convert.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "checkpoint_fixture.h"
#include "contract/manifest.h"
#include "convert/quantize.h"
#include "package/chat_config.h"
#include "package/content_hashes.h"
#include "package/tensor_cache.h"
#include "package/verify.h"

namespace dovetail::convert {
namespace {
namespace fs = std::filesystem;
using namespace dovetail::testing;
using package::StoredTensor;
using package::TensorCache;

const fs::path kExample = fs::path(DOVETAIL_TEST_DATA) / "../../examples/gemma4-tiny-speech";

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::vector<std::string> files_in(const fs::path& dir) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(dir)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

ConvertOptions options_for(const models::ModelPlan& plan, const fs::path& checkpoint,
                           const fs::path& output) {
  return {.checkpoint = checkpoint, .output = output, .quantization = plan.quantization, .threads = 2};
}

std::string convert_error(const models::ModelPlan& plan, const ConvertOptions& options) {
  try {
    convert_with_plan(plan, Json::object(), options);
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return "accepted";
}

// Also where a matrix has as many rows as the vocabulary, and where the head stores the vocabulary in its
// columns.
TEST(Convert, EveryPackageIsWhole) {
  for (const char* example : {"gemma3-tiny-shapes", "gemma4-tiny-speech", "llava-tiny-shapes"}) {
    for (const models::Quantization& quantization : models::quantizations()) {
      TempDir temp;
      convert({.checkpoint = kExample.parent_path() / example,
               .output = temp / "p",
               .quantization = &quantization,
               .threads = 2});
      const std::vector<Problem> problems = package::verify_package(temp / "p", false).problems;
      EXPECT_TRUE(problems.empty()) << example << " " << quantization.name << ": " << problems.front().text();
    }
  }
}

// The shards that MLC's own tools made from the same checkpoint.
TEST(Convert, BytesAreThoseOfMlc) {
  for (const char* quantization : {"q4f16_1", "q4f32_1", "q0f16"}) {
    TempDir temp;
    const models::ModelPlan plan = make_plan(quantization, llama_tiny_weights());
    ConvertOptions options = options_for(plan, kMlcPackages / "llama_tiny/hf", temp / "p");
    options.rounding = Rounding::kMlc;
    convert_with_plan(plan, Json::object(), options);
    const fs::path mlc = kMlcPackages / "llama_tiny" / quantization;
    if (quantization != std::string("q4f32_1")) {
      // Nothing is float32: the shard and its document are the same file.
      EXPECT_TRUE(read_text(temp / "p/params_shard_0.bin") == read_text(mlc / "params_shard_0.bin"))
          << quantization;
      EXPECT_EQ(read_text(temp / "p/tensor-cache.json"), read_text(mlc / "tensor-cache.json"))
          << quantization;
    }
    const TensorCache ours = TensorCache::open(temp / "p"), theirs = TensorCache::open(mlc);
    ASSERT_EQ(ours.tensors().size(), theirs.tensors().size());
    for (size_t i = 0; i < ours.tensors().size(); ++i) {
      const StoredTensor& a = ours.tensors()[i];
      const StoredTensor& b = theirs.tensors()[i];
      ASSERT_EQ(a.name, b.name);
      ASSERT_EQ(a.shape, b.shape);
      ASSERT_EQ(a.dtype, b.dtype);
      if (a.dtype != DType::kFloat32) {
        const auto x = ours.bytes(a), y = theirs.bytes(b);
        EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << a.name;
        continue;
      }
      // MLC rounds float32 to bfloat16; here it stays as it is.
      EXPECT_FALSE(a.stored_as_bf16);
      EXPECT_TRUE(b.stored_as_bf16);
      const std::vector<float> x = ours.materialize(a), y = theirs.materialize(b);
      for (size_t k = 0; k < x.size(); ++k)
        ASSERT_EQ(bf16_to_f32(f32_to_bf16(x[k])), y[k]) << a.name << " " << k;
    }
  }
}

TEST(Convert, ChatConfigIsThatOfMlc) {
  TempDir temp;
  const models::ModelPlan plan = make_plan("q4f16_1", llama_tiny_weights());
  const Json config = read_json(kMlcPackages / "llama_tiny/hf/config.json");
  convert_with_plan(plan, config, options_for(plan, kMlcPackages / "llama_tiny/hf", temp / "p"));
  const package::ChatConfig ours = package::read_chat_config(temp / "p");
  const package::ChatConfig theirs = package::read_chat_config(kMlcPackages / "llama_tiny/q4f16_1");
  EXPECT_EQ(ours.active_vocab_size, theirs.active_vocab_size);
  EXPECT_EQ(ours.temperature, 0.6);
  EXPECT_EQ(ours.top_p, 0.9);
  EXPECT_EQ(ours.bos_token_id, 1);
  EXPECT_EQ(ours.eos_token_ids, theirs.eos_token_ids);
  EXPECT_EQ(ours.tokenizer_files, theirs.tokenizer_files);
  EXPECT_EQ(ours.tokenizer_info, theirs.tokenizer_info);
  // The template's own stop tokens, and those of generation_config.json.
  EXPECT_EQ(ours.conv_template.stop_token_ids, (std::vector<int64_t>{128001, 128009, 2}));
}

TEST(Convert, ATopPOfZeroIsTheMostLikelyToken) {
  TempDir temp;
  fs::copy(kMlcPackages / "llama_tiny/hf", temp / "hf");
  Json generation = read_json(temp / "hf/generation_config.json");
  generation["top_p"] = 0;
  write_text(temp / "hf/generation_config.json", generation.dump());
  const models::ModelPlan plan = make_plan("q4f16_1", llama_tiny_weights());
  convert_with_plan(plan, read_json(temp / "hf/config.json"), options_for(plan, temp / "hf", temp / "p"));
  const package::ChatConfig config = package::read_chat_config(temp / "p");
  EXPECT_EQ(config.temperature, 0);
  EXPECT_EQ(config.top_p, 1);
}

TEST(Convert, TheEmbeddedCheckpointGivesAWholePackage) {
  for (const models::Quantization& quantization : models::quantizations()) {
    TempDir temp;
    const ConvertSummary summary =
        convert({.checkpoint = kExample, .output = temp / "p", .quantization = &quantization});
    EXPECT_EQ(files_in(temp.path()), std::vector<std::string>{"p"});
    const TensorCache cache = TensorCache::open(temp / "p");
    EXPECT_EQ(static_cast<int64_t>(cache.tensors().size()), summary.parameters);
    EXPECT_EQ(cache.parameter_bytes(), summary.parameter_bytes);
    for (const StoredTensor& tensor : cache.tensors()) EXPECT_FALSE(tensor.stored_as_bf16);
    const auto manifest = contract::parse_package_manifest(read_text(temp / "p/mlc-model-manifest.json"));
    const Json config = read_json(kExample / "config.json");
    EXPECT_EQ(manifest, models::plan_model(config, quantization, "config.json").manifest());
    const package::ChatConfig chat = package::read_chat_config(temp / "p");
    EXPECT_EQ(chat.conv_template.stop_token_ids, (std::vector<int64_t>{1, 5}));
    EXPECT_EQ(chat.temperature, 0);  // generation_config.json says do_sample: false
    EXPECT_EQ(chat.quantization, quantization.name);
    EXPECT_EQ(read_text(temp / "p/tokenizer.json"), read_text(kExample / "tokenizer.json"));
    int64_t skipped = 0;
    for (const SkippedTensors& part : summary.skipped) skipped += part.tensors;
    EXPECT_EQ(skipped, 16);
    // Every file but the list itself is in the list, with its hash.
    std::vector<std::string> listed{"dovetail-hashes.json"};
    for (const package::FileHash& file :
         package::parse_content_hashes(read_text(temp / "p/dovetail-hashes.json"))) {
      EXPECT_EQ(sha256_hex(read_text(temp / "p" / file.file)), file.sha256) << file.file;
      listed.push_back(file.file);
    }
    std::sort(listed.begin(), listed.end());
    EXPECT_EQ(listed, files_in(temp / "p"));
  }
}

TEST(Convert, ThreadsDoNotChangeBytes) {
  std::string first;
  for (const int threads : {1, 3}) {
    TempDir temp;
    convert({.checkpoint = kExample,
             .output = temp / "p",
             .quantization = &models::find_quantization("q4f16_1"),
             .threads = threads});
    const std::string hashes = read_text(temp / "p/dovetail-hashes.json");
    if (first.empty()) first = hashes;
    EXPECT_EQ(hashes, first);
  }
}

// Widths that are no multiple of a group, weights of several blocks, stacked sources; stored by rows, or by
// columns in the transposed modes. Tables are always stored by rows.
TEST(Convert, EveryQuantizationOfOddShapes) {
  for (const models::Quantization& quantization : models::quantizations()) {
    TempDir temp;
    const std::vector<TestTensor> tensors = {bf16_tensor("a", {5, 48}),      bf16_tensor("b", {7, 100}),
                                             bf16_tensor("c", {3, 1}),       bf16_tensor("d", {1500, 1090}),
                                             bf16_tensor("e", {1501, 1090}), bf16_tensor("t", {6, 100})};
    write_checkpoint(temp / "hf", tensors);
    models::ParameterTree tree(quantization);
    ops::Matrix unused[5];
    tree.matrix(unused[0], "a", 5, 48, models::from("a"));
    tree.matrix(unused[1], "b", 7, 100, models::from("b"));
    tree.matrix(unused[2], "c", 3, 1, models::from("c"));
    tree.matrix(unused[3], "de", 3001, 1090, {.tensors = {"d", "e"}});
    tree.table(unused[4], "t", 6, 100, models::from("t"));
    models::ModelPlan plan = make_plan(quantization.name, {});
    plan.weights = tree.weights();
    plan.parameters = tree.parameters();
    convert_with_plan(plan, Json::object(), options_for(plan, temp / "hf", temp / "p"));
    if (quantization.bits == 0) continue;
    const TensorCache cache = TensorCache::open(temp / "p");
    const auto check = [&](const std::string& name, const TestTensor& tensor, int64_t first_row, int64_t rows,
                           bool transposed) {
      const int64_t cols = tensor.shape[1], size = models::group_size(quantization.bits);
      const int64_t groups = (cols + size - 1) / size,
                    count = groups * models::group_words(quantization.bits);
      const int64_t width = dtype_bytes(quantization.model_dtype);
      const StoredTensor& words = cache.get(name + ".q_weight");
      const StoredTensor& scales = cache.get(name + ".q_scale");
      using Shape = std::vector<int64_t>;
      EXPECT_EQ(words.shape, transposed ? (Shape{count, rows}) : (Shape{rows, count})) << quantization.name;
      EXPECT_EQ(scales.shape, transposed ? (Shape{groups, rows}) : (Shape{rows, groups}))
          << quantization.name;
      std::vector<uint32_t> row_words(static_cast<size_t>(count));
      std::vector<std::byte> row_scales(static_cast<size_t>(groups * width));
      for (int64_t row = 0; row < tensor.shape[0]; ++row) {
        quantize_row({quantization.model_dtype, quantization.bits, transposed}, DType::kBFloat16,
                     reinterpret_cast<const std::byte*>(tensor.bytes.data()) + row * cols * 2, cols,
                     row_words.data(), row_scales.data());
        const auto same = [&](const StoredTensor& stored, const void* expected, int64_t elements,
                              int64_t bytes) {
          for (int64_t i = 0; i < elements; ++i) {
            const int64_t at = transposed ? i * rows + first_row + row : (first_row + row) * elements + i;
            if (std::memcmp(cache.bytes(stored).data() + at * bytes,
                            static_cast<const std::byte*>(expected) + i * bytes,
                            static_cast<size_t>(bytes)) != 0)
              return false;
          }
          return true;
        };
        ASSERT_TRUE(same(words, row_words.data(), count, 4))
            << quantization.name << " " << name << " " << row;
        ASSERT_TRUE(same(scales, row_scales.data(), groups, width))
            << quantization.name << " " << name << " " << row;
      }
    };
    const bool transposed = quantization.transposed;
    check("a", tensors[0], 0, 5, transposed);
    check("b", tensors[1], 0, 7, transposed);
    check("c", tensors[2], 0, 3, transposed);
    check("de", tensors[3], 0, 3001, transposed);
    check("de", tensors[4], 1500, 3001, transposed);
    if (quantization.ends) check("t", tensors[5], 0, 6, false);
  }
}

TEST(Convert, ValuesThatDoNotFitAreNamedInTransposedWeightsToo) {
  TempDir temp;
  TestTensor tensor = bf16_tensor("a", {700, 4000});
  const uint16_t large = f32_to_bf16(1e6f);
  std::memcpy(tensor.bytes.data() + (301 * 4000 + 3333) * 2, &large, 2);
  write_checkpoint(temp / "hf", {tensor});
  models::ModelPlan plan = make_plan("q4f16_0", {});
  models::ParameterTree tree(*plan.quantization);
  ops::Matrix unused;
  tree.matrix(unused, "a", 700, 4000, models::from("a"));
  plan.weights = tree.weights();
  plan.parameters = tree.parameters();
  const std::string text = convert_error(plan, options_for(plan, temp / "hf", temp / "p"));
  EXPECT_HAS(text, "at [301, 3333] does not fit into float16");
}

TEST(Convert, ColumnSlicesOfOneTable) {
  TempDir temp;
  const TestTensor packed = bf16_tensor("packed", {3000, 96 * 5});
  write_checkpoint(temp / "hf", {packed});
  std::vector<models::Weight> weights;
  for (int i = 0; i < 5; ++i) {
    models::Weight weight = weight_from("table." + std::to_string(i) + ".weight", {3000, 96}, {"packed"});
    weight.source.column_begin = 96 * i;
    weight.source.columns = 96 * 5;
    weights.push_back(weight);
  }
  const models::ModelPlan plan = make_plan("q4f16_1", weights);
  convert_with_plan(plan, Json::object(), options_for(plan, temp / "hf", temp / "p"));
  const TensorCache cache = TensorCache::open(temp / "p");
  for (int i = 0; i < 5; ++i) {
    const auto words = cache.bytes(cache.get("table." + std::to_string(i) + ".q_weight"));
    const auto scales = cache.bytes(cache.get("table." + std::to_string(i) + ".q_scale"));
    for (const int64_t row : {0, 1, 1499, 2999}) {
      uint32_t expected[12];
      std::byte scale[6];
      quantize_row({DType::kFloat16, 4}, DType::kBFloat16,
                   reinterpret_cast<const std::byte*>(packed.bytes.data()) + (row * 480 + 96 * i) * 2, 96,
                   expected, scale);
      EXPECT_EQ(std::memcmp(words.data() + row * 48, expected, 48), 0) << i << " " << row;
      EXPECT_EQ(std::memcmp(scales.data() + row * 6, scale, 6), 0) << i << " " << row;
    }
  }
}

TEST(Convert, GeneratedValuesAreWrittenAsTheyAre) {
  TempDir temp;
  write_checkpoint(temp / "hf", {bf16_tensor("a", {4})});
  models::Weight generated{.name = "computed", .shape = {2, 3}};
  generated.source.generate = [](std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = 0.1f * static_cast<float>(i);
  };
  const models::ModelPlan plan = make_plan("q0f32", {generated, weight_from("a", {4}, {"a"})});
  convert_with_plan(plan, Json::object(), options_for(plan, temp / "hf", temp / "p"));
  const TensorCache cache = TensorCache::open(temp / "p");
  EXPECT_EQ(cache.materialize(cache.get("computed")),
            (std::vector<float>{0.0f, 0.1f, 0.2f, 0.1f * 3, 0.4f, 0.5f}));
}

TEST(Convert, RefusesValuesThatAreNotFiniteOrDoNotFit) {
  TempDir temp;
  TestTensor big = bf16_tensor("big", {4, 40}), nan = bf16_tensor("nan", {7}),
             inf = bf16_tensor("inf", {2, 64}), limit = bf16_tensor("limit", {}),
             scale = bf16_tensor("scale", {1});
  const auto put = [](TestTensor& tensor, size_t index, float value) {
    const uint16_t bits = f32_to_bf16(value);
    std::memcpy(tensor.bytes.data() + 2 * index, &bits, 2);
  };
  put(big, 77, 1e6f);
  put(nan, 3, std::numeric_limits<float>::quiet_NaN());
  put(inf, 70, -std::numeric_limits<float>::infinity());
  put(limit, 0, std::numeric_limits<float>::infinity());  // a limit that does not limit is fine
  put(scale, 0, std::numeric_limits<float>::infinity());
  write_checkpoint(temp / "hf", {big, nan, inf, limit, scale});
  const std::vector<models::Weight> weights = {
      weight_from("big", {4, 40}, {"big"}), weight_from("nan", {7}, {"nan"}),
      weight_from("inf", {2, 64}, {"inf"}), weight_from("limit", {}, {"limit"}),
      weight_from("scale", {1}, {"scale"})};
  for (const char* quantization : {"q4f16_1", "q0f16"}) {
    const models::ModelPlan plan = make_plan(quantization, weights);
    const std::string message = convert_error(plan, options_for(plan, temp / "hf", temp / "p"));
    EXPECT_HAS(message, "numeric: ");
    EXPECT_HAS(message, "big: value 999424 at [1, 37] does not fit into float16");
    EXPECT_HAS(message, "model.safetensors: nan: value at [3] is NaN");
    EXPECT_HAS(message, "inf: value at [1, 6] is infinite");
    EXPECT_HAS(message, "scale: value at [0] is infinite");
    EXPECT_EQ(message.find("limit:"), std::string::npos);
    EXPECT_EQ(files_in(temp.path()), std::vector<std::string>{"hf"});
  }
}

// Weights that are put together of several tensors, and read in blocks: the tensor to blame is named, with
// its first such value.
TEST(Convert, BadValuesAreNamedAsTheCheckpointHasThem) {
  TempDir temp;
  TestTensor a = bf16_tensor("a", {2000, 640}), b = bf16_tensor("b", {2000, 640});
  const auto put = [](TestTensor& tensor, size_t row, size_t col, float value) {
    const uint16_t bits = f32_to_bf16(value);
    std::memcpy(tensor.bytes.data() + 2 * (row * 640 + col), &bits, 2);
  };
  for (const size_t row : {size_t{1999}, size_t{1700}, size_t{11}})
    for (const size_t col : {size_t{70}, size_t{639}})
      put(b, row, col, std::numeric_limits<float>::quiet_NaN());
  write_checkpoint(temp / "hf", {a, b});
  for (const char* quantization : {"q4f16_1", "q4f16_0", "q8f16_1", "q0f16"}) {
    models::ModelPlan plan = make_plan(quantization, {});
    models::ParameterTree tree(*plan.quantization);
    ops::Matrix unused;
    tree.matrix(unused, "fused", 4000, 640, {.tensors = {"a", "b"}});
    plan.weights = tree.weights();
    plan.parameters = tree.parameters();
    EXPECT_TRUE(convert_error(plan, options_for(plan, temp / "hf", temp / "p"))
                    .starts_with("numeric: model.safetensors: b: value at [11, 70] is NaN\n"))
        << quantization;
  }
  // The value that 8 bits can't scale, and not one before it that only float16 can't hold.
  put(a, 3, 5, 1e5f);
  put(a, 4, 6, 1e7f);
  write_text(temp / "hf/model.safetensors", safetensors_text({a}));
  for (const auto& [quantization, place] : {std::pair{"q8f16_1", "[4, 6]"}, {"q4f16_1", "[3, 5]"}}) {
    const models::ModelPlan plan = make_plan(quantization, {weight_from("w", {2000, 640}, {"a"})});
    EXPECT_HAS(convert_error(plan, options_for(plan, temp / "hf", temp / "p")), std::string(" at ") + place);
  }
}

// Before the definition's own change of the values, too.
TEST(Convert, BadValuesOfChangedWeightsAreNamed) {
  TempDir temp;
  TestTensor norm = bf16_tensor("norm", {80});
  const uint16_t bits = f32_to_bf16(std::numeric_limits<float>::infinity());
  std::memcpy(norm.bytes.data() + 2 * 70, &bits, 2);
  write_checkpoint(temp / "hf", {norm});
  models::Weight weight = weight_from("w", {80}, {"norm"});
  weight.source.transform = [](std::vector<float>& values) { std::reverse(values.begin(), values.end()); };
  const models::ModelPlan plan = make_plan("q0f16", {weight});
  EXPECT_HAS(convert_error(plan, options_for(plan, temp / "hf", temp / "p")),
             "model.safetensors: norm: value at [70] is infinite");
}

TEST(Convert, RefusesFoldersThatAreNoCheckpoint) {
  TempDir temp;
  const models::Quantization& quantization = models::find_quantization("q4f16_1");
  const auto error = [&](const fs::path& checkpoint) -> std::string {
    try {
      convert({.checkpoint = checkpoint, .output = temp / "p", .quantization = &quantization});
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_HAS(error(temp / "nothing"), "folder does not exist");
  fs::create_directory(temp / "hf");
  EXPECT_HAS(error(temp / "hf"), "config.json: file is missing");
  EXPECT_HAS(error(temp / "hf"), "tokenizer.json: file is missing, and tokenizer.model too");
  write_text(temp / "hf/a.safetensors", "x");
  EXPECT_HAS(error(temp / "hf/a.safetensors"), "give the folder that the file is in");
  write_text(temp / "hf/tokenizer.json", "{}");
  write_text(temp / "hf/config.json", R"({"architectures":["BertModel"]})");
  EXPECT_HAS(error(temp / "hf"), "unknown architecture BertModel");
  EXPECT_HAS(error(temp / "hf"), "Gemma4ForConditionalGeneration");
}

TEST(Convert, TokenizerOfAnotherModel) {
  TempDir temp;
  write_checkpoint(temp / "hf", {bf16_tensor("a", {4})});
  const models::ModelPlan plan = make_plan("q0f16", {weight_from("a", {4}, {"a"})}, 100);
  EXPECT_HAS(convert_error(plan, options_for(plan, temp / "hf", temp / "p")),
             "the tokenizer has more tokens than the model's vocabulary (expected at most 100, got 314)");
}

TEST(Convert, KeepsWhatIsAlreadyThere) {
  TempDir temp;
  fs::create_directory(temp / "p");
  write_text(temp / "p/precious", "x");
  const models::ModelPlan plan = make_plan("q0f16", llama_tiny_weights());
  EXPECT_HAS(convert_error(plan, options_for(plan, kMlcPackages / "llama_tiny/hf", temp / "p")),
             "is not an empty directory");
  EXPECT_EQ(files_in(temp / "p"), std::vector<std::string>{"precious"});
  EXPECT_EQ(files_in(temp.path()), std::vector<std::string>{"p"});
}

TEST(Convert, FoldersAboveTheOutputAreMadeAndAFailureTakesThemAway) {
  TempDir temp;
  TestTensor nan = bf16_tensor("a", {4});
  nan.bytes[0] = nan.bytes[1] = '\xff';
  write_checkpoint(temp / "bad", {nan});
  write_checkpoint(temp / "good", {bf16_tensor("a", {4})});
  const models::ModelPlan plan = make_plan("q0f16", {weight_from("a", {4}, {"a"})});
  for (const char* output : {"x/y/z", "x/y/z/", "x/../x/y/z"}) {
    EXPECT_HAS(convert_error(plan, options_for(plan, temp / "bad", temp / output)), "NaN");
    EXPECT_EQ(files_in(temp.path()), (std::vector<std::string>{"bad", "good"})) << output;
  }
  fs::create_directory(temp / "x");
  EXPECT_HAS(convert_error(plan, options_for(plan, temp / "bad", temp / "x/y/z")), "NaN");
  EXPECT_TRUE(fs::is_empty(temp / "x"));
  EXPECT_EQ(convert_error(plan, options_for(plan, temp / "good", temp / "x/y/z")), "accepted");
  EXPECT_TRUE(fs::exists(temp / "x/y/z/mlc-chat-config.json"));
}

// A checkpoint whose tensor data is a hole in the file: any size, no disk.
void write_sparse_checkpoint(const fs::path& dir, const std::string& name, int64_t rows, int64_t cols) {
  write_checkpoint(dir, {});
  const int64_t bytes = rows * cols * 2;
  const Json header = {{name, {{"dtype", "BF16"}, {"shape", {rows, cols}}, {"data_offsets", {0, bytes}}}}};
  const std::string text = header.dump();
  std::string file(8, '\0');
  const uint64_t length = text.size();
  std::memcpy(file.data(), &length, 8);
  write_text(dir / "model.safetensors", file + text);
  fs::resize_file(dir / "model.safetensors",
                  static_cast<std::uintmax_t>(8 + static_cast<int64_t>(length) + bytes));
}

int64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "RssAnon:") continue;
    int64_t kilobytes;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kFreedMemoryStays = true;
#else
constexpr bool kFreedMemoryStays = false;
#endif

// The largest growth of anonymous memory while `body` runs.
template <class Body>
int64_t peak_growth(const Body& body) {
  const int64_t before = anonymous_bytes();
  std::atomic<bool> done{false};
  std::atomic<int64_t> peak{0};
  std::thread watcher([&] {
    while (!done) {
      peak = std::max(peak.load(), anonymous_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  body();
  done = true;
  watcher.join();
  return peak - before;
}

TEST(ConvertMemory, APackedTableThatIsSplitIntoTables) {
  if (kFreedMemoryStays) GTEST_SKIP() << "AddressSanitizer keeps freed memory";
  TempDir temp;
  constexpr int64_t kRows = 32000, kTables = 35, kCols = 256;  // each just too small for a file of its own
  write_sparse_checkpoint(temp / "hf", "packed", kRows, kTables * kCols);
  std::vector<models::Weight> weights;
  for (int64_t i = 0; i < kTables; ++i) {
    models::Weight weight = weight_from("table." + std::to_string(i) + ".weight", {kRows, kCols}, {"packed"});
    weight.source.column_begin = kCols * i;
    weight.source.columns = kCols * kTables;
    weights.push_back(weight);
  }
  const models::ModelPlan plan = make_plan("q0f16", weights, 320);
  const int64_t growth = peak_growth(
      [&] { convert_with_plan(plan, Json::object(), options_for(plan, temp / "hf", temp / "p")); });
  // 590 MB of checkpoint and as much of output, of which all tables are open at once.
  EXPECT_LT(growth, int64_t{448} << 20);
  const TensorCache cache = TensorCache::open(temp / "p");
  EXPECT_EQ(cache.parameter_bytes(), kRows * kCols * kTables * 2);
}

TEST(ConvertMemory, OneTensorThatGrows) {
  if (kFreedMemoryStays) GTEST_SKIP() << "AddressSanitizer keeps freed memory";
  TempDir temp;
  write_sparse_checkpoint(temp / "hf", "table", 65536, 1536);
  const models::ModelPlan plan = make_plan("q0f32", {weight_from("table", {65536, 1536}, {"table"})});
  const int64_t growth = peak_growth(
      [&] { convert_with_plan(plan, Json::object(), options_for(plan, temp / "hf", temp / "p")); });
  EXPECT_LT(growth, int64_t{256} << 20);  // its output has 403 MB
  EXPECT_EQ(fs::file_size(temp / "p/params_shard_0.bin"), 65536u * 1536u * 4u);
}

TEST(ConvertMemory, ManyShards) {
  if (kFreedMemoryStays) GTEST_SKIP() << "AddressSanitizer keeps freed memory";
  TempDir temp;
  write_sparse_checkpoint(temp / "hf", "table", 8192, 1024);
  // 24 weights of 16.7 MB, two in a shard.
  std::vector<models::Weight> weights(24, weight_from("", {8191, 1024}, {"table"}));
  for (size_t i = 0; i < weights.size(); ++i) weights[i].name = "weight." + std::to_string(i);
  const models::ModelPlan plan = make_plan("q0f16", weights, 8191);
  const int64_t growth = peak_growth(
      [&] { convert_with_plan(plan, Json::object(), options_for(plan, temp / "hf", temp / "p")); });
  EXPECT_LT(growth, int64_t{192} << 20);  // the output has 403 MB
}

TEST(ConvertInterrupted, CancellingLeavesNothing) {
  TempDir temp;
  write_sparse_checkpoint(temp / "hf", "table", 262144, 2048);
  const models::ModelPlan plan =
      make_plan("q4f16_1", {weight_from("table.weight", {262144, 2048}, {"table"})});
  std::atomic<bool> cancel{false};
  ConvertOptions options = options_for(plan, temp / "hf", temp / "p");
  options.cancel = &cancel;
  std::thread later([&] {
    // Once something is on the disk.
    for (int i = 0; i < 5000 && !cancel; ++i) {
      for (const auto& entry : fs::recursive_directory_iterator(temp.path())) {
        if (entry.path().filename().string().starts_with("params_shard_0")) cancel = true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_HAS(convert_error(plan, options), "cancelled: ");
  later.join();
  EXPECT_EQ(files_in(temp.path()), std::vector<std::string>{"hf"});
}

// A limit on file sizes stands for a full disk: write() fails in the middle of a shard.
TEST(ConvertInterrupted, AFullDiskLeavesNothing) {
  TempDir temp;
  write_sparse_checkpoint(temp / "hf", "table", 8192, 2048);
  const models::ModelPlan plan = make_plan("q0f16", {weight_from("table", {8192, 2048}, {"table"})});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 5'000'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = convert_error(plan, options_for(plan, temp / "hf", temp / "p"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_HAS(message, "io: ");
  EXPECT_HAS(message, "params_shard_0.bin: writing failed");
  EXPECT_EQ(files_in(temp.path()), std::vector<std::string>{"hf"});
}

}  // namespace
}  // namespace dovetail::convert
