#include "gpt/train/evaluate_run.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "gpt/checkpoint/averages.h"
#include "gpt/config/automatic.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/data/document_mask.h"
#include "gpt/device/host.h"
#include "gpt/model/compile.h"
#include "gpt/report/console.h"
#include "gpt/run/evaluator.h"
#include "gpt/run/folder.h"
#include "gpt/run/same_run.h"
#include "gpt/run/setup.h"
#include "gpt/train/announce.h"

namespace gpt::train {
namespace {

run::StartingPoint checkpoint_of(const Config& config) {
  const std::string& from = config.training.resume_from;
  const bool named = checkpoint::names_checkpoint(from);
  std::error_code ignored;
  if (named && !std::filesystem::is_directory(from, ignored)) return {checkpoint::load_checkpoint(from), from};
  const std::string& folder = named ? from : config.output_dir;
  if (auto found = run::peek_run(folder)) return std::move(*found);
  throw Error(ExitCode::checkpoint,
              fmt::format("{} holds no checkpoint to evaluate: name its folder with --output_dir, or a file with "
                          "--resume_from",
                          folder));
}

std::string describe(const run::StartingPoint& start, const run::Evaluation& evaluation) {
  std::string line = fmt::format("{}: step {} | val loss {} | perplexity {}", printable_line(start.path),
                                 start.checkpoint.step, report::loss_text(evaluation.loss, evaluation.standard_error),
                                 format_perplexity(evaluation.perplexity()));
  if (evaluation.bits_per_byte) line += fmt::format(" | {:.4f} bits/byte", *evaluation.bits_per_byte);
  return line + fmt::format(" | {}\n", plural(evaluation.tokens, "token"));
}

std::string evaluation_json(const run::StartingPoint& start, const run::Evaluation& evaluation) {
  using nlohmann::ordered_json;
  const auto number = [](const std::optional<double>& value) {
    return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json();
  };
  const ordered_json object{{"checkpoint", start.path},
                            {"step", start.checkpoint.step},
                            {"val_loss", number(evaluation.loss)},
                            {"val_loss_error", number(evaluation.standard_error)},
                            {"val_perplexity", number(evaluation.perplexity())},
                            {"val_bits_per_byte", number(evaluation.bits_per_byte)},
                            {"tokens", evaluation.tokens}};
  return object.dump(2, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

ExitCode evaluate_run(const config::CommandLine& command, bool json) {
  Config config = command.config;
  run::StartingPoint start = checkpoint_of(config);
  const PrecisionConfig asked = config.training.precision;
  config::keep_choices(config, command.origins, start.checkpoint.config);
  const device::DeviceChoice choice = device::select_device(config.device);  // as gpt-train does
  data::Corpus read = run::load_run_corpus(config, start);
  config.training.precision.master_weights = true;  // the weights are read into some that are there on every device
  announce_device(device::describe_device(choice.device), choice, host::has_nvidia_gpu());
  const run::Setup setup = run::set_up(std::move(config), std::move(read), choice.device, asked);
  if (!setup.dtype_change.empty()) log::warn(setup.dtype_change);
  const data::Corpus& corpus = setup.corpus;
  const TrainingConfig& training = setup.config.training;

  if (training.cadence.evaluates == EvaluatedWeights::averages) checkpoint::take_averages(start.checkpoint, start.path);

  const TuningConfig& tuning = start.checkpoint.config.training.tuning;
  if (tuning.lora.is_on() && tuning.lora.base != BaseType::automatic && !choice.device.is_cpu())
    throw Error(ExitCode::config,
                "training.lora_base: this run keeps its base in few bits, with which a CPU computes; add --device cpu");
  // The weights alone: a run in memory has an optimizer, which may take twice as much again.
  model::GPT model(setup.config.model, choice.device, start.checkpoint.model,
                   {.compute = setup.precision.weight_type()}, tuning, {}, start.checkpoint.frozen);
  model.set_operators(model::select_operators(training.execution, choice.device));
  (void)model::compile_model(model, training, setup.precision, /*is_told=*/false);
  model.set_document_separator(data::document_separator(setup.config.data, corpus));
  run::Evaluator evaluator(corpus, {training.batch_size, setup.config.sequence_length()},
                           {.eval_batches = training.cadence.eval_batches.value_or(0),
                            .takes_neighbours = !start.checkpoint.eval_sequences,
                            .packing = setup.config.data.packing},
                           choice.device, setup.precision);
  if (evaluator.empty())
    throw Error(ExitCode::data, fmt::format("{} has no validation split to evaluate on", corpus.source));
  const run::Evaluation evaluation = evaluator.run(model, [](double share) {
    log::status(fmt::format("validating {:.0f}%", 100 * share));
    return process::stop_signal() != 0;
  });
  log::status("");
  if (process::stop_signal() != 0) return process::stop_code();
  print(json ? evaluation_json(start, evaluation) : describe(start, evaluation));
  return ExitCode::ok;
}

}  // namespace gpt::train
