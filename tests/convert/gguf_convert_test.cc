// A checkpoint gives the same package from its Hugging Face folder and from GGUF files made from it.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "checkpoint_fixture.h"
#include "convert/convert.h"
#include "convert/gguf_model.h"
#include "gguf_writer.h"
#include "models/quantization.h"
#include "package/chat_config.h"
#include "package/tensor_cache.h"
#include "package/tokenizer.h"
#include "package/values.h"

namespace dovetail::convert {
namespace {
using namespace dovetail::testing;
namespace fs = std::filesystem;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

const fs::path kExamples = DOVETAIL_EXAMPLES;

class GgufConvert : public ::testing::Test {
 protected:
  // Both packages; their weights must be the same bytes.
  void compare(const fs::path& folder, const CheckpointWriter& writer, bool with_encoder,
               const char* quantization = "q4f16_1") {
    write_text(temp_ / "model.gguf", writer.text.text());
    if (with_encoder) write_text(temp_ / "mmproj.gguf", writer.encoder.text());
    const models::Quantization& q = models::find_quantization(quantization);
    convert({.checkpoint = folder, .output = temp_ / "hf", .quantization = &q, .threads = 2});
    summary_ = convert({.checkpoint = temp_ / "model.gguf",
                        .mmproj = with_encoder ? temp_ / "mmproj.gguf" : fs::path(),
                        .output = temp_ / "gguf",
                        .quantization = &q,
                        .threads = 2});
    const package::TensorCache expected = package::TensorCache::open(temp_ / "hf");
    const package::TensorCache actual = package::TensorCache::open(temp_ / "gguf");
    ASSERT_EQ(actual.tensors().size(), expected.tensors().size());
    for (size_t i = 0; i < expected.tensors().size(); ++i) {
      const package::StoredTensor& a = expected.tensors()[i];
      const package::StoredTensor& b = actual.tensors()[i];
      ASSERT_EQ(a.name, b.name);
      ASSERT_EQ(a.shape, b.shape) << a.name;
      const auto x = expected.bytes(a), y = actual.bytes(b);
      if (a.name.ends_with("per_dim_scale")) continue;  // comes back rounded
      EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << a.name;
    }
    compare_tokenizers(folder);
    const package::ChatConfig theirs = package::read_chat_config(temp_ / "hf");
    const package::ChatConfig ours = package::read_chat_config(temp_ / "gguf");
    EXPECT_EQ(ours.conv_template.stop_token_ids, theirs.conv_template.stop_token_ids);
    EXPECT_EQ(ours.context_window_size, theirs.context_window_size);
    EXPECT_EQ(ours.vocab_size, theirs.vocab_size);
  }

  void compare_tokenizers(const fs::path& folder) {
    const package::Tokenizer expected = package::Tokenizer::from_file(folder / "tokenizer.json");
    const package::Tokenizer actual = package::Tokenizer::from_file(temp_ / "gguf/tokenizer.json");
    EXPECT_EQ(actual.vocab_size(), expected.vocab_size());
    for (const char* text :
         {"hello the other way", "  two spaces\n\nand lines\t.", "\xC3\xA4\xE2\x82\xAC \xF0\x9F\x98\x80 x",
          "set a timer for nine minutes", "a red circle", "<s></s>", "12 345"}) {
      const std::vector<int32_t> ids = expected.encode(text);
      EXPECT_EQ(actual.encode(text), ids) << text;
      EXPECT_EQ(actual.decode(ids), expected.decode(ids)) << text;
    }
  }

  std::string error(const std::string& text, const std::string& encoder = {}) {
    write_text(temp_ / "bad.gguf", text);
    if (!encoder.empty()) write_text(temp_ / "bad-mmproj.gguf", encoder);
    try {
      convert({.checkpoint = temp_ / "bad.gguf",
               .mmproj = encoder.empty() ? fs::path() : temp_ / "bad-mmproj.gguf",
               .output = temp_ / "bad",
               .quantization = &models::find_quantization("q0f16")});
    } catch (const Error& e) {
      return std::string(error_code_name(e.code())) + ": " + e.what();
    }
    return "accepted";
  }

