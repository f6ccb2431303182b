// Checkpoints come back bit for bit, and what cannot be one is refused with the reason.
#include "gpt/checkpoint/checkpoint.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/sample_checkpoint.h"
#include "container/records.h"
#include "gpt/config/load.h"
#include "gpt/container/container.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/optim/adamw.h"
#include "support/device_cases.h"

namespace gpt::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.contiguous(), right = b.contiguous();
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), a.nbytes()) == 0);
}

void expect_same_bits(const parameters::NamedTensors& a, const parameters::NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(same_bits(a[i].second, b[i].second)) << a[i].first;
  }
}

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "checkpoint_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/ckpt.pt";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // The reason why the file is refused.
  std::string refusal() const {
    try {
      read_checkpoint(path_);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint) << error.what();
      EXPECT_EQ(std::string(error.what()).find(path_), 0u) << error.what();
      return error.what();
    }
  }

  // Writes the sample with one record changed; an empty text leaves it out.
  void write_with(const std::string& changed, const std::string& text) const {
    const std::string original = folder_ + "/original.pt";
    save_checkpoint(original, test::sample_checkpoint());
    test::rewrite_record(original, path_, changed, [&](std::string& record) { return record = text, !text.empty(); });
  }

  std::string folder_, path_;
};

TEST_F(CheckpointTest, ComesBackBitForBit) {
  const Checkpoint saved = test::sample_checkpoint();
  save_checkpoint(path_, saved);
  const Checkpoint loaded = read_checkpoint(path_);
  EXPECT_EQ(static_cast<const Remembered&>(loaded), saved);
  expect_same_bits(loaded.model, saved.model);
  ASSERT_EQ(loaded.optimizer.slots.size(), saved.optimizer.slots.size());
  for (const auto& [slot, tensors] : saved.optimizer.slots)
    expect_same_bits(std::as_const(loaded.optimizer).slot(slot), tensors);
  EXPECT_TRUE(same_bits(loaded.optimizer.step_count, saved.optimizer.step_count));
  EXPECT_TRUE(same_bits(loaded.scaler_scale, saved.scaler_scale));
  EXPECT_TRUE(same_bits(loaded.scaler_growth_tracker, saved.scaler_growth_tracker));
  ASSERT_EQ(loaded.rng.size(), saved.rng.size());
  for (const auto& [name, state] : saved.rng) EXPECT_TRUE(same_bits(loaded.rng.at(name), state)) << name;
  EXPECT_EQ(loaded.data_round, saved.data_round);
  EXPECT_EQ(loaded.data_sample, saved.data_sample);
  EXPECT_EQ(loaded.skipped_steps, saved.skipped_steps);
  EXPECT_EQ(loaded.consecutive_skipped_steps, saved.consecutive_skipped_steps);
  EXPECT_TRUE(same_bits(loaded.spike_window, saved.spike_window));
  EXPECT_TRUE(same_bits(loaded.spike_accepted, saved.spike_accepted));
  EXPECT_EQ(loaded.spikes, saved.spikes);
  EXPECT_EQ(loaded.chosen_products, saved.chosen_products);
  EXPECT_EQ(config::dump(loaded.config), config::dump(saved.config));
  EXPECT_EQ(loaded.tokenizer, saved.tokenizer);
  EXPECT_EQ(loaded.text_format, saved.text_format);
  EXPECT_EQ(loaded.data_fingerprint, saved.data_fingerprint);
  EXPECT_EQ(loaded.environment, saved.environment);
}

TEST_F(CheckpointTest, SavedAgainItIsTheSameFile) {
  save_checkpoint(path_, test::sample_checkpoint());
  save_checkpoint(path_ + "2", read_checkpoint(path_));
  EXPECT_EQ(read_file(path_, ExitCode::checkpoint), read_file(path_ + "2", ExitCode::checkpoint));
}

TEST_F(CheckpointTest, ComesBackWithoutScalerAndWithAFiniteLoss) {
  Checkpoint saved = test::sample_checkpoint();
  saved.scaler_scale = saved.scaler_growth_tracker = at::Tensor();
  saved.environment.clear();
  saved.eval_sequences.reset();  // a run that an older program began
  for (const double loss : {1.4697, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0}) {
    saved.best_val_loss = loss;
    save_checkpoint(path_, saved);
    const Checkpoint loaded = read_checkpoint(path_);
    EXPECT_EQ(std::memcmp(&loaded.best_val_loss, &loss, sizeof(loss)), 0) << loss;
    EXPECT_FALSE(loaded.scaler_scale.defined());
    EXPECT_FALSE(loaded.scaler_growth_tracker.defined());
    EXPECT_TRUE(loaded.environment.empty());
    EXPECT_FALSE(loaded.eval_sequences);
  }
}

