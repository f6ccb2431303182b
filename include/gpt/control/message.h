// What a run is told on its way, and what it answers: a line of JSON each, through a Unix socket in the run's folder.
//   {"verb": "rate", "value": 0.5}   ->   {"done": true, "said": "step 120: the learning rate is 0.5 times the schedule's from step 121 on"}
// A connection has one request and one answer, which comes when it has been carried out.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gpt::control {

inline constexpr const char* kSocketFile = "control.sock";  // in the folder of the run
inline constexpr size_t kMostBytes = 4096;                  // of a request, with the end of its line

enum class Verb { pause, go_on, save, validate, sample, stop, rate, steps, longer, shorter };

struct Request {
  Verb verb = Verb::pause;
  double value = 0;  // of those that have one: for steps, longer and shorter a whole number
  bool operator==(const Request&) const = default;
};

struct Answer {
  bool is_done = false;
  std::string said = {};  // what was done, or why not
};

std::string name_of(Verb verb);  // "continue" for go_on

// The request that a person writes as "rate" and "0.5". Throws gpt::Error(config) with what is wrong and what is right.
Request request_of(const std::string& verb, const std::optional<std::string>& value);

std::string to_line(const Request& request);  // with its end
// Throws gpt::Error(config).
Request read_request(std::string_view line);

std::string to_line(const Answer& answer);
std::optional<Answer> read_answer(std::string_view line);  // nothing where it is none

// A line for each verb, for --help.
std::string verbs_for_people();

}  // namespace gpt::control
