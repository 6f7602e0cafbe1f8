// dovetail bench: how fast a model runs here, and how close that is to the memory's limit.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/number_text.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/open_engine.h"
#include "cli/report.h"
#include "contract/reader.h"
#include "ops/ops.h"
#include "ops/roof.h"

namespace dovetail::cli {
namespace {

constexpr int kRuns = 3;
constexpr int64_t kPromptTokens = 512;
constexpr int64_t kTokens = 64;
constexpr double kAudioSeconds = 10;

struct BenchArguments {
  EngineArguments engine;
  std::optional<int64_t> prompt_tokens;
  std::optional<int64_t> tokens;
  std::optional<double> audio_seconds;
  bool image = false;
  std::string image_file;  // empty: noise
  bool json = false;
};

struct BenchResult {
  std::vector<std::string> notes;  // defaults that did not fit
  double load_seconds = 0;
  double prefill_rate = 0;  // tokens per second
  int64_t prompt_tokens = 0;
  double decode_rate = 0;
  int64_t tokens = 0;
  double adapter_seconds = 0;  // 0: the package takes no audio
  double audio_seconds = 0;
  double image_decode_seconds = 0;  // 0: noise
  double image_seconds = 0;         // 0: not asked for
  int64_t image_rows = 0;
  std::optional<library::Program::Products> image_products;  // of one run
  double peak_float = 0, peak_int8 = 0;                      // operations per second of these threads
  int64_t resident_bytes = 0;                                // all, mapped weights included
  int64_t anonymous_bytes = 0;                               // without mapped files
  std::optional<int64_t> bytes_per_token;                    // parameters that one decode step reads
  double bandwidth = 0;  // bytes per second that this machine's threads read
};

double seconds_of(const auto& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A line "Name:  123 kB" of a file in /proc, in bytes; 0 when it is not there.
int64_t proc_bytes(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string word; lines >> word;) {
    int64_t kilobytes = 0;
    if (word == name + ":" && lines >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

// Bytes per second that the threads read from memory together, as many bytes as one decode step reads (but no
// fewer than caches hold and no more than memory allows). The best of several runs: what the machine can do.
double read_bandwidth(int threads, int64_t wanted_bytes) {
  const int64_t available = proc_bytes("/proc/meminfo", "MemAvailable");
  const int64_t limit = std::max<int64_t>(available / 2, int64_t{64} << 20);
  const int64_t bytes = std::min(std::clamp(wanted_bytes, int64_t{512} << 20, int64_t{2} << 30), limit);
  const auto words = static_cast<size_t>(bytes) / sizeof(uint64_t);
  const std::unique_ptr<uint64_t[]> buffer(new uint64_t[words]);
  ThreadPool pool(threads);
  const int64_t parts = pool.threads();
  const size_t part_words = words / static_cast<size_t>(parts);
  pool.run(parts, [&](int64_t part, int) {
    uint64_t* begin = buffer.get() + static_cast<size_t>(part) * part_words;
    std::iota(begin, begin + part_words, uint64_t{1});
  });
  std::vector<uint64_t> sums(static_cast<size_t>(parts));
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    const double seconds = seconds_of([&] {
      pool.run(parts, [&](int64_t part, int) {
        const uint64_t* begin = buffer.get() + static_cast<size_t>(part) * part_words;
        uint64_t sum[8] = {};
        for (size_t i = 0; i + 8 <= part_words; i += 8) {
          for (size_t lane = 0; lane < 8; ++lane) sum[lane] += begin[i + lane];
        }
        sums[static_cast<size_t>(part)] = std::accumulate(sum, sum + 8, uint64_t{0});
      });
    });
    best = std::max(
        best, static_cast<double>(part_words * sizeof(uint64_t)) * static_cast<double>(parts) / seconds);
  }
  // The sums are used, so that the reads are not left out.
  if (std::accumulate(sums.begin(), sums.end(), uint64_t{0}) == 0) return 0;
  return best;
}

std::vector<int32_t> random_ids(std::mt19937& random, int64_t count, int64_t vocab) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
  return ids;
}

std::optional<int64_t> decode_bytes(const library::Library& library) {
  const Json& dovetail = library.metadata().dovetail;
  if (!dovetail.is_object() || !dovetail.contains("decode_bytes")) return std::nullopt;
  const Json& value = dovetail["decode_bytes"];
  if (const auto bytes = contract::as_integer(value); bytes && *bytes >= 0) return bytes;
  throw Error(ErrorCode::kMalformed, Problem{.message = "wrong value",
                                             .source = library.path().string(),
                                             .field = "_metadata.dovetail.decode_bytes",
                                             .expected = "an integer of at least 0",
                                             .actual = printable(value.dump(), 80),
                                             .hint = "compile the package again with 'dovetail compile'"});
}

template <class Processor>
const Processor* find_processor(const contract::Task& task) {
  for (const auto& [name, input] : task.inputs) {
    if (const auto* processor = std::get_if<Processor>(&input.processor)) return processor;
  }
  return nullptr;
}

// What was asked for, or else as much of the default as fits.
template <class Number>
Number length(const char* option, std::optional<Number> wanted, Number standard, Number least, Number most,
              BenchResult& result) {
  if (wanted) return *wanted;
  const Number fits = std::max(least, std::min(standard, most));
  if (fits != standard)
    result.notes.push_back(std::string(option) + ": the default of " +
                           number_text(static_cast<double>(standard)) + " does not fit, " +
                           number_text(static_cast<double>(fits)) + " is taken");
  return fits;
}

void choose_tokens(const BenchArguments& arguments, int64_t window, BenchResult& result) {
  const int64_t prompt = arguments.prompt_tokens.value_or(1);
  result.tokens = length<int64_t>("--tokens", arguments.tokens, kTokens, 1, window - prompt, result);
  result.prompt_tokens = length<int64_t>("--prompt-tokens", arguments.prompt_tokens, kPromptTokens, 1,
                                         window - result.tokens, result);
  const int64_t sum = result.prompt_tokens + result.tokens;
  if (sum <= window) return;
  throw Error(
      ErrorCode::kUsage,
      Problem{.message = "--prompt-tokens " + std::to_string(result.prompt_tokens) + " and --tokens " +
                         std::to_string(result.tokens) + " do not fit into the context window",
              .expected = "together at most " + std::to_string(window),
              .actual = std::to_string(sum)});
}

void measure_adapter(const engine::Engine& engine, const BenchArguments& arguments, std::mt19937& random,
                     BenchResult& result) {
  const contract::AudioDecode* processor = find_processor<contract::AudioDecode>(engine.model().task);
  if (processor == nullptr) {
    if (arguments.audio_seconds) engine.audio("", "--audio-seconds");  // refuses by name
    return;
  }
  const auto rate = static_cast<double>(processor->sample_rate_hz);
  const double least = static_cast<double>(processor->min_samples) / rate;
  const double most = static_cast<double>(processor->max_samples) / rate;
  const double seconds =
      length("--audio-seconds", arguments.audio_seconds, kAudioSeconds, least, most, result);
  const int64_t count = std::llround(seconds * rate);
  if (count < processor->min_samples || count > processor->max_samples) {
    throw Error(ErrorCode::kUsage, Problem{.message = "the package takes no recording of this length",
                                           .source = "--audio-seconds",
                                           .expected = number_text(least) + " to " + number_text(most),
                                           .actual = number_text(seconds)});
  }
  std::vector<float> samples(static_cast<size_t>(count));
  for (float& sample : samples) sample = static_cast<float>(random()) * 0x1p-33f - 0.25f;
  const std::shared_ptr<const engine::Media> media = engine.audio(samples);
  std::vector<double> times;
  engine.run_adapter(*media);
  for (int run = 0; run < kRuns; ++run) times.push_back(seconds_of([&] { engine.run_adapter(*media); }));
  result.adapter_seconds = median(times);
  result.audio_seconds = media->seconds;
}

// How long a tower takes does not depend on what it sees.
std::shared_ptr<const engine::Media> noise_picture(const engine::Engine& engine, std::mt19937& random) {
  const contract::ImageDecode* processor = find_processor<contract::ImageDecode>(engine.model().task);
  if (processor == nullptr) return engine.image({});  // refuses by name
  const std::array<int64_t, 3> shape = {processor->resize.height, processor->resize.width, 3};
  const std::optional<int64_t> bytes = element_count(shape);
  if (!bytes) throw Error(ErrorCode::kLimit, "the package's pictures are too large");
  std::vector<uint8_t> pixels(static_cast<size_t>(*bytes));
  for (uint8_t& value : pixels) value = static_cast<uint8_t>(random());
  return engine.image(std::move(pixels));
}

void measure_image(const engine::Engine& engine, const std::string& file, std::mt19937& random,
                   BenchResult& result) {
  std::shared_ptr<const engine::Media> media;
  std::vector<double> times;
  if (file.empty()) {
    media = noise_picture(engine, random);
  } else {
    const std::string bytes = read_file(file);
    for (int run = 0; run < kRuns; ++run)
      times.push_back(seconds_of([&] { media = engine.image(bytes, file); }));
    result.image_decode_seconds = median(times);
  }
  result.image_rows = engine.run_adapter(*media).rows;
  times.clear();
  const library::Program& program = engine.model().program;
  const auto before = program.products_done();
  for (int run = 0; run < kRuns; ++run) times.push_back(seconds_of([&] { engine.run_adapter(*media); }));
  result.image_seconds = median(times);
  if (const auto after = program.products_done(); before && after) {
    result.image_products = {(after->float_operations - before->float_operations) / kRuns,
                             (after->float_nanoseconds - before->float_nanoseconds) / kRuns,
                             (after->int8_operations - before->int8_operations) / kRuns,
                             (after->int8_nanoseconds - before->int8_nanoseconds) / kRuns};
  }
}

// Of the best level that this machine and this program have.
void measure_peaks(int threads, BenchResult& result) {
  const ops::Level level = ops::best_level();
  if (level == ops::Level::kReference) return;
  const int count = threads > 0 ? threads : ThreadPool::available_cpus();
  result.peak_float = ops::peak_float_operations(level) * count;
  result.peak_int8 = ops::peak_int8_operations(level) * count;
}

struct Share {
  const char* type;
  double operations;  // of one run
  double seconds;
  double peak;  // operations per second

  double rate() const { return operations / seconds; }
};

// The products of the picture adapter beside what this machine can do.
std::vector<Share> product_shares(const BenchResult& result) {
  std::vector<Share> shares;
  const auto add = [&](const char* type, int64_t operations, int64_t nanoseconds, double peak) {
    if (operations > 0 && nanoseconds > 0 && peak > 0)
      shares.push_back(
          {type, static_cast<double>(operations), 1e-9 * static_cast<double>(nanoseconds), peak});
  };
  if (!result.image_products) return shares;
  add("float32", result.image_products->float_operations, result.image_products->float_nanoseconds,
      result.peak_float);
  add("int8", result.image_products->int8_operations, result.image_products->int8_nanoseconds,
      result.peak_int8);
  return shares;
}

BenchResult measure(const BenchArguments& arguments) {
  BenchResult result;
  std::unique_ptr<engine::Engine> engine;
  result.load_seconds = seconds_of([&] { engine = open_engine(arguments.engine); });
  result.bytes_per_token = decode_bytes(engine->model().library);
  const package::ChatConfig& config = engine->model().chat_config;
  const int64_t vocab = config.active_vocab_size > 0 ? config.active_vocab_size : config.vocab_size;
  choose_tokens(arguments, engine->context_window(), result);
  std::mt19937 random(1);
  measure_adapter(*engine, arguments, random, result);
  if (arguments.image || !arguments.image_file.empty()) {
    measure_image(*engine, arguments.image_file, random, result);
    measure_peaks(arguments.engine.threads, result);
  }
  engine::Prompt prompt{.ids = random_ids(random, result.prompt_tokens, vocab)};
  prompt.modality_ids.assign(prompt.ids.size(), 0);
  const std::vector<int32_t> reply = random_ids(random, result.tokens, vocab);
  std::vector<double> prefill;
  std::vector<double> decode;
  // The first run brings the weights into memory and is not counted.
  for (int run = 0; run <= kRuns; ++run) {
    const double prefill_seconds = seconds_of([&] { engine->prefill(prompt); });
    const double decode_seconds = seconds_of([&] {
      for (const int32_t id : reply) engine->decode(id);
    });
    if (run == 0) continue;
    prefill.push_back(prefill_seconds);
    decode.push_back(decode_seconds);
  }
  result.prefill_rate = static_cast<double>(result.prompt_tokens) / median(prefill);
  result.decode_rate = static_cast<double>(result.tokens) / median(decode);
  result.resident_bytes = proc_bytes("/proc/self/status", "VmRSS");
  result.anonymous_bytes = proc_bytes("/proc/self/status", "RssAnon");
  engine.reset();
  result.bandwidth = read_bandwidth(arguments.engine.threads, result.bytes_per_token.value_or(0));
  return result;
}

// Share of the bandwidth that decoding reaches; 1 is the limit.
std::optional<double> bandwidth_share(const BenchResult& result) {
  if (!result.bytes_per_token || result.bandwidth <= 0) return std::nullopt;
  return result.decode_rate * static_cast<double>(*result.bytes_per_token) / result.bandwidth;
}

void print_table(const BenchResult& result) {
  std::printf("load       %s\n", format_seconds(result.load_seconds).c_str());
  std::printf("prefill    %.1f tokens/s (%lld tokens)\n", result.prefill_rate,
              static_cast<long long>(result.prompt_tokens));
  std::printf("decode     %.1f tokens/s (%lld tokens)\n", result.decode_rate,
              static_cast<long long>(result.tokens));
  if (result.adapter_seconds > 0) {
    std::printf("audio      %s for %s (%.1f times real time)\n",
                format_seconds(result.adapter_seconds).c_str(), format_seconds(result.audio_seconds).c_str(),
                result.audio_seconds / result.adapter_seconds);
  }
  if (result.image_seconds > 0) {
    std::printf("picture    %s (%lld rows)\n", format_seconds(result.image_seconds).c_str(),
                static_cast<long long>(result.image_rows));
    if (result.image_decode_seconds > 0)
      std::printf("           %s before it to decode and resize the file\n",
                  format_seconds(result.image_decode_seconds).c_str());
    for (const Share& share : product_shares(result)) {
      std::printf(
          "           %.3g %s operations in products of matrices in %s: %.0f billion per second, %.0f %% of "
          "%.0f\n",
          share.operations, share.type, format_seconds(share.seconds).c_str(), share.rate() / 1e9,
          100 * share.rate() / share.peak, share.peak / 1e9);
    }
  }
  std::printf("memory     %s resident, %s of it without mapped files\n",
              format_bytes(result.resident_bytes).c_str(), format_bytes(result.anonymous_bytes).c_str());
  std::printf("bandwidth  %s/s read by these threads\n",
              format_bytes(static_cast<int64_t>(result.bandwidth)).c_str());
  if (const std::optional<double> share = bandwidth_share(result)) {
    std::printf("limit      %s per token: at most %.1f tokens/s; decode reaches %.0f %%\n",
                format_bytes(*result.bytes_per_token).c_str(),
                result.bandwidth / static_cast<double>(*result.bytes_per_token), 100 * *share);
  }
  for (const std::string& note : result.notes) std::printf("note       %s\n", note.c_str());
}

void print_json(const BenchResult& result) {
  Json document = {{"load_seconds", result.load_seconds},
                   {"prompt_tokens", result.prompt_tokens},
                   {"prefill_tokens_per_second", result.prefill_rate},
                   {"tokens", result.tokens},
                   {"decode_tokens_per_second", result.decode_rate},
                   {"audio_seconds", result.audio_seconds},
                   {"adapter_seconds", result.adapter_seconds},
                   {"resident_bytes", result.resident_bytes},
                   {"anonymous_bytes", result.anonymous_bytes},
                   {"read_bytes_per_second", result.bandwidth}};
  if (result.image_seconds > 0) {
    document["image_seconds"] = result.image_seconds;
    document["image_rows"] = result.image_rows;
    if (result.image_decode_seconds > 0) document["image_decode_seconds"] = result.image_decode_seconds;
    for (const Share& share : product_shares(result)) {
      document["image_products"][share.type] = {{"operations", share.operations},
                                                {"seconds", share.seconds},
                                                {"operations_per_second", share.rate()},
                                                {"peak_operations_per_second", share.peak},
                                                {"peak_share", share.rate() / share.peak}};
    }
  }
  if (result.bytes_per_token) document["bytes_per_token"] = *result.bytes_per_token;
  if (const std::optional<double> share = bandwidth_share(result)) document["bandwidth_share"] = *share;
  if (!result.notes.empty()) document["notes"] = result.notes;
  print_document(document);
}

void run_bench(const BenchArguments& arguments) {
  const BenchResult result = measure(arguments);
  if (arguments.json) {
    print_json(result);
  } else {
    print_table(result);
  }
}

}  // namespace

void add_bench_command(CLI::App& app, int&) {
  const std::string or_less = ", or what the package takes";
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure a model on this machine: medians of several runs, after one that warms up");
  command->add_option("package", arguments->engine.package, "The folder that `dovetail convert` wrote")
      ->required();
  command->add_option("--library", arguments->engine.library,
                      "The compiled library; default: the package's own");
  command->add_option("--threads", arguments->engine.threads, "Default: all processors of this process")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--prompt-tokens", arguments->prompt_tokens,
                   "Length of the prompt; default: " + std::to_string(kPromptTokens) + or_less)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command
      ->add_option("--tokens", arguments->tokens,
                   "Tokens to decode after it; default: " + std::to_string(kTokens) + or_less)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command
      ->add_option("--audio-seconds", arguments->audio_seconds,
                   "Length of the recording; default: " + number_text(kAudioSeconds) + or_less)
      ->check(CLI::Range(0.0, 1e6));
  command->add_flag("--image", arguments->image, "Measure the picture adapter too, on noise");
  command
      ->add_option("--image-file", arguments->image_file,
                   "Measure the picture adapter on this picture, and how long decoding takes")
      ->type_name("FILE");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->callback([arguments] { run_bench(*arguments); });
}

}  // namespace dovetail::cli
