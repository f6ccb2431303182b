// Every two techniques that go together train, are saved, go on to the bit and can be measured: in configurations that have all such pairs
// between them or, with GPT_ALL_TESTS, a pair at a time.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/tiny_bench_run.h"
#include "gpt/bench/measurement.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/config/load.h"
#include "gpt/config/rules.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/plan/resolve.h"
#include "gpt/run/quantized_forward.h"
#include "gpt/run/run.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/long_test.h"
#include "support/restore_context.h"

namespace gpt::bench {
namespace {

// Keys that ask for another device, other processes, other data or another run to begin with, or that name sizes.
const std::set<std::string> kElsewhere = {"device",
                                          "data.max_chars",
                                          "data.text",
                                          "data.dataset",
                                          "data.bin",
                                          "data.metadata",
                                          "data.validation_bin",
                                          "model.preset",
                                          "training.init_from",
                                          "training.resume_from",
                                          "training.learning_rate",
                                          "distributed.processes",
                                          "distributed.tensor_parallel",
                                          "distributed.pipeline_parallel",
                                          "distributed.restarts",
                                          "distributed.min_processes"};

struct Value {
  size_t key;  // of the techniques
  std::string key_name, text;
};

using Pair = std::pair<size_t, size_t>;  // of values, the smaller first

// Configurations of a base, each with many values at once.
class Combinations {
 public:
  Combinations(Config base, std::string teacher) : base_(std::move(base)), info_(device::describe_device(at::kCPU)) {
    for (const config::Technique& technique : config::techniques()) {
      if (kElsewhere.contains(technique.key)) continue;
      for (const std::string& text : technique.values)
        values_.push_back(
            {keys_, technique.key, technique.key == "training.distill_from" && !text.empty() ? teacher : text});
      ++keys_;
    }
  }

  // The pairs that can be had, whatever else they need.
  std::vector<Pair> pairs() const {
    std::vector<Pair> result;
    for (size_t i = 0; i < values_.size(); ++i)
      for (size_t j = i + 1; j < values_.size(); ++j)
        if (values_[i].key != values_[j].key && with({i, j})) result.emplace_back(i, j);
    return result;
  }

  // The base with these two and what they need; nothing where they exclude each other.
  std::optional<Config> with(const Pair& pair) const {
    Config config = base_;
    config::Keys keys(config);
    const Value &one = values_[pair.first], &other = values_[pair.second];
    keys.set(one.key_name, one.text);
    keys.set(other.key_name, other.text);
    const auto is_kept = [&](const std::string& key) {
      return key == one.key_name || key == other.key_name || kElsewhere.contains(key);
    };
    try {
      if (!config::cure(config, is_kept, facts_of_run(config))) return std::nullopt;
    } catch (const Error&) { return std::nullopt; }  // a precision that this processor does not have
    return is_allowed(config) ? std::optional(config) : std::nullopt;
  }

  // The pair, and of every other key the value with which most pairs come that are still missing.
  Config fill(const Pair& pair, std::set<Pair>& missing) const {
    Config config = *with(pair);
    config::Keys keys(config);
    std::vector<size_t> chosen{pair.first, pair.second};
    for (size_t key = 0; key < keys_; ++key) {
      if (key == values_[pair.first].key || key == values_[pair.second].key) continue;
      std::optional<size_t> best;
      int64_t most = 0;
      const std::string name = name_of(key), before = keys.value(name);
      for (size_t i = 0; i < values_.size(); ++i) {
        if (values_[i].key != key) continue;
        const int64_t gain = count_missing(i, chosen, missing);
        keys.set(name, values_[i].text);
        if (gain > most && is_allowed(config)) best = i, most = gain;
      }
      keys.set(name, best ? values_[*best].text : before);
      if (best) chosen.push_back(*best);
    }
    for (const size_t i : chosen)
      for (const size_t j : chosen) missing.erase({i, j});
    return config;
  }

  std::string text(const Pair& pair) const {
    const Value &one = values_[pair.first], &other = values_[pair.second];
    return one.key_name + ": " + one.text + " with " + other.key_name + ": " + other.text;
  }

