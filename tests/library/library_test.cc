#include "library/library.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/file.h"
#include "fake_package.h"
#include "library/cpu.h"
#include "library/program.h"

namespace dovetail::library {
namespace {

using test::Edits;

class LibraryTest : public ::testing::Test {
 protected:
  std::filesystem::path library(const Edits& edits = {}) {
    const std::filesystem::path path = dir_.path() / ("lib" + std::to_string(count_++) + ".so");
    test::write_fake_library(path, edits);
    return path;
  }

  static Program program(const Library& library) {
    return Program(library, library.metadata().artifact->programs.front().second);
  }

  static std::string refusal(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  test::TemporaryDirectory dir_;
  int count_ = 0;
};

TEST_F(LibraryTest, IsInspectedWithoutLoading) {
  const LibraryFile file = inspect_library(library());
  ASSERT_TRUE(file.metadata);
  EXPECT_EQ(file.metadata->model_type, "fake");
  EXPECT_EQ(file.metadata->prefill_chunk_size, 16);
  ASSERT_TRUE(file.target);
  EXPECT_EQ(file.target->cpu, std::vector<std::string>{"x86-64-v2"});
  EXPECT_TRUE(std::binary_search(file.functions.begin(), file.functions.end(), "decode_tokens"));
  EXPECT_TRUE(std::binary_search(file.functions.begin(), file.functions.end(), "_metadata"));
  EXPECT_FALSE(file.unfit_machine());
}

TEST_F(LibraryTest, OtherMachinesAreNamed) {
  const LibraryFile level = inspect_library(library({{"x86-64-v2", "x86-64-v9"}}));
  ASSERT_TRUE(level.unfit_machine());
  const std::string text = level.unfit_machine()->text();
  EXPECT_NE(text.find("built for x86-64-v9"), std::string::npos) << text;
  EXPECT_NE(text.find("x86-64-v2"), std::string::npos) << text;
  EXPECT_THROW(Library::load(level), Error);

  const LibraryFile arch = inspect_library(library({{R"("arch":"x86_64")", R"("arch":"riscv3")"}}));
  ASSERT_TRUE(arch.unfit_machine());
  EXPECT_NE(arch.unfit_machine()->text().find("riscv3"), std::string::npos);
}

TEST_F(LibraryTest, EnvironmentLeavesLevelsOut) {
  if (cpu_levels().size() < 3) GTEST_SKIP() << "this machine has no level above x86-64-v2";
  setenv("DOVETAIL_CPU", "x86-64-v2", 1);
  const LibraryFile file = inspect_library(library({{"x86-64-v2", "x86-64-v3"}}));
  EXPECT_EQ(cpu_levels().back(), "x86-64-v2");
  ASSERT_TRUE(file.unfit_machine());
  // Nothing can be compiled for this level, so it must not be advised.
  EXPECT_EQ(file.unfit_machine()->hint.find("--cpu"), std::string::npos) << file.unfit_machine()->hint;
  unsetenv("DOVETAIL_CPU");
  EXPECT_FALSE(file.unfit_machine());
}

TEST_F(LibraryTest, FilesThatAreNoCompiledModelAreRefused) {
  write_file_atomic(dir_.path() / "text.so", "hello");
  EXPECT_NE(refusal([&] { inspect_library(dir_.path() / "text.so"); }).find("not a shared library"),
            std::string::npos);
  EXPECT_NE(refusal([&] { inspect_library(dir_.path() / "none.so"); }).find("none.so"), std::string::npos);
  const auto without =
      library({{"__tvm_ffi__metadata", "__tvm_ffi__metadatX"}, {".dovetail.metadata", ".somethingelse.xyz"}});
  EXPECT_NE(refusal([&] { Library::load(inspect_library(without)); }).find("_metadata is missing"),
            std::string::npos);
  const auto relax = library({{"__tvm_ffi_decode_embeds", std::string("__tvm_ffi__library_bin\0", 23)}});
  EXPECT_NE(refusal([&] { inspect_library(relax); }).find("Relax"), std::string::npos);
}

TEST_F(LibraryTest, WhatTheSystemsLoaderSays) {
  // A symbol of that name, where the hash of another one leads.
  const auto altered = library({{"__tvm_ffi__metadata", "__tvm_ffi__metadatX"},
                                {"__tvm_ffi_decode_embeds", std::string("__tvm_ffi__metadata\0\0\0\0", 23)}});
  EXPECT_TRUE(refusal([&] {
                Library::load(inspect_library(altered));
              }).starts_with(altered.string() + ": the system's loader does not find _metadata, which"));
  const auto needs = library({{"libc.so.6", "libc.so.X"}});
  const std::string text = refusal([&] { Library::load(inspect_library(needs)); });
  EXPECT_TRUE(text.starts_with(needs.string() + ": the library can't be loaded: libc.so.X: cannot open"))
      << text;
}

TEST_F(LibraryTest, LibraryWithoutSectionIsAsked) {
  const LibraryFile file = inspect_library(library({{".dovetail.metadata", ".somethingelse.xyz"}}));
  EXPECT_FALSE(file.metadata);
  EXPECT_FALSE(file.unfit_machine());
  const Library loaded = Library::load(file);
  EXPECT_EQ(loaded.metadata().model_type, "fake");
}

TEST_F(LibraryTest, MalformedMetadataIsNamed) {
  const auto path = library({{R"("prefill_chunk_size":16)", R"("prefill_chunk_size":-6)"}});
  EXPECT_NE(refusal([&] { inspect_library(path); }).find("prefill_chunk_size"), std::string::npos);
  const auto target = library({{R"("cpu":["x86-64-v2"])", R"("cpu":"x86-64-v2"  )"}});
  EXPECT_NE(refusal([&] { inspect_library(target); }).find("dovetail.target.cpu"), std::string::npos);
  const auto config = library({{R"("dovetail":{"target":)", R"("dovetail":{"config":)"}});
  EXPECT_NE(refusal([&] { inspect_library(config); }).find("dovetail.config"), std::string::npos);
}

TEST_F(LibraryTest, ArgumentCountsAreKnown) {
  const Library loaded = Library::load(inspect_library(library()));
  EXPECT_EQ(loaded.find("prefill_tokens")->argument_count(), 5);
  EXPECT_EQ(loaded.find("_metadata")->argument_count(), 0);
  EXPECT_FALSE(loaded.find("no_such_function"));
}

TEST_F(LibraryTest, AnotherNumberOfArgumentsIsRefusedWhenBound) {
  const Library loaded = Library::load(inspect_library(
      library({{R"("decode_tokens":"decode_tokens")", R"("decode_tokens":"decode_tokenx")"}})));
  const std::string text = refusal([&] { program(loaded); });
  EXPECT_NE(text.find("decode_tokenx"), std::string::npos) << text;
  EXPECT_NE(text.find("expected 3"), std::string::npos) << text;
  EXPECT_NE(text.find("got 4"), std::string::npos) << text;
}

TEST_F(LibraryTest, MissingFunctionsAreAllNamed) {
  const Library loaded = Library::load(inspect_library(library(
      {{"__tvm_ffi_kv_state_popn", "__tvm_ffi_kv_state_popX"}, {"__tvm_ffi_embed", "__tvm_ffi_embeX"}})));
  const std::string text = refusal([&] { program(loaded); });
  EXPECT_NE(text.find("kv_state_popn"), std::string::npos) << text;
  EXPECT_NE(text.find("embed"), std::string::npos) << text;
}

class ProgramTest : public LibraryTest {
 protected:
  static tvm::ffi::Array<tvm::ffi::Tensor> parameters() {
    static constexpr float kScale[] = {1.0f, 0.5f};
    static constexpr uint32_t kWords[] = {7, 8, 9};
    return {borrow_tensor(kScale, std::array<int64_t, 1>{2}, DType::kFloat32),
            borrow_tensor(kWords, std::array<int64_t, 1>{3}, DType::kUInt32)};
  }
};

// Two programs of one file share its settings, and each computes in its own precision all the same.
TEST_F(ProgramTest, ProgramsOfOneLibraryKeepTheirPrecision) {
  const Library loaded = Library::load(inspect_library(library()));
  Program rounded = program(loaded), exact = program(loaded);
  rounded.set_parameters(parameters());
  exact.set_parameters(parameters());
  EXPECT_TRUE(exact.set_precision("exact"));
  const std::array<int32_t, 1> ids = {9};
  const auto before = exact.products_done();
  ASSERT_TRUE(before);
  rounded.embed(ids);
  rounded.embed(ids);
  exact.embed(ids);
  const auto after = exact.products_done();
  EXPECT_EQ(after->int8_operations - before->int8_operations, 2);
  EXPECT_EQ(after->float_operations - before->float_operations, 1);
}

TEST_F(ProgramTest, CallsEveryFunction) {
  const Library loaded = Library::load(inspect_library(library()));
  Program program = this->program(loaded);
  program.set_parameters(parameters());
  program.create_kv_cache({.max_total_length = 64, .prefill_chunk = 16});
  EXPECT_TRUE(program.set_threads(1));
  EXPECT_TRUE(program.set_precision("exact"));
  program.kv_clear();
  program.kv_add_sequence(0);
  const std::array<int32_t, 2> ids = {9, 10};
  const std::array<int32_t, 2> modality = {0, 0};
  const Rows rows = program.embed(ids);
  EXPECT_EQ(rows.rows, 2);
  EXPECT_EQ(rows.width, 4);
  EXPECT_EQ(rows.row(1)[0], 10.0f);
  program.kv_begin_forward(std::array<int64_t, 1>{0}, std::array<int64_t, 1>{2});
  const Rows logits = program.prefill(rows.all(), ids, modality);
  program.kv_end_forward();
  EXPECT_EQ(logits.rows, 1);
  EXPECT_EQ(logits.width, 368);
  program.kv_begin_forward(std::array<int64_t, 1>{0}, std::array<int64_t, 1>{1});
  EXPECT_EQ(program.decode(std::array<int32_t, 1>{11}).width, 368);
  program.kv_end_forward();
  EXPECT_EQ(program.kv_total_length(), 3);
  program.kv_fork_sequence(0, 1, 2);
  EXPECT_EQ(program.kv_total_length(), 5);
  program.kv_remove_sequence(1);
  EXPECT_TRUE(program.kv_pop(0, 1));
  EXPECT_FALSE(program.kv_pop(0, 65));
  EXPECT_EQ(program.kv_total_length(), 2);
  EXPECT_GT(program.kv_available_pages(), 0);
  const std::vector<float> samples(300, 0.1f);
  const Rows audio = program.run_adapter(
      "audio", borrow_tensor(samples.data(), std::array<int64_t, 1>{300}, DType::kFloat32));
  EXPECT_EQ(audio.rows, 3);
  EXPECT_EQ(program.adapter_rows("audio", 300), 3);
}

TEST_F(ProgramTest, ErrorsOfTheLibraryAreTranslated) {
  const Library loaded = Library::load(inspect_library(library()));
  Program program = this->program(loaded);
  program.set_parameters({});
  try {
    program.embed(std::array<int32_t, 1>{1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    EXPECT_NE(std::string(error.what()).find("embed: function failed: expected 2 parameters, got 0"),
              std::string::npos)
        << error.what();
  }
  program.set_parameters(parameters());
  EXPECT_THROW(program.embed(std::array<int32_t, 1>{368}), Error);
  program.create_kv_cache({.max_total_length = 64, .prefill_chunk = 16});
  try {
    program.kv_begin_forward(std::array<int64_t, 1>{5}, std::array<int64_t, 1>{1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
  }
}

TEST_F(ProgramTest, UnexpectedTensorsAreRefused) {
  const std::array<float, 6> values = {};
  EXPECT_EQ(
      float_rows(borrow_tensor(values.data(), std::array<int64_t, 3>{1, 2, 3}, DType::kFloat32), "x").rows,
      2);
  EXPECT_THROW(
      float_rows(borrow_tensor(values.data(), std::array<int64_t, 3>{2, 1, 3}, DType::kFloat32), "x"), Error);
  EXPECT_THROW(float_rows(borrow_tensor(values.data(), std::array<int64_t, 1>{6}, DType::kFloat32), "x"),
               Error);
  EXPECT_THROW(float_rows(borrow_tensor(values.data(), std::array<int64_t, 2>{2, 3}, DType::kInt32), "x"),
               Error);
}

}  // namespace
}  // namespace dovetail::library
