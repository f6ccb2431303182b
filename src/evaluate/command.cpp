#include "gpt/evaluate/command.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "gpt/config/output_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/hash.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/device/cpu_threads.h"
#include "gpt/device/precision.h"
#include "gpt/evaluate/conversation_source.h"
#include "gpt/evaluate/evaluate.h"
#include "gpt/evaluate/report.h"
#include "gpt/evaluate/results_file.h"
#include "gpt/evaluate/task_source.h"
#include "gpt/evaluate/text_source.h"

namespace gpt::evaluate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kText = "text";  // the name of --data among the tasks

struct Windows {
  int64_t window, stride;
};

Windows windows_of(const EvalOptions& options, int64_t block_size) {
  const int64_t window = options.window > 0 ? options.window : block_size;
  if (window > block_size) {
    throw Error(ExitCode::config, fmt::format("--window {}: the model sees at most {} at once (its block_size)", window,
                                              plural(block_size, "token")));
  }
  const int64_t stride = options.stride > 0 ? options.stride : window;
  if (stride > window) {
    throw Error(ExitCode::config, fmt::format("--stride {}: tokens would be left out, since the window has only {}",
                                              stride, with_commas(window)));
  }
  return {window, stride};
}

const char* name_of_example(Form form) {
  return form == Form::text ? "window" : form == Form::answers ? "conversation" : "example";
}

