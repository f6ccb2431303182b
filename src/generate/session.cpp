#include "gpt/generate/session.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <signal.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/generate/line_reader.h"
#include "gpt/generate/prompt.h"
#include "gpt/generate/report.h"
#include "gpt/prepare/plain_text.h"

namespace gpt::generate {
namespace {

// With a smaller model a token takes less time than threads need to meet, many times less on a busy machine.
constexpr int64_t kParametersForThreads = 2'000'000;

// "1 to 8 threads": as many as a ThreadChoice takes.
std::string describe_threads(const Session& session) {
  const int64_t most = at::get_num_threads();
  return session.threads ? fmt::format("1 to {} threads", most) : plural(most, "thread");
}

// Continues `prompt` until its texts end or a signal asks to stop; the first one onto `output` as it grows where there is one.
std::vector<GenerationResult> continue_text(Session& session, const std::string& prompt, const SamplingConfig& sampling,
                                            int64_t count, TextOutput* output) {
  auto results = generate_several(
      *session.loaded.model, *session.loaded.tokenizer, prompt, sampling, count, session.loaded.compute_type,
      [&](std::string_view text) { return (!output || output->write(text)) && process::stop_signal() == 0; },
      session.threads ? &*session.threads : nullptr);
  if (output) output->end_line();
  return results;
}

// The samples from `first` on, as many as are generated at once. Returns their number.
int64_t write_some(Session& session, const GenerateOptions& options, const std::string& prompt, int64_t first,
                   TextOutput& output, GenerationReport& report) {
  SamplingConfig sampling = options.sampling;
  sampling.start = prompt_start(session.loaded), sampling.ends = session.loaded.text_format.ends;
  sampling.seed += static_cast<uint64_t>(first);
  const auto begin_sample = [&](int64_t k) {
    if (options.json) return;
    if (options.num_samples > 1) output.write(fmt::format("--- sample {} of {} ---\n", k + 1, options.num_samples));
    if (!options.hide_prompt) output.write(prompt);
  };
  begin_sample(first);
  const int64_t count = texts_at_once(*session.loaded.model, options.num_samples - first);
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
    report(results[i], sampling.seed);
  }
  return count;
}

// Where another token than the end of a text stands for an empty prompt.
void announce_start(const Session& session) {
  const std::optional<int32_t> end = session.loaded.tokenizer->end_of_text();
  if (!session.loaded.text_format.prefix.empty()) return;  // it is as short as a prompt can be
  if (!session.loaded.start || !end || *session.loaded.start == *end) return;
  const std::string text = session.loaded.tokenizer->piece(*session.loaded.start, false);
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

Session open_session(const ModelOptions& options) {
  ModelOptions preferred = options;
  preferred.prefers_speed = true;
  const int64_t threads = options.threads;
  device::use_cpu_threads(threads);  // before the types are measured
  LoadedModel loaded = load_model(preferred);
  const bool is_small = loaded.model->parameters().count() < kParametersForThreads;
  if (is_small && threads == 0) device::use_cpu_threads(1);
  Session session{std::move(loaded)};
  if (threads == 0 && session.loaded.model->device().is_cpu() && at::get_num_threads() > 1)
    session.threads.emplace(at::get_num_threads());
  announce_device(session.loaded, describe_threads(session));
  return session;
}

int write_samples(Session& session, const GenerateOptions& options, const std::string& prompt, TextOutput& output) {
  if (prompt.empty()) announce_start(session);
  // One that cannot be read is refused before anything is written.
  encode_prompt(*session.loaded.tokenizer, prompt, options.prompt_file.empty() ? "prompt" : options.prompt_file,
                prompt_start(session.loaded));
  GenerationReport report(session.loaded.model->config().block_size, /*is_brief=*/false);
  for (int64_t done = 0; done < options.num_samples && output.open() && process::stop_signal() == 0;)
    done += write_some(session, options, prompt, done, output, report);
  output.finish();
  return exit_status();
}

int converse(Session& session, const GenerateOptions& options, TextOutput& output) {
  LineReader lines;
  if (lines.at_terminal()) {
    log::info("The model continues what you type; it does not answer questions. Ctrl-C stops a text, Ctrl-D leaves.");
  }
  GenerationReport report(session.loaded.model->config().block_size, /*is_brief=*/!options.verbose);
  SamplingConfig sampling = options.sampling;
  sampling.start = prompt_start(session.loaded), sampling.ends = session.loaded.text_format.ends;
  for (; output.open(); ++sampling.seed) {
    const std::optional<std::string> line = lines.next();
    if (!line) break;
    try {
      const auto results = continue_text(session, prepare::as_plain_text(*line), sampling, 1, &output);
      report(results[0], sampling.seed);
    } catch (const Error& e) {
      if (e.code() != ExitCode::data) throw;
      log::error(e.what());  // a character the model does not know: the next line may do better
    }
    if (process::stop_signal() == SIGINT) process::forget_stop_signal();  // it has stopped the text
    if (process::stop_signal() != 0) break;
  }
  return exit_status();
}

}  // namespace gpt::generate
