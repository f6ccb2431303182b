#include "gpt/generate/session.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string_view>
#include <system_error>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/generate/text_stream.h"

namespace gpt {
namespace {

// Standard output, written at once. Unlike stdio it tells a reader that has left (`| head`) from a full disk.
class Output {
 public:
  explicit Output(bool raw) : escape_(!raw && isatty(STDOUT_FILENO)) {}

  bool write(std::string_view text) {  // false once the reader has left
    const std::string shown = escape_ ? escape_controls(text) : std::string(text);
    for (std::string_view rest = shown; !rest.empty() && open_;) {
      const ssize_t n = ::write(STDOUT_FILENO, rest.data(), rest.size());
      if (n >= 0) {
        rest.remove_prefix(n);
      } else if (errno == EPIPE) {
        open_ = false;
      } else if (errno != EINTR) {
        throw Error(ExitCode::disk, "standard output: cannot write: " + std::generic_category().message(errno));
      }
    }
    if (!text.empty()) at_line_start_ = text.ends_with('\n');
    return open_;
  }
  void end_line() {
    if (!at_line_start_) write("\n");
  }
  bool open() const { return open_; }

 private:
  const bool escape_;
  bool open_ = true;
  bool at_line_start_ = true;
};

// Of a smaller model a token takes less time than threads need to meet, many times less on a busy machine.
constexpr int64_t kParametersForThreads = 2'000'000;

bool read_line(std::string& line) {
  const process::LeaveAtFirstSignal waiting;
  return static_cast<bool>(std::getline(std::cin, line));
}

void report(const GenerationResult& result, int64_t block_size) {
  const double decode_seconds = result.seconds - result.prefill_seconds;
  std::string speed;
  if (result.new_tokens > 1) speed = fmt::format(", {:.0f} tokens/s", (result.new_tokens - 1) / decode_seconds);
  log::info(fmt::format("{} tokens in {:.2f} s{}; prompt of {} tokens in {:.2f} s; stopped: {}", result.new_tokens,
                        decode_seconds, speed, result.prompt_tokens, result.prefill_seconds, result.stop_reason));
  if (result.cropped_tokens > 0) {
    log::info(
        fmt::format("note: {} tokens of context were dropped (block_size {})", result.cropped_tokens, block_size));
  }
}

// A CPU computes one token at a time sooner in float32: casts cost more than 16 bits save.
Precision choose_precision(Dtype dtype, const DeviceInfo& device) {
  const bool float32 = dtype == Dtype::float32 || (dtype == Dtype::automatic && device.device.is_cpu());
  return resolve_precision(/*use_amp=*/!float32, dtype, device);
}

std::string_view name_of(at::ScalarType type) {
  return type == at::kBFloat16 ? "bfloat16" : type == at::kHalf ? "float16" : "float32";
}

void describe(const std::string& path, const Checkpoint& checkpoint, const Session& session) {
  std::string line = fmt::format("{}: step {}", path, checkpoint.step);
  if (std::isfinite(checkpoint.best_val_loss)) line += fmt::format(", best val loss {:.4f}", checkpoint.best_val_loss);
  log::info(fmt::format("{}, {:.2f}M parameters, {} tokenizer of {} tokens", line,
                        session.model->parameter_count() / 1e6, session.tokenizer->name(),
                        session.tokenizer->vocab_size()));
}

}  // namespace

Session open_session(const GenerateOptions& options) {
  const process::LeaveAtFirstSignal loading;
  if (!std::filesystem::exists(options.checkpoint)) {
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
  session.model = std::make_unique<GPT>(checkpoint.config.model, choice.device, /*seed=*/0);
  session.model->load_parameters(checkpoint.model);
  use_cpu_threads(session.model->parameter_count() < kParametersForThreads ? 1 : 0);
  session.compute_type = precision.compute_type();
  describe(options.checkpoint, checkpoint, session);
  log::info(fmt::format("Using {}: {}, {}", choice.device.is_cuda() ? "GPU" : "CPU", device.name,
                        name_of(session.compute_type)));
  return session;
}

int write_samples(Session& session, const GenerateOptions& options, const std::string& prompt) {
  Output output(options.raw);
  for (int64_t k = 0; k < options.num_samples && output.open(); ++k) {
    if (options.num_samples > 1) output.write(fmt::format("--- sample {} of {} ---\n", k + 1, options.num_samples));
    if (options.display_prompt) output.write(prompt);
    SamplingConfig sampling = options.sampling;
    sampling.seed += k;
    const GenerationResult result =
        generate(*session.model, *session.tokenizer, prompt, sampling, session.compute_type,
                 [&](std::string_view text) { return output.write(text) && process::stop_signal() == 0; });
    output.end_line();
    report(result, session.model->config().block_size);
    if (const int signal = process::stop_signal()) return 128 + signal;
  }
  return static_cast<int>(ExitCode::ok);
}

int converse(Session& session, const GenerateOptions& options) {
  Output output(options.raw);
  SamplingConfig sampling = options.sampling;
  const bool at_terminal = isatty(STDIN_FILENO);
  for (std::string line; output.open(); ++sampling.seed) {
    if (at_terminal) std::fputs("> ", stderr);
    if (!read_line(line)) break;
    process::forget_stop_signal();
    try {
      const GenerationResult result =
          generate(*session.model, *session.tokenizer, line, sampling, session.compute_type,
                   [&](std::string_view text) { return output.write(text) && process::stop_signal() == 0; });
      output.end_line();
      report(result, session.model->config().block_size);
      if (process::stop_signal() != 0 && process::stop_signal() != SIGINT) return static_cast<int>(process::stop_code());
    } catch (const Error& e) {
      if (e.code() != ExitCode::data) throw;
      log::error(e.what());  // a character the model does not know: the next line may do better
    }
  }
  if (at_terminal) std::fputs("\n", stderr);
  return static_cast<int>(ExitCode::ok);
}

}  // namespace gpt
