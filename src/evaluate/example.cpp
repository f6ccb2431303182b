#include "gpt/evaluate/example.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>

#include "gpt/core/hash.h"

namespace gpt::evaluate {
namespace {

template <class Number>
void add_to(Hash128& hash, std::span<const Number> numbers) {
  hash.update({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
}

// The first answer with the largest log-likelihood for each unit of its length.
int64_t best_answer(std::span<const double> log_likelihoods, const std::function<double(size_t)>& length) {
  size_t best = 0;
  for (size_t i = 1; i < log_likelihoods.size(); ++i) {
    if (log_likelihoods[i] / length(i) > log_likelihoods[best] / length(best)) best = i;
  }
  return static_cast<int64_t>(best);
}

void judge_answers(Outcome& outcome, const Example& example) {
  const auto is_right = [&](const std::function<double(size_t)>& length) {
    return best_answer(outcome.log_likelihoods, length) == example.label ? 1.0 : 0.0;
  };
  outcome.acc = is_right([](size_t) { return 1.0; });
  outcome.acc_norm = is_right([&](size_t i) { return static_cast<double>(example.lengths[i].characters); });
  outcome.acc_bytes = is_right([&](size_t i) { return static_cast<double>(example.lengths[i].bytes); });
}

}  // namespace

std::string Example::hash() const {
  Hash128 hash;
  for (const Request& request : requests) {
    const int64_t sizes[] = {std::ssize(request.ids), request.scored};
    add_to<int64_t>(hash, sizes);
    add_to<int32_t>(hash, request.ids);
    add_to<int64_t>(hash, request.places);
  }
  std::vector<int64_t> rest{label, document, bytes, words};
  for (const AnswerLength& length : lengths) rest.insert(rest.end(), {length.characters, length.bytes});
  add_to<int64_t>(hash, rest);
  return fmt::format("{:016x}", hash.digest()[0]);
}

Outcome outcome_of(Form form, const Example& example, std::span<const Score> scores) {
  Outcome outcome{.document = example.document, .bytes = example.bytes, .words = example.words, .hash = example.hash()};
  for (const Score& score : scores) outcome.log_likelihoods.push_back(score.log_likelihood);
  outcome.cut =
      std::count_if(example.requests.begin(), example.requests.end(), [](const Request& r) { return r.is_cut; });
  if (form == Form::choices) judge_answers(outcome, example);
  if (form == Form::cloze) outcome.acc = scores[0].is_greedy ? 1 : 0;
  if (has_loss(form)) outcome.tokens = example.requests[0].scored;
  return outcome;
}

}  // namespace gpt::evaluate
