#include "gpt/plan/out_of_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gpt/device/cards.h"
#include "gpt/plan/estimates.h"
#include "plan/gpt2.h"

namespace gpt::plan {
namespace {

std::vector<std::string> explained(const run::Shortage& shortage, double available, double data = 0) {
  Config config = gpt2_small_run(16, 4);
  config.training.execution.compile_mode = CompileMode::standard;  // graphs would need memory of their own
  return explain_shortage(shortage, {config, device::find_card("RTX 4090")->describe(), "flash"},
                          {.available = available, .program = 600e6, .data = data});
}

TEST(ExplainShortage, TellsPartsSettingsThatFitAndWhatIsLeft) {
  const run::Shortage shortage{.where = "in step 1",
                               .requested = 512e6,
                               .free = 120e6,
                               .held = report::MemoryUse{.weights = 750e6, .gradients = 500e6, .activations = 2e9}};
  const std::vector<std::string> lines = explained(shortage, 8.4e9);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "Tensors held 3.25 GB: weights 750 MB, gradients 500 MB, activations 2.00 GB");
  EXPECT_EQ(lines[1].find("The run needs about "), 0u) << lines[1];
  for (const char* part : {", and it may use 8.40 GB: ", "weights ", "gradients ", "optimizer ", "activations ",
                           "logits ", "workspace ", "program 600 MB"})
    EXPECT_NE(lines[1].find(part), std::string::npos) << part;
  EXPECT_EQ(lines[2].find("What would fit: training.batch_size: 8 and training.gradient_accumulation_steps: 8, the "
                          "same effective batch (about "),
            0u)
      << lines[2];
  EXPECT_NE(lines[2].find("), or training.offload_optimizer: 1 (about "), std::string::npos) << lines[2];
  EXPECT_EQ(lines[3], "Nothing had been saved: the run begins anew");
}

TEST(ExplainShortage, ARunThatIsSavedIsOfferedFirstWhatItCanResumeWith) {
  run::Shortage shortage{.is_saved = true};
  shortage.what_is_left = "Step 8 is saved";
  const std::vector<std::string> lines = explained(shortage, 8.4e9);
  ASSERT_EQ(lines.size(), 3u);  // nobody counted what tensors held
  EXPECT_EQ(lines[1].find("What would fit: training.offload_optimizer: 1 (about "), 0u) << lines[1];
  EXPECT_NE(lines[1].find("the same effective batch (about "), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find(", as a new run with --restart)"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[2], "Step 8 is saved");
}

// The run itself is not too large: no setting of it is to blame.
TEST(ExplainShortage, MemoryThatOthersTookIsTheirs) {
  const std::vector<std::string> lines = explained({.is_taken_by_others = true}, 1.2e9);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].find("The run fits where other programs leave it the memory"), 0u) << lines[0];
}

TEST(NameSettingsThatFit, WhereNotEvenOneSequenceDoes) {
  const Config config = gpt2_small_run(16, 4);
  const device::DeviceInfo device = device::find_card("GTX 1650 Ti")->describe();
  const MemoryBudget memory{.available = 2.5e9, .program = 600e6};
  Check check = failed("memory of the run", "", "not even one sequence fits");
  name_settings_that_fit(check, {config, device, "efficient"}, memory);
  EXPECT_EQ(check.fix.find("set training."), 0u) << check.fix;
  EXPECT_NE(check.fix.find("training.gradient_checkpointing: block and "), std::string::npos) << check.fix;
  EXPECT_NE(check.fix.find("training.batch_size: "), std::string::npos) << check.fix;

  check = failed("memory of the run", "", "lower model.n_layer");
  name_settings_that_fit(check, {config, device, "efficient"}, {.available = 0.7e9, .program = 600e6});
  EXPECT_EQ(check.fix, "lower model.n_layer");
}

TEST(ExplainShortage, WhereNothingFitsTheModelIsTooLarge) {
  const std::vector<std::string> lines = explained({}, 1.2e9);
  EXPECT_EQ(lines[1], "No setting makes it fit: lower model.n_layer, model.n_embd or model.block_size");
}

// The run did not fit, so that what is offered must be less than it, even where the estimate has it fit.
TEST(ExplainShortage, AnEstimateThatFitsIsNotBelieved) {
  const std::vector<std::string> lines = explained({}, 400e9);
  EXPECT_NE(lines[1].find("training.batch_size: "), std::string::npos) << lines[1];
}

}  // namespace
}  // namespace gpt::plan
