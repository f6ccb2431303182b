// How an update comes together out of the micro-batches that processes compute. A train step says what happens and does not ask how many
// processes there are, nor what they divide.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gpt/config/training_config.h"
#include "gpt/model/gpt.h"
#include "gpt/parallel/division.h"
#include "gpt/parallel/gradient_norm.h"
#include "gpt/parallel/lanes.h"
#include "gpt/parallel/pipeline_schedule.h"
#include "gpt/parallel/stage_passes.h"

namespace gpt::parallel {

// In a round each process computes one micro-batch, or where they are not enough, none. All processes call the same functions in the same
// order.
class Strategy {
 public:
  using LayerDone = std::function<void(int64_t layer)>;

  // `of_model`: the rows of the whole model, with all stages. The model must outlive it.
  Strategy(const model::GPT& model, const std::vector<layout::ParameterRow>& of_model, const Division& division);
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy() = default;

  // An update begins. What an abandoned one has left is dropped.
  virtual void begin() { lanes_.begin_update(); }
  // What the next backward pass tells (LossOptions::layer_done); empty: nothing. `is_last`: it is the last one of this process, while the others
  // compute theirs, and it can tell.
  virtual LayerDone layer_done(bool is_last) = 0;
  // The backward pass begins, and has ended. The loss of its micro-batch has been added to that of the lane.
  virtual void begin_backward(bool /*is_last*/) {}
  virtual void end_backward() {}
  // Others compute a pass of a micro-batch in this round, and this process has none: takes part in what they send.
  virtual void join_others(Pass /*pass*/) {}
  // All rounds have ended: gradients and losses are added up over lanes and processes, each of which has the sum of what it updates.
  virtual void sum() = 0;
  virtual int64_t gradient_bytes() const = 0;

  // The norm of the sum, before clipping: a float32 scalar on the device. With it the loss of all processes is there.
  at::Tensor norm() const { return norm_.of_sum(lanes_.sum()); }
  const at::Tensor& loss() const { return lanes_.sum(); }
  // The optimizer has changed what this process updates. Others' weights are there once they are used.
  void values_changed() const;

  Lanes& lanes() { return lanes_; }
  const Lanes& lanes() const { return lanes_; }
  const model::GPT& model() const { return model_; }
  const Division& division() const { return division_; }
  StagePasses& passes() { return passes_; }  // of a stage of the model

 protected:
  void begin_sum_of_losses();  // unless they travel with the norms

 private:
  const model::GPT& model_;
  const Division division_;
  const GradientNorm norm_;
  const bool rounds_table_at_random_;
  Lanes lanes_;
  StagePasses passes_;  // here, because what an error leaves on its way still needs its memory
};

// The one of a division, which also gives the model the weights that other processes update (ZeRO 1 and 2; with ZeRO 3 it has them).
// `is_recorded`: the step, so that nothing is sent while a pass computes. The model must outlive it.
std::unique_ptr<Strategy> make_strategy(model::GPT& model, const Division& division, const TrainingConfig& config,
                                        bool is_recorded);

}  // namespace gpt::parallel
