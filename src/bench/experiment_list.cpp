#include <fmt/format.h>

#include <algorithm>

#include "gpt/bench/experiments.h"

namespace gpt::bench {
namespace {

Experiment schedule(const char* name, LrSchedule schedule, const Config& wanted) {
  return {.name = fmt::format("{} learning rate", name),
          .settings = fmt::format("lr_schedule: {}", name),
          .apply = [schedule](Config& config, int64_t) { config.training.schedule.lr_schedule = schedule; },
          .obstacle = wanted.training.schedule.lr_schedule == schedule ? "the configuration has it" : ""};
}

Experiment optimizer(const char* name, OptimizerKind kind, const Config& wanted) {
  return {.name = name,
          .settings = fmt::format("optimizer: {}", kind == OptimizerKind::muon ? "muon" : "normuon"),
          .apply =
              [kind](Config& config, int64_t) {
                config.training.optimizer.kind = kind;
                config.training.optimizer.fused_adamw = true;
              },
          .obstacle = wanted.training.optimizer.kind == kind ? "the configuration has it" : ""};
}

Experiment order(const char* name, DataOrder order) {
  return {.name = fmt::format("curriculum: {}", name),
          .settings = fmt::format("data.order: {}", name),
          .apply = [order](Config& config, int64_t) { config.data.order = order; }};
}

Experiment windows(const Config& wanted) {
  return {.name = "sliding windows",
          .settings = "attention_window: block_size / 4, window_pattern: SSSL",
          .apply =
              [](Config& config, int64_t) {
                config.model.attention = AttentionForm::full;
                config.model.attention_window = std::max<int64_t>(1, config.model.block_size / 4);
                config.model.window_pattern = "SSSL";
              },
          .obstacle = wanted.model.windowed_layers() > 0 ? "the configuration has it"
                      : wanted.model.n_layer == 1        ? "the last layer is always full, and there is no other"
                                                         : ""};
}

Experiment blocks(const Config& wanted) {
  const ModelConfig& model = wanted.model;
  const auto set = [](ModelConfig& one) {
    one.attention = AttentionForm::blocks;
    one.attention_window = 0;
    one.attention_top_blocks = std::max<int64_t>(1, one.block_size / one.attention_block / 4);
  };
  ModelConfig tried = model;
  set(tried);
  return {.name = "chosen blocks",
          .settings = fmt::format("attention: blocks, attention_top_blocks: {}", tried.attention_top_blocks),
          .apply = [set](Config& config, int64_t) { set(config.model); },
          .obstacle = model.top_blocks() > 0 ? "the configuration has it"
                      : tried.top_blocks() == 0
                          ? fmt::format("sequences of {} have no blocks to choose from", model.block_size)
                      : wanted.data.document_mask ? "data.document_mask is on"
                                                  : ""};
}

// Losses are of validations that have the mask too: what a position predicts from its own document alone.
Experiment document_masks(const Config& wanted) {
  return {.name = "document masks",
          .settings = "data.document_mask: true",
          .apply = [](Config& config, int64_t) { config.data.document_mask = true; },
          .obstacle = wanted.data.document_mask       ? "the configuration has it"
                      : wanted.model.top_blocks() > 0 ? "attention: blocks chooses by means over several documents"
                                                      : ""};
}

Experiment quantized(QuantizedProducts products, const Config& wanted) {
  const bool is_all = products == QuantizedProducts::all;
  return {.name = is_all ? "int8 products" : "int8 forward pass",
          .settings = fmt::format("quantized_forward: int8{}", is_all ? ", quantized_products: all" : ""),
          .apply =
              [products](Config& config, int64_t) {
                QuantizedConfig& quantized = config.training.quantized;
                quantized.type = QuantizedForward::int8, quantized.products = products;
                quantized.skip = std::min(quantized.skip, (config.model.n_layer - 1) / 2);
              },
          .obstacle = wanted.training.quantized.is_on()        ? "the configuration has it"
                      : !wanted.training.execution.use_compile ? "it needs use_compile"
                                                               : ""};
}

// With as many parameters: the width takes what a gate had.
Experiment relu2(const Config& wanted) {
  const ModelConfig& model = wanted.model;
  const int64_t hidden = model.is_gated() ? 3 * model.hidden() / 2 : model.hidden();
  return {.name = "ReLU squared",
          .settings = fmt::format("mlp: relu2, n_hidden: {}", hidden),
          .apply = [hidden](Config& config, int64_t) { config.model.mlp = Mlp::relu2, config.model.n_hidden = hidden; },
          .obstacle = model.mlp == Mlp::relu2 ? "the configuration has it" : ""};
}

}  // namespace

std::vector<Experiment> experiments(const Config& wanted) {
  std::vector<Experiment> all{
      schedule("constant", LrSchedule::constant, wanted),
      schedule("linear", LrSchedule::linear, wanted),
      schedule("wsd", LrSchedule::wsd, wanted),
      {.name = "growing sequences",
       .settings = "data.schedule: grow",
       .apply = [](Config& config,
                   int64_t updates) { config.data.stages = growing_stages(config.model.block_size, updates); }},
      windows(wanted),
      blocks(wanted),
      document_masks(wanted),
      relu2(wanted),
      order("simpler_first", DataOrder::simpler_first),
      order("shorter_first", DataOrder::shorter_first),
      {.name = "8-bit moments",
       .settings = "use_8bit: true",
       .apply = [](Config& config, int64_t) { config.training.optimizer.state_dtype = StateDtype::int8; }},
      quantized(QuantizedProducts::forward, wanted),
      quantized(QuantizedProducts::all, wanted),
      {.name = "no gradient clipping",
       .settings = "gradient_clip: 0",
       .apply = [](Config& config, int64_t) { config.training.optimizer.gradient_clip = 0; }},
      {.name = "cautious weight decay",
       .settings = "cautious_weight_decay: true",
       .apply = [](Config& config, int64_t) { config.training.optimizer.cautious_weight_decay = true; }},
      {.name = "weight decay down to 0",
       .settings = "weight_decay_schedule: linear",
       .apply = [](Config& config, int64_t) { config.training.optimizer.decay_schedule = DecaySchedule::linear; },
       .obstacle = wanted.training.optimizer.decay_schedule == DecaySchedule::linear ? "the configuration has it"
                   : wanted.training.optimizer.weight_decay == 0                     ? "weight_decay is 0"
                                                                                     : ""},
      {.name = "label smoothing",
       .settings = "label_smoothing: 0.1",
       .apply = [](Config& config, int64_t) { config.training.label_smoothing = 0.1; }},
      // Their products cost time beside the step.
      optimizer("Muon", OptimizerKind::muon, wanted),
      optimizer("NorMuon", OptimizerKind::normuon, wanted),
  };
  std::erase_if(all, [](const Experiment& one) { return one.obstacle == "the configuration has it"; });
  return all;
}

}  // namespace gpt::bench
