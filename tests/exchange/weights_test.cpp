// Weights there and back, and what is refused on the way.
#include "gpt/exchange/weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/model/gpt.h"
#include "support/expect_error.h"

namespace gpt::exchange {
namespace {

ModelConfig small_model(bool is_gpt2) {
  ModelConfig model;
  model.n_layer = 2;
  model.n_head = 4;
  model.n_embd = 16;
  model.block_size = 8;
  model.vocab_size = 10;  // padded to 64 rows
  if (!is_gpt2) {
    model.n_kv_head = 2;
    return model;
  }
  model.norm = Norm::layernorm;
  model.mlp = Mlp::gelu;
  model.position = Position::learned;
  model.bias = true;
  return model;
}

// Every value another one, so that nothing can be mistaken for something else; padding rows are zero.
parameters::NamedTensors numbered_weights(const ModelConfig& model) {
  parameters::NamedTensors weights = model::GPT(model, at::kCPU, /*seed=*/1).parameters().values();
  int64_t next = 1;
  for (auto& [name, tensor] : weights) {
    tensor = at::arange(next, next + tensor.numel(), at::kFloat).reshape(tensor.sizes()).mul_(0x1p-8);
    next += tensor.numel();
    if (tensor.size(0) == model.padded_vocab())
      tensor.narrow(0, *model.vocab_size, model.padded_vocab() - *model.vocab_size).zero_();
  }
  return weights;
}

class WeightsTest : public testing::TestWithParam<bool> {
 protected:
  using Tensors = std::map<std::string, at::Tensor>;

  void write(const Tensors& tensors, const std::string& name = "model.safetensors",
             at::ScalarType type = at::kFloat) const {
    std::filesystem::create_directories(folder_ / "model");
    written_weights(folder_ / ("model/" + name), tensors, type)->commit();
  }
  parameters::NamedTensors read() const { return read_weights(folder_ / "model", model_, family_); }
  void expect_equal_weights(const parameters::NamedTensors& read) const {
    ASSERT_EQ(read.size(), weights_.size());
    for (size_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(read[i].first, weights_[i].first);
      EXPECT_TRUE(read[i].second.equal(weights_[i].second)) << read[i].first;
    }
  }

  const ScratchFolder folder_;
  const ModelConfig model_ = small_model(GetParam());
  const Family& family_ = family_of(model_, "here", "transformers");
  const parameters::NamedTensors weights_ = numbered_weights(model_);
  const Tensors theirs_ = to_hugging_face(model_, family_, weights_);
};

TEST_P(WeightsTest, ComeBackBitForBit) {
  write(theirs_);
  expect_equal_weights(read());
  expect_equal_weights(read_weights(folder_ / "model/model.safetensors", model_, family_));
}

TEST_P(WeightsTest, OfSixteenBitsAreReadAsTheyAre) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    write(theirs_, "model.safetensors", type);
    const parameters::NamedTensors read_back = read();
    for (size_t i = 0; i < read_back.size(); ++i)
      EXPECT_TRUE(read_back[i].second.equal(weights_[i].second.to(type).to(at::kFloat)));
  }
}

// As safetensors' save_model() leaves tied tensors: of the two names the first in the alphabet, and the other one in the metadata.
TEST_P(WeightsTest, ATiedTableIsReadUnderTheHeadsName) {
  const std::string embedding = GetParam() ? "transformer.wte.weight" : "model.embed_tokens.weight";
  Tensors renamed = theirs_;
  renamed.insert({"lm_head.weight", renamed.extract(embedding).mapped()});
  write(renamed);
  expect_equal_weights(read());
}

TEST_P(WeightsTest, AliasesOfTheMetadataAreFollowed) {
  const std::string name = GetParam() ? "transformer.h.0.ln_1.weight" : "model.layers.0.input_layernorm.weight";
  Tensors renamed = theirs_;
  renamed.insert({"kept", renamed.extract(name).mapped()});
  write(renamed);
  EXPECT_ERROR(read(), ExitCode::checkpoint, "tensor '" + name + "' is missing");
  std::string bytes = read_file(folder_ / "model/model.safetensors", ExitCode::checkpoint);
  const std::string plain = R"({"format":"pt"})", noted = R"({"format":"pt",")" + name + R"(":"kept"})";
  uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof length);
  length += noted.size() - plain.size();
  bytes.replace(bytes.find(plain), plain.size(), noted);
  std::memcpy(bytes.data(), &length, sizeof length);
  folder_.file("model/model.safetensors", bytes);
  expect_equal_weights(read());
}

