#include "gpt/generate/session.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/checkpoint/file_names.h"
#include "gpt/checkpoint/history.h"
#include "gpt/config/output_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/generate/line_reader.h"
#include "gpt/generate/prompt.h"
#include "gpt/generate/report.h"
#include "gpt/ops/narrow_weights.h"
#include "gpt/prepare/plain_text.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt {
namespace {

// With a smaller model a token takes less time than threads need to meet, many times less on a busy machine.
constexpr int64_t kParametersForThreads = 2'000'000;

// A GPU computes in the type. A CPU reads weights in it, and computes in float32: a token takes as long as reading them. Where the run
// computed end to end in bfloat16, its weights of 16 bits are the model.
at::ScalarType choose_type(Dtype dtype, const PrecisionConfig& of_run, const DeviceInfo& device) {
  if (device.device.is_cuda()) {
    const Precision precision =
        resolve_precision({.use_amp = dtype != Dtype::float32, .dtype = dtype, .amp_mode = AmpMode::autocast}, device);
    apply_precision(precision, /*deterministic=*/false);
    return precision.compute_type();
  }
  const bool is_end_to_end =
      of_run.use_amp && of_run.dtype == Dtype::bfloat16 && of_run.amp_mode == AmpMode::end_to_end;
  if (dtype == Dtype::automatic) dtype = is_end_to_end ? Dtype::bfloat16 : Dtype::float32;
  return dtype == Dtype::bfloat16 ? at::kBFloat16 : dtype == Dtype::float16 ? at::kHalf : at::kFloat;
}

std::unique_ptr<GPT> load_model(const Checkpoint& checkpoint, at::Device device, at::ScalarType type) {
  if (device.is_cuda() || type == at::kFloat)
    return std::make_unique<GPT>(checkpoint.config.model, device, checkpoint.model);
  auto model = std::make_unique<GPT>(checkpoint.config.model, device, checkpoint.model,
                                     ParameterTypes{.compute = type, .has_master = false});
  model->set_operators(ops::narrow_weight_operators(model->parameters()));
  return model;
}

// The checkpoint's own, or the one that was named for a checkpoint that has none.
std::unique_ptr<Tokenizer> tokenizer_for(const Checkpoint& checkpoint, const GenerateOptions& options) {
  const std::string &path = options.checkpoint, &spec = options.tokenizer;
  if (!checkpoint.tokenizer.empty()) {
    if (spec.empty()) return tokenizer_from_json(checkpoint.tokenizer, path);
    throw Error(ExitCode::config, fmt::format("{} has its own tokenizer: leave out --tokenizer {}", path, spec));
  }
  if (spec.empty()) {
    throw Error(ExitCode::checkpoint,
                fmt::format("{} has no tokenizer, because its run read token ids: name the one that made them with "
                            "--tokenizer (byte, gpt2 or a tokenizer file)",
                            path));
  }
  if (spec == "char" || trained_vocabulary(spec)) {
    throw Error(ExitCode::config,
                fmt::format("--tokenizer {}: it is learned from a text: name byte, gpt2 or a tokenizer file", spec));
  }
  auto tokenizer = make_tokenizer(spec, {});
  const int64_t most = *checkpoint.config.model.vocab_size;
  if (tokenizer->vocab_size() <= most) return tokenizer;
  throw Error(ExitCode::config, fmt::format("--tokenizer {} has {}, and the model of {} only {}: name another one",
                                            spec, plural(tokenizer->vocab_size(), "token"), path, with_commas(most)));
}

// The last validation loss of these weights, which the metrics beside them have, and where the run had a better one.
std::string describe_loss(const std::string& path, const Checkpoint& checkpoint) {
  const double best = checkpoint.best_val_loss;
  const RunHistory history = history_beside(path, checkpoint.step);
  const auto& last = history.last_evaluation;
  if (!last || last->step != checkpoint.evaluated_step)
    return std::isfinite(best) ? fmt::format(", best validation loss of its run {:.4f}", best) : "";
  std::string text = fmt::format(", validation loss {:.4f}", last->loss);
  if (last->step < checkpoint.step) text += fmt::format(" at step {}", with_commas(last->step));
  if (best < last->loss) text += fmt::format(" (best of its run {:.4f}: {})", best, kBestCheckpoint);
  return text;
}

void describe(const std::string& path, const Checkpoint& checkpoint, const Session& session) {
  log::info(fmt::format("Loaded {}: {} parameters after {}{}, {} tokenizer with {}", path,
                        format_count(static_cast<double>(session.model->parameters().count())),
                        plural(checkpoint.step, "training step"), describe_loss(path, checkpoint),
                        session.tokenizer->name(), plural(session.tokenizer->vocab_size(), "token")));
}

// "1 to 8 threads": as many as a ThreadChoice takes.
std::string describe_threads(const Session& session) {
  const int64_t most = at::get_num_threads();
  return session.threads ? fmt::format("1 to {} threads", most) : plural(most, "thread");
}

// Continues `prompt` until its texts end or a signal asks to stop; the first one onto `output` as it grows where there is one.
std::vector<GenerationResult> continue_text(Session& session, const std::string& prompt, const SamplingConfig& sampling,
                                            int64_t count, TextOutput* output) {
  auto results = generate_several(
      *session.model, *session.tokenizer, prompt, sampling, count, session.compute_type,
      [&](std::string_view text) { return (!output || output->write(text)) && process::stop_signal() == 0; },
      session.threads ? &*session.threads : nullptr);
  if (output) output->end_line();
  return results;
}

// The samples from `first` on, as many as are generated at once. Returns their number.
int64_t write_some(Session& session, const GenerateOptions& options, const std::string& prompt, int64_t first,
                   TextOutput& output) {
  SamplingConfig sampling = options.sampling;
  sampling.start = session.start;
  sampling.seed += static_cast<uint64_t>(first);
  const auto begin_sample = [&](int64_t k) {
    if (options.json) return;
    if (options.num_samples > 1) output.write(fmt::format("--- sample {} of {} ---\n", k + 1, options.num_samples));
    if (!options.hide_prompt) output.write(prompt);
  };
  begin_sample(first);
  const int64_t count = texts_at_once(*session.model, options.num_samples - first);
  const auto results = continue_text(session, prompt, sampling, count, options.json ? nullptr : &output);
  for (int64_t i = 0; i < count && (i == 0 || process::stop_signal() == 0) && output.open(); ++i, ++sampling.seed) {
    if (options.json) {
      const auto shown_prompt = options.hide_prompt ? std::nullopt : std::optional(prompt);
      output.write(json_line(shown_prompt, results[i], sampling.seed, output.escapes()));
    } else if (i > 0) {
      begin_sample(first + i);
      output.write(results[i].text);
      output.end_line();
    }
    report(results[i], sampling.seed, session.model->config().block_size);
  }
  return count;
}

// Where another token than the end of a text stands for an empty prompt.
void announce_start(const Session& session) {
  const std::optional<int32_t> end = session.tokenizer->end_of_text();
  if (!session.start || !end || *session.start == *end) return;
  const std::string text = session.tokenizer->decode({&*session.start, 1});
  log::info(fmt::format(
      "An empty prompt starts from {}: an end of text is not in the training tokens, or too rarely to be learned",
      text == "\n" ? "a line break" : fmt::format("'{}'", text)));
}

// 0, or what a shell makes of a program that the signal ended.
int exit_status() {
  const int signal = process::stop_signal();
  return signal ? 128 + signal : static_cast<int>(ExitCode::ok);
}

}  // namespace

