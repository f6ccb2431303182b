#include "src/plan/terms/terms.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "gpt/model/gpt.h"
#include "support/source_folder.h"

namespace gpt::plan {
namespace {

// One that is not in the list would be left out of every estimate without a word.
TEST(Terms, OfEachFileAreInTheList) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_folder() + "/src/plan/terms"))
    if (entry.path().extension() == ".cpp") files.insert(entry.path().stem());
  files.erase("terms");
  EXPECT_EQ(terms::all().size(), files.size()) << testing::PrintToString(files);
}

TEST(Terms, OfATechniqueThatIsOffAreNothing) {
  ModelConfig model;
  model.vocab_size = 64;
  const TrainingConfig training;
  const ActivationForm form;
  const layout::ModelPart whole;
  const terms::RunPart run(model, training, form, whole);
  int of_every_run = 0;
  for (const terms::Term& term : terms::all()) {
    if (!term.memory) continue;
    terms::MemoryTerms sum;
    term.memory(run, sum);
    if (sum.use.total() + sum.use.host + sum.head + sum.block + sum.product + sum.passes + sum.apart != 0)
      ++of_every_run;
  }
  EXPECT_EQ(of_every_run, 4) << "weights and gradients, the optimizer's state, the blocks and what lies around them";
}

// Bytes of a base are those that the model itself has of it.
TEST(Terms, OfABaseInFewBitsAreWhatItTakes) {
  ModelConfig model;
  model.vocab_size = 64, model.n_layer = 2, model.n_embd = 128, model.n_head = 2;
  TrainingConfig training;
  training.tuning.lora.rank = 2;
  const ActivationForm form;
  const layout::ModelPart whole;
  double last = 0;
  for (const BaseType base : {BaseType::automatic, BaseType::bfloat16, BaseType::int8, BaseType::int4}) {
    training.tuning.lora.base = base;
    const terms::RunPart run(model, training, form, whole);
    terms::MemoryTerms sum;
    for (const terms::Term& term : terms::all())
      if (term.memory) term.memory(run, sum);
    EXPECT_EQ(sum.use.weights,
              static_cast<double>(model::GPT(model, at::kCPU, 1, {}, training.tuning).parameters().value_bytes()));
    EXPECT_TRUE(last == 0 || sum.use.weights < last);
    last = sum.use.weights;
  }
}

// Float32 beside the moments, and on the device wherever those are; an update reads the weights, and reads and writes the averages.
TEST(Terms, OfAveragesAreASlotOfTheStateAndAPassOverIt) {
  ModelConfig model;
  model.vocab_size = 64;
  TrainingConfig with, without;
  with.optimizer.ema_decay = 0.999;
  const ActivationForm form;
  const layout::ModelPart whole;
  for (const double offload : {0.0, 1.0}) {
    with.optimizer.offload = without.optimizer.offload = offload;
    const auto memory_of = [&](const TrainingConfig& training) {
      const terms::RunPart run(model, training, form, whole);
      terms::MemoryTerms sum;
      for (const terms::Term& term : terms::all())
        if (term.memory) term.memory(run, sum);
      return sum.use;
    };
    const report::MemoryUse some = memory_of(with), none = memory_of(without);
    const terms::RunPart run(model, with, form, whole);
    EXPECT_EQ(some.optimizer - none.optimizer, 4.0 * static_cast<double>(run.layout.trained_size));
    EXPECT_EQ(some.total() - none.total(), some.optimizer - none.optimizer);
    EXPECT_EQ(some.host, none.host);
  }
  const auto moved_by = [&](const TrainingConfig& training) {
    const terms::StepOperators step{.training = training,
                                    .model = model,
                                    .rows = layout::parameter_table(model),
                                    .types = {at::kFloat, at::kFloat, at::kFloat},
                                    .micro_steps = 1,
                                    .tokens = 8};
    terms::StepWork sum;
    for (const terms::Term& term : terms::all())
      if (term.work) term.work(step, sum);
    double bytes = 0;
    for (const auto& [part, work] : sum.of) bytes += work.bytes;
    return bytes;
  };
  EXPECT_EQ(moved_by(with) - moved_by(without), 12.0 * static_cast<double>(layout::parameter_count(model)));
}

}  // namespace
}  // namespace gpt::plan
