// One finding of gpt-diagnose, and how a list of them is shown: a table for people, JSON for programs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gpt::plan {

struct Check {
  enum class Status { pass, warn, fail };
  std::string name;
  Status status = Status::pass;
  std::string detail;  // one line: what was found
  std::string fix;     // one line: what to do about it; empty where nothing needs doing

  // The numbers of `detail` under names that say their units, for programs.
  using Value = std::variant<bool, int64_t, double, std::string>;
  std::vector<std::pair<std::string, Value>> values = {};

  // The answer to one of the questions that people ask before a run, shown once more below the table: "How long?" "2h05m".
  struct Answer {
    std::string question, text;
  };
  Answer answer = {};

  // What would make the run need less memory, shown below the answers where it matters.
  struct Saver {
    std::string setting;  // "training.gradient_checkpointing: block"
    double bytes = 0;     // bytes that it saves
    std::string price;    // in time or precision
  };
  std::vector<Saver> savers = {};  // in order of gain
  bool shows_savers = false;       // in the table; JSON always has them
};
using Checks = std::vector<Check>;

Check passed(std::string name, std::string detail);
Check warned(std::string name, std::string detail, std::string fix);
Check failed(std::string name, std::string detail, std::string fix);

bool any_failed(const Checks& checks);
std::string to_table(const Checks& checks, bool colour, int columns);
// {"checks": [{name, status, detail, fix, and values and savers where there are any}], "summary": {pass, warn, fail}}
std::string to_json(const Checks& checks);

}  // namespace gpt::plan
