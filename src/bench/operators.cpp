#include "gpt/bench/operators.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "gpt/bench/measurement.h"
#include "gpt/config/block_form.h"
#include "gpt/core/format.h"
#include "gpt/device/graph.h"
#include "gpt/device/precision.h"
#include "gpt/ops/adamw.h"
#include "gpt/ops/flat_norm.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/ops/token_gather.h"
#include "gpt/parameters/parameters.h"

namespace gpt::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Body = std::function<void()>;

// For each of `count` in a row.
double milliseconds(at::Device device, const Body& body, int64_t count = 1) {
  device::synchronize(device);  // sync: the work is timed
  const auto begin = Clock::now();
  for (int64_t i = 0; i < count; ++i) body();
  device::synchronize(device);
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / static_cast<double>(count);
}

// What is timed. On a GPU it is recorded as a graph and replayed so often in a row that neither launches nor waiting count; where
// it cannot be recorded, its launches do. On a CPU there is nothing to hide.
class Timed {
 public:
  Timed(at::Device device, Body body) : device_(device), body_(std::move(body)), graphs_(device::graphs_of(device)) {
    body_();  // buffers are allocated, kernels chosen
    if (!graphs_) return;
    try {
      graph_ = graphs_->make();
      graph_->record(body_);
      body_ = [this] { graph_->replay(); };
      body_();
    } catch (const c10::Error&) { graph_.reset(); }
    constexpr double kSample = 2;  // ms
    count_ = static_cast<int64_t>(std::ceil(kSample / milliseconds(device_, body_)));
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

  double milliseconds_once() const { return milliseconds(device_, body_, count_); }

 private:
  at::Device device_;
  Body body_;
  std::unique_ptr<device::Graphs> graphs_;  // null on a CPU; outlives the graph
  std::unique_ptr<device::Graph> graph_;
  int64_t count_ = 1;
};

// One to be measured: by our operators, and by LibTorch's.
struct Case {
  std::string name;
  plan::Work work;
  Body ours, libtorch;
};

// The operators of one block, of batches, embedding and head, and of an update, for a micro-batch.
class Cases {
 public:
  Cases(const UpdateConfig& config, at::Device device, at::ScalarType type)
      : model_(one_layer(in_training(config.model, config.training))),
        form_(block_form(model_, 0)),
        training_(config.training),
        options_(at::TensorOptions(device).dtype(type)),
        gradient_type_(device::gradient_type(training_, /*end_to_end=*/type == at::kBFloat16)),
        work_(model_, {.products = type, .stream = type, .gradient = gradient_type_},
              static_cast<double>(training_.batch_size * model_.block_size)),
        parameters_(layout::parameter_table(model_), device, {.compute = type, .gradient = gradient_type_}) {
    parameters_.draw(1);
    if (form_.rotary)
      rotary_ =
          ops::rotary_tables(model_.block_size, model_.head_dim(), form_.rotary->theta, device, form_.rotary->scaling);
    add_batch();
    add_embedding();
    add_norm();
    add_products();
    add_heads();
    add_attention("attention", {}, /*share=*/1);
    if (config.model.windowed_layers() > 0) {
      const int64_t window = config.model.attention_window;
      add_attention(fmt::format("attention, window {}", window), {.window = window},
                    visible_share(model_.block_size, window));
    }
    if (const ops::BlockChoice blocks{config.model.attention_block, config.model.top_blocks()}; blocks.top > 0) {
      add_attention(fmt::format("attention, {} of {}", plural(blocks.top, "block"), blocks.size), {.blocks = blocks},
                    config.model.visible_share(0));
    }
    add_activation();
    add_classifier();
    add_gradient_norm();
    add_update();
  }

  const std::vector<Case>& all() const { return cases_; }

 private:
  using Outputs = std::vector<at::Tensor>;
  using Forward = std::function<Outputs(const ops::Operators& ops, const at::Tensor& x)>;

  static ModelConfig one_layer(ModelConfig model) {
    model.n_layer = 1;
    return model;
  }

  at::Tensor rows(int64_t width) const {
    return at::randn({training_.batch_size, model_.block_size, width}, options_.dtype(at::kFloat)).to(options_);
  }

  // Both passes take the gradients of x and of the parameters.
  void add(const std::string& name, const plan::OperatorWork::Passes& work, const at::Tensor& x,
           const Forward& forward) {
    for (const bool both : {false, true}) {
      const auto run = [&](const ops::SharedOperators& ops) {
        return both ? run_both(forward, ops, x) : run_forward(forward, ops, x);
      };
      cases_.push_back({both ? name + ", with backward" : name, both ? work.both() : work.forward,
                        run(ops::fused_operators()), run(ops::aten_operators())});
    }
  }

