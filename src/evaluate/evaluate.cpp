#include "gpt/evaluate/evaluate.h"

#include <fmt/format.h>

#include <utility>

#include "gpt/core/error.h"

namespace gpt::evaluate {
namespace {

// Examples that are scored together.
struct Batches {
  std::vector<Example> examples;
  int64_t requests = 0, tokens = 0;

  void add(Example example) {
    requests += std::ssize(example.requests);
    for (const Request& request : example.requests) tokens += std::ssize(request.ids);
    examples.push_back(std::move(example));
  }
};

class Run {
 public:
  Run(const Scorer& scorer, ExampleSource& source, const EvaluationOptions& options)
      : scorer_(scorer), source_(source), options_(options) {}

  Evaluation result() {
    for (;;) {
      std::optional<Example> example = next();
      if (example && std::ssize(evaluation_.outcomes) < std::ssize(options_.known)) {
        take_known(*example);
        continue;
      }
      if (example) batches_.add(std::move(*example));
      if (!example || scorer_.is_plenty(batches_.requests, batches_.tokens)) score();
      if (!example || !evaluation_.is_complete) break;
    }
    if (evaluation_.is_complete && evaluation_.outcomes.empty())
      throw Error(ExitCode::data, "nothing can be scored: the input has a single token, and nothing comes before it");
    return std::move(evaluation_);
  }

 private:
  // The next one within the limit.
  std::optional<Example> next() {
    std::optional<Example> example = source_.next();
    if (!example) {
      if (std::ssize(evaluation_.outcomes) < std::ssize(options_.known)) refuse_known();
      return example;
    }
    const int64_t index = has_loss(source_.form()) ? example->document : count_++;
    return options_.limit > 0 && index >= options_.limit ? std::nullopt : std::move(example);
  }

  void take_known(const Example& example) {
    const Outcome& outcome = options_.known[evaluation_.outcomes.size()];
    if (outcome.hash != example.hash()) refuse_known();
    evaluation_.outcomes.push_back(outcome);
  }

  [[noreturn]] void refuse_known() const {
    throw Error(ExitCode::config,
                fmt::format("result {} is not of this input, window and stride, or the input has changed; name another "
                            "--output",
                            evaluation_.outcomes.size()));
  }

  void score() {
    std::vector<const Request*> requests;
    for (const Example& example : batches_.examples) {
      for (const Request& request : example.requests) requests.push_back(&request);
    }
    const auto stop = [this] { return options_.stop && options_.stop(std::ssize(evaluation_.outcomes)); };
    const std::vector<Score> scores = scorer_.score(requests, stop);
    if (scores.size() < requests.size()) {
      evaluation_.is_complete = false;
      return;
    }
    size_t begin = 0;
    for (const Example& example : batches_.examples) {
      const size_t count = example.requests.size();
      evaluation_.outcomes.push_back(outcome_of(source_.form(), example, std::span(scores).subspan(begin, count)));
      if (options_.keep) options_.keep(evaluation_.outcomes.back());
      begin += count;
    }
    batches_ = {};
  }

  const Scorer& scorer_;
  ExampleSource& source_;
  const EvaluationOptions& options_;
  Batches batches_;
  int64_t count_ = 0;  // examples that came
  Evaluation evaluation_;
};

}  // namespace

Evaluation evaluate(const Scorer& scorer, ExampleSource& source, const EvaluationOptions& options) {
  return Run(scorer, source, options).result();
}

}  // namespace gpt::evaluate