TEST_F(CheckpointTest, TakesViewsAndTensorsThatNeedGradients) {
  Checkpoint saved;
  const at::Tensor base = at::arange(24, at::kFloat).view({4, 6});
  saved.model = {{"transposed", base.t()}, {"part", base.narrow(1, 2, 3)}, {"leaf", base.clone().requires_grad_()}};
  save_checkpoint(path_, saved);
  const Checkpoint loaded = read_checkpoint(path_);
  expect_same_bits(loaded.model, saved.model);
  EXPECT_TRUE(loaded.model[0].second.is_contiguous());
  EXPECT_FALSE(loaded.model[2].second.requires_grad());
}

// On any device; they come back on the CPU.
class CheckpointOnDevice : public DeviceTest {};

TEST_P(CheckpointOnDevice, TakesItsTensorsFromThere) {
  Checkpoint saved = test::sample_checkpoint();
  const std::string path = ::testing::TempDir() + "device_" + std::to_string(getpid()) + ".pt";
  const Checkpoint expected = saved;
  for (auto& [name, tensor] : saved.model) tensor = tensor.to(device());
  for (const std::string_view slot : optim::kOptimizerSlots) {
    for (auto& [name, tensor] : saved.optimizer.slot(slot)) tensor = tensor.to(device());
  }
  for (at::Tensor* scalar : {&saved.optimizer.step_count, &saved.scaler_scale, &saved.scaler_growth_tracker}) {
    *scalar = scalar->to(device());
  }
  save_checkpoint(path, saved);
  const Checkpoint loaded = read_checkpoint(path);
  fs::remove(path);
  expect_same_bits(loaded.model, expected.model);
  for (const auto& [slot, tensors] : expected.optimizer.slots) {
    expect_same_bits(std::as_const(loaded.optimizer).slot(slot), tensors);
  }
  EXPECT_TRUE(same_bits(loaded.optimizer.step_count, expected.optimizer.step_count));
  EXPECT_TRUE(same_bits(loaded.scaler_scale, expected.scaler_scale));
  EXPECT_TRUE(same_bits(loaded.scaler_growth_tracker, expected.scaler_growth_tracker));
}

INSTANTIATE_ON_DEVICES(CheckpointOnDevice);

TEST_F(CheckpointTest, OwnsItsValuesWhenTheFileIsGone) {
  save_checkpoint(path_, test::sample_checkpoint());
  const Checkpoint loaded = read_checkpoint(path_);
  fs::resize_file(path_, 0);
  expect_same_bits(loaded.model, test::sample_checkpoint().model);
}

