#include "gpt/plan/step_schedule.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gpt/layout/cut.h"
#include "gpt/layout/layer_ends.h"
#include "gpt/layout/stages.h"
#include "gpt/layout/tuning.h"
#include "gpt/model/recompute.h"
#include "gpt/parallel/division.h"
#include "sent_values.h"

namespace gpt::plan {
namespace {

// One process, which computes, and what it sends meanwhile, one thing after the other.
class Timeline {
 public:
  void compute(double seconds) { now_ += seconds, computed_ += seconds; }
  void begin(const SendingTime& sending) {
    wires_free_ = std::max(wires_free_, now_) + sending.wires;
    now_ += sending.cores;
  }
  void finish() { wait_until(wires_free_); }
  double wires_free() const { return wires_free_; }
  void wait_until(double time) { now_ = std::max(now_, time); }
  // Over wires of their own, as sums of activations within a machine go.
  void wait_apart(const SendingTime& sending) { now_ += sending.wires + sending.cores; }

  MeshTime time() const { return {computed_, now_ - computed_}; }

 private:
  double now_ = 0, computed_ = 0, wires_free_ = 0;
};

// What a micro-batch computes: of each layer forward and backward, and the head's both.
struct LayerTimes {
  double forward, backward, head;
};

LayerTimes layer_times(const UpdateConfig& config, double micro_batch) {
  constexpr double kPasses = 3;  // forward, and two products for each of them backward
  const ModelConfig model = in_training(config.model, config.training);
  const GradientCheckpointing level = config.training.execution.gradient_checkpointing;
  const double passes = kPasses * model::weights_multiplied(model, level) /
                        model::weights_multiplied(model, GradientCheckpointing::none),
               head = 2 * kPasses * static_cast<double>(model.n_embd * model.padded_vocab()),
               blocks = (layout::flops_per_token(model) - head) * passes / kPasses, of_head = head / (head + blocks),
               layer = micro_batch * (1 - of_head) / static_cast<double>(model.n_layer);
  return {.forward = layer / passes, .backward = layer * (1 - 1 / passes), .head = micro_batch * of_head};
}

// What is sent together: until where in the flat buffer it reaches, and the lengths of its stretches.
struct SentSegment {
  int64_t end = 0;
  std::vector<int64_t> stretches = {};
};

// As Division::segments() has them; with ZeRO 0 and 1 each stretch for itself, because nothing waits for the one before.
std::vector<SentSegment> sent_segments(const UpdateConfig& config, const std::vector<layout::ParameterRow>& rows,
                                       const layout::FlatLayout& layout) {
  const int64_t zero = config.distributed.zero;
  const bool has_stages = config.distributed.pipeline_parallel > 1;
  std::vector<SentSegment> segments;
  int64_t begin = 0;
  for (const int64_t end :
       zero > 1 ? parallel::segment_ends(zero, rows, layout, has_stages) : std::vector{layout.trained_size}) {
    if (zero > 1) segments.push_back({end});
    const int64_t step =
        parallel::stretch_values(has_stages ? end - begin : layout.trained_size, config.distributed.data_processes());
    for (; begin < end; begin = std::min(begin + step, end)) {
      const int64_t length = std::min(step, end - begin);
      if (zero < 2) segments.push_back({begin + length});
      segments.back().stretches.push_back(length);
    }
  }
  return segments;
}

// What the slowest stage of a pipeline computes, or one that has all of the model.
struct StageWork {
  int64_t stage = 0;
  layout::LayerSpan layers;
  bool has_head = true;
};

StageWork slowest_stage(const UpdateConfig& config) {
  const int64_t stages = config.distributed.pipeline_parallel;
  const std::vector<layout::LayerSpan> spans = layout::stages_of(config.model, stages);
  if (stages == 1) return {0, spans[0]};
  const std::vector<double> costs = layout::stage_costs(config.model, spans);
  const auto stage = std::max_element(costs.begin(), costs.end()) - costs.begin();
  return {stage, spans[static_cast<size_t>(stage)], stage == stages - 1};
}

// The share of the parameters that the stage has.
double share_of_stage(const UpdateConfig& config, const layout::FlatLayout& of_stage) {
  if (config.distributed.pipeline_parallel == 1) return 1;
  return static_cast<double>(of_stage.trained_size) /
         static_cast<double>(
             layout::flat_layout(layout::parameter_table(config.model, config.training.tuning)).trained_size);
}

class Update {
 public:
  Update(const UpdateConfig& config, const StepForm& form, const StepParts& parts, const Network& network)
      : config_(config),
        network_(network),
        zero_(config.distributed.data_processes() > 1 ? config.distributed.zero : 0),
        stages_(config.distributed.pipeline_parallel),
        work_(slowest_stage(config)),
        layers_(work_.layers.count()),
        rows_(rows_of_stage(config, work_.stage)),
        layout_(layout::flat_layout(rows_)),
        ends_(layout::layer_ends(rows_, layout_)),
        segments_(sent_segments(config, rows_, layout_)),
        times_(layer_times(config, parts.micro_batch)),
        update_(parts.update * share_of_stage(config, layout_)),
        gradient_(bytes_of_sent_gradient(config, form.end_to_end)),
        kept_(bytes_of_kept_weight(config)),
        computing_(bytes_of_computing_weight(form.end_to_end)),
        sends_early_(zero_ > 1 || (config.training.execution.use_compile && !form.is_recorded)) {
    const int64_t tensor = config.distributed.tensor_parallel;
    data_ = {config.distributed.data_processes(), std::max<int64_t>(1, network.of_machine / tensor)};
    within_layer_ = within_layer(form.end_to_end);
    if (stages_ == 1) return;
    boundary_ = {2, network.of_machine >= config.distributed.processes ? 2 : 1};  // stages are as far apart as can be
    // A gather of two sends half of what both have then.
    hop_ = time_of_gather(2 * bytes_between_stages(config, form.end_to_end), boundary_, network);
    neighbours_ = (passes_gradients_on(config, work_.stage) ? 1 : 0) + (work_.has_head ? 0 : 1);
    if (work_.stage == 0 || work_.has_head) of_table_ = bytes_of_tied_table(config, form.end_to_end);
  }

