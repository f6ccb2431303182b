// A quantized model in a file: it comes back, and whatever happened to it is found.
#include "gpt/checkpoint/quantized_file.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "container/records.h"
#include "core/scratch_folder.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/file.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"
#include "support/long_test.h"

namespace gpt::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

Config small_config() {
  Config config;
  ModelConfig& model = config.model;
  model.n_layer = 1, model.n_head = 1, model.n_embd = 6, model.n_hidden = 70, model.block_size = 4;
  model.vocab_size = 3, model.vocab_multiple = 1, model.position = Position::learned, model.bias = true;
  return config;
}

parameters::NamedTensors drawn(const ModelConfig& model) {
  at::manual_seed(1);
  parameters::NamedTensors values;
  for (const layout::ParameterRow& row : layout::parameter_table(model))
    values.emplace_back(row.name, at::randn(row.shape));
  return values;
}

class QuantizedFileTest : public testing::TestWithParam<parameters::QuantizedType> {
 protected:
  static QuantizedFile model() {
    QuantizedFile file{.config = small_config(),
                       .tensors = {},
                       .tokenizer = tokenizer::make_tokenizer("char", "abc")->to_json()};
    file.tensors = model::quantize(file.config.model, drawn(file.config.model), GetParam());
    file.step = 7, file.sample_start = 2;
    return file;
  }

  // The file with other records: its hashes are right.
  void rewrite(const std::function<std::string(const std::string& name, std::string content)>& change) {
    test::Records records;
    for (const auto& [name, content] : test::records_of(path_)) {
      const std::string changed = change(name, content);
      if (changed != "absent") records.emplace_back(name, changed);
    }
    test::write_records(path_, records);
  }

  const ScratchFolder folder_;
  const std::string path_ = folder_ / "model.pt";
};

TEST_P(QuantizedFileTest, ComesBack) {
  const QuantizedFile written = model();
  write_quantized(path_, written);
  EXPECT_TRUE(is_quantized(path_));
  const QuantizedFile read = read_quantized(path_);
  EXPECT_EQ(read.tensors.type, GetParam());
  EXPECT_EQ(read.tokenizer, written.tokenizer);
  EXPECT_EQ(read.step, 7);
  EXPECT_EQ(read.sample_start, 2);
  EXPECT_EQ(read.config.model.n_hidden, 70);
  EXPECT_EQ(read.tensors.bytes(), written.tensors.bytes());
  ASSERT_EQ(read.tensors.matrices.size(), written.tensors.matrices.size());
  for (size_t i = 0; i < read.tensors.matrices.size(); ++i) {
    const auto& [name, weight] = read.tensors.matrices[i];
    EXPECT_EQ(name, written.tensors.matrices[i].first);
    EXPECT_EQ(weight.type, name == "transformer.wte.weight" ? parameters::QuantizedType::int8 : GetParam());
    EXPECT_TRUE(parameters::dequantize(weight).equal(parameters::dequantize(written.tensors.matrices[i].second)))
        << name;
  }
  for (size_t i = 0; i < read.tensors.others.size(); ++i)
    EXPECT_TRUE(read.tensors.others[i].second.equal(written.tensors.others[i].second));
  const std::string first = read_file(path_, ExitCode::disk);
  write_quantized(path_, read);
  EXPECT_EQ(read_file(path_, ExitCode::disk), first);
}

// Every eleventh byte, with each of its bits in turn: headers and records are longer.
TEST_P(QuantizedFileTest, FlippedBitsAreFound) {
  write_quantized(path_, model());
  const std::string whole = read_file(path_, ExitCode::disk);
  const size_t step = test::runs_long_tests() ? 11 : 101;
  for (size_t i = 0; i < whole.size(); i += step) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1 << i % 8);
    AtomicFile file(path_);
    file.write(damaged);
    file.commit(Durability::unsynced);
    EXPECT_THROW((void)read_quantized(path_), Error) << "byte " << i;
  }
  for (const size_t size : {size_t{0}, size_t{20}, whole.size() / 2, whole.size() - 1}) {
    AtomicFile file(path_);
    file.write(whole.substr(0, size));
    file.commit(Durability::unsynced);
    EXPECT_THROW((void)read_quantized(path_), Error) << size << " bytes";
  }
}

