#include "gpt/generate/session.h"

#include <fmt/format.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/config/load.h"
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
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt {
namespace {

// Of a smaller model a token takes less time than threads need to meet, many times less on a busy machine.
constexpr int64_t kParametersForThreads = 2'000'000;

// A CPU computes one token at a time sooner in float32: casts cost more than 16 bits save.
Precision choose_precision(Dtype dtype, const DeviceInfo& device) {
  const bool float32 = dtype == Dtype::float32 || (dtype == Dtype::automatic && device.device.is_cpu());
  return resolve_precision({.use_amp = !float32, .dtype = dtype, .amp_mode = AmpMode::autocast}, device);
}

void describe(const std::string& path, const Checkpoint& checkpoint, const Session& session) {
  std::string line = fmt::format("Loaded {}: {} parameters after {}", path,
                                 format_count(static_cast<double>(session.model->parameters().count())),
                                 plural(checkpoint.step, "training step"));
  if (std::isfinite(checkpoint.best_val_loss)) {
    line += fmt::format(", best validation loss {:.4f}", checkpoint.best_val_loss);
  }
  log::info(fmt::format("{}, {} tokenizer with {}", line, session.tokenizer->name(),
                        plural(session.tokenizer->vocab_size(), "token")));
}

// Continues `prompt` until the text ends or a signal asks to stop, onto `output` as it grows where there is one.
GenerationResult continue_text(Session& session, const std::string& prompt, const SamplingConfig& sampling,
                               TextOutput* output) {
  const GenerationResult result =
      generate(*session.model, *session.tokenizer, prompt, sampling, session.compute_type,
               [&](std::string_view text) { return (!output || output->write(text)) && process::stop_signal() == 0; });
  if (output) output->end_line();
  report(result, session.model->config().block_size);
  return result;
}

void write_sample(Session& session, const GenerateOptions& options, const std::string& prompt,
                  const SamplingConfig& sampling, TextOutput& output) {
  if (options.json) {
    const GenerationResult result = continue_text(session, prompt, sampling, nullptr);
    const auto shown_prompt = options.hide_prompt ? std::nullopt : std::optional(prompt);
    output.write(json_line(shown_prompt, result, sampling.seed, output.escapes()));
  } else {
    if (!options.hide_prompt) output.write(prompt);
    continue_text(session, prompt, sampling, &output);
  }
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
  const Precision precision = choose_precision(options.dtype, device);
  apply_precision(precision, /*deterministic=*/false);

  const Checkpoint checkpoint = load_checkpoint(options.checkpoint);
  Session session;
  session.tokenizer = tokenizer_from_json(checkpoint.tokenizer, options.checkpoint);
  session.model = std::make_unique<GPT>(checkpoint.config.model, choice.device, checkpoint.model);
  use_cpu_allocator();
  use_cpu_threads(session.model->parameters().count() < kParametersForThreads ? 1 : 0);
  session.compute_type = precision.compute_type();
  describe(options.checkpoint, checkpoint, session);
  log::info(fmt::format("Using {}: {}, {}", choice.device.is_cuda() ? "GPU" : "CPU", device.name,
                        name_of(session.compute_type)));
  return session;
}

int write_samples(Session& session, const GenerateOptions& options, const std::string& prompt, TextOutput& output) {
  // One that cannot be read is refused before anything is written.
  encode_prompt(*session.tokenizer, prompt, options.prompt_file.empty() ? "prompt" : options.prompt_file);
  SamplingConfig sampling = options.sampling;
  for (int64_t k = 1; k <= options.num_samples && output.open() && process::stop_signal() == 0; ++k, ++sampling.seed) {
    const bool told_apart = options.num_samples > 1 && !options.json;
    if (told_apart) output.write(fmt::format("--- sample {} of {} ---\n", k, options.num_samples));
    write_sample(session, options, prompt, sampling, output);
  }
  output.finish();
  return exit_status();
}

int converse(Session& session, const GenerateOptions& options, TextOutput& output) {
  LineReader lines;
  if (lines.at_terminal()) {
    log::info("The model continues what you type; it does not answer questions. Ctrl-C stops a text, Ctrl-D leaves.");
  }
  SamplingConfig sampling = options.sampling;
  for (; output.open(); ++sampling.seed) {
    const std::optional<std::string> line = lines.next();
    if (!line) break;
    try {
      continue_text(session, *line, sampling, &output);
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