  MeshTime run() {
    const int64_t of_update = config_.training.gradient_accumulation_steps,
                  rounds = (of_update + data_.all - 1) / data_.all;
    begin_new_weights();
    for (int64_t round = 0; round < rounds; ++round) micro_batch(round == rounds - 1);
    wait_for_stages();
    apply();
    return timeline_.time();
  }

 private:
  bool is_divided() const { return data_.all > 1; }

  // Forward or backward, of sums over the processes that divide the model: all of a micro-batch's, shared out among the layers' passes.
  SendingTime within_layer(bool end_to_end) const {
    const int64_t parts = config_.distributed.tensor_parallel;
    if (parts == 1) return {};
    const auto passes = static_cast<double>(2 * layers_);
    const auto [sent, sums] = tensor_sums_of_stage(config_, end_to_end, work_.stage);
    const double of_sum = sent / distributed::bytes_sent_by_sum(1, parts) / sums,
                 stretches = std::max(1.0, of_sum / static_cast<double>(distributed::kStretchBytes));
    const SendingTime one = time_of_sum(of_sum / stretches, {parts, network_.of_machine}, network_);
    const double times = stretches * sums / passes;
    return {times * one.wires, times * one.cores};
  }

  void micro_batch(bool is_last) {
    const bool sends = is_divided() && sends_early_ && (zero_ > 1 || is_last);
    if (is_last && zero_ == 0) begin_sum(1, sizeof(float));  // the loss
    for (int64_t layer = work_.layers.begin; layer < work_.layers.end; ++layer) {
      await_from(layer + 1 < work_.layers.end ? ends_[static_cast<size_t>(layer) + 1] : 0);
      if (zero_ > 2) use(layer), prefetch(layer + 1);
      compute_layer(times_.forward);
    }
    if (work_.has_head) timeline_.compute(times_.head);
    passed(work_.layers.end, sends);
    for (int64_t layer = work_.layers.end; layer-- > work_.layers.begin;) {
      compute_layer(times_.backward);
      passed(layer, sends);
    }
    for (int64_t neighbour = 0; neighbour < neighbours_; ++neighbour) timeline_.begin(hop_);
    if (zero_ < 2) return;
    send_until(layout_.trained_size);
    timeline_.finish();
    sent_ = 0;
  }

  // At the beginning of an update for the stages before, and at its end for those behind (parallel/pipeline_schedule.h).
  void wait_for_stages() {
    if (stages_ == 1) return;
    const auto others = static_cast<double>(stages_ - 1);
    timeline_.compute(others * (static_cast<double>(layers_) * (times_.forward + times_.backward) +
                                (work_.has_head ? times_.head : 0)));
    timeline_.wait_apart({2 * others * hop_.wires, 2 * others * hop_.cores});
    timeline_.begin(time_of_sum(of_table_, boundary_, network_));
  }

  void compute_layer(double seconds) {
    timeline_.compute(seconds);
    timeline_.wait_apart(within_layer_);
  }

  // A backward pass has come through this layer (LayerWeights::in_backward).
  void passed(int64_t layer, bool sends) {
    if (zero_ > 2) use(layer - 1);
    if (sends) send_until(ends_[static_cast<size_t>(layer)]);
    if (zero_ > 2) prefetch(layer - 2);
  }

  // ArrivingWeights, of the update before.
  void begin_new_weights() {
    if (zero_ != 1 && zero_ != 2) return;
    int64_t end = layout_.trained_size;
    for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
      for (auto length = segment->stretches.rbegin(); length != segment->stretches.rend(); ++length) {
        timeline_.begin(time_of_gather(kept_ * static_cast<double>(*length), data_, network_));
        arriving_.push_back({end, timeline_.wires_free()});
        end -= *length;
      }
    }
    await_from(sends_early_ ? ends_.front() : 0);
  }
  void await_from(int64_t offset) {
    for (; arrived_ < arriving_.size() && arriving_[arrived_].end > offset; ++arrived_)
      timeline_.wait_until(arriving_[arrived_].at);
  }