  static Body run_forward(const Forward& forward, const ops::SharedOperators& ops, const at::Tensor& x) {
    return [=] {
      const at::NoGradGuard no_grad;
      (void)forward(*ops, x);
    };
  }

  Body run_both(const Forward& forward, const ops::SharedOperators& ops, const at::Tensor& x) const {
    return [=, this, upstream = std::make_shared<Outputs>()] {
      parameters_.clear_gradients();
      const at::Tensor leaf = x.is_floating_point() ? x.detach().requires_grad_() : x;
      const Outputs outputs = forward(*ops, leaf);
      if (upstream->empty()) {  // not timed: by the run before
        for (const at::Tensor& y : outputs) upstream->push_back(at::ones_like(y));
      }
      torch::autograd::backward(outputs, *upstream);
    };
  }

  // A batch of a text of a million tokens.
  void add_batch() {
    constexpr int64_t kTokens = 1 << 20;
    const int64_t T = model_.block_size;
    const at::TensorOptions of_ids = options_.dtype(at::kLong);
    const at::Tensor tokens = at::randint(*model_.vocab_size, {kTokens}, of_ids).to(at::kInt),
                     starts = at::randint(kTokens - T, {training_.batch_size}, of_ids);
    cases_.push_back({"batch of tokens", work_.batch(), [=] { (void)ops::token_gather(tokens, starts, T); },
                      [=, places = at::arange(T + 1, of_ids)] {
                        const at::Tensor window = tokens.index({starts.unsqueeze(1) + places}).to(at::kLong);
                        (void)window.narrow(1, 0, T).contiguous();
                        (void)window.narrow(1, 1, T).contiguous();
                      }});
  }

  void add_products() {
    const auto product = [&](const char* name, layout::ParameterRole role) {
      const parameters::Parameter weight = parameters_.weight(role, 0), bias = parameters_.bias(role, 0);
      const int64_t out = weight.value().size(0), in = weight.value().size(1);
      add(name, work_.product(in, out), rows(in), [weight, bias](const ops::Operators& ops, const at::Tensor& x) {
        return Outputs{ops.linear(x, {weight, bias}, ops::ProductInput::keep)};
      });
    };
    product("product, attention in", layout::ParameterRole::attention_in);
    product("product, attention out", layout::ParameterRole::attention_out);
    product("product, MLP in", layout::ParameterRole::mlp_in);
    product("product, MLP out", layout::ParameterRole::mlp_out);
  }

  // Queries and keys are read and written, values are views; in the backward pass all gradients are packed. On a CPU our attention
  // does that as it reads, and only generation splits heads apart.
  void add_heads() {
    if (!rotary_.cos.defined() && !form_.head_norm) return;
    const at::Tensor packed = rows(packed_width());
    const auto bytes = static_cast<double>(packed.nbytes()),
               rotated = bytes * static_cast<double>(model_.heads() + model_.kv_heads()) /
                         static_cast<double>(model_.heads() + 2 * model_.kv_heads());
    ops::AttentionSpec spec{model_.heads(), model_.kv_heads()};
    spec.norms = head_norms();
    add("RoPE and the split into heads", {{0, 2 * rotated}, {0, 2 * bytes}}, packed,
        [rotary = rotary_, spec](const ops::Operators& ops, const at::Tensor& x) {
          const ops::Heads heads = ops.split_heads(x, spec, rotary);
          return Outputs{heads.q, heads.k, heads.v};
        });
  }

  ops::HeadNorms head_norms() const {
    if (!form_.head_norm) return {};
    return {parameters_.weight(layout::ParameterRole::query_norm, 0),
            parameters_.weight(layout::ParameterRole::key_norm, 0), form_.head_norm->eps,
            form_.head_norm->has_unit_offset ? 1.0 : 0.0};
  }

  struct Seen {
    int64_t window = 0;
    ops::BlockChoice blocks = {};
  };
  void add_attention(const std::string& name, const Seen& seen, double share) {
    ops::AttentionSpec spec{model_.heads(), model_.kv_heads()};
    spec.dropout = dropout(), spec.window = seen.window, spec.blocks = seen.blocks;
    spec.norms = head_norms();
    add(name, work_.attention(share), rows(packed_width()),
        [rotary = rotary_, spec](const ops::Operators& ops, const at::Tensor& x) {
          return Outputs{ops.attention(x, spec, rotary)};
        });
  }