TEST_P(WeightsTest, OfAnOlderFolderArePicklesThatOthersConvert) {
  folder_.file("model/pytorch_model.bin", "");
  EXPECT_ERROR(read(), ExitCode::checkpoint,
               "its weights are in pytorch_model.bin, a Python pickle, which is never opened; transformers writes");
}

TEST_P(WeightsTest, AreReadFromSeveralFilesWithAnIndex) {
  Tensors first, second;
  std::string map;
  for (const auto& [name, tensor] : theirs_) {
    const bool is_first = first.size() <= second.size();
    (is_first ? first : second)[name] = tensor;
    map += (map.empty() ? "\"" : ",\"") + name + "\":\"" + (is_first ? "a.safetensors\"" : "b.safetensors\"");
  }
  write(first, "a.safetensors");
  write(second, "b.safetensors");
  const auto index = [&](const std::string& text) { folder_.file("model/model.safetensors.index.json", text); };
  index("{\"weight_map\":{" + map + "}}");
  expect_equal_weights(read());
  index("{\"weight_map\":{\"x\":\"a.safetensors\"," + map + "}}");
  EXPECT_ERROR(read(), ExitCode::checkpoint, "tensor 'x' is missing, which the index places here");
  for (const std::string file : {"../a.safetensors", "/a.safetensors", "a.bin"}) {
    index("{\"weight_map\":{\"x\":\"" + file + "\"}}");
    EXPECT_ERROR(read(), ExitCode::checkpoint, "the name of a .safetensors file beside it is needed");
  }
  index("{\"weight_map\":{\"x\":1}}");
  EXPECT_ERROR(read(), ExitCode::checkpoint, "the name of a .safetensors file beside it is needed");
  for (const char* text : {"{", "[]", "{\"weight_map\":[]}"}) {
    index(text);
    EXPECT_ERROR(read(), ExitCode::checkpoint, "it has no weight_map of names and files");
  }
}

TEST_P(WeightsTest, AreWrittenAsSeveralFilesWhereOneWouldBeTooLarge) {
  const std::string folder = folder_ / "model";
  std::filesystem::create_directories(folder);
  int64_t bytes = 0, largest = 0;
  for (const auto& [name, tensor] : theirs_)
    bytes += 4 * tensor.numel(), largest = std::max<int64_t>(largest, 4 * tensor.numel());
  const auto files = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
    return names;
  };
  const auto most = static_cast<double>(std::max(largest, bytes / 3 + 1));
  WeightsInFolder(folder, theirs_, at::kFloat, most).commit();
  const std::set<std::string> several = files();
  EXPECT_GT(several.size(), 2);
  EXPECT_TRUE(several.contains("model.safetensors.index.json"));
  for (const std::string& name : several) {
    if (name.ends_with(".json")) continue;
    int64_t in_file = 0;
    const SafetensorsReader reader(folder + "/" + name);
    for (const StoredTensor& tensor : reader.tensors()) in_file += std::ssize(tensor.bytes);
    EXPECT_LE(static_cast<double>(in_file), most) << name;
  }
  expect_equal_weights(read());
  WeightsInFolder(folder, theirs_, at::kFloat, 1).commit();
  EXPECT_EQ(files().size(), theirs_.size() + 1) << "a file for each tensor, and none of before";
  expect_equal_weights(read());
  WeightsInFolder(folder, theirs_, at::kFloat, static_cast<double>(bytes)).commit();
  EXPECT_EQ(files(), std::set<std::string>{"model.safetensors"});
  expect_equal_weights(read());
}

TEST_P(WeightsTest, OfABaseModelHaveNoPrefix) {
  Tensors bare;
  for (const auto& [name, tensor] : theirs_) bare[name.substr(name.find('.') + 1)] = tensor;
  bare[GetParam() ? "h.0.attn.bias" : "layers.0.self_attn.rotary_emb.inv_freq"] = at::zeros({1, 1, 8, 8});  // computed
  write(bare);
  expect_equal_weights(read());
}