  // Reducer::complete(), and DividedGradients::send(), which waits for what it has sent before.
  void send_until(int64_t end) {
    for (; sent_ < segments_.size() && segments_[sent_].end <= end; ++sent_) {
      if (zero_ > 1) timeline_.finish();
      for (const int64_t length : segments_[sent_].stretches) {
        const double bytes = gradient_ * static_cast<double>(length);
        timeline_.begin(zero_ == 0 ? time_of_sum(bytes, data_, network_) : time_of_exchange(bytes, data_, network_));
      }
    }
  }

  bool is_here(int64_t layer) const { return work_.layers.begin <= layer && layer < work_.layers.end; }

  // DividedWeights: there is room for the weights of two blocks.
  void use(int64_t layer) {
    if (!is_here(layer)) return;
    timeline_.finish();
    if (layer != here_ && layer != coming_) fetch(layer), timeline_.finish();
    here_ = layer, coming_ = kNone;
  }
  void prefetch(int64_t layer) {
    if (!is_here(layer) || layer == here_) return;
    fetch(layer);
    coming_ = layer;
  }
  void fetch(int64_t layer) {
    begin_gather(ends_[static_cast<size_t>(layer) + 1], ends_[static_cast<size_t>(layer)], computing_);
  }

  // Gathers [begin, end) of the flat buffer, in the stretches of the segments there.
  void begin_gather(int64_t begin, int64_t end, double bytes_of_value) {
    for (const SentSegment& segment : segments_) {
      if (segment.end <= begin || segment.end > end) continue;
      for (const int64_t length : segment.stretches)
        timeline_.begin(time_of_gather(bytes_of_value * static_cast<double>(length), data_, network_));
    }
  }
  void begin_sum(int64_t values, double bytes_of_value) {
    if (is_divided()) timeline_.begin(time_of_sum(bytes_of_value * static_cast<double>(values), data_, network_));
  }

  void apply() {
    if (is_divided() && zero_ < 2) send_until(layout_.trained_size);
    timeline_.finish();
    if (zero_ > 0) begin_sum(layout_.trained_size / layout::kParameterAlignment + 1, sizeof(float)), timeline_.finish();
    if (stages_ > 1) timeline_.wait_apart(time_of_norms());
    timeline_.compute(update_);
    if (zero_ > 2) change_values();
    timeline_.finish();
  }

  // The sum between stages: the norms of each 256 gradients of a process's part of all of them, and the loss.
  SendingTime time_of_norms() const {
    const auto blocks = static_cast<double>(
        layout::flat_layout(
            layout::parameter_table(layout::largest_part(config_.model, config_.distributed.tensor_parallel),
                                    config_.training.tuning))
                .trained_size /
            layout::kParameterAlignment +
        1);
    return time_of_sum(blocks * sizeof(float), {stages_, boundary_.of_machine > 1 ? stages_ : 1}, network_);
  }

  // DividedWeights::values_changed(): what lies outside blocks, and vectors that are read in float32.
  void change_values() {
    begin_gather(0, ends_.back(), computing_);
    begin_gather(ends_.front(), layout_.trained_size, computing_);
    if (computing_ != kept_) begin_sum(block_values(rows_, layout_).norms, sizeof(float));
  }

  static constexpr int64_t kNone = -1;
  // A stretch of new weights, and when it is there.
  struct Arriving {
    int64_t end = 0;
    double at = 0;
  };

  const UpdateConfig& config_;
  const Network& network_;
  const int64_t zero_, stages_;
  const StageWork work_;
  const int64_t layers_;
  const std::vector<layout::ParameterRow> rows_;
  const layout::FlatLayout layout_;
  const std::vector<int64_t> ends_;
  const std::vector<SentSegment> segments_;
  const LayerTimes times_;
  const double update_, gradient_, kept_, computing_;  // bytes of a gradient and of a weight, the last two
  const bool sends_early_;
  Members data_;              // processes that have the same part of the model
  SendingTime within_layer_;  // of a pass
  Members boundary_;          // two neighbouring stages
  SendingTime hop_;           // of the activations of a micro-batch between them
  int64_t neighbours_ = 0;    // to which a stage sends activations, or their gradients
  double of_table_ = 0;       // bytes
  Timeline timeline_;
  size_t sent_ = 0;                 // segments
  std::vector<Arriving> arriving_;  // from the end of the flat buffer to its beginning
  size_t arrived_ = 0;
  int64_t here_ = kNone, coming_ = kNone;  // blocks with ZeRO 3
};

}  // namespace

MeshTime schedule_update(const UpdateConfig& config, const StepForm& form, const StepParts& parts,
                         const Network& network) {
  return Update(config, form, parts, network).run();
}

}  // namespace gpt::plan