  void add_norm() {
    const at::Tensor branch = rows(model_.n_embd);
    const NormForm form = final_norm_form(model_);
    const int64_t after = model_.n_layer;
    const ops::Normalization norm{.kind = form.kind,
                                  .eps = form.eps,
                                  .weight = parameters_.weight(layout::ParameterRole::final_norm, after),
                                  .bias = parameters_.bias(layout::ParameterRole::final_norm, after),
                                  .offset = form.has_unit_offset ? 1.0 : 0.0};
    add("residual sum and norm", work_.norm(/*has_branch=*/true), rows(model_.n_embd),
        [norm, branch, dropout = dropout()](const ops::Operators& ops, const at::Tensor& x) {
          const auto [sum, normed] = ops.add_norm(norm, x, branch, dropout);
          return Outputs{sum, normed};
        });
  }

  void add_activation() {
    const Mlp kind = form_.mlp.kind;
    const ops::Activation activation = ops::activation_of(kind);
    if (!is_gated(kind)) {
      add(kind == Mlp::gelu ? "GELU" : "ReLU squared", work_.activation(), rows(form_.mlp.width),
          [activation](const ops::Operators& ops, const at::Tensor& x) {
            return Outputs{ops.activate(activation, x)};
          });
      return;
    }
    add(kind == Mlp::swiglu ? "SwiGLU" : "GeGLU", work_.activation(), rows(form_.mlp.width),
        [activation, in = rows(form_.mlp.width), dropout = dropout()](const ops::Operators& ops, const at::Tensor& x) {
          return Outputs{ops.activate_gated(activation, x, in.detach().requires_grad_(), dropout)};
        });
  }

  void add_embedding() {
    const parameters::Parameter table = parameters_.weight(layout::ParameterRole::token_embedding, -1),
                                positions = parameters_.weight(layout::ParameterRole::position_embedding, -1);
    add("embedding", work_.embedding(), ids(),
        [table, positions, dropout = dropout()](const ops::Operators& ops, const at::Tensor& x) {
          return Outputs{ops.embedding(x, table, positions, /*starts=*/{}, dropout)};
        });
  }

  void add_classifier() {
    const parameters::Parameter head = model_.tie_weights
                                           ? parameters_.weight(layout::ParameterRole::token_embedding, -1)
                                           : parameters_.weight(layout::ParameterRole::head, 1);
    const ops::ClassifierOptions options{.vocabulary = *model_.vocab_size,
                                         .label_smoothing = training_.label_smoothing,
                                         .chunk_rows = training_.execution.loss_chunk_rows};
    add("head and cross entropy", work_.head(), rows(model_.n_embd),
        [head, options, targets = ids().flatten()](const ops::Operators& ops, const at::Tensor& x) {
          return Outputs{ops.classifier_loss(x, head, targets, options, {})};
        });
  }

  void add_gradient_norm() {
    const at::Tensor gradients = at::ones_like(parameters_.flat_values(), gradient_type_);
    cases_.push_back({"norm of the gradients",
                      plan::norm_of_gradients(static_cast<double>(gradients.numel()), parameter_bytes()),
                      [=] { (void)ops::flat_norm(gradients); }, [=] { (void)at::linalg_vector_norm(gradients); }});
  }

  void add_update() {
    const at::Tensor& values = parameters_.flat_values();
    const at::Tensor gradients = at::zeros_like(values, gradient_type_), m = at::zeros_like(values),
                     v = at::zeros_like(values), wide = gradients.to(at::kFloat),  // all of LibTorch's have one type
        rounded = parameters_.flat_rounded(),
                     decays = at::ones({values.numel() / layout::kParameterAlignment}, options_.dtype(at::kByte));
    const auto scalar = [&](double value) { return at::full({}, value, options_.dtype(at::kFloat)); };
    const at::Tensor rate = scalar(1e-4), all_of_decay = scalar(1), step = scalar(1), divisor = scalar(2),
                     no_inf = scalar(0);
    cases_.push_back({"AdamW", plan::adamw(static_cast<double>(values.numel()), parameter_bytes()),
                      [=] {
                        ops::adamw({values, gradients, m, v, rounded, decays}, {0.9, 0.99, 1e-8, 0.1},
                                   {rate, all_of_decay, step, divisor, no_inf});
                      },
                      [=] {  // without a divisor, by which it would divide the gradients in memory
                        at::_fused_adamw_({values}, {wide}, {m}, {v}, {}, {step}, rate, 0.9, 0.99, 0.1, 1e-8,
                                          /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{}, no_inf);
                        if (rounded.defined()) at::Tensor(rounded).copy_(values);
                      }});
  }

  // Moments have float32 here, whatever those of the run have.
  plan::ParameterBytes parameter_bytes() const {
    return {.gradient = static_cast<double>(c10::elementSize(gradient_type_)),
            .copy = parameters_.flat_rounded().defined() ? 2.0 : 0.0};
  }