  CheckpointWriter llama() {
    CheckpointWriter writer(kMlcPackages / "llama_tiny/hf", "llama");
    common(writer, "llama");
    if (writer.config().contains("rope_theta"))
      writer.text.set("llama.rope.freq_base", writer.config()["rope_theta"].get<float>());
    writer.write_tokenizer("gpt2", "gpt-2");
    return writer;
  }

  TempDir temp_;
  ConvertSummary summary_;
};

TEST_F(GgufConvert, Llama) {
  CheckpointWriter writer = llama();
  writer.write_tensors();
  compare(kMlcPackages / "llama_tiny/hf", writer, false);
}

// A Llama of one layer that is wide enough to be read in several blocks of groups.
void write_wide_llama(const fs::path& folder) {
  Json config = read_json(kMlcPackages / "llama_tiny/hf/config.json");
  config["hidden_size"] = 256;
  config["intermediate_size"] = 4096;
  config["num_hidden_layers"] = 1;
  config["head_dim"] = 64;
  const std::string layer = "model.layers.0.";
  write_checkpoint(
      folder, {bf16_tensor("model.embed_tokens.weight", {320, 256}),
               bf16_tensor(layer + "self_attn.q_proj.weight", {256, 256}, 0.1f),
               bf16_tensor(layer + "self_attn.k_proj.weight", {128, 256}, 0.2f),
               bf16_tensor(layer + "self_attn.v_proj.weight", {128, 256}, 0.3f),
               bf16_tensor(layer + "self_attn.o_proj.weight", {256, 256}, 0.4f),
               bf16_tensor(layer + "mlp.gate_proj.weight", {4096, 256}, -0.1f),
               bf16_tensor(layer + "mlp.up_proj.weight", {4096, 256}, -0.2f),
               bf16_tensor(layer + "mlp.down_proj.weight", {256, 4096}, -0.3f),
               bf16_tensor(layer + "input_layernorm.weight", {256}),
               bf16_tensor(layer + "post_attention_layernorm.weight", {256}),
               bf16_tensor("model.norm.weight", {256}), bf16_tensor("lm_head.weight", {320, 256}, -0.4f)});
  write_text(folder / "config.json", config.dump());
}

// The values of a quantized weight of `rows` rows, from the layout that docs/packages.md describes.
std::vector<float> dequantized(const package::TensorCache& cache, const std::string& name, int64_t rows,
                               int bits) {
  const package::StoredTensor& words = cache.get(name + ".q_weight");
  const bool transposed = words.shape[0] != rows;
  const int64_t per_word = 32 / bits, row_words = words.shape[transposed ? 0 : 1];
  const int64_t group_words = 4, row_groups = row_words / group_words;
  std::vector<float> out;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < row_words * per_word; ++i) {
      const int64_t word = i / per_word, group = word / group_words;
      uint32_t packed;
      std::memcpy(&packed,
                  cache.bytes(words).data() + 4 * (transposed ? word * rows + row : row * row_words + word),
                  4);
      const float scale =
          package::load_value(DType::kFloat16, cache.bytes(cache.get(name + ".q_scale")).data(),
                              transposed ? group * rows + row : row * row_groups + group);
      const int q = static_cast<int>(packed >> (bits * (i % per_word)) & ((1u << bits) - 1));
      out.push_back(static_cast<float>(q - ((1 << (bits - 1)) - 1)) * scale);
    }
  }
  return out;
}

// The layout is another, the values are those that the same modes have by rows.
TEST_F(GgufConvert, LlamaStoredTransposed) {
  const fs::path folder = temp_ / "wide";
  write_wide_llama(folder);
  CheckpointWriter writer(folder, "llama");
  common(writer, "llama");
  writer.text.set("llama.rope.freq_base", 10000.0f);
  writer.write_tokenizer("gpt2", "gpt-2");
  writer.write_tensors();
  for (const auto& [quantization, by_rows] : {std::pair{"q4f16_0", "q4f16_1"}, {"q3f16_0", "q3f16_1"}}) {
    SCOPED_TRACE(quantization);
    for (const char* package : {"hf", "gguf", "rows"}) fs::remove_all(temp_ / package);
    compare(folder, writer, false, quantization);
    const models::Quantization& q = models::find_quantization(by_rows);
    convert({.checkpoint = folder, .output = temp_ / "rows", .quantization = &q, .threads = 2});
    const package::TensorCache actual = package::TensorCache::open(temp_ / "gguf");
    const package::TensorCache expected = package::TensorCache::open(temp_ / "rows");
    int transposed = 0;
    for (const package::StoredTensor& tensor : expected.tensors()) {
      if (!tensor.name.ends_with(".q_weight")) continue;
      const std::string name = tensor.name.substr(0, tensor.name.size() - 9);
      const int64_t rows = tensor.shape[0];
      transposed += actual.get(tensor.name).shape[0] != rows;
      EXPECT_EQ(dequantized(actual, name, rows, q.bits), dequantized(expected, name, rows, q.bits)) << name;
    }
    EXPECT_EQ(transposed, 5);  // all but the embedding table
  }
}

