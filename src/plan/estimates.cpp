#include "gpt/plan/estimates.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "block_values.h"
#include "gpt/checkpoint/divided_save.h"
#include "gpt/layout/cut.h"
#include "gpt/layout/freeze.h"
#include "gpt/layout/layer_ends.h"
#include "gpt/layout/stages.h"
#include "gpt/model/activation_swap.h"
#include "gpt/model/compile.h"
#include "gpt/model/tensor_parallel.h"
#include "gpt/ops/activation.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/classifier.h"
#include "gpt/ops/norm.h"
#include "gpt/optim/muon.h"
#include "gpt/optim/newton_schulz.h"
#include "gpt/parallel/division.h"
#include "gpt/parallel/pipeline_schedule.h"
#include "gpt/plan/quantized_check.h"
#include "gpt/products/product.h"
#include "gpt/run/teacher.h"

namespace gpt::plan {
namespace {

using ops::kFloatBytes;

// What autograd keeps, in bytes per token. Letters as in model/gpt.h; `s` is the size of a compute value.
class ActivationBytes {
 public:
  ActivationBytes(const ModelConfig& model, const ActivationForm& form)
      : model_(model),
        form_(form),
        own_attention_(form.own_operators && !form.cuda),
        s_(static_cast<double>(c10::elementSize(form.compute_type))),
        kept_{.own = form.own_operators,
              .cuda = form.cuda,
              .value_size = s_,
              .sum_size = form.end_to_end ? s_ : kFloatBytes},
        C_(static_cast<double>(model.n_embd)),
        A_(static_cast<double>(model.attention_width())),
        kv_(static_cast<double>(model.kv_heads() * model.head_dim())),
        F_(static_cast<double>(model.hidden())),
        parts_(static_cast<double>(form.model_parts)) {}

  double residual() const { return kept_.sum_size * C_; }  // the stream, once per addition
  double own_rows() const { return residual() / parts_; }  // of it, where processes divide its rows
  // What a block keeps from its forward pass to its backward pass.
  double kept(GradientCheckpointing level) const {
    switch (level) {
      case GradientCheckpointing::block: return own_rows();
      case GradientCheckpointing::selective: return norm(/*keeps_output=*/!form_.own_operators) + attention();
      default: break;
    }
    const bool repeats = form_.own_operators;  // only then the two lower levels save anything
    return 2 * norm(!repeats || level < GradientCheckpointing::norm) + attention() + branch_dropouts() +
           mlp(!repeats || level < GradientCheckpointing::activation);
  }
  // What is there besides while its backward pass runs.
  double recomputed(GradientCheckpointing level) const {
    if (level == GradientCheckpointing::block) return kept(GradientCheckpointing::none) - own_rows();
    return level == GradientCheckpointing::selective ? norm() + branch_dropouts() + mlp() : 0;
  }
  // LibTorch's flash attention on a CPU keeps a layer's masks: one for a window, and one for each head and sequence where queries choose.
  double mask() const {
    const auto T = static_cast<double>(model_.block_size);
    return form_.own_operators || form_.cuda || !form_.fused_attention ? 0 : s_ * T * T;
  }
  // After the embedding, whose mask our own operator draws again; before the head.
  double outside_blocks() const { return dropout() + norm(); }

  // The head's logits of a chunk, which become their gradient. The gradient of x is there already, and x itself.
  double head(const TrainingConfig& training) const {
    const auto all = static_cast<double>(training.batch_size * model_.block_size), rows = head_rows(training),
               Vp = static_cast<double>(model_.padded_vocab());
    if (!form_.own_operators)
      return all * 3 * kFloatBytes * Vp;  // log-softmax, and the gradients of it and of the logits
    // From the second chunk on, a 16-bit product is converted as it is added.
    const bool converts = form_.compute_type != at::kFloat && !form_.cuda && rows < all &&
                          gradient_type(training, form_.end_to_end) == at::kFloat;
    return rows * Vp * (s_ + divided_logits()) + all * 2 * residual() + (converts ? kFloatBytes * Vp * C_ : 0);
  }

  // Where the vocabulary is divided, LibTorch's operators make the softmax, in float32: the logits, and their exponentials.
  double divided_logits() const {
    if (form_.model_parts == 1) return 0;
    return (form_.compute_type == at::kFloat ? 1 : 2) * kFloatBytes;
  }

