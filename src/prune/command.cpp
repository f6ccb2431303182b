#include "gpt/prune/command.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/checkpoint/file_names.h"
#include "gpt/config/data_config.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/text_table.h"
#include "gpt/data/token_file.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/device/device.h"
#include "gpt/device/random_state.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/optim/make_optimizer.h"
#include "gpt/prune/importance.h"
#include "gpt/prune/selection.h"
#include "gpt/prune/sequences.h"
#include "gpt/prune/smaller_model.h"

namespace gpt::prune {
namespace {

// What a run has that begins with these weights, whose optimizer remembers nothing yet. What was frozen is to be trained again, as is all.
checkpoint::Checkpoint beginning_of(const checkpoint::Checkpoint& large, const model::GPT& model,
                                    parameters::NamedTensors weights) {
  checkpoint::Checkpoint small;
  small.config = large.config;
  small.config.model = model.config();
  small.config.training.tuning = {};
  small.step = large.step;
  small.model = std::move(weights);
  const parameters::Parameters& parameters = model.parameters();
  small.optimizer =
      optim::make_optimizer(parameters, small.config.training.optimizer, {{0, parameters.layout().trained_size}})
          ->state();
  small.rng = {{"cpu", device::random_state(at::kCPU)}};
  small.best_val_loss = std::numeric_limits<double>::infinity();
  small.tokenizer = large.tokenizer;
  small.data_fingerprint = large.data_fingerprint;
  small.sample_start = large.sample_start;
  small.text_format = large.text_format;
  small.environment = large.environment;
  return small;
}

using Row = std::vector<std::string>;  // what, before, after, and what there is to say

std::string change(double before, double after) { return fmt::format("{:+.1f}%", 100 * (after / before - 1)); }

Row count_row(const char* name, int64_t before, int64_t after, const std::string& note = "") {
  std::string text = before == after ? "" : change(static_cast<double>(before), static_cast<double>(after));
  if (!note.empty()) text += ", " + note;
  return {name, with_commas(before), with_commas(after), std::move(text)};
}

// Layers count from 0, as in the names of parameters.
std::string left_out(const std::vector<KeptLayer>& kept, int64_t layers) {
  std::vector<int64_t> missing;
  for (int64_t layer = 0, next = 0; layer < layers; ++layer) {
    if (next < std::ssize(kept) && kept[static_cast<size_t>(next)].layer == layer) {
      ++next;
    } else {
      missing.push_back(layer);
    }
  }
  return missing.empty() ? "" : fmt::format("without h.{}", fmt::join(missing, ", h."));
}

std::string report(const ModelConfig& large, const ModelConfig& small, const std::vector<KeptLayer>& kept,
                   double loss_before, double loss_after) {
  const double flops_before = layout::flops_per_token(large), flops_after = layout::flops_per_token(small);
  std::vector<Row> rows{{"", "before", "after", ""},
                        count_row("layers", large.n_layer, small.n_layer, left_out(kept, large.n_layer)),
                        count_row("heads of a layer", large.heads(), small.heads())};
  if (large.kv_heads() != large.heads())
    rows.push_back(count_row("key and value heads", large.kv_heads(), small.kv_heads()));
  rows.push_back(count_row("neurons of a layer", large.hidden(), small.hidden()));
  rows.push_back(count_row("parameters", layout::parameter_count(large), layout::parameter_count(small)));
  rows.push_back({"training a token takes", format_flops(flops_before), format_flops(flops_after),
                  change(flops_before, flops_after)});
  rows.push_back({"loss", fmt::format("{:.4f}", loss_before), fmt::format("{:.4f}", loss_after),
                  fmt::format("{:+.4f}", loss_after - loss_before)});
  constexpr TextColumn kNumber{TextColumn::right};
  return TextTable{.columns = {{}, kNumber, kNumber, {}}, .rows = std::move(rows), .before = "  "}.text();
}

std::vector<int64_t> layers_of(const std::vector<KeptLayer>& kept) {
  std::vector<int64_t> layers;
  for (const KeptLayer& layer : kept) layers.push_back(layer.layer);
  return layers;
}

std::string json_report(const std::string& output, const ModelConfig& large, const ModelConfig& small,
                        const std::vector<KeptLayer>& kept, double loss_before, double loss_after) {
  using nlohmann::ordered_json;
  const auto model = [](const ModelConfig& config, double loss) {
    return ordered_json{{"layers", config.n_layer},
                        {"heads", config.heads()},
                        {"kv_heads", config.kv_heads()},
                        {"neurons", config.hidden()},
                        {"parameters", layout::parameter_count(config)},
                        {"flops_per_token", layout::flops_per_token(config)},
                        {"loss", std::isfinite(loss) ? ordered_json(loss) : ordered_json()}};
  };
  const ordered_json object{{"output", output},
                            {"before", model(large, loss_before)},
                            {"after", model(small, loss_after)},
                            {"kept_layers", layers_of(kept)}};
  return object.dump(2, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

// The folder of a checkpoint that has its usual name.
std::string shortest_name(const std::string& file) {
  const std::filesystem::path path(file);
  return path.filename() == checkpoint::kLastCheckpoint && path.has_parent_path() ? path.parent_path().string() : file;
}

std::string next_command(const PruneOptions& options) {
  const std::string from = shortest_name(options.output);
  const std::string to = from.ends_with(".pt") ? from.substr(0, from.size() - 3) : from;
  const std::string field = options.text_field == DataConfig().text_field
                                ? ""
                                : fmt::format(" --text_field {}", shell_word(options.text_field));
  return printable_line(fmt::format("gpt-train --init_from {} --{} {}{} --output_dir {}", shell_word(from),
                                    data::has_name_of_bin(options.data) ? "bin" : "data", shell_word(options.data),
                                    field, shell_word(to + "-trained")));
}

}  // namespace

void prune_checkpoint(const PruneOptions& options) {
  const at::Device device = device::select_device(options.device).device;
  device::use_cpu_threads(options.threads);
  const checkpoint::Checkpoint large = checkpoint::load_checkpoint(options.checkpoint, checkpoint::Parts::model);
  const ModelConfig& config = large.config.model;
  const Removal removal = removal_from(options.amounts, config);
  const batches::Batch sequences = sequences_of(options.data, options.text_field, large, device, options.sequences);
  log::info(fmt::format("{}: {} parameters, reading {} of {} from {} on {}", options.checkpoint,
                        format_count(static_cast<double>(layout::parameter_count(config))),
                        plural(sequences.inputs.size(0), "sequence"), plural(config.block_size, "token"), options.data,
                        device::describe_device(device).name));
  model::GPT model(config, device, large.model);
  Measured measured = measure_importance(model, sequences);
  if (options.choice == Choice::random)
    measured.importance = random_importance(config, static_cast<uint64_t>(options.seed));

  const std::vector<KeptLayer> kept = most_important(measured.importance, removal, config);
  parameters::NamedTensors weights = smaller_weights(config, large.model, kept);
  const model::GPT smaller(smaller_config(config, kept), device, weights);
  const double loss = mean_loss(smaller, sequences);
  const std::filesystem::path folder = std::filesystem::path(options.output).parent_path();
  if (!folder.empty()) create_folders(folder.string());
  checkpoint::save_checkpoint(options.output, beginning_of(large, smaller, std::move(weights)));
  log::success(fmt::format("{}: written", options.output));
  if (options.json) return print(json_report(options.output, config, smaller.config(), kept, measured.loss, loss));
  print(report(config, smaller.config(), kept, measured.loss, loss) +
        fmt::format("\nIt recovers by training: {}\n", next_command(options)));
}

}  // namespace gpt::prune