TEST_F(CheckpointTest, ValuesThatAreNotFiniteAreNotSaved) {
  save_checkpoint(path_, test::sample_checkpoint());
  const std::string before = read_file(path_, ExitCode::checkpoint);
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    for (const std::string group : {"model", "exp_avg", "exp_avg_sq"}) {
      for (const size_t index : {0, 1, 3, 4}) {  // float32, bfloat16, float64, float16 in the model
        Checkpoint damaged = test::sample_checkpoint();
        auto& [name, tensor] = (group == "model" ? damaged.model : damaged.optimizer.slot(group))[index];
        tensor.view(-1).narrow(0, tensor.numel() - 1, 1).fill_(value);
        try {
          save_checkpoint(path_, damaged);
          FAIL() << name << " = " << value << " was saved";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ExitCode::numerics);
          EXPECT_NE(std::string(error.what()).find("'" + name + "'"), std::string::npos) << error.what();
        }
      }
    }
  }
  EXPECT_EQ(read_file(path_, ExitCode::checkpoint), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(CheckpointTest, ItsPickleIsNeverLookedAt) {
  write_with("data.pkl", "cos\nsystem\n(S'touch " + folder_ + "/executed'\ntR.");
  expect_same_bits(read_checkpoint(path_).model, test::sample_checkpoint().model);
  EXPECT_FALSE(fs::exists(folder_ + "/executed"));
}

// What a key means that its program did not know: what that program did.
TEST_F(CheckpointTest, OneFromBeforeAKeyMeansWhatWasDoneThen) {
  save_checkpoint(path_, test::sample_checkpoint());
  EXPECT_EQ(read_checkpoint(path_).config.training.precision.amp_mode, AmpMode::automatic);
  EXPECT_EQ(read_checkpoint(path_).config.data.document_separator, "auto");
  std::string text(container::ContainerReader(path_).text("config.yaml"));
  for (const char* key : {"amp_mode:", "document_separator:"}) {
    const size_t begin = text.find(key);
    ASSERT_NE(begin, std::string::npos) << key;
    text.erase(begin, text.find('\n', begin) - begin);
  }
  write_with("config.yaml", text);
  EXPECT_EQ(read_checkpoint(path_).config.training.precision.amp_mode, AmpMode::autocast);
  EXPECT_EQ(read_checkpoint(path_).config.data.document_separator, "none") << "such lines were text";
}

TEST_F(CheckpointTest, ContainersThatAreNoCheckpointAreRefused) {
  for (const char* record : {"checkpoint.json", "config.yaml", "tokenizer.json", "data/model/scalar", "data/rng/cpu"}) {
    write_with(record, "");
    EXPECT_NE(refusal().find(std::string("no record '") + record + "'"), std::string::npos) << refusal();
  }
  write_with("config.yaml", "model:\n  n_layerz: 3\n");
  EXPECT_NE(refusal().find("n_layerz"), std::string::npos) << refusal();
  for (const char* text :
       {"{", "3", "[]", "{}", "{\"values\": {}}", "\xff", "{\"values\": {\"step\": 1}, \"tensors\": []}"}) {
    write_with("checkpoint.json", text);
    EXPECT_NE(refusal(), "") << text;
  }
  write_with("checkpoint.json", std::string(100'000, '['));
  EXPECT_NE(refusal().find("nested too deeply"), std::string::npos) << refusal();
  write_with("checkpoint.json", std::string(20 << 20, ' '));
  EXPECT_NE(refusal().find("too large"), std::string::npos) << refusal();
}

TEST_F(CheckpointTest, ImpossibleDescriptionsAreRefused) {
  save_checkpoint(path_, test::sample_checkpoint());
  const Json good = Json::parse(container::ContainerReader(path_).text("checkpoint.json"));
  ASSERT_EQ(good["tensors"][0]["name"], "model/transformer.wte.weight");
  ASSERT_EQ(good["tensors"][5]["name"], "model/empty");
  const int64_t huge = int64_t{1} << 62;
  const std::vector<std::pair<std::string, Json>> changes = {
      {"/tensors/0/shape", {7, 6}},
      {"/tensors/0/shape", {7}},
      {"/tensors/0/shape", {-7, -5}},
      {"/tensors/0/shape", {7.0, 5.0}},
      {"/tensors/0/shape", {huge, 8}},
      {"/tensors/0/shape", Json::array({huge + 35})},  // 140 bytes modulo 2^64, as there are
      {"/tensors/5/shape", {0, huge, huge}},
      {"/tensors/0/shape", {(uint64_t{1} << 63), 5}},
      {"/tensors/0/shape", "7, 5"},
      {"/tensors/0/shape", 35},
      {"/tensors/0/shape", nullptr},
      {"/tensors/0/dtype", "float64"},
      {"/tensors/0/dtype", "float31"},
      {"/tensors/0/dtype", 32},
      {"/tensors/0/name", "model/transformer.ln_f.weight"},
      {"/tensors/0/name", "model/missing"},
      {"/tensors/0/name", "../../etc/passwd"},
      {"/tensors/0", 1},
      {"/tensors", nullptr},
      {"/values/step", -1},
      {"/values/step", 1.5},
      {"/values/step", "42"},
      {"/values/step", true},
      {"/values/step", (uint64_t{1} << 63)},
      {"/values/best_val_loss", "low"},
      {"/tokenizer", 3},
      {"/values/eval_sequences", -5},
      {"/values/evaluations_since_best", "none"},
      {"/values/data", 3},
      {"/values/data/epoch", nullptr},
      {"/values/data/fingerprint", 3},
      {"/values/environment", {1, 2}},
  };
  for (const auto& [where, what] : changes) {
    Json changed = good;
    changed[Json::json_pointer(where)] = what;
    write_with("checkpoint.json", changed.dump());
    EXPECT_NE(refusal(), "") << where << " = " << what.dump();
  }
  Json twice = good;
  twice["tensors"].push_back(twice["tensors"][0]);
  write_with("checkpoint.json", twice.dump());
  EXPECT_NE(refusal().find("listed twice"), std::string::npos) << refusal();
  write_with("data/somewhere", "");
  EXPECT_EQ(refusal(), "");
}

TEST_F(CheckpointTest, TensorsWithoutAPlaceAreRefused) {
  save_checkpoint(path_, test::sample_checkpoint());
  const container::ContainerReader reader(path_);
  for (const char* name : {"evil/x", "optimizer/steps", "plain"}) {
    test::Records records;
    for (const char* kept : {"data.pkl", "config.yaml", "tokenizer.json"})
      records.emplace_back(kept, reader.text(kept));
    Json json = Json::parse(reader.text("checkpoint.json"));
    json["tensors"] = Json::array({{{"name", name}, {"dtype", "uint8"}, {"shape", {1}}}});
    records.emplace_back("checkpoint.json", json.dump());
    records.emplace_back(std::string("data/") + name, "x");
    test::write_records(path_ + "2", records);
    try {
      read_checkpoint(path_ + "2");
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("unknown tensor"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace gpt::checkpoint
