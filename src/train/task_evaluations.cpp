#include "gpt/train/task_evaluations.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/evaluate/metrics.h"
#include "gpt/evaluate/task_source.h"
#include "gpt/train/stopwatch.h"

namespace gpt::train {
namespace {

using evaluate::Example;
using evaluate::Form;
using evaluate::Outcome;

// What metrics are made of, as numbers that processes can send to each other.
using Numbers = std::array<double, 8>;

Numbers numbers_of(const Outcome& o) {
  return {o.log_likelihoods[0],
          o.acc,
          o.acc_norm,
          o.acc_bytes,
          static_cast<double>(o.tokens),
          static_cast<double>(o.document),
          static_cast<double>(o.bytes),
          static_cast<double>(o.words)};
}

Outcome outcome_of(std::span<const double, 8> numbers) {
  return {.log_likelihoods = {numbers[0]},
          .acc = numbers[1],
          .acc_norm = numbers[2],
          .acc_bytes = numbers[3],
          .tokens = static_cast<int64_t>(numbers[4]),
          .document = static_cast<int64_t>(numbers[5]),
          .bytes = static_cast<int64_t>(numbers[6]),
          .words = static_cast<int64_t>(numbers[7])};
}

std::vector<Example> read_examples(evaluate::ExampleSource& source, int64_t limit) {
  std::vector<Example> examples;
  while (auto example = source.next()) {
    const int64_t index = source.form() == Form::text ? example->document : std::ssize(examples);
    if (limit > 0 && index >= limit) break;
    examples.push_back(std::move(*example));
  }
  return examples;
}

}  // namespace

TaskEvaluations::TaskEvaluations(const UpdateConfig& config, const data::Corpus& corpus)
    : window_(config.model.block_size), batch_size_(config.training.batch_size) {
  const CadenceConfig& cadence = config.training.cadence;
  if (cadence.eval_tasks.empty() || cadence.eval_interval.count == 0) return;
  if (!corpus.tokenizer) {
    throw Error(ExitCode::config,
                "training.eval_tasks: the data has no tokenizer to read tasks with; name the one that made its ids "
                "with data.tokenizer");
  }
  const evaluate::Encoding encoding(*corpus.tokenizer, window_);
  for (const evaluate::Task& task : evaluate::parse_tasks(cadence.eval_tasks, "training.eval_tasks")) {
    const auto source = evaluate::open_task(task, encoding, window_);
    tasks_.push_back({task.name, source->form(), read_examples(*source, cadence.eval_task_limit)});
    if (tasks_.back().examples.empty())
      throw Error(ExitCode::data, fmt::format("training.eval_tasks: {}: nothing in it can be scored", task.file));
  }
}

std::string TaskEvaluations::describe() const {
  std::string text;
  for (const Task& task : tasks_) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", task.name,
                        plural(std::ssize(task.examples), task.form == Form::text ? "window" : "example"));
  }
  return text;
}

std::vector<report::TaskRecord> TaskEvaluations::run(model::GPT& model, at::ScalarType autocast_type,
                                                     distributed::Communicator& ranks,
                                                     const std::function<bool(const std::string& task)>& stop) const {
  const evaluate::Scorer scorer(model, autocast_type, batch_size_);
  std::vector<report::TaskRecord> records;
  for (const Task& task : tasks_) {
    const Stopwatch watch;
    const std::vector<Outcome> found = outcomes(task, scorer, ranks, stop);
    if (found.empty()) return {};
    report::TaskRecord record{.task = task.name, .examples = std::ssize(found), .seconds = watch.running_seconds()};
    for (const evaluate::Metric& metric : evaluate::metrics_of(task.form, found, window_))
      record.metrics.push_back({metric.name, metric.value, metric.standard_error});
    records.push_back(std::move(record));
  }
  return records;
}

std::vector<Outcome> TaskEvaluations::outcomes(const Task& task, const evaluate::Scorer& scorer,
                                               distributed::Communicator& ranks,
                                               const std::function<bool(const std::string& task)>& stop) {
  std::vector<const evaluate::Request*> requests;
  for (int64_t i = ranks.rank(); i < std::ssize(task.examples); i += ranks.size()) {
    for (const evaluate::Request& request : task.examples[i].requests) requests.push_back(&request);
  }
  // A process that fails or is stopped still meets the others below.
  bool is_finite = true;
  std::vector<evaluate::Score> scores;
  try {
    model::work_apart(scorer.model(), [&] { scores = scorer.score(requests, [&] { return stop(task.name); }); });
  } catch (const Error& error) {
    if (error.code() != ExitCode::numerics) throw;
    is_finite = false;
  }
  const bool is_whole = scores.size() == requests.size();

  // One row for each example, and one for what came between.
  const auto n = std::ssize(task.examples);
  const at::Tensor all = at::zeros({n + 1, std::ssize(Numbers())}, at::kDouble);
  auto* const rows = all.mutable_data_ptr<double>();
  const auto row = [&](int64_t i) { return std::span<double, 8>(rows + i * std::ssize(Numbers()), 8); };
  row(n)[0] = is_whole ? 0 : 1;
  row(n)[1] = is_finite ? 0 : 1;
  size_t begin = 0;
  for (int64_t i = ranks.rank(); is_whole && i < n; i += ranks.size()) {
    const Example& example = task.examples[i];
    const auto own = std::span(std::as_const(scores)).subspan(begin, example.requests.size());
    std::ranges::copy(numbers_of(evaluate::outcome_of(task.form, example, own)), row(i).begin());
    begin += example.requests.size();
  }
  ranks.sum(all);  // of numbers and zeros: nothing is rounded
  if (row(n)[1] > 0) throw Error(ExitCode::numerics, "the model's logits are not finite");
  if (row(n)[0] > 0) return {};
  std::vector<Outcome> outcomes;
  for (int64_t i = 0; i < n; ++i) outcomes.push_back(outcome_of(row(i)));
  return outcomes;
}

}  // namespace gpt::train
