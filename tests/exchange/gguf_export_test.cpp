// Whole GGUF files against those of llama.cpp's own Python package, as scripts/make_gguf_fixture.py has written them.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/exchange/export.h"
#include "gpt/exchange/llama_cpp.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"
#include "support/fixture.h"

namespace gpt::exchange {
namespace {

// The model of a fixture, whose tokens are characters.
checkpoint::Checkpoint checkpoint_of(const std::string& form, bool has_other_characters) {
  const test::Fixture fixture = test::read_fixture(form);
  checkpoint::Checkpoint checkpoint;
  checkpoint.config.model = fixture.model_config();
  checkpoint.config.output_dir = "models/" + form;
  checkpoint.model = fixture.group("initial.");
  std::string characters = "\n ";
  for (char c = '!'; c <= '}'; ++c) characters += c;
  checkpoint.tokenizer = tokenizer::make_tokenizer("char", characters + (has_other_characters ? "é語" : ""))->to_json();
  return checkpoint;
}

std::string fixture_bytes(const std::string& name) {
  return read_file(test::source_folder() + "/tests/fixtures/" + name, ExitCode::data);
}

class GgufExport : public testing::Test {
 protected:
  std::string written(const checkpoint::Checkpoint& checkpoint, ExportDtype dtype) const {
    const std::string path = folder_ / "new/model.gguf";
    write_gguf({.checkpoint = "a/ckpt.pt", .format = ExportFormat::gguf, .output = path, .dtype = dtype}, checkpoint);
    return read_file(path, ExitCode::data);
  }
  ScratchFolder folder_;
};

TEST_F(GgufExport, FilesAreThoseOfThePackage) {
  const checkpoint::Checkpoint llama = checkpoint_of("llama_form", true), gpt2 = checkpoint_of("gpt2_form", false);
  EXPECT_TRUE(written(llama, ExportDtype::q8_0) == fixture_bytes("llama_form.gguf"));
  EXPECT_TRUE(written(gpt2, ExportDtype::bfloat16) == fixture_bytes("gpt2_form.gguf")) << "and replaces the other one";
}

TEST_F(GgufExport, MissingBiasesAreZerosAndRowsOfOddLengthAreFloat16) {
  checkpoint::Checkpoint plain = checkpoint_of("gpt2_form", false), biased = plain;
  std::erase_if(plain.model, [](const auto& weight) { return weight.first.ends_with(".bias"); });
  plain.config.model.bias = false;
  for (auto& [name, value] : biased.model)
    if (name.ends_with(".bias")) value = value.clone().zero_();
  EXPECT_TRUE(written(plain, ExportDtype::float32) == written(biased, ExportDtype::float32));

  const ModelConfig& model = plain.config.model;
  for (const GgufType type : {GgufType::q8_0, GgufType::bf16}) {
    ModelConfig odd = model;
    odd.n_embd = 48, odd.n_hidden = 64;
    for (const LlamaCppTensor& tensor : llama_cpp_tensors(odd, llama_cpp_form(odd, "here"), type, false)) {
      const bool is_vector = tensor.stored.shape.size() == 1 || tensor.stored.name == "position_embd.weight";
      const bool is_odd = tensor.stored.shape.back() == 48 && type == GgufType::q8_0;
      EXPECT_EQ(tensor.stored.type, is_vector ? GgufType::f32 : is_odd ? GgufType::f16 : type) << tensor.stored.name;
    }
  }
}

TEST_F(GgufExport, WhatLlamaCppCannotHaveIsRefused) {
  checkpoint::Checkpoint other = checkpoint_of("llama_form", true);
  other.config.model.norm = Norm::layernorm;
  EXPECT_ERROR(written(other, ExportDtype::float32), ExitCode::checkpoint,
               "a/ckpt.pt: llama.cpp has no model of this form: model.norm layernorm (Llama has rmsnorm)");
  checkpoint::Checkpoint bare = checkpoint_of("llama_form", true);
  bare.tokenizer.clear();
  EXPECT_ERROR(written(bare, ExportDtype::float32), ExitCode::checkpoint, "llama.cpp needs a tokenizer");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
}

TEST_F(GgufExport, ValuesThatATypeCannotHoldAreNotWritten) {
  checkpoint::Checkpoint large = checkpoint_of("llama_form", true);
  const std::string before = written(large, ExportDtype::float16);
  for (auto& [name, value] : large.model)
    if (name == "transformer.h.1.mlp.w3.weight") value = value.clone().fill_(9e6);
  for (const ExportDtype dtype : {ExportDtype::float16, ExportDtype::q8_0})
    EXPECT_ERROR(written(large, dtype), ExitCode::numerics,
                 "'blk.1.ffn_up.weight' holds values that are not finite in ");
  EXPECT_TRUE(read_file(folder_ / "new/model.gguf", ExitCode::data) == before);
  EXPECT_EQ(names_in(folder_ / "new"), std::vector<std::string>{"model.gguf"});
  written(large, ExportDtype::bfloat16);
}

TEST_F(GgufExport, OtherFilesAreLeftAlone) {
  const std::string path = folder_.file("new/model.gguf", fixture_bytes("llama_form.gguf").replace(64, 5, "other"));
  EXPECT_ERROR(written(checkpoint_of("llama_form", true), ExportDtype::float32), ExitCode::config,
               "the file is something else than an export");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_ERROR(written(checkpoint_of("llama_form", true), ExportDtype::float32), ExitCode::config,
               "it is a folder, and GGUF is one file");
}

}  // namespace
}  // namespace gpt::exchange
