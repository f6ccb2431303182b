#include "gpt/plan/data_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <vector>

#include "gpt/config/automatic.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/remedies.h"
#include "gpt/data/document_mask.h"
#include "gpt/data/overlap.h"
#include "gpt/generate/prompt.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/run/evaluator.h"
#include "gpt/run/setup.h"

namespace gpt::plan {
namespace {

std::string count(int64_t value) { return format_count(static_cast<double>(value)); }

}  // namespace

std::string data_fix(const DataConfig& data) {
  if (!data.bin.empty()) {
    const std::string folder = std::filesystem::path(data.bin).parent_path().string();
    return fmt::format("{} it with gpt-prepare --input TEXT --output {}", exists(data.bin) ? "prepare" : "make",
                       folder.empty() ? "." : folder);
  }
  if (!data.text.empty())
    return exists(data.text) ? "correct the text, or data.tokenizer" : "name an existing text with --data";
  return fmt::format("name a text with --data, or for the example {}", remedies().data);
}

DatasetFacts describe_data(const data::Corpus& corpus, const batches::DataLoader& loader) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(corpus.source, error);
  const std::string tokenizer = corpus.tokenizer ? corpus.tokenizer->name() : "";
  return {.source = corpus.source,
          .file_bytes = error ? 0 : static_cast<int64_t>(bytes),
          .train_tokens = corpus.train.size(),
          .validation_tokens = corpus.validation.size(),
          .samples_per_epoch = loader.samples_per_epoch(),
          .resident = loader.resident(),
          .are_learned = !tokenizer.empty() && tokenizer != "char" && tokenizer != "byte"};
}

TrainingConfig with_real_batch(TrainingConfig training, const DatasetFacts& facts) {
  training.batch_size = std::min(training.batch_size, facts.samples_per_epoch);
  return training;
}

Check check_dataset(const DataConfig& data, int64_t block_size, const DatasetFacts& facts) {
  const std::string size =
      facts.file_bytes > 0 ? fmt::format(" ({})", format_bytes(static_cast<double>(facts.file_bytes))) : "";
  std::string detail =
      fmt::format("{}{}: {} training and {} validation tokens, {} of {}", facts.source, size, count(facts.train_tokens),
                  count(facts.validation_tokens), plural(facts.samples_per_epoch, "sequence"), block_size);
  if (data.max_chars > 0) {
    // A character takes one byte or more.
    const bool all = facts.file_bytes > 0 && data.max_chars >= facts.file_bytes;
    detail += all ? fmt::format("; max_chars {} is more than the text has", with_commas(data.max_chars))
                  : fmt::format("; of the first {}", plural(data.max_chars, "character"));
  }
  return passed("dataset", detail);
}

Check check_tokens(const data::Corpus& corpus, int64_t vocab_size) {
  if (vocab_size < corpus.vocab_size) {
    return failed("vocabulary",
                  fmt::format("model.vocab_size {} is less than the {} of the dataset's tokenizer", vocab_size,
                              corpus.vocab_size),
                  "set model.vocab_size: auto");
  }
  int64_t tokens = corpus.validation.size(), bytes = corpus.validation.bytes();
  for (const data::Tokens& source : corpus.sources) tokens += source.size(), bytes += source.bytes();
  return passed("tokens", fmt::format("{} ids of {} bits ({}), all below the vocabulary of {}; sizes and hashes agree",
                                      count(tokens), 8 * corpus.train.width(), format_bytes(static_cast<double>(bytes)),
                                      with_commas(corpus.vocab_size)));
}

Check check_documents(const DataConfig& data, const data::Corpus& corpus) {
  std::optional<int32_t> separator;
  try {
    separator = data::document_separator(data, corpus);
  } catch (const Error& error) { return failed("documents", error.what(), ""); }
  const auto [description, idle] = data::find_documents(corpus, *separator);
  return idle.empty() ? passed("documents", description) : warned("documents", idle, "set data.document_mask: false");
}