  // With a place, as a step has one.
  ops::DropoutSpec dropout() const {
    return {.probability = model_.dropout, .place = at::zeros({2}, options_.dtype(at::kLong))};
  }

  int64_t packed_width() const { return (model_.heads() + 2 * model_.kv_heads()) * model_.head_dim(); }

  at::Tensor ids() const {
    return at::randint(*model_.vocab_size, {training_.batch_size, model_.block_size}, options_.dtype(at::kLong));
  }

  ModelConfig model_;
  BlockForm form_;
  TrainingConfig training_;
  at::TensorOptions options_;
  at::ScalarType gradient_type_;  // the type of the weights' gradients
  plan::OperatorWork work_;       // of a micro-batch
  parameters::Parameters parameters_;
  ops::RotaryTables rotary_;  // undefined: other positions
  std::vector<Case> cases_;
};

OperatorSpeed measure(const Case& one, at::Device device, double seconds) {
  constexpr int kLeastRuns = 3;
  const Timed of_ours(device, one.ours), of_libtorch(device, one.libtorch);
  std::vector<double> ours, libtorch;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (std::ssize(ours) < kLeastRuns || Clock::now() < end) {
    ours.push_back(of_ours.milliseconds_once());
    libtorch.push_back(of_libtorch.milliseconds_once());
  }
  return {one.name, median(ours), median(libtorch), one.work};
}

// In operations, or in bytes where it has none to speak of.
std::string speed_of(const OperatorSpeed& row) {
  const double seconds = 1e-3 * row.ours_ms;
  return (row.work.flops > 0 ? format_flops(row.work.flops / seconds) : format_bytes(row.work.bytes / seconds)) + "/s";
}

double least_ms(const OperatorSpeed& row, const OperatorSpeeds& all) {
  return 1000 * all.speed.least_seconds(row.work);
}

Document text_of(const OperatorSpeeds& all) {
  Table table{{{"operator", "ms", "LibTorch's ms", "gain", "speed", "of the limit"}}};
  for (const OperatorSpeed& row : all.rows) {
    table.rows.push_back({row.name, fmt::format("{:.3f}", row.ours_ms), fmt::format("{:.3f}", row.libtorch_ms),
                          as_ratio(row.libtorch_ms / row.ours_ms), speed_of(row),
                          as_share(least_ms(row, all) / row.ours_ms)});
  }
  return {fmt::format("In {}, for one micro-batch: medians of alternating runs. {}", device::name_of(all.type),
                      plan::explain_limit(all.speed)),
          table};
}

nlohmann::ordered_json json_of(const OperatorSpeeds& all) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OperatorSpeed& row : all.rows) {
    list.push_back({{"name", row.name},
                    {"ms", row.ours_ms},
                    {"libtorch_ms", row.libtorch_ms},
                    {"flops", row.work.flops},
                    {"bytes", row.work.bytes},
                    {"least_ms", least_ms(row, all)}});
  }
  return {{"dtype", device::name_of(all.type)},
          {"peak_flops", all.speed.flops},
          {"copy_bytes_per_second", all.speed.bytes_per_second},
          {"operators", list}};
}

}  // namespace

OperatorSpeeds measure_operators(const UpdateConfig& config, const device::DeviceInfo& device, at::ScalarType type,
                                 double seconds,
                                 const std::function<bool(double share, const std::string& name)>& progress) {
  OperatorSpeeds result{.type = type, .rows = {}, .threads = at::get_num_threads()};
  if (!progress(0, "the machine")) return result;
  device::use_recordable_stream(device.device);
  // Again after the operators, so that another program's moment does not pass for the machine.
  result.speed = plan::measure_machine(device.device, type);
  const Cases cases(config, device.device, type);
  const auto count = static_cast<double>(cases.all().size());
  for (const Case& one : cases.all()) {
    if (!progress(static_cast<double>(result.rows.size()) / count, one.name)) return result;
    result.rows.push_back(measure(one, device.device, seconds / count));
  }
  plan::measure_again(result.speed, device.device, type);
  result.complete = true;
  return result;
}

Findings findings(const OperatorSpeeds& speeds) {
  Findings result{.text = text_of(speeds),
                  .json = json_of(speeds).dump(),
                  .chart_title = "How many times as fast as LibTorch's operators",
                  .legend = {"as fast as LibTorch's, or faster", "slower"},
                  .threads = speeds.threads,
                  .complete = speeds.complete};
  for (const OperatorSpeed& row : speeds.rows) {
    const double gain = row.libtorch_ms / row.ours_ms;
    result.bars.push_back({row.name, as_ratio(gain), gain, gain >= 1});
  }
  return result;
}

}  // namespace gpt::bench
