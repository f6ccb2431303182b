// What a run remembers besides tensors, as it keeps it itself: run::State and Checkpoint have these values alike, so that saving and
// resuming copy them all at once. Each is a row in src/checkpoint/values.cpp, which says where checkpoint.json has it, when it is
// saved, what is valid, what a checkpoint without it means and what it is called where people read. What another object keeps while the run
// goes on, as the data loader keeps its position, is a row too, and a member of Checkpoint alone.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gpt/optim/course.h"
#include "gpt/optim/plateau.h"

namespace gpt::checkpoint {

// What was decided on the way of a run, and holds for the updates after `step`: what each value of `what` does is in run/decisions.h.
struct Decision {
  int64_t step = 0;
  std::string what;
  double value = 0;
  bool operator==(const Decision&) const = default;
};
void to_json(nlohmann::ordered_json& json, const Decision& decision);
void from_json(const nlohmann::ordered_json& json, Decision& decision);

inline constexpr double kMostLearningRateFactor = 100;

// The initial values are what a checkpoint of an older program means that has none.
struct Remembered {
  int64_t step = 0;  // completed updates, including skipped ones
  double best_val_loss = std::numeric_limits<double>::infinity();
  int64_t evaluated_step = 0;  // the last one whose evaluation was completed
  int64_t evaluations_since_best = 0;
  // How many sequences an evaluation has where training.eval_batches is auto, as the run's first one found out; 0: there was none yet.
  // Nothing: the run began with a program that took batches of neighbouring sequences, and goes on so.
  std::optional<int64_t> eval_sequences = {};
  int64_t rollbacks = 0;                 // how often the run has gone back to a checkpoint
  double learning_rate_factor = 1;       // for the schedule's rate, as was decided last: above 0
  std::vector<Decision> decisions = {};  // those that have taken effect, in their order
  // The steps of the checkpoints that it can go back to: of the last that training.spike_window updates without a spike have followed,
  // and of one that waits for them.
  std::optional<int64_t> proven_step = {}, waiting_step = {};
  // With lr_schedule: wsd the warm-up that the run began with, so that another max_steps does not change what has been done.
  std::optional<int64_t> warmup_steps = {};
  optim::Course course = {};                // of training.max_time
  double seconds_spent = 0;                 // of training.max_time
  optim::Plateau plateau = {};              // of lr_schedule: plateau
  bool recording_failed = false;            // CUDA graphs of its step, on this machine and with this program
  std::optional<std::string> teacher = {};  // the hash of its weights, where training.distill_from names one
  std::string started_by =
      "auto";  // what training.resume_from said when the run began: auto, none, or an absolute path

  bool operator==(const Remembered&) const = default;
};

}  // namespace gpt::checkpoint