// The chat template of a folder and that of a GGUF file become the same.
TEST_F(GgufConvert, ChatTemplates) {
  const std::string chatml = read_text(fs::path(DOVETAIL_TEST_DATA) / "chat_templates/chatml.jinja");
  const auto convert_both = [&](const std::string& text, bool family) {
    fs::remove_all(temp_ / "checkpoint");
    copy_folder(kMlcPackages / "llama_tiny/hf", temp_ / "checkpoint");
    fs::remove(temp_ / "checkpoint/tokenizer_config.json");
    write_text(temp_ / "checkpoint/chat_template.jinja", text);
    CheckpointWriter writer = llama();
    writer.text.set("tokenizer.chat_template", text);
    writer.write_tensors();
    write_text(temp_ / "model.gguf", writer.text.text());
    std::vector<package::ConvTemplate> out;
    for (const char* name : {"checkpoint", "model.gguf"}) {
      fs::remove_all(temp_ / "p");
      summary_ = convert({.checkpoint = temp_ / name,
                          .output = temp_ / "p",
                          .quantization = &models::find_quantization("q0f16"),
                          .family_chat_template = family});
      out.push_back(package::read_chat_config(temp_ / "p").conv_template);
    }
    return out;
  };
  const auto both = convert_both(chatml, false);
  EXPECT_EQ(both[0].name, "chatml");
  EXPECT_EQ(both[0].role("user"), "<|im_start|>user");
  for (const auto member : {&package::ConvTemplate::name, &package::ConvTemplate::system_template,
                            &package::ConvTemplate::system_message, &package::ConvTemplate::role_content_sep})
    EXPECT_EQ(both[0].*member, both[1].*member);
  EXPECT_EQ(both[0].roles, both[1].roles);
  EXPECT_EQ(both[0].seps, both[1].seps);
  EXPECT_EQ(both[0].stop_str, both[1].stop_str);
  EXPECT_EQ(both[0].stop_token_ids, both[1].stop_token_ids);
  EXPECT_EQ(both[0].system_prefix_token_ids, both[1].system_prefix_token_ids);
  // Of an architecture without a template of its own, a file whose template can't be written so is refused.
  std::string message;
  try {
    convert_both("{{ messages[-1].content }}", false);
  } catch (const Error& e) {
    message = e.what();
  }
  EXPECT_HAS(message,
             "model.gguf: chat_template: the chat template can't be written as a conversation template: it "
             "leaves out or changes a message");
  EXPECT_HAS(message, "--chat-template family");
  const auto family = convert_both("{{ messages[-1].content }}", true);
  EXPECT_EQ(family[0].name, "llama_default");
  EXPECT_EQ(family[1].name, "llama_default");
}

TEST_F(GgufConvert, LlamaWithPaddingBehindTheVocabularyIsAsLarge) {
  CheckpointWriter writer = llama();
  const int64_t vocab = writer.config()["vocab_size"].get<int64_t>();
  writer.edit = [](const std::string& name, std::vector<int64_t>& shape, std::vector<float>& values) {
    if (name != "token_embd.weight" && name != "output.weight") return;
    values.resize(static_cast<size_t>((shape[0] + 16) * shape[1]));
    shape[0] += 16;
  };
  writer.write_tensors();
  write_text(temp_ / "model.gguf", writer.text.text());
  convert({.checkpoint = temp_ / "model.gguf",
           .output = temp_ / "gguf",
           .quantization = &models::find_quantization("q0f16")});
  const package::ChatConfig config = package::read_chat_config(temp_ / "gguf");
  EXPECT_EQ(config.vocab_size, vocab + 16);
  EXPECT_LE(config.active_vocab_size, vocab);
}