Session open_session(const GenerateOptions& options) {
  const process::LeaveAtFirstSignal loading;
  if (options.checkpoint.empty()) {
    throw Error(ExitCode::checkpoint,
                fmt::format("there is no run in {}/; train one with gpt-train, or name a checkpoint with --checkpoint",
                            config::kRunsFolder));
  }
  std::error_code error;
  if (!std::filesystem::exists(options.checkpoint, error) && !error) {
    throw Error(ExitCode::checkpoint,
                options.checkpoint + ": no such checkpoint; train one with gpt-train, or name one with --checkpoint");
  }
  const DeviceChoice choice = select_device(options.device);
  const DeviceInfo device = describe_device(choice.device);

  const Checkpoint checkpoint = load_checkpoint(options.checkpoint);
  const at::ScalarType type = choose_type(options.dtype, checkpoint.config.training.precision, device);
  Session session;
  session.tokenizer = tokenizer_for(checkpoint, options);
  if (checkpoint.sample_start) session.start = static_cast<int32_t>(*checkpoint.sample_start);
  session.model = load_model(checkpoint, choice.device, type);
  use_cpu_allocator();
  const bool is_small = session.model->parameters().count() < kParametersForThreads;
  use_cpu_threads(options.threads > 0 ? options.threads : is_small ? 1 : 0);
  if (options.threads == 0 && choice.device.is_cpu() && at::get_num_threads() > 1)
    session.threads.emplace(at::get_num_threads());
  session.compute_type = choice.device.is_cuda() ? type : at::kFloat;
  describe(options.checkpoint, checkpoint, session);
  const std::string_view type_name = name_of(type);
  log::info(choice.device.is_cuda()
                ? fmt::format("Using GPU: {}, {}", device.name, type_name)
                : fmt::format("Using CPU: {}, {} weights, {}", device.name, type_name, describe_threads(session)));
  return session;
}

int write_samples(Session& session, const GenerateOptions& options, const std::string& prompt, TextOutput& output) {
  if (prompt.empty()) announce_start(session);
  // One that cannot be read is refused before anything is written.
  encode_prompt(*session.tokenizer, prompt, options.prompt_file.empty() ? "prompt" : options.prompt_file);
  for (int64_t done = 0; done < options.num_samples && output.open() && process::stop_signal() == 0;)
    done += write_some(session, options, prompt, done, output);
  output.finish();
  return exit_status();
}

int converse(Session& session, const GenerateOptions& options, TextOutput& output) {
  LineReader lines;
  if (lines.at_terminal()) {
    log::info("The model continues what you type; it does not answer questions. Ctrl-C stops a text, Ctrl-D leaves.");
  }
  SamplingConfig sampling = options.sampling;
  sampling.start = session.start;
  for (; output.open(); ++sampling.seed) {
    const std::optional<std::string> line = lines.next();
    if (!line) break;
    try {
      const auto results = continue_text(session, as_plain_text(*line), sampling, 1, &output);
      report(results[0], sampling.seed, session.model->config().block_size);
    } catch (const Error& e) {
      if (e.code() != ExitCode::data) throw;
      log::error(e.what());  // a character the model does not know: the next line may do better
    }
    if (process::stop_signal() == SIGINT) process::forget_stop_signal();  // it has stopped the text
    if (process::stop_signal() != 0) break;
  }
  return exit_status();
}

}  // namespace gpt
