#include "gpt/parallel/strategy.h"

#include <utility>

#include "gpt/layout/tuning.h"
#include "gpt/parallel/arriving_weights.h"
#include "gpt/parallel/divided_gradients.h"
#include "gpt/parallel/equal_values.h"
#include "gpt/parallel/reducer.h"

namespace gpt::parallel {
namespace {

// In one process or in several, of which each has the gradients of its micro-batches whole (ZeRO 0 and 1). They are sent when the last
// pass has ended, or where that tells of its layers, meanwhile.
class WholeGradients : public Strategy {
 public:
  WholeGradients(const model::GPT& model, const std::vector<layout::ParameterRow>& of_model, const Division& division,
                 bool sends_early)
      : Strategy(model, of_model, division), reducer_(model.parameters(), division), sends_early_(sends_early) {}

  LayerDone layer_done(bool is_last) override {
    if (!is_last || !sends_early_) return {};
    return [this](int64_t layer) { reducer_.layer_done(layer); };
  }
  void begin_backward(bool is_last) override {
    if (is_last && sends_early_) is_summing_ = true, begin_sum();
  }
  void sum() override {
    if (!std::exchange(is_summing_, false)) begin_sum();
    reducer_.finish();
  }
  int64_t gradient_bytes() const override {
    const parameters::Parameters& parameters = model().parameters();
    const auto of_each = static_cast<int64_t>(c10::elementSize(parameters[0].gradient_type()));
    return division().own_lanes() * parameters.layout().trained_size * of_each;
  }

 private:
  // A lane without a micro-batch counts as zeros, whichever process has it.
  void begin_sum() {
    reducer_.begin(lanes().have_gradients());
    begin_sum_of_losses();
  }

  Reducer reducer_;
  const bool sends_early_;
  bool is_summing_ = false;
};

// ZeRO 2 and 3: every backward pass gives away what it has completed.
class SentGradients : public Strategy {
 public:
  SentGradients(const model::GPT& model, const std::vector<layout::ParameterRow>& of_model, const Division& division)
      : Strategy(model, of_model, division), gradients_(model.parameters(), division) {}

  void begin() override {
    Strategy::begin();
    gradients_.begin_update();
  }
  LayerDone layer_done(bool /*is_last*/) override {
    return [this](int64_t layer) { gradients_.layer_done(layer); };
  }
  void end_backward() override { gradients_.end_round(/*has_gradients=*/true); }
  void join_others(Pass pass) override {
    model::LayerWeights& weights = *model().layer_weights();
    if (pass == Pass::forward) return weights.join_forward();
    const LayerDone passed =
        weights.in_backward([this](int64_t layer) { gradients_.layer_done(layer, /*has_gradients=*/false); });
    for (int64_t layer = model().layers().end; layer >= model().layers().begin; --layer) passed(layer);
    gradients_.end_round(/*has_gradients=*/false);
  }
  void sum() override {
    gradients_.finish();
    begin_sum_of_losses();
  }
  int64_t gradient_bytes() const override { return gradients_.bytes(); }

 private:
  DividedGradients gradients_;
};

// By the place of a value in the buffer, which is another one in the other stage that has the table: the two may then differ.
bool rounds_table_at_random(const parameters::Parameters& parameters, const Division& division) {
  const parameters::Parameter table = trained_table_of_both_ends(parameters, division.pipeline);
  return table.defined() &&
         (division.optimizer.state_dtype == StateDtype::bfloat16 || table.value().scalar_type() != at::kFloat);
}

}  // namespace

Strategy::Strategy(const model::GPT& model, const std::vector<layout::ParameterRow>& of_model, const Division& division)
    : model_(model),
      division_(division),
      norm_(model, of_model, division),
      rounds_table_at_random_(rounds_table_at_random(model.parameters(), division)),
      lanes_(model.parameters(), division.own_lanes()),
      passes_(model, division.pipeline) {}

void Strategy::begin_sum_of_losses() {
  lanes_.add_losses();
  if (!division_.divides_state()) division_.ranks->begin_sum(lanes_.sum(), at::kFloat);
}

// Both stages take the first one's table, before what processes have divided of it comes together.
void Strategy::values_changed() const {
  const parameters::Parameters& parameters = model_.parameters();
  if (rounds_table_at_random_) {
    make_table_equal(parameters, division_.pipeline);
    const size_t row = *layout::tied_row(parameters.rows());
    const int64_t begin = parameters.layout().offsets[row];
    parameters.round_values({begin, begin + parameters.rows()[row].count()});
  }
  if (model_.layer_weights()) model_.layer_weights()->values_changed();
}

std::unique_ptr<Strategy> make_strategy(model::GPT& model, const Division& division, const TrainingConfig& config,
                                        bool is_recorded) {
  // LibTorch's operators do not tell when a layer is done.
  const bool sends_early = division.ranks->size() > 1 && config.execution.use_compile;
  if (division.divides_state() && !division.divides_weights())
    model.set_layer_weights(std::make_shared<ArrivingWeights>(model, division, sends_early && !is_recorded));
  const std::vector<layout::ParameterRow> of_model = layout::parameter_table(model.config(), config.tuning);
  if (division.divides_gradients() && model.parameters().layout().trained_size > 0)
    return std::make_unique<SentGradients>(model, of_model, division);
  return std::make_unique<WholeGradients>(model, of_model, division, sends_early);
}

}  // namespace gpt::parallel