TEST_F(GgufConvert, Gemma3WithItsEncoder) {
  const fs::path folder = kExamples / "gemma3-tiny-shapes";
  CheckpointWriter writer(folder, "gemma3");
  common(writer, "gemma3");
  writer.text.set("gemma3.attention.sliding_window", writer.text_config()["sliding_window"].get<uint32_t>());
  writer.text.set("tokenizer.ggml.add_space_prefix", false);
  writer.write_tokenizer("llama", "default");
  vision(writer, "gemma3");
  writer.encoder.set("clip.vision.projector.scale_factor", uint32_t{2});
  writer.write_tensors();
  compare(folder, writer, true);
}

TEST_F(GgufConvert, LlavaWithItsEncoder) {
  const fs::path folder = kExamples / "llava-tiny-shapes";
  CheckpointWriter writer(folder, "llama");
  common(writer, "llama");
  writer.write_tokenizer("llama", nullptr);
  vision(writer, "mlp");
  writer.write_tensors();
  compare(folder, writer, true);
}

TEST_F(GgufConvert, Gemma4WithItsEncoder) {
  const fs::path folder = kExamples / "gemma4-tiny-speech";
  CheckpointWriter writer(folder, "gemma4");
  common(writer, "gemma4");
  const Json& c = writer.text_config();
  GgufFile& file = writer.text;
  const auto layers = c["num_hidden_layers"].get<int32_t>(),
             shared = c["num_kv_shared_layers"].get<int32_t>();
  const auto inner = c["intermediate_size"].get<int32_t>();
  std::vector<int32_t> widths;
  std::string sliding;
  for (int32_t i = 0; i < layers; ++i) {
    widths.push_back(i < layers - shared ? inner : 2 * inner);
    sliding += c["layer_types"][static_cast<size_t>(i)] == "sliding_attention" ? '\1' : '\0';
  }
  file.set("gemma4.feed_forward_length", widths);
  file.set("gemma4.attention.head_count_kv", c["num_key_value_heads"].get<uint32_t>());
  file.set("gemma4.attention.shared_kv_layers", static_cast<uint32_t>(shared));
  file.set("gemma4.attention.key_length", uint32_t{64}).set("gemma4.attention.value_length", uint32_t{64});
  file.set("gemma4.attention.key_length_swa", uint32_t{32});
  file.set("gemma4.attention.sliding_window", c["sliding_window"].get<uint32_t>());
  file.pair("gemma4.attention.sliding_window_pattern", GgufType::kArray,
            raw(static_cast<uint32_t>(GgufType::kBool)) + raw(uint64_t{sliding.size()}) + sliding);
  file.set("gemma4.embedding_length_per_layer_input", c["hidden_size_per_layer_input"].get<uint32_t>());
  file.set("gemma4.final_logit_softcapping", c["final_logit_softcapping"].get<float>());
  file.set("tokenizer.ggml.add_space_prefix", false);
  writer.write_tokenizer("gemma4", nullptr);
  std::vector<float> divisors(32, 1e30f);
  std::fill(divisors.begin(), divisors.begin() + 8, 1.0f);
  file.f32("rope_freqs.weight", {32}, divisors);
  const Json& audio = writer.config()["audio_config"];
  writer.encoder.set("general.architecture", "clip").set("clip.audio.projector_type", "gemma4a");
  writer.encoder.set("clip.audio.block_count", audio["num_hidden_layers"].get<uint32_t>());
  writer.encoder.set("clip.audio.embedding_length", audio["hidden_size"].get<uint32_t>());
  writer.encoder.set("clip.audio.attention.head_count", audio["num_attention_heads"].get<uint32_t>());
  writer.write_tensors();
  compare(folder, writer, true);
}

