// training.distill_from: a trained model whose predictions a run learns, beside its text. Only its last hidden states and its head leave
// it: the classifier makes logits of them where it makes those of the run's own model (ops/classifier.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/model/gpt.h"
#include "gpt/run/folder.h"
#include "gpt/run/setup.h"

namespace gpt::run {

// While a command line is completed: makes training.distill_from absolute, or empty where it is none, and reads what model it names. Throws
// gpt::Error(checkpoint) where it cannot be read, unless output_dir holds a run, which says more about that when it goes on.
void take_teacher(UpdateConfig& config, const std::string& output_dir);

// The form in which the teacher reads the sequences of a run of `model`; nothing where there is none.
std::optional<ModelConfig> teacher_in(const ModelConfig& model, const TrainingConfig& training);
// What its forward pass adds to each token of a run of `model`; 0 without one.
double teacher_flops_per_token(const ModelConfig& model, const TrainingConfig& training);

// Throws gpt::Error(config) where the teacher cannot teach this run: its tokenizer or vocabulary is another one, or its sequences are
// shorter. `config.model.vocab_size` must be set.
void require_fitting_teacher(const UpdateConfig& config, const DataConfig& data, const data::Corpus& corpus);

// Whether the run of a checkpoint goes on with the teacher that it had, `hash`. Throws gpt::Error(checkpoint) where it is another one.
void require_same_teacher(const StartingPoint& start, const Setup& now, const std::string& hash);

// The weights are kept in the type that the run computes with, and have no gradients.
class Teacher {
 public:
  // Reads it. Throws gpt::Error: as require_fitting_teacher(), and checkpoint where it cannot be read.
  explicit Teacher(const Setup& setup);

  // What it says about the tokens that follow each of ids (B, T) int64, whose documents begin at `starts`, as LossOptions has them. Within the autocast of the caller; nothing is dropped out.
  ops::Distillation about(const at::Tensor& ids, const at::Tensor& starts = {}) const;

  void set_operators(ops::SharedOperators operators) { model_.set_operators(std::move(operators)); }
  const std::string& hash() const { return hash_; }  // of its weights
  const model::GPT& model() const { return model_; }
  double bytes() const;  // of its weights

 private:
  struct Loaded;
  Teacher(const DistillationConfig& config, Loaded loaded);
  static Loaded load(const Setup& setup);

  double weight_, temperature_;
  std::string hash_;
  model::GPT model_;
};

// "Teacher: models/large/ckpt.pt, 124.4 M parameters, ...": for the log.
std::string describe_teacher(const Teacher& teacher, const DistillationConfig& config);

}  // namespace gpt::run