TEST_P(WeightsTest, ThatDoNotFitAreRefusedByName) {
  const auto refused = [&](const std::string& part, const auto& change) {
    Tensors tensors = theirs_;
    change(tensors);
    write(tensors);
    EXPECT_ERROR(read(), ExitCode::checkpoint, folder_ / "model cannot be used: " + part);
  };
  const std::string name = theirs_.begin()->first;
  const at::Tensor tensor = theirs_.begin()->second;
  refused("tensor '" + name + "' is missing", [&](Tensors& t) { t.erase(name); });
  refused("tensor '" + name + "' has the shape [3]; by config.json it is [",
          [&](Tensors& t) { t[name] = at::zeros({3}); });
  refused("tensor 'model.layers.0.self_attn.q_norm.weight' has no place in",
          [](Tensors& t) { t["model.layers.0.self_attn.q_norm.weight"] = at::zeros({4}); });
  refused("tensor 'lm_head.weight' is not the embedding",
          [](Tensors& t) { t["lm_head.weight"] = at::zeros({10, 16}); });
  write(theirs_);
  Tensors with_head = theirs_;
  with_head["lm_head.weight"] = weights_.front().second.narrow(0, 0, 10);
  write(with_head);
  expect_equal_weights(read());
}

TEST_P(WeightsTest, ThatAreNoNumbersAreRefused) {
  Tensors tensors = theirs_;
  const std::string name = tensors.begin()->first;
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    tensors[name] = at::full(theirs_.at(name).sizes(), value, at::kFloat);
    EXPECT_ERROR(write(tensors), ExitCode::numerics, "'" + name + "' holds values that are not finite in F32");
    std::vector<TensorForm> forms;
    for (const auto& [n, t] : tensors) forms.push_back({n, "F32", t.sizes().vec()});
    std::filesystem::create_directories(folder_ / "model");
    SafetensorsWriter file(folder_ / "model/model.safetensors", forms);
    for (const auto& [n, t] : tensors) {
      const at::Tensor values = t.contiguous();
      file.add({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
    }
    file.commit();
    EXPECT_ERROR(read(), ExitCode::checkpoint, "tensor '" + name + "' holds values that are not finite");
  }
  tensors[name] = at::full(theirs_.at(name).sizes(), 1e5, at::kFloat);
  EXPECT_ERROR(write(tensors, "model.safetensors", at::kHalf), ExitCode::numerics,
               "not finite in F16; use --dtype float32");
}

TEST(Weights, OfAModelWithoutBiasesAreWrittenWithZeros) {
  ModelConfig model = small_model(/*is_gpt2=*/true);
  model.bias = false;
  const auto theirs = to_hugging_face(model, kGpt2Family, numbered_weights(model));
  EXPECT_TRUE(theirs.at("transformer.h.1.attn.c_attn.bias").equal(at::zeros({48})));
  EXPECT_EQ(theirs.at("transformer.wte.weight").size(0), 10);
}

TEST(Weights, OfAModelThatSeesImagesAreThoseOfItsTextModel) {
  const ScratchFolder folder;
  ModelConfig model = small_model(/*is_gpt2=*/false);
  model.tie_weights = false;
  const parameters::NamedTensors weights = numbered_weights(model);
  const std::map<std::string, at::Tensor> alone = to_hugging_face(model, kLlamaFamily, weights);
  for (const auto& [instead, of_head] : {std::pair("language_model.model.", "language_model."),
                                         std::pair("model.language_model.", ""), std::pair("model.text_model.", "")}) {
    std::map<std::string, at::Tensor> all{{"model.vision_tower.a", at::zeros({2})}, {"visual.b", at::zeros({2})}};
    for (const auto& [name, values] : alone)
      all[name.starts_with("model.") ? instead + name.substr(6) : of_head + name] = values;
    written_weights(folder / "a.safetensors", all, at::kFloat)->commit();
    const parameters::NamedTensors read = read_weights(folder / "a.safetensors", model, kLlamaFamily);
    ASSERT_EQ(read.size(), weights.size());
    for (size_t i = 0; i < read.size(); ++i) EXPECT_TRUE(read[i].second.equal(weights[i].second)) << read[i].first;
  }
}

TEST(Weights, OfAnotherTypeAreRefused) {
  const ScratchFolder folder;
  const ModelConfig model = small_model(/*is_gpt2=*/false);
  std::vector<TensorForm> forms;
  for (const Counterpart& part : counterparts(model, kLlamaFamily)) forms.push_back({part.name, "I32", part.shape});
  SafetensorsWriter file(folder / "a.safetensors", forms);
  for (const TensorForm& form : forms) {
    const at::Tensor values = at::zeros(form.shape, at::kInt);
    file.add({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
  }
  file.commit();
  EXPECT_ERROR(read_weights(folder / "a.safetensors", model, kLlamaFamily), ExitCode::checkpoint,
               "is I32; F32, F16 or BF16 is needed");
}

INSTANTIATE_TEST_SUITE_P(Families, WeightsTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "gpt2" : "llama"; });

}  // namespace
}  // namespace gpt::exchange