  double logits(const TrainingConfig& training) const {
    const double size = form_.own_operators ? s_ : kFloatBytes;
    return head_rows(training) * static_cast<double>(model_.padded_vocab()) * size;
  }

  // How many rows of logits exist at once.
  double head_rows(const TrainingConfig& training) const {
    const int64_t tokens = training.batch_size * model_.block_size;
    if (!form_.own_operators) return static_cast<double>(tokens);
    return static_cast<double>(ops::classifier_chunk_rows(tokens, {model_.padded_vocab(), model_.n_embd},
                                                          form_.compute_type, training.execution.loss_chunk_rows,
                                                          form_.cuda ? form_.multiprocessors : 0));
  }

  // An evaluation keeps nothing: a part of a block at a time, or a chunk of logits.
  double evaluation(const TrainingConfig& training) const {
    const auto tokens = static_cast<double>(training.batch_size * model_.block_size);
    return std::max(tokens * (2 * residual() + std::max(attention(), mlp())), tokens * residual() + logits(training));
  }

  // As a teacher: in the last product of a block there are the stream and the branch that came in, their sum, what attention and MLP read
  // and gave, and the sum between them.
  double forward(const TrainingConfig& training) const {
    constexpr double kStreams = 8;
    const auto tokens = static_cast<double>(training.batch_size * model_.block_size);
    return tokens * (kStreams * residual() + std::max(attention(), mlp()));
  }
  // What its head takes, whose logits exist beside those of the model that learns. Under autocast both are cast, and so is the head.
  double last_rows(const TrainingConfig& training) const {
    const auto tokens = static_cast<double>(training.batch_size * model_.block_size);
    return tokens * residual() + (casts() ? s_ * C_ * (tokens + static_cast<double>(model_.padded_vocab())) : 0);
  }
  double logits_of(double rows) const {
    // LibTorch's operators: the logits in both types, and the distributions of both models with their gradients.
    constexpr double kOfAten = 6;
    return rows * static_cast<double>(model_.padded_vocab()) * (form_.own_operators ? s_ : kOfAten * kFloatBytes);
  }

  // Buffers of one block's backward pass on top of what its forward pass kept: the gradients of its widest part. What the MLP
  // kept is freed by the time attention is reached.
  double backward(GradientCheckpointing level) const {
    return std::max(mlp_backward(level), attention_backward() - mlp() - norm()) + 2 * residual();
  }

 private:
  bool casts() const { return form_.compute_type != at::kFloat && !form_.end_to_end; }
  // What a normalization gives is there for all rows.
  double norm(bool keeps_output = true) const {
    const double of_rows = ops::norm_kept_bytes(kept_, model_.norm, model_.n_embd, /*keeps_output=*/false);
    return of_rows / parts_ + (keeps_output ? s_ * C_ : 0);
  }

  double dropout() const { return ops::dropout_kept_bytes(kept_, model_.dropout, model_.n_embd); }
  double branch_dropouts() const { return dropout() * (model_.mlp == Mlp::gelu ? 2 : 1); }

  // One value for each head and each position that is looked at.
  double matrix() const { return static_cast<double>(model_.heads() * model_.block_size); }

  double attention() const {
    ops::AttentionSpec spec;
    spec.heads = model_.heads(), spec.kv_heads = model_.kv_heads();
    spec.dropout.probability = model_.dropout;
    spec.blocks = {model_.attention_block, model_.top_blocks()};
    return ops::attention_kept_bytes(kept_, spec, model_.head_dim(), model_.block_size, form_.fused_attention,
                                     model_.position == Position::rope);
  }

  // The gradient of the output and that of the packed product, which ATen puts together from three where cuDNN does not write it.
  double attention_backward() const {
    const double packed = s_ * (A_ + 2 * kv_);
    if (!form_.fused_attention) return kFloatBytes * (2 * matrix() + 3 * A_);
    return own_attention_ ? packed + s_ * A_ : 2 * packed;
  }

