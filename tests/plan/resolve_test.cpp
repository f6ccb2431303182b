// Whatever a configuration leaves open has been chosen in the result, with its reason.
#include "gpt/plan/resolve.h"

#include <gtest/gtest.h>

#include "gpt/run/run.h"
#include "plan/text_run.h"
#include "support/device_cases.h"

namespace gpt::plan {
namespace {

class ResolveTest : public DeviceTest, protected TextRun {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    config_.device = device().str();
    config_.model.vocab_size.reset();
    config_.training.batch_size = 0;
    config_.training.total_batch_size = 12;
    config_.training.schedule.max_steps = 2;
  }

  run::Setup resolved(run::Beginning begins) const {
    return resolve(run::load_data(config_, {}, begins), device(), config_.training.precision,
                   distributed::Group({}, at::kCPU, "", /*timeout=*/10));
  }
};

TEST_P(ResolveTest, LeavesNothingOpen) {
  const run::Setup setup = resolved({});
  EXPECT_EQ(setup.config.model.vocab_size, corpus_.vocab_size);
  EXPECT_EQ(setup.config.training.batch_size * setup.config.training.gradient_accumulation_steps, 12);
  EXPECT_NE(setup.config.training.precision.dtype, Dtype::automatic);
  EXPECT_EQ(setup.config.training.precision.dtype, setup.precision.dtype);
  EXPECT_FALSE(setup.precision.reason.empty());
  EXPECT_TRUE(setup.batch_reason.starts_with("training.batch_size: auto chose ")) << setup.batch_reason;
}

TEST_P(ResolveTest, IsTheSameForARunThatIsMeasured) {
  const run::Setup measured = resolve(config_), trained = resolved({});
  EXPECT_EQ(config::dump(measured.config), config::dump(trained.config));
}

// As gpt-diagnose does, which may have neither the corpus nor the device.
TEST_P(ResolveTest, IsTheSameWhereOnlyTheMeansAreKnown) {
  const run::Setup trained = resolved({});
  Config config = config_;
  config.model.vocab_size = trained.config.model.vocab_size;
  const std::optional<BatchChoice> batch = choose(config, means_of(trained));
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->batch_size, trained.config.training.batch_size);
  divide_update(config, 1);
  device::keep_resolved(config.training, trained.precision);
  EXPECT_EQ(config::dump(config), config::dump(trained.config));
}

TEST_P(ResolveTest, ARunThatGoesOnKeepsWhatItChose) {
  run::Beginning begins;
  {
    const run::Setup setup = resolved(begins);
    const run::Run run(setup);
    begins.start = run::StartingPoint{run.state().capture(), "a"};
  }
  begins.start->checkpoint.config.training.batch_size = 3;
  begins.start->checkpoint.config.training.gradient_accumulation_steps = 4;
  const run::Setup setup = resolved(begins);
  EXPECT_EQ(setup.config.training.batch_size, 3) << "though 12 would fit";
  EXPECT_TRUE(setup.batch_reason.empty()) << "nothing was chosen";
}

INSTANTIATE_ON_DEVICES(ResolveTest);

}  // namespace
}  // namespace gpt::plan