TEST_F(GgufConvert, LlamaThreesScalingComesBack) {
  for (const auto& [factor, low, high] : {std::tuple{8.0, 1.0, 4.0}, {32.0, 1.0, 4.0}, {4.0, 2.0, 9.0}}) {
    GgufFile file;
    file.set("general.architecture", "llama").set("llama.block_count", 1u).set("llama.context_length", 1024u);
    file.set("llama.embedding_length", 256u).set("llama.feed_forward_length", 8u);
    file.set("llama.attention.head_count", 2u).set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    file.set("llama.rope.freq_base", 500000.0f);
    file.f32("token_embd.weight", {1, 256}, std::vector<float>(256));
    std::vector<float> divisors;
    for (int i = 0; i < 64; ++i) {
      const double turns = 8192 * std::pow(500000.0, -i / 64.0) / (2 * M_PI);
      const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      divisors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
    }
    write_text(temp_ / "model.gguf", GgufFile(file).f32("rope_freqs.weight", {64}, divisors).text());
    const Json scaling = open_gguf(temp_ / "model.gguf", {}).config["rope_scaling"];
    EXPECT_EQ(scaling["rope_type"], "llama3");
    EXPECT_EQ(scaling["factor"], factor);
    EXPECT_NEAR(scaling["low_freq_factor"].get<double>(), low, 1e-2);
    EXPECT_NEAR(scaling["high_freq_factor"].get<double>(), high, 1e-2);
    divisors[30] *= 1.1f;
    EXPECT_HAS(error(GgufFile(file).f32("rope_freqs.weight", {64}, divisors).text()),
               "value 30 is not that of Llama 3's scaling");
  }
}

TEST_F(GgufConvert, RefusesByName) {
  EXPECT_HAS(error(GgufFile().set("general.architecture", "mamba").text()),
             "expected llama, gemma3, gemma4, got mamba");
  EXPECT_HAS(error(GgufFile().text()), "got none");
  EXPECT_HAS(error(GgufFile().set("general.architecture", "clip").text()), "--mmproj");
  EXPECT_HAS(error(GgufFile().set("general.architecture", "llama").set("general.type", "adapter").text()),
             "LoRA");
  EXPECT_HAS(error(GgufFile().set("general.architecture", "llama").set("split.count", 3u).text()), "--merge");
  CheckpointWriter writer = llama();
  writer.write_tensors();
  const std::string good = writer.text.text();
  EXPECT_HAS(error(good, GgufFile().set("general.architecture", "llama").text()), "is no encoder");
  EXPECT_HAS(
      error(good, GgufFile().set("general.architecture", "clip").set("clip.projector_type", "gemma3").text()),
      "expected mlp, got gemma3");
  std::string missing = good;
  missing.replace(missing.find("llama.context_length"), 20, "llama.context_lengtX");
  EXPECT_HAS(error(missing), "\"llama.context_length\": the metadata lacks this key");
}

TEST_F(GgufConvert, BadValuesAreNamedAsTheFileHasThem) {
  CheckpointWriter writer = llama();
  // Rows of queries are put in another order on the way.
  writer.edit = [](const std::string& name, std::vector<int64_t>& shape, std::vector<float>& values) {
    if (name != "blk.1.attn_q.weight") return;
    for (const int64_t row : {3, 10, 12}) values[static_cast<size_t>(row * shape[1] + 9)] = NAN;
  };
  writer.write_tensors();
  EXPECT_HAS(error(writer.text.text()), "numeric: bad.gguf: blk.1.attn_q.weight: value at [3, 9] is NaN\n");
}

TEST_F(GgufConvert, AChatTemplateThatIsNoTextIsRefused) {
  CheckpointWriter writer = llama();
  writer.text.set("tokenizer.chat_template", 5u);
  writer.write_tensors();
  EXPECT_HAS(error(writer.text.text()),
             "malformed: bad.gguf: \"tokenizer.chat_template\": wrong type (expected a text, got 5)");
}

TEST_F(GgufConvert, NamesTensorTypesThatItDoesNotRead) {
  CheckpointWriter writer = llama();
  writer.write_tensors();
  std::string text = writer.text.text();
  const size_t at = text.find("blk.0.ffn_up.weight") + 19 + 4 + 16;
  text.replace(at, 4, raw(uint32_t{26}));  // I32 has the size of F32
  const std::string message = error(text);
  EXPECT_HAS(message, "blk.0.ffn_up.weight: dtype is not one that can be converted (expected F32, F16, Q4_0");
  EXPECT_HAS(message, "got I32");
}

}  // namespace
}  // namespace dovetail::convert