 private:
  const std::string& name_of(size_t key) const {
    return std::find_if(values_.begin(), values_.end(), [&](const Value& value) { return value.key == key; })->key_name;
  }

  static int64_t count_missing(size_t value, const std::vector<size_t>& chosen, const std::set<Pair>& missing) {
    return std::count_if(chosen.begin(), chosen.end(), [&](size_t other) {
      return missing.contains({std::min(value, other), std::max(value, other)});
    });
  }

  config::Facts facts_of_run(const Config& config) const {
    config::Facts facts = facts_of(info_, device::resolve_precision(config.training.precision, info_));
    facts.processes = facts.data_processes = 1;
    facts.has_validation = config.data.validation_fraction > 0;
    return facts;
  }

  // As far as can be told before the run is made.
  bool is_allowed(const Config& config) const {
    try {
      return run::quantization_obstacle(config.training.quantized, info_).empty() &&
             !config::find_refusal(config, facts_of_run(config));
    } catch (const Error&) { return false; }
  }

  Config base_;
  device::DeviceInfo info_;
  std::vector<Value> values_;
  size_t keys_ = 0;
};

std::string changes_from(const Config& base, const Config& config) {
  std::string text;
  for (const config::Change& change : config::difference(base, config)) text += "\n" + change.key + ": " + change.after;
  return text;
}

class TechniquePairs : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }

  Config base() const {
    Config config = tiny_bench_run(folder_);
    // One with a token between documents, and the teacher's whatever is held out of the text.
    config.data.tokenizer =
        folder_.file("tokenizer.json",
                     tokenizer::make_tokenizer("bpe:300", read_file(config.data.text, ExitCode::data))->to_json());
    config.model.n_layer = 3, config.model.block_size = 64;
    config.training.batch_size = 2;
    config.training.precision = {};
    config.data.num_workers = 0;
    return config;
  }

  static double update(run::Run& run) {
    EXPECT_TRUE(run.update([] { return false; }));
    return run.step().loss().item<double>();
  }

  // Two updates, then a third after the run was saved, and the same in a run that goes on from there.
  void train(const Config& config) const {
    const run::Setup setup = plan::resolve(config);
    run::Run run(setup);
    update(run), update(run);
    checkpoint::save_checkpoint(folder_ / "ckpt.pt", run.state().capture());
    const double loss = update(run);
    run::Beginning begins;
    begins.start =
        run::StartingPoint{.checkpoint = checkpoint::load_checkpoint(folder_ / "ckpt.pt"), .path = "ckpt.pt"};
    run::Run resumed(setup, begins);
    EXPECT_EQ(update(resumed), loss);
  }

  std::string save_teacher() const {
    const run::Setup setup = plan::resolve(base());
    const run::Run run(setup);
    checkpoint::save_checkpoint(folder_ / "teacher.pt", run.state().capture());
    return folder_ / "teacher.pt";
  }

  const ScratchFolder folder_;
  RestoreContext restore_;
};

TEST_F(TechniquePairs, TrainGoOnAndAreMeasured) {
  const Combinations combinations(base(), save_teacher());
  const std::vector<Pair> pairs = combinations.pairs();
  EXPECT_GT(pairs.size(), 1000u);
  std::set<Pair> missing(pairs.begin(), pairs.end());
  const bool is_each = test::runs_long_tests();
  int64_t runs = 0;
  for (const Pair& pair : pairs) {
    if (!is_each && !missing.contains(pair)) continue;
    const Config config = is_each ? *combinations.with(pair) : combinations.fill(pair, missing);
    SCOPED_TRACE(combinations.text(pair) + changes_from(base(), config));
    try {
      train(config);
      const Measurement measured = bench::measure(config, {.warm_up = 1, .updates = 1});
      EXPECT_GT(measured.tokens_per_second, 0);
    } catch (const std::exception& error) { ADD_FAILURE() << error.what(); }
    ++runs;
  }
  std::printf("%lld runs for %zu pairs\n", static_cast<long long>(runs), pairs.size());
}

}  // namespace
}  // namespace gpt::bench