// How far one input is: as a status line at a terminal, and every half a minute elsewhere.
class Progress {
 public:
  Progress(std::string name, const ExampleSource& source, int64_t limit)
      : name_(std::move(name)), source_(source), limit_(limit) {}
  ~Progress() { log::status(""); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void operator()(int64_t outcomes) {
    const auto now = Clock::now();
    const double share = share_done(outcomes);
    if (begin_share_ < 0) begin_share_ = share, begin_ = now;  // what was known already took no time
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(log::is_terminal() ? 100 : 30'000);
    std::string line = fmt::format("{}: {}", name_, plural(outcomes, name_of_example(source_.form())));
    if (share > 0) line += fmt::format(", {:.0f}%", 100 * share);
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    if (seconds > 2 && share > begin_share_)
      line += fmt::format(", about {} left", format_duration(seconds * (1 - share) / (share - begin_share_)));
    log::is_terminal() ? log::status(line) : log::info(line);
  }

 private:
  using Clock = std::chrono::steady_clock;

  // 0 where it is not known: windows of a text are counted, and documents are what limits it.
  double share_done(int64_t outcomes) const {
    if (limit_ == 0) return source_.share();
    if (has_loss(source_.form())) return 0;
    return std::max(source_.share(), static_cast<double>(outcomes) / static_cast<double>(limit_));
  }

  const std::string name_;
  const ExampleSource& source_;
  const int64_t limit_;  // of examples or documents; 0: there is none
  Clock::time_point begin_, next_ = Clock::now() + std::chrono::seconds(log::is_terminal() ? 1 : 30);
  double begin_share_ = -1;
};

class Evaluations {
 public:
  Evaluations(const EvalOptions& options, generate::LoadedModel& loaded)
      : options_(options),
        loaded_(loaded),
        windows_(windows_of(options, loaded.model->config().block_size)),
        encoding_(*loaded.tokenizer, windows_.window, loaded.text_format.prefix),
        scorer_(*loaded.model, loaded.compute_type, options.batch_size),
        facts_{options.model.checkpoint, options.json || !options.output.empty() ? hash_of(*loaded.model) : "",
               std::string(generate::weight_name(loaded)), loaded.device_name, loaded.model->parameters().count()} {
    if (!options.output.empty()) {
      results_ =
          std::make_unique<ResultsFile>(options.output,
                                        ResultsOrigin{facts_.hash, hash128(loaded.tokenizer->to_json()), facts_.dtype});
    }
  }

  int run() {
    const std::vector<Input> inputs =
        open_inputs();  // all of them, so that a name that is wrong does not show after hours
    std::vector<TaskResult> done;
    for (const Input& input : inputs) {
      TaskResult result{input.name,     input.files,     input.source->form(), {},
                        options_.limit, windows_.window, windows_.stride,      encoding_.prefix.has_value()};
      if (!evaluate_input(result, *input.source)) return stopped(input.name);
      if (!options_.json) print(done.empty() ? table(result) : fmt::format("\n{}", table(result)));
      done.push_back(std::move(result));
    }
    if (options_.json) print(json_report(facts_, done));
    return static_cast<int>(ExitCode::ok);
  }

 private:
  struct Input {
    std::string name;
    std::vector<std::string> files;
    std::unique_ptr<ExampleSource> source;
  };

  std::vector<Input> open_inputs() const {
    std::vector<Input> inputs;
    if (!options_.data.empty()) { inputs.push_back({kText, options_.data, open_data()}); }
    for (const Task& task : options_.tasks)
      inputs.push_back({task.name, {task.file}, open_task(task, encoding_, windows_.stride)});
    return inputs;
  }

  std::unique_ptr<ExampleSource> open_data() const {
    if (!hold_conversations(options_.data, options_.text_field)) {
      if (options_.learn != Learn::answers)
        throw Error(ExitCode::config, fmt::format("--learn is for conversations, and {} holds none", options_.data[0]));
      return open_text(options_.data, options_.text_field, encoding_, windows_.stride);
    }
    if (options_.stride > 0)
      throw Error(ExitCode::config, "--stride is for texts: a conversation is measured within a single window");
    return open_conversations(options_.data, loaded_, {options_.text_field, options_.learn, windows_.window});
  }

  // False where a signal has stopped it.
  bool evaluate_input(TaskResult& result, ExampleSource& source) {
    Progress progress(result.name, source, options_.limit);
    EvaluationOptions how{.limit = options_.limit};
    how.stop = [&](int64_t outcomes) {
      progress(outcomes);
      return process::stop_signal() != 0;
    };
    if (results_) {
      how.known = results_->outcomes(result.name);
      how.keep = [&](const Outcome& outcome) { results_->append(result.name, result.form, outcome); };
      if (!how.known.empty())
        log::info(fmt::format("{}: going on with {} of {}", result.name, plural(std::ssize(how.known), "result"),
                              options_.output));
    }
    try {
      Evaluation evaluation = evaluate(scorer_, source, how);
      result.outcomes = std::move(evaluation.outcomes);
      return evaluation.is_complete;
    } catch (const Error& error) {
      if (error.code() == ExitCode::interrupted) return false;  // while it waited for standard input
      if (error.code() == ExitCode::config)
        throw Error(ExitCode::config, fmt::format("--output {}: {}: {}", options_.output, result.name, error.what()));
      throw;
    }
  }

  int stopped(const std::string& name) const {
    log::info(options_.output.empty()
                  ? fmt::format("Stopped in {}; with --output FILE the same command would go on from here", name)
                  : fmt::format("Stopped in {}; the same command goes on from {}", name, options_.output));
    return static_cast<int>(process::stop_code());
  }

  const EvalOptions& options_;
  const generate::LoadedModel& loaded_;
  const Windows windows_;
  const Encoding encoding_;
  const Scorer scorer_;
  const ModelFacts facts_;
  std::unique_ptr<ResultsFile> results_;  // where there is one
};

// The checkpoint lies in the folder of its run, whose configuration names the text.
void note_training_text(const EvalOptions& options) {
  const auto run = config::left_configuration(fs::path(options.model.checkpoint).parent_path().string());
  if (!run) return;
  for (const std::string& input : options.data) {
    std::error_code ignored;
    if (run->data.text.empty() || !fs::equivalent(input, run->data.text, ignored)) continue;
    log::warn(fmt::format(
        "the model was trained on {}: its loss here says what it remembers, and not how well it does on other texts; gpt-train "
        "--eval-only gives the loss on the part that was kept for validation",
        input));
  }
}

}  // namespace

int evaluate_inputs(const EvalOptions& options) {
  note_training_text(options);
  generate::LoadedModel loaded = generate::load_model(options.model);
  device::use_cpu_threads(options.model.threads);
  generate::announce_device(loaded, plural(at::get_num_threads(), "thread"));
  return Evaluations(options, loaded).run();
}

}  // namespace gpt::evaluate
