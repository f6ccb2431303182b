// An option is one row: name, aliases, help, range and a typed pointer into a plain struct. The YAML reader, the command
// lines of all programs, --help, the dump, the reference in configs/README.md and "did you mean" are ordinary functions over rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "gpt/config/interval.h"

namespace gpt::config {

// An enumeration under its YAML names.
struct Choice {
  std::vector<std::string> names;
  std::function<size_t()> get;  // index into names
  std::function<void(size_t)> set;
};

template <class Enum>
Choice choice(Enum& target, std::vector<std::pair<std::string, Enum>> values) {
  Choice result;
  for (const auto& [name, value] : values) result.names.push_back(name);
  result.get = [&target, values] {
    size_t i = 0;
    while (i + 1 < values.size() && values[i].second != target) ++i;
    return i;
  };
  result.set = [&target, values = std::move(values)](size_t i) { target = values[i].second; };
  return result;
}

struct Node;

// A value that is lists and maps.
struct Structure {
  std::function<void(const Node&)> read;  // throws gpt::Error(config) with the place of the fault
  std::function<std::string()> write;     // as YAML in one line, which reads back equal
};

// A whole number of at least 1, or "auto", which is 0 here until the program has chosen it.
struct NumberOrAuto {
  int64_t* value;
};

// A number, or "auto" until the program has found one; the number is then still the default.
struct FoundNumber {
  double* value;
  bool* is_auto;
};

// A list of texts takes one more whenever its flag is given. A number that may be missing has no default to be shown; where a
// whole number is missing it is "auto".
using Target =
    std::variant<bool*, int64_t*, NumberOrAuto, uint64_t*, double*, std::string*, std::vector<std::string>*,
                 std::optional<int64_t>*, std::optional<double>*, Interval*, Duration*, Choice, Structure, FoundNumber>;

// Another spelling of a key, such as another document's. One that is true or false there stands for two values of the key
// here: use_gpu: false is device: cpu. One that is a bare number there has its unit here.
struct Alias {
  std::string name;
  std::string if_true = {}, if_false = {};
  std::string unit = {};
  bool is_switch() const { return !if_true.empty(); }
};

struct Option {
  std::string section = {};  // the section of a configuration: "", "model", "data", "training", "report"
  std::string name;
  Target target;
  std::string help;  // one line; says the unit
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<Alias> aliases = {};
  bool safe_on_resume = false;  // a stopped run may go on with another value
  bool may_be_time = false;     // for an Interval: it may be counted in seconds
  bool is_switch = false;       // for a bool that is false: its flag takes no value
  bool is_path = false;         // for a text: a leading ~ is the home folder
  std::string otherwise = {};   // for a Choice: what to do when none of its names is meant
  // For a Choice that was true or false once, or is elsewhere; for a text, what its flag alone means.
  std::string if_true = {}, if_false = {};
  bool is_shadowed = false;  // another option has this name as its flag, which here needs the section
  // For a value that is neither a word nor true or false, where it switches something on: values without it and with it, such as 0 and 64.
  std::vector<std::string> tried = {};
  std::string flag() const { return is_shadowed ? key() : name; }
  std::string key() const { return section.empty() ? name : section + "." + name; }
};

// A flag that takes no value.
inline Option switch_row(std::string name, bool& on, std::string help, std::vector<Alias> aliases = {}) {
  return {.name = std::move(name),
          .target = &on,
          .help = std::move(help),
          .aliases = std::move(aliases),
          .is_switch = true};
}

}  // namespace gpt::config