TEST_P(QuantizedFileTest, IsNoCheckpoint) {
  write_quantized(path_, model());
  EXPECT_ERROR((void)load_checkpoint(path_), ExitCode::checkpoint,
               "quantized model, which can be computed with and not trained");
  EXPECT_FALSE(is_quantized(folder_.path()));
  EXPECT_FALSE(is_quantized(folder_ / "absent"));
}

struct Fault {
  const char* name;
  std::string record;
  std::function<std::string(std::string)> change;
  const char* message;
};

std::string described(std::string content, const std::function<void(Json&)>& change) {
  Json json = Json::parse(content);
  change(json);
  return json.dump();
}

// Bytes in the place of those of the first value.
template <class T>
std::string with_first(std::string content, T value) {
  std::memcpy(content.data(), &value, sizeof value);
  return content;
}

TEST_P(QuantizedFileTest, HostileContentIsRefused) {
  const bool is_int8 = GetParam() == parameters::QuantizedType::int8;
  const std::string matrix = "data/transformer.h.0.attn.c_attn.weight", nan = "holds values that it cannot have";
  const Fault faults[] = {
      {"form", kQuantizedRecord, [](auto text) { return described(text, [](Json& j) { j["form"] = 2; }); },
       "another version"},
      {"type", kQuantizedRecord, [](auto text) { return described(text, [](Json& j) { j["type"] = "int2"; }); },
       "'int2'"},
      {"other type", kQuantizedRecord,
       [&](auto text) { return described(text, [&](Json& j) { j["type"] = is_int8 ? "int4" : "int8"; }); },
       "instead of"},
      {"shape", kQuantizedRecord,
       [](auto text) {
         return described(text, [](Json& j) { j["tensors"][0]["shape"] = {int64_t{1} << 40, int64_t{1} << 40}; });
       },
       "cannot be"},
      {"missing tensor", kQuantizedRecord,
       [](auto text) { return described(text, [](Json& j) { j["tensors"].erase(3); }); }, "is missing"},
      {"second tensor", kQuantizedRecord,
       [](auto text) { return described(text, [](Json& j) { j["tensors"].push_back(j["tensors"][0]); }); },
       "listed twice"},
      {"start", kQuantizedRecord, [](auto text) { return described(text, [](Json& j) { j["sample_start"] = 3; }); },
       "start from token 3"},
      {"no JSON", kQuantizedRecord, [](auto) { return "{"; }, "parse error"},
      {"deep", kQuantizedRecord, [](auto) { return std::string(10'000, '['); }, "nested too deeply"},
      {"other model", "config.yaml",
       [](std::string text) { return text.replace(text.find("n_embd: 6"), 9, "n_embd: 8"); }, "instead of"},
      {"no config", "config.yaml", [](auto) { return "absent"; }, "config.yaml"},
      {"other tokenizer", "tokenizer.json", [](auto) { return tokenizer::make_tokenizer("char", "abd")->to_json(); },
       "not the tokenizer"},
      {"no codes", matrix + ".codes", [](auto) { return "absent"; }, "codes"},
      {"NaN", "data/transformer.ln_f.weight",
       [](auto text) { return with_first(text, std::numeric_limits<float>::quiet_NaN()); }, nan.c_str()},
      {"infinite scale", "data/transformer.wte.weight.scales",
       [](auto text) { return with_first(text, std::numeric_limits<float>::infinity()); }, nan.c_str()},
      {"negative scale", "data/transformer.wte.weight.scales", [](auto text) { return with_first(text, -1.0F); },
       nan.c_str()},
      {"code -128", "data/transformer.wte.weight.codes", [](auto text) { return with_first(text, int8_t{-128}); },
       nan.c_str()},
  };
  for (const Fault& fault : faults) {
    write_quantized(path_, model());
    rewrite([&](const std::string& name, const std::string& content) {
      return name == fault.record ? fault.change(content) : content;
    });
    try {
      (void)read_quantized(path_);
      ADD_FAILURE() << fault.name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint) << fault.name;
      EXPECT_NE(std::string(error.what()).find(fault.message), std::string::npos) << fault.name << ": " << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << fault.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizedFileTest,
                         testing::Values(parameters::QuantizedType::int8, parameters::QuantizedType::int4),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace gpt::checkpoint