  double mlp(bool keeps_product = true) const {
    if (model_.mlp == Mlp::gelu) return ops::activation_kept_bytes(kept_, model_.hidden(), keeps_product);
    return ops::gated_activation_kept_bytes(kept_, model_.hidden(), model_.dropout, keeps_product);
  }
  // The gradients of the product's input and of what it is computed from; a product that was kept is free by then.
  double mlp_backward(GradientCheckpointing level) const {
    const bool keeps_product =
        !form_.own_operators || level < GradientCheckpointing::activation || level >= GradientCheckpointing::selective;
    return ((model_.mlp == Mlp::gelu ? 2 : 3) - (keeps_product ? 1 : 0)) * s_ * F_;
  }

  const ModelConfig& model_;
  const ActivationForm& form_;
  bool own_attention_;  // which this program has for a CPU
  double s_;
  ops::KeptForm kept_;
  double C_, A_, kv_, F_, parts_;
};

// Of the optimizer's state of these parameters, the part of the process that has most of it.
double share_of_muon(const std::vector<ParameterRow>& rows, const TrainingConfig& training, int64_t processes) {
  const std::vector<int64_t> owners = parallel::owners_of_matrices(rows, training.optimizer, processes);
  std::vector<double> of_matrices(static_cast<size_t>(processes));
  double all = 0;
  auto owner = owners.begin();
  for (const StateRange& range : state_ranges(rows, flat_layout(rows), training.optimizer)) {
    double bytes = 0;
    for (const OptimizerSlot& slot : optimizer_slots(range.form))
      bytes += static_cast<double>((range.end - range.begin) / slot.values) *
               static_cast<double>(c10::elementSize(slot.dtype));
    all += bytes;
    if (range.form.kind != OptimizerKind::adamw) of_matrices[static_cast<size_t>(*owner++)] += bytes;
  }
  if (all == 0) return 0;  // of a stage that is not trained
  const double divided = all - std::accumulate(of_matrices.begin(), of_matrices.end(), 0.0);
  return (*std::max_element(of_matrices.begin(), of_matrices.end()) + divided / static_cast<double>(processes)) / all;
}

// Of stages: the largest that there is.
double state_share(const ModelConfig& model, const TrainingConfig& training, const DistributedConfig& distributed) {
  const int64_t processes = distributed.data_processes(), stages = distributed.pipeline_parallel;
  if (distributed.zero == 0 || processes == 1) return 1;
  if (!training.optimizer.has_muon()) return 1 / static_cast<double>(processes);
  double largest = 0;
  for (int64_t stage = 0; stage < stages; ++stage)
    largest =
        std::max(largest,
                 share_of_muon(cut(parameter_table(model, training.freeze), model, {.stage = stage, .stages = stages}),
                               training, processes));
  return largest;
}

// As parallel::Division::divides_checkpoints() has it.
int64_t checkpoint_parts(const DistributedConfig& distributed) {
  const int64_t model = distributed.model_processes(), data = distributed.data_processes();
  return model > 1 || distributed.zero > 0 ? model * data : 1;
}

}  // namespace

ActivationForm activation_form(const ModelConfig& model, const TrainingConfig& training,
                               const DistributedConfig& distributed, const DeviceInfo& device,
                               const Precision& precision) {
  return activation_form(model, training, distributed, device, precision,
                         attention_path(model, training.execution, device.device, precision.compute_type(),
                                        /*training=*/true));
}

ActivationForm activation_form(const ModelConfig& model, const TrainingConfig& training,
                               const DistributedConfig& distributed, const DeviceInfo& device,
                               const Precision& precision, const std::string& attention) {
  const ExecutionConfig& execution = training.execution;
  return {.compute_type = precision.compute_type(),
          .fused_attention = !attention.starts_with("math"),
          .cuda = device.device.is_cuda(),
          .own_operators = execution.use_compile,
          .rounds_products = device.device.is_cpu() && ops::cpu::rounds_products_from_float32(),
          .adds_products = device.device.is_cpu() && ops::cpu::adds_bfloat16_products(),
          .product_workspace = device.device.is_cpu() ? ops::cpu::product_workspace(precision.compute_type()) : 0,
          .is_recorded = distributed.zero < 2 && distributed.model_processes() == 1 &&
                         effective_mode(training, model, device.device).records,
          .multiprocessors = device.multiprocessors,
          .end_to_end = precision.end_to_end,
          .state_share = state_share(model, training, distributed),
          .gradient_parts = distributed.zero > 1 ? distributed.data_processes() : 1,
          .weight_parts = distributed.zero > 2 ? distributed.data_processes() : 1,
          .gradient_lanes = parallel::lanes_of_each(distributed.lanes, distributed.data_processes()),
          .model_parts = distributed.tensor_parallel,
          .stages = distributed.pipeline_parallel,
          .checkpoint_parts = checkpoint_parts(distributed),
          .micro_batches =
              training.batch_size == 0
                  ? std::nullopt
                  : std::optional((training.gradient_accumulation_steps - 1) / distributed.data_processes() + 1),
          .newton_schulz = newton_schulz_type(device)};
}

namespace {

// Bytes of the gradients of ZeRO 2 and 3: the sums, and those segments that are there at the same time: one that is filled, the one before,
// which is on its way, and a tied table, which the head begins and the embedding, or of stages nobody, completes.
double divided_gradients(const std::vector<ParameterRow>& rows, const FlatLayout& layout, const ActivationForm& form,
                         double size, bool has_head) {
  const std::vector<int64_t> lengths =
      segment_lengths(form.weight_parts > 1 ? 3 : 2, rows, layout, /*is_of_stage=*/form.stages > 1);
  const auto table = tied_row(rows);
  const bool is_tied = has_head && table && rows[*table].is_trained;
  const size_t last = lengths.size() - 1;
  int64_t most = lengths[last];
  for (size_t i = 0; i < last; ++i)
    most = std::max(most, lengths[i] + lengths[i + 1] + (is_tied && i + 1 < last ? lengths[last] : 0));
  const double sums = form.gradient_lanes == 1 ? 1 / static_cast<double>(form.gradient_parts)
                                               : static_cast<double>(form.gradient_lanes) / 2;
  return static_cast<double>(layout.trained_size) * sums * kFloatBytes + static_cast<double>(most) * size;
}

// Bytes of ZeRO 3's weights, all of which are trained, of so many bytes each as they are kept and as the model computes with them: a part of
// what is kept; what lies outside blocks, and two blocks; and beside copies the vectors that are read in float32.
double divided_weights(const std::vector<ParameterRow>& rows, const FlatLayout& layout, double kept, double computed,
                       int64_t parts) {
  const BlockValues values = block_values(rows, layout);
  const auto all = static_cast<double>(layout.size), of_blocks = static_cast<double>(values.blocks),
             share = 1 / static_cast<double>(parts);
  const bool has_copies = kept != computed;
  return (has_copies ? all : of_blocks) * share * kept +
         (all - of_blocks + 2 * static_cast<double>(values.longest)) * computed +
         (has_copies ? static_cast<double>(values.norms) * kept : 0);
}

// A teacher's weights; what is there beside the step's own while the loss is computed, and before the step's own, in its forward pass.
struct TeacherBytes {
  double weights = 0, at_head = 0, forward = 0;
};

TeacherBytes teacher_bytes(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form) {
  const std::optional<ModelConfig> teacher = run::teacher_in(model, training);
  if (!teacher) return {};
  const FlatLayout layout = flat_layout(parameter_table(*training.distillation.teacher));  // of all its positions
  const double of_value = form.end_to_end ? static_cast<double>(c10::elementSize(form.compute_type)) : kFloatBytes;
  const ActivationBytes bytes(*teacher, form);
  return {.weights = static_cast<double>(layout.size) * of_value,
          .at_head = bytes.last_rows(training) + bytes.logits_of(ActivationBytes(model, form).head_rows(training)),
          .forward = bytes.forward(training)};
}

// How many micro-batches are between their passes at once in this stage, and how many blocks keep something of each: those that the backward
// pass reaches. What so many of them keep waits in the host's memory.
struct Kept {
  double in_flight = 1, layers = 0, swapped = 0;
  bool passes_gradients_on = false;  // to the stage before

