#include "gpt/plan/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <string_view>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/device/memory.h"
#include "gpt/layout/freeze.h"
#include "gpt/model/recompute.h"
#include "gpt/ops/part.h"
#include "gpt/ops/probe.h"
#include "gpt/optim/muon.h"
#include "gpt/run/teacher.h"

namespace gpt::plan {
namespace {

constexpr double kBytesOfId = 8, kBytesOfToken = 4;  // in a batch, and in a text on the device

double bytes_of(at::ScalarType type) { return static_cast<double>(c10::elementSize(type)); }

OperatorWork::Types types_of(const TrainingConfig& training, const Precision& precision) {
  return {.products = precision.compute_type(),
          .stream = precision.weight_type(),
          .gradient = gradient_type(training, precision.end_to_end)};
}

// 8-bit moments have a scale of four bytes for each block of 256.
double bytes_of_moment(StateDtype type) {
  return type == StateDtype::float32 ? 4 : type == StateDtype::bfloat16 ? 2 : 1 + 4.0 / 256;
}

ParameterBytes parameter_bytes(const TrainingConfig& training, const Precision& precision) {
  const at::ScalarType weight = kept_weight_type(training.precision);
  return {.gradient = bytes_of(gradient_type(training, precision.end_to_end)),
          .weight = bytes_of(weight),
          .copy = precision.weight_type() == weight ? 0 : bytes_of(precision.weight_type()),
          .moment = bytes_of_moment(training.optimizer.state_dtype)};
}

// The products of all blocks with the tokens of a micro-step.
Work products(const OperatorWork& operators, const std::vector<ParameterRow>& rows, GradientCheckpointing level) {
  const int64_t first = first_trained_layer(rows);
  Work sum;
  for (const ParameterRow& row : rows) {
    const int times = times_multiplied(row, level);
    if (times == 0) continue;
    const auto [forward, backward] = operators.product(row.shape[1], row.shape[0]);
    // Half of the backward pass is for the input, and half for the weight.
    sum = sum + (row.layer < first ? forward : (times - 2) * forward + (row.is_trained ? 1.0 : 0.5) * backward);
  }
  return sum;
}

// What follows is done again in the backward pass from this level of gradient checkpointing on.
Work repeated(const OperatorWork::Passes& passes, bool is_done_again) {
  return (is_done_again ? 2 : 1) * passes.forward + passes.backward;
}

}  // namespace

double MachineSpeed::least_seconds(const Work& work) const {
  return std::max(work.flops / flops, work.bytes / bytes_per_second);
}

void MachineSpeed::keep_faster(const MachineSpeed& other) {
  flops = std::max(flops, other.flops);
  bytes_per_second = std::max(bytes_per_second, other.bytes_per_second);
}

MachineSpeed measure_machine(at::Device device, at::ScalarType type) {
  constexpr double kSeconds = 0.2;  // for each, and as much to prepare both
  release_unused_memory(device);    // there is room for the matrices, and then for what comes next
  const MachineSpeed speed{.flops = measure_product_speed(device, type, kSeconds),
                           .bytes_per_second = measure_copy_speed(device, kSeconds)};
  release_unused_memory(device);
  return speed;
}

void measure_again(MachineSpeed& speed, at::Device device, at::ScalarType type) {
  try {
    speed.keep_faster(measure_machine(device, type));
  } catch (const std::exception& error) {
    log::info(fmt::format("Measuring the speed of this machine failed ({})", first_line(error.what())));
  }
}

std::string explain_limit(const MachineSpeed& speed) {
  return fmt::format(
      "The limit is the time of the operations or of the bytes, each read or written once, whichever is longer, at the speeds of a large "
      "product ({}/s) and of a large copy ({}/s), measured in the same run; what fits into a cache can be faster.",
      format_flops(speed.flops), format_bytes(speed.bytes_per_second));
}

OperatorWork::OperatorWork(const ModelConfig& model, const Types& types, double tokens)
    : model_(model),
      tokens_(tokens),
      width_(tokens * static_cast<double>(model.n_embd)),
      attention_(tokens * static_cast<double>(model.attention_width())),
      packed_(tokens * static_cast<double>((model.heads() + 2 * model.kv_heads()) * model.head_dim())),
      product_(bytes_of(types.products)),
      stream_(bytes_of(types.stream)),
      gradient_(bytes_of(types.gradient)) {}

// Each token of a window is read once, and written as an input and as a target.
Work OperatorWork::batch() const {
  const double sequences = tokens_ / static_cast<double>(model_.block_size);
  return {0, (tokens_ + sequences) * kBytesOfToken + 2 * tokens_ * kBytesOfId};
}

// Rows of the table, positions and what becomes of them; then gradients, and the rows that they are added to.
OperatorWork::Passes OperatorWork::embedding() const {
  const double C = static_cast<double>(model_.n_embd), V = static_cast<double>(*model_.vocab_size),
               positions = model_.position == Position::learned ? static_cast<double>(model_.block_size) : 0,
               rows = C * (std::min(tokens_, V) + positions);
  return {{0, (rows + width_) * stream_}, {0, width_ * stream_ + 2 * rows * gradient_}};
}

// x, branch, sum and normalized; then sum, two gradients and that of x.
OperatorWork::Passes OperatorWork::norm(bool has_branch) const {
  return {{0, (has_branch ? 4 : 2) * width_ * stream_}, {0, 4 * width_ * stream_}};
}

// Two products in the backward pass, for the gradients of their input and of the weight.
OperatorWork::Passes OperatorWork::product(int64_t in, int64_t out) const {
  const double weight = static_cast<double>(in * out), x = tokens_ * static_cast<double>(in),
               y = tokens_ * static_cast<double>(out), flops = 2 * tokens_ * weight;
  return {{flops, (x + weight + y) * product_},
          {2 * flops, (y + weight + x) * product_ + (x + y) * product_ + weight * gradient_}};
}

// Two products of T x T by D, half of which is masked, and of which a share is computed; five in the backward pass. Scores are not stored,
// and those of whole blocks, by which queries choose, are less than a hundredth of all.
OperatorWork::Passes OperatorWork::attention(double share) const {
  const double flops = 2 * attention_ * static_cast<double>(model_.block_size) * share;
  return {{flops, (packed_ + attention_) * product_}, {2.5 * flops, 2 * (packed_ + attention_) * product_}};
}

// In and out; then in, its gradient and that of what came out. A gate is a second input with a gradient.
OperatorWork::Passes OperatorWork::activation() const {
  const double tensor = tokens_ * static_cast<double>(model_.hidden()) * product_;
  const double inputs = model_.mlp == Mlp::gelu ? 1 : 2;
  return {{0, (inputs + 1) * tensor}, {0, (2 * inputs + 1) * tensor}};
}

OperatorWork::Passes OperatorWork::head() const {
  const double weight = static_cast<double>(model_.n_embd * model_.padded_vocab()), flops = 2 * tokens_ * weight;
  return {{flops, (width_ + weight) * product_ + tokens_ * kBytesOfId},
          {2 * flops, (2 * width_ + weight) * product_ + weight * gradient_}};
}

Work norm_of_gradients(double parameters, const ParameterBytes& bytes) { return {0, parameters * bytes.gradient}; }

// All but the gradients are written, and all but the copies are read.
Work adamw(double parameters, const ParameterBytes& bytes) {
  return {0, parameters * (bytes.gradient + 2 * bytes.weight + bytes.copy + 4 * bytes.moment)};
}

// Two passes over a matrix, and between them Newton-Schulz, which reads and writes the direction at least once.
Work muon(double parameters, const ParameterBytes& bytes, double flops) {
  constexpr double kDirection = 2;
  return {flops, parameters * (bytes.gradient + 2 * bytes.weight + bytes.copy + 2 * bytes.moment + 4 * kDirection)};
}

namespace {

// The forward pass of a model that is not trained, added to the parts that do the same for the one that is.
void add_forward(std::vector<PartWork>& parts, const ModelConfig& model, const OperatorWork& of, double micro_steps) {
  const auto layers = static_cast<double>(model.n_layer);
  Work products, attention;
  for (const ParameterRow& row : parameter_table(model))
    if (times_multiplied(row, GradientCheckpointing::none) > 0)
      products = products + of.product(row.shape[1], row.shape[0]).forward;
  for (int64_t layer = 0; layer < model.n_layer; ++layer)
    attention = attention + of.attention(model.visible_share(layer)).forward;
  const Work norms = of.norm(/*has_branch=*/false).forward + 2 * layers * of.norm(/*has_branch=*/true).forward;
  const std::map<std::string_view, Work> forward{{part::kEmbedding, of.embedding().forward},
                                                 {part::kNorm, norms},
                                                 {part::kProducts, products},
                                                 {part::kAttention, attention},
                                                 {part::kHead, of.head().forward},
                                                 {part::kActivation, layers * of.activation().forward}};
  for (PartWork& part : parts)
    if (const auto found = forward.find(part.name); found != forward.end())
      part.work = part.work + micro_steps * found->second;
}

}  // namespace

std::vector<PartWork> work_of_step(const ModelConfig& whole, const TrainingConfig& training, const Precision& precision,
                                   double tokens) {
  using enum GradientCheckpointing;
  const ModelConfig model = in_training(whole, training);
  const GradientCheckpointing level = training.execution.gradient_checkpointing;
  const std::vector<ParameterRow> rows = parameter_table(whole, training.freeze);
  const int64_t first = first_trained_layer(rows);
  const auto micro_steps = static_cast<double>(training.gradient_accumulation_steps),
             layers = static_cast<double>(model.n_layer), parameters = static_cast<double>(trained_count(rows)),
             only_forward =
                 static_cast<double>(std::max<int64_t>(first, 0));  // blocks that the backward pass ends before
  const OperatorWork of(model, types_of(training, precision), tokens / micro_steps);
  const auto in_blocks = [&](const OperatorWork::Passes& passes, bool is_done_again) {
    return only_forward * passes.forward + (layers - only_forward) * repeated(passes, is_done_again);
  };
  Work attention;
  for (int64_t layer = 0; layer < model.n_layer; ++layer) {
    const OperatorWork::Passes passes = of.attention(model.visible_share(layer));
    attention = attention + (layer < first ? passes.forward : repeated(passes, level >= block));
  }
  // Two for each block, of which the very first has nothing to add, and the last one.
  const OperatorWork::Passes with_branch = of.norm(/*has_branch=*/true);
  const Work norms = of.norm(/*has_branch=*/false).both() + with_branch.both() +
                     2 * only_forward * with_branch.forward +
                     (2 * (layers - only_forward) - 1) * repeated(with_branch, level >= norm);
  const ParameterBytes bytes = parameter_bytes(training, precision);
  const MuonWork of_muon = muon_work(rows, training.optimizer);
  const Work update =
      adamw(parameters - of_muon.parameters, bytes) + muon(of_muon.parameters, bytes, of_muon.least_flops);
  std::vector<PartWork> parts{{part::kData, micro_steps * of.batch()},
                              {part::kEmbedding,
                               micro_steps * (first < 0 ? of.embedding().both() : of.embedding().forward)},
                              {part::kNorm, micro_steps * norms},
                              {part::kProducts, micro_steps * products(of, rows, level)},
                              {part::kAttention, micro_steps * attention},
                              {part::kActivation, micro_steps * in_blocks(of.activation(), level >= activation)},
                              {part::kHead, micro_steps * of.head().both()},
                              {part::kOptimizer, norm_of_gradients(parameters, bytes) + update}};
  if (const auto teacher = run::teacher_in(model, training)) {
    add_forward(parts, *teacher, OperatorWork(*teacher, types_of(training, precision), tokens / micro_steps),
                micro_steps);
  }
  return parts;
}

double least_seconds(const std::vector<PartWork>& parts, const MachineSpeed& speed) {
  double sum = 0;
  for (const PartWork& part : parts) sum += speed.least_seconds(part.work);
  return sum;
}

}  // namespace gpt::plan
