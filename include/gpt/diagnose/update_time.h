// How long an update takes: tried with real steps on this machine, or estimated for a card. Where several processes compute it, one of
// them is tried or estimated, and then what they gain over one process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/device/cards.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/plan/check.h"
#include "gpt/plan/estimates.h"
#include "gpt/plan/model_checks.h"
#include "gpt/plan/processes.h"
#include "gpt/plan/time_checks.h"

namespace gpt::diagnose {

// What an update is, and where it is computed.
struct UpdateFacts {
  const Config& config;             // with the batch that batches really have, divided among the processes
  const TrainingConfig& undivided;  // as one process would compute it
  const device::DeviceInfo& device;
  const device::Precision& precision;
  const plan::ActivationForm& form;
  std::string attention;             // as attention_path() names it
  const plan::MemoryBudget& memory;  // of a process

  // For trials alone.
  const data::Corpus* corpus = nullptr;
  double free_memory = 0;    // bytes for a trial's tensors
  double product_speed = 0;  // FLOP/s of a large matrix product, with the threads of one of the processes
  int64_t cores = 1;         // that all processes share
};

struct UpdateTime {
  plan::StepTime step;
  std::optional<plan::Check> speed = {};  // whether it is as fast as it should be here
};

// Times an update by trials of several seconds. Where several processes compute it, that of one of them; the result lacks what they send.
// Nothing where one sequence takes too long or does not fit.
std::optional<UpdateTime> time_update(const UpdateFacts& facts);
// Completes `several` and `step` by what is sent, and by what one process alone would take. Throws gpt::Error(peer) where nothing can be
// sent over the loopback.
void compare_with_one(const UpdateFacts& facts, plan::ProcessesPlan& several, plan::StepTime& step);

// An estimate by arithmetic, for a card that is not here. Completes `several` where there are several processes.
UpdateTime estimate_update(const UpdateFacts& facts, const device::Card& card, plan::ProcessesPlan& several);

}  // namespace gpt::diagnose