  double on_device() const { return layers - std::max(0.0, swapped - kSwappedOnDevice); }
};

// `first_trained`: the layer of the whole model.
Kept kept_in(const ModelConfig& model, const ModelPart& part, int64_t first_trained,
             std::optional<int64_t> micro_batches) {
  const LayerSpan own = stages_of(model, part.stages)[static_cast<size_t>(part.stage)];
  return {.in_flight = static_cast<double>(
              parallel::most_in_flight(part.stage, part.stages, micro_batches.value_or(part.stages))),
          .layers = static_cast<double>(std::max<int64_t>(0, own.end - std::max(own.begin, first_trained))),
          .passes_gradients_on = gpt::passes_gradients_on(part.stage, own, first_trained)};
}

// Of the blocks whose activations are kept, which are the last ones, those that are swapped, which are the first. Where it is not known yet how
// many: all.
double swapped_layers(const ModelConfig& model, const TrainingConfig& training, double kept) {
  const auto asked = static_cast<double>(training.execution.swap_activations.value_or(model.n_layer));
  return std::max(0.0,
                  std::min(asked, static_cast<double>(model.n_layer)) - (static_cast<double>(model.n_layer) - kept));
}

// Activations (B, T, C), or own rows of them, that a stage has besides: what it gives of each micro-batch in flight, and the gradient that
// comes back; what arrives for the next turn, and the gradient that goes back.
double travelling_activations(const ModelPart& part, const Kept& kept) {
  const double behind = part.is_last_stage() ? 0 : kept.in_flight + (kept.layers > 0 ? 1 : 0),
               before = part.is_first_stage() ? 0 : 1 + (kept.passes_gradients_on ? 1 : 0);
  return behind + before;
}

// Of the matrices of parts of layers: what a process has rounded anew of their moments (run/rounded_moments.h), and of the largest one the
// values of its part and of the whole in float32.
double bytes_of_rounded_moments(const std::vector<ParameterRow>& rows, const OptimizerConfig& optimizer,
                                const ActivationForm& form) {
  if (form.model_parts == 1) return 0;
  const auto parts = static_cast<double>(form.model_parts);
  double values = 0, largest = 0;  // of a part
  for (const ParameterRow& row : rows) {
    if (!row.is_trained || state_form(row, optimizer).dtype != StateDtype::int8) continue;
    values += static_cast<double>(row.count());
    largest = std::max(largest, static_cast<double>(row.count()));
  }
  const double rounded =
      2 * values * parts * static_cast<double>(form.stages) / static_cast<double>(form.checkpoint_parts);
  return rounded + largest * (form.state_share + parts) * kFloatBytes;
}

MemoryUse estimate_part(const ModelConfig& whole, const TrainingConfig& training, const ActivationForm& form,
                        const ModelPart& part) {
  ModelConfig model = largest_part(whole, form.model_parts);
  const std::vector<ParameterRow> rows = cut(parameter_table(model, training.freeze), model, part);
  const FlatLayout layout = flat_layout(rows);
  const auto trained = static_cast<double>(layout.trained_size),
             frozen = static_cast<double>(layout.size - layout.trained_size);
  Kept kept = kept_in(model, part, first_trained_layer(parameter_table(model, training.freeze)), form.micro_batches);
  model = in_training(model, training);  // whose passes are meant from here on
  const double tokens = static_cast<double>(training.batch_size * model.block_size);
  kept.swapped = swapped_layers(model, training, kept.layers);
  const bool is_narrow = form.compute_type != at::kFloat;
  const ActivationBytes bytes(model, form);

  MemoryUse estimate;
  const TeacherBytes teacher = teacher_bytes(model, training, form);
  estimate.teacher = teacher.weights;
  const PrecisionConfig& precision = training.precision;
  const bool has_copies = is_narrow && precision.master_weights;
  const at::ScalarType gradient = gradient_type(training, form.end_to_end);
  const auto size = [](at::ScalarType type) { return static_cast<double>(c10::elementSize(type)); };
  estimate.weights = trained * (size(kept_weight_type(precision)) + (has_copies ? 2 : 0)) +
                     frozen * (has_copies ? 2 : size(kept_weight_type(precision)));
  if (form.weight_parts > 1)
    estimate.weights =
        divided_weights(rows, layout, size(kept_weight_type(precision)), size(form.compute_type), form.weight_parts);
  estimate.weights += quantized_weight_bytes(whole, training.quantized, rows);
  estimate.gradients = form.gradient_parts > 1
                           ? divided_gradients(rows, layout, form, size(gradient), part.is_last_stage())
                           : trained * size(gradient);
  const StateBytes state = state_bytes(rows, layout, training.optimizer);
  estimate.optimizer = form.state_share * static_cast<double>(state.device);
  estimate.host = form.state_share * static_cast<double>(state.host);
  const GradientCheckpointing level = training.execution.gradient_checkpointing;
  const bool keeps_outside = part.is_last_stage() || (part.is_first_stage() && kept.layers > 0);
  estimate.activations =
      tokens * (kept.in_flight * (kept.on_device() * bytes.kept(level) + (keeps_outside ? bytes.outside_blocks() : 0)) +
                travelling_activations(part, kept) * bytes.own_rows());
  estimate.host += tokens * kept.swapped * bytes.kept(level);
  int64_t masks = 0, most_of_layer = 0;
  for (int64_t layer = std::max<int64_t>(0, first_trained_layer(rows)); layer < model.n_layer; ++layer) {
    const int64_t of_layer = model.top_blocks() > 0    ? training.batch_size * model.heads()
                             : model.window(layer) > 0 ? 1
                                                       : 0;
    masks += of_layer;
    most_of_layer = std::max(most_of_layer, of_layer);
  }
  estimate.activations +=
      static_cast<double>(level == GradientCheckpointing::block ? most_of_layer : masks) * bytes.mask();
  const double one_block = bytes.backward(level) + bytes.recomputed(level);
  // In 16 bits a weight's gradient may be a tensor of its own until it is added to one of float32, and a product one of float32 at
  // first.
  const double unrounded = is_narrow && form.rounds_products ? kFloatBytes : 0;
  const bool is_separate = is_narrow && gradient == at::kFloat && !form.adds_products;
  const auto of_weight = [&](int64_t width) {
    return static_cast<double>(width * model.n_embd) * ((is_separate ? 2 : 0) + unrounded);
  };
  const auto of_rows = [&](double rows, int64_t width) { return rows * static_cast<double>(width) * unrounded; };
  const int64_t Vp = model.padded_vocab(), widest = std::max(model.hidden(), 3 * model.attention_width());
  const double value_size = size(form.compute_type),
               of_chunk = form.own_operators ? of_rows(bytes.head_rows(training), Vp) : 0,
               head = part.is_last_stage() ? bytes.head(training) + std::max(of_weight(Vp), of_chunk) + teacher.at_head
                                           : 0,
               quantized = quantized_product_bytes(model, training.quantized, tokens, value_size, form.cuda),
               block = tokens * one_block + std::max({of_weight(widest), of_rows(tokens, model.hidden()), quantized});
  if (head >= block) estimate.logits = bytes.logits(training);
  estimate.workspace = std::max(head, block) - estimate.logits + form.product_workspace;
  // The update needs no more than the passes before it, unless they are of very few tokens.
  const double of_passes = estimate.activations + estimate.logits + estimate.workspace;
  const double of_muon = muon_workspace(rows, training.optimizer, form.newton_schulz);
  estimate.workspace += std::max(0.0, std::max(of_muon, teacher.forward) - of_passes);
  if (form.checkpoint_parts > 1) {  // a save takes it between two updates
    const double of_save = memory_of_divided_save(static_cast<double>(state.device + state.host)) +
                           bytes_of_rounded_moments(rows, training.optimizer, form);
    const double of_update = estimate.activations + estimate.logits + estimate.workspace;
    form.cuda ? estimate.host += of_save : estimate.workspace += std::max(0.0, of_save - of_update);
  }
  if (form.is_recorded) estimate.workspace += bytes.evaluation(training);
  // What LibTorch's operators make in between differs from one processor to another.
  constexpr double kBetweenOperators = 0.01;
  if (!form.own_operators) estimate.workspace += kBetweenOperators * estimate.activations;
  return estimate;
}

}  // namespace

MemoryUse estimate_memory(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form) {
  MemoryUse most;
  for (int64_t stage = 0; stage < form.stages; ++stage) {
    const MemoryUse use = estimate_part(model, training, form, {.stage = stage, .stages = form.stages});
    if (stage == 0 || use.total() > most.total()) most = use;
  }
  return most;
}

std::optional<int64_t> largest_batch_size(const ModelConfig& model, TrainingConfig training, const ActivationForm& form,
                                          double bytes) {
  const auto fits = [&](int64_t batch_size) {
    training.batch_size = batch_size;
    return estimate_memory(model, training, form).total() <= bytes;
  };
  if (!fits(1)) return std::nullopt;
  int64_t low = 1, high = 2;  // fits(low), and in the end not fits(high)
  while (fits(high)) low = high, high *= 2;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace gpt::plan
