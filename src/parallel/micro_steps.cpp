#include "gpt/parallel/micro_steps.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "gpt/parallel/pipeline_schedule.h"

namespace gpt::parallel {
namespace {

// The loader's next micro-batches, of which the processes compute one each in a round, and in the last one some perhaps none.
class Rounds {
 public:
  Rounds(const Division& division, batches::DataLoader& loader, int64_t micro_batches)
      : division_(division), loader_(loader), micro_batches_(micro_batches) {}

  int64_t count() const { return at::divup(micro_batches_, division_.ranks->size()); }
  int64_t own() const {  // in which this process has a micro-batch
    return at::divup(micro_batches_ - division_.ranks->rank(), division_.ranks->size());
  }
  void load_own(MicroSteps& steps) {
    skip_others();
    const size_t lane = division_.lane_of(before_);
    steps.load(loader_, lane, count_next());
  }
  void skip_others() {
    while (before_ < micro_batches_ && !loader_.next_is_own()) (void)count_next(), loader_.skip();
  }

 private:
  int64_t count_next() {  // returns how many samples come before it
    ++before_;
    return std::exchange(samples_, samples_ + loader_.next_shape().sequences);
  }

  const Division& division_;
  batches::DataLoader& loader_;
  const int64_t micro_batches_;
  int64_t before_ = 0, samples_ = 0;  // that have come, whichever process computes them
};

// False where it was stopped.
bool one_after_the_other(MicroSteps& steps, Strategy& strategy, Rounds& rounds, const std::function<bool()>& stop) {
  for (int64_t round = 0; round < rounds.count(); ++round) {
    if (round > 0 && stop()) return false;
    if (round < rounds.own()) {
      rounds.load_own(steps);
      // Not earlier, so that all processes begin to send at the same point of the update.
      steps.accumulate(/*is_last=*/round == rounds.count() - 1);
    } else {
      strategy.join_others(Pass::forward);
      strategy.join_others(Pass::backward);
    }
    rounds.skip_others();
  }
  return true;
}

// Stages take the turns of their schedule; while one computes, what it needs for the next one arrives. Processes that have the same stage take
// turns together, because they may divide weights: one whose pipeline has no micro-batch in a turn takes part in what the others send.
void in_turns(MicroSteps& steps, Strategy& strategy, Rounds& rounds) {
  const distributed::Pipeline& pipeline = strategy.division().pipeline;
  StagePasses& passes = strategy.passes();
  const std::vector<Turn> turns = pipeline_schedule(pipeline.stages->rank(), pipeline.stages->size(), rounds.count());
  const auto is_own = [&](const Turn& turn) { return turn.micro_batch < rounds.own(); };
  auto next = turns.begin();
  const auto prepare_next = [&] {
    next = std::find_if(next, turns.end(), is_own);
    if (next == turns.end()) return;
    const auto [pass, micro_batch] = *next++;
    if (pass == Pass::backward) return passes.expect_gradient();
    rounds.load_own(steps);
    passes.enter(steps.take_loaded(/*is_last=*/micro_batch == rounds.own() - 1));
  };
  prepare_next();
  for (const Turn& turn : turns) {
    if (!is_own(turn)) {
      strategy.join_others(turn.pass);
      continue;
    }
    prepare_next();
    if (turn.pass == Pass::forward)
      passes.forward([&](const auto& passing, const auto& in) { return steps.forward(passing, in); });
    else
      passes.backward(
          [&](const auto& passing, const auto& out, const auto& gradient) { steps.backward(passing, out, gradient); });
  }
  rounds.skip_others();
  passes.end_update();
}

}  // namespace

bool compute_micro_batches(MicroSteps& steps, Strategy& strategy, batches::DataLoader& loader, int64_t micro_batches,
                           const std::function<bool()>& stop) {
  Rounds rounds(strategy.division(), loader, micro_batches);
  if (!strategy.division().has_stages()) return one_after_the_other(steps, strategy, rounds, stop);
  in_turns(steps, strategy, rounds);
  return true;
}

}  // namespace gpt::parallel
