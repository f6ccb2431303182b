// What is evaluated, one by one, and what comes of it. There are four forms:
//
//   choices  a question with several answers, of which the most probable one should be the right one
//   cloze    the end of a text, which should be what the model would write
//   text     a window of a document, of which every token counts
//   answers  a conversation, of which what the assistant says counts
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpt/evaluate/requests.h"

namespace gpt::evaluate {

enum class Form { choices, cloze, text, answers };

inline bool has_loss(Form form) { return form == Form::text || form == Form::answers; }

// How long an answer is without the space before it.
struct AnswerLength {
  int64_t characters, bytes;
};

struct Example {
  std::vector<Request> requests;           // one for each answer, else one
  int64_t label = 0;                       // choices: the right answer, from 0
  std::vector<AnswerLength> lengths = {};  // choices: of each answer
  int64_t document = 0;                    // text, answers: of the input, from 0
  int64_t bytes = 0, words = 0;  // text: of the whole document, with its last window; answers: bytes of what counts

  std::string hash() const;  // tells examples apart: of the ids and of what decides about the outcome
};

// What the model makes of a request.
struct Score {
  double log_likelihood = 0;  // of all scored tokens together, in nats
  bool is_greedy = false;     // each of them is the one that the model finds most probable
};

// What remains of an example: all that the metrics are made of.
struct Outcome {
  std::vector<double> log_likelihoods = {};     // of each answer, else one
  double acc = 0, acc_norm = 0, acc_bytes = 0;  // choices; acc also of cloze
  int64_t tokens = 0;                           // text, answers: scored ones
  int64_t document = 0, bytes = 0, words = 0;   // text, answers
  int64_t cut = 0;                              // requests that were too long
  std::string hash = {};                        // of the example
};

// acc: the answer with the largest log-likelihood is right; acc_norm and acc_bytes: with the largest one per character and per byte. The
// first of several equal ones counts.
Outcome outcome_of(Form form, const Example& example, std::span<const Score> scores);

// Where examples come from, in an order that is the same each time.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  virtual Form form() const = 0;
  // Nothing at the end. Throws gpt::Error(data), beginning with the place in the input.
  virtual std::optional<Example> next() = 0;
  virtual double share() const = 0;  // of the input that has been read, up to 1; 0 where that is not known
};

}  // namespace gpt::evaluate