Check check_overlap(const data::Corpus& corpus) {
  constexpr double kMany = 0.05;  // phrases that every text repeats are far fewer
  if (corpus.has_conversations)
    return passed("overlap", "validation has whole conversations, which all begin alike: they are not compared");
  data::Overlap worst;
  for (const data::Tokens& source : corpus.sources) {
    const data::Overlap overlap = data::find_overlap(source, corpus.validation);
    if (overlap.windows > 0 && overlap.share() >= worst.share()) worst = overlap;
  }
  if (worst.windows == 0)
    return passed("overlap", "validation has less than one window of 64 tokens: there is nothing to compare");
  const std::string detail =
      fmt::format("{} of {} windows of 64 validation tokens occur in training", worst.found, worst.windows);
  if (worst.share() <= kMany) return passed("overlap", detail);
  return warned(
      "overlap",
      fmt::format("{} (token {} of validation is token {} of training)", detail, worst.validation_position,
                  worst.train_position),
      "the validation loss is lower than it should be: gpt-prepare leaves out repeated documents (--deduplicate near, "
      "where they differ a little); what one document repeats stays, so give each text a file of its own");
}

Check check_sample_prompt(const CadenceConfig& cadence, const data::Corpus& corpus) {
  if (cadence.sample_interval.count == 0 || !corpus.tokenizer) return passed("sample prompt", "no samples are written");
  try {
    const std::vector<int32_t> tokens =
        generate::encode_prompt(*corpus.tokenizer, cadence.sample_prompt, "training.sample_prompt");
    return passed("sample prompt", "samples begin with " + plural(std::ssize(tokens), "token"));
  } catch (const Error& error) {
    return failed("sample prompt", error.what(),
                  "set training.sample_prompt to a text of these characters, or training.sample_interval: 0");
  }
}

Check check_batch(const TrainingConfig& training, const DatasetFacts& facts) {
  const int64_t effective = training.batch_size * training.gradient_accumulation_steps;
  const int64_t samples = facts.samples_per_epoch;
  const std::string detail =
      fmt::format("{} a step, {} in an epoch", plural(effective, "sequence"), with_commas(samples));
  const bool has_total = training.total_batch_size.has_value();
  if (samples < training.batch_size) {
    return warned("batch", detail + ": the text is smaller than one batch, which is never full",
                  fmt::format("set {}training.batch_size: {}, or lower training.sequence_length, or use more text",
                              has_total ? fmt::format("training.total_batch_size: {} and ", samples) : "", samples));
  }
  if (samples < effective) {
    const int64_t steps = samples / training.batch_size;
    return warned("batch", detail + ": the text is smaller than one step's batch",
                  has_total ? fmt::format("set training.total_batch_size: {}", steps * training.batch_size)
                            : fmt::format("set training.gradient_accumulation_steps: {}", steps));
  }
  return passed("batch", detail);
}

Check check_validation(const UpdateConfig& config, const DatasetFacts& facts, const run::Plan& plan) {
  if (facts.validation_tokens == 0) {
    return warned(
        "validation",
        "there is no validation text: the best checkpoint of a run cannot be identified, and overfitting goes unnoticed",
        "set data.validation_fraction: 0.1");
  }
  if (plan.eval_every == 0) {
    return warned("validation", "eval_interval 0: the validation loss is not computed during the run",
                  "set training.eval_interval");
  }
  if (plan.eval_every > plan.total_steps) {
    const int64_t interval = std::max<int64_t>(1, plan.total_steps / 10);
    return warned("validation",
                  fmt::format("eval_interval of {} in a run of {}: the validation loss is computed only at its end",
                              plural(plan.eval_every, "step"), with_commas(plan.total_steps)),
                  fmt::format("set training.eval_interval: {} {}", interval, interval == 1 ? "step" : "steps"));
  }
  const int64_t all = facts.validation_tokens - 1;
  const int64_t read = run::evaluation_tokens(config.training, config.sequence_length(), facts.validation_tokens);
  return passed("validation",
                fmt::format("every {} over {}{} of {} tokens ({:.0f} %)", plural(plan.eval_every, "step"),
                            config.training.cadence.eval_batches || read == all ? "" : "about ", count(read),
                            count(all), 100.0 * static_cast<double>(read) / static_cast<double>(all)));
}

int64_t workers_for(const DataConfig& data, bool cuda, int64_t cores) {
  constexpr int64_t kMost = 6;
  if (data.num_workers) return *data.num_workers;
  // On a CPU a worker takes from the training what it saves it. Beside a GPU four build batches faster than any step takes them.
  return cuda && data.prefetch_factor > 0 ? std::clamp<int64_t>(cores / 2, 1, kMost) : 0;
}

Check check_workers(const DataConfig& data, bool resident, bool cuda, int64_t cores) {
  if (resident) return passed("workers", "none needed: the tokens stay on the device");
  const int64_t workers = workers_for(data, cuda, cores);
  const std::string detail = fmt::format("{} on {}", plural(workers, "worker"), plural(cores, "core"));
  if (workers == 0 && !cuda) return passed("workers", "none: the training builds its batches itself");
  if (workers == 0) {
    return warned("workers", "none: every batch is built while the device waits",
                  "set data.num_workers: auto, or data.resident: auto");
  }
  if (workers > cores) {
    return warned("workers", detail + ": they compete for the cores with each other and with the training",
                  "set data.num_workers: auto");
  }
  return passed("workers", detail);
}

Check check_length(const UpdateConfig& config, const DatasetFacts& facts, const run::Plan& plan) {
  constexpr double kFarBeyond = 1.5;
  const int64_t block_size = config.sequence_length();
  const int64_t tokens_per_step = config.training.batch_size * config.training.gradient_accumulation_steps * block_size;
  const double epochs = static_cast<double>(plan.total_steps) / static_cast<double>(plan.steps_per_epoch);
  const std::string detail =
      fmt::format("{} of {}; an epoch is {} and {} tokens; {} {}", plural(plan.total_steps, "step"),
                  plural(tokens_per_step, "token"), plural(plan.steps_per_epoch, "step"),
                  count(facts.samples_per_epoch * block_size), format_number(epochs), epochs == 1 ? "epoch" : "epochs");
  const double parameters = config.model.vocab_size ? layout::parameter_count(config.model) : 0;
  const auto tokens = static_cast<double>(facts.train_tokens);
  const double per_token = parameters / tokens, dropout = config.model.dropout,
               more_dropout = config::most_dropout(facts.are_learned),
               of_blocks = parameters > 0 ? config::weights_of_blocks(config.model.n_layer, config.model.n_embd) : 0,
               useful = config::useful_epochs(of_blocks / tokens, dropout, facts.are_learned),
               useful_with_dropout = config::useful_epochs(of_blocks / tokens, more_dropout, facts.are_learned);
  if (epochs <= kFarBeyond * useful) return passed("length", detail);
  const std::string size = parameters > 0
                               ? fmt::format("the model, with {} weights for each token, ", format_number(per_token))
                               : "the model ";
  const auto steps = [&plan](double of_epochs) {
    return with_commas(std::llround(of_epochs * static_cast<double>(plan.steps_per_epoch)));
  };
  const std::string with_dropout =
      dropout < more_dropout && useful_with_dropout > useful
          ? fmt::format(" (about {} with model.dropout: {})", steps(useful_with_dropout), more_dropout)
          : "";
  return warned("length", fmt::format("{}: {}will memorize the text", detail, size),
                fmt::format("use more text, lower training.max_steps to about {}{}, or take a smaller model",
                            steps(useful), with_dropout));
}

Check check_learning_rate(const TrainingConfig& training, const run::Plan& plan) {
  constexpr double kHigh = 1e-2, kHighOfMuon = 3.2e-2;
  const ScheduleConfig& schedule = training.schedule;
  const bool has_muon = training.optimizer.has_muon();
  const int64_t warmup = optim::warmup_steps(schedule, plan.total_steps);
  const std::string detail = optim::describe_schedule(schedule, plan.total_steps);
  if (schedule.learning_rate > (has_muon ? kHighOfMuon : kHigh)) {
    return warned("learning rate", fmt::format("{}: {} diverges at such rates", detail, has_muon ? "Muon" : "AdamW"),
                  fmt::format("set training.learning_rate: {}, or auto", has_muon ? "4e-3" : "1e-3"));
  }
  if (warmup >= plan.total_steps) {
    return warned("learning rate",
                  fmt::format("{}: the warm-up is as long as the run of {}, or longer", detail,
                              plural(plan.total_steps, "step")),
                  fmt::format("set training.warmup_steps: {}", plan.total_steps / 10));
  }
  // As it is known of AdamW: the noise of a gradient falls with the root of the batch, and the sum that an update changes grows with the
  // width (Malladi et al., arXiv 2205.10287; Yang et al., arXiv 2203.03466).
  return passed(
      "learning rate",
      detail +
          "; taken over from another run, it is to be multiplied by the root of the factor by which the batch is "
          "larger here, and divided by that of the width");
}

}  // namespace gpt::plan
