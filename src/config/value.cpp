#include "gpt/config/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>

#include "foreign.h"
#include "gpt/config/node.h"
#include "gpt/config/suggest.h"
#include "gpt/core/error.h"

namespace gpt::config {
namespace {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

template <class Number>
std::optional<Number> parse(std::string_view text) {
  Number value{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

std::string number_text(double value) {
  std::string text = fmt::format("{}", value);  // shortest that reads back equal
  const size_t e = text.find('e');
  if (e != std::string::npos && text[e + 2] == '0') text.erase(e + 2, 1);  // 1e-05 -> 1e-5
  return text;
}

// 1e9 rather than 1000000000.
std::string bound_text(double value) {
  int exponent = 0;
  double mantissa = value;
  while (mantissa >= 10 && std::fmod(mantissa, 10) == 0) mantissa /= 10, ++exponent;
  return exponent >= 6 && mantissa < 10 ? fmt::format("{}e{}", mantissa, exponent) : number_text(value);
}

// With control characters, and those that are `special`, after a backslash.
std::string escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (const unsigned char c : text) {
    if (special.find(static_cast<char>(c)) != std::string_view::npos) result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      result += fmt::format("\\x{:02x}", c);
    } else {
      result += static_cast<char>(c);
    }
  }
  return result;
}

std::string join(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

// How an interval is written: "2 hours" are 7200 of Unit::seconds.
struct IntervalWord {
  std::string_view word;  // for one; more have an "s"
  Interval::Unit unit;
  int64_t size;  // in that unit
};
constexpr IntervalWord kIntervalWords[] = {
    // the largest of a unit first
    {"step", Interval::Unit::steps, 1},      {"epoch", Interval::Unit::epochs, 1},
    {"hour", Interval::Unit::seconds, 3600}, {"minute", Interval::Unit::seconds, 60},
    {"second", Interval::Unit::seconds, 1},  {"%", Interval::Unit::percent, 1},
};

std::string interval_text(const Interval& interval) {
  for (const auto& [word, unit, size] : kIntervalWords) {
    if (unit != interval.unit || interval.count % size != 0 || (interval.count == 0 && size > 1)) continue;
    const int64_t count = interval.count / size;
    return fmt::format("{} {}{}", count, word, count == 1 || word == "%" ? "" : "s");
  }
  return fmt::format("{}", interval.count);
}

std::optional<Interval> parse_interval(std::string_view text) {
  constexpr int64_t kWhole = 100;  // per cent
  if (text.ends_with('%')) {
    const std::string_view number = text.substr(0, text.find_last_not_of(" %") + 1);
    const auto share = parse<int64_t>(number);
    return share && *share >= 0 && *share <= kWhole ? std::optional<Interval>({*share, Interval::Unit::percent})
                                                    : std::nullopt;
  }
  const size_t space = text.find(' ');
  const auto count = parse<int64_t>(text.substr(0, space));
  if (!count || *count < 0) return std::nullopt;
  if (space == std::string_view::npos) return Interval{*count, Interval::Unit::run};
  std::string_view name = text.substr(space + 1);
  if (name.ends_with('s')) name.remove_suffix(1);
  for (const auto& [word, unit, size] : kIntervalWords) {
    const bool fits = *count <= std::numeric_limits<int64_t>::max() / size;
    if (name == word && fits) return Interval{*count * size, unit};
  }
  return std::nullopt;
}

struct DurationWord {
  std::string_view word;  // for one; more have an "s"
  double seconds;
};
constexpr DurationWord kDurationWords[] = {{"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}};

// In the largest unit of which it is a whole number.
std::string duration_text(const Duration& duration) {
  if (duration.seconds == 0) return "none";
  for (const auto& [word, seconds] : kDurationWords) {
    const double count = duration.seconds / seconds;
    if (count == std::floor(count) || seconds == 1)
      return fmt::format("{} {}{}", number_text(count), word, count == 1 ? "" : "s");
  }
  return "";
}

std::optional<Duration> parse_duration(std::string_view text) {
  if (text == "none" || text == "0") return Duration{};
  const size_t space = text.find(' ');
  const auto count = parse<double>(text.substr(0, space));
  if (!count || space == std::string_view::npos) return std::nullopt;
  std::string_view name = text.substr(space + 1);
  if (name.ends_with('s')) name.remove_suffix(1);
  for (const auto& [word, seconds] : kDurationWords)
    if (name == word) return Duration{*count * seconds};
  return std::nullopt;
}

bool is_time(const Interval& interval) { return interval.unit == Interval::Unit::seconds; }

const std::string kAlsoAuto = "auto or ";

// What is possible here: "must be a whole number >= 1".
std::string expectation(const Option& option) {
  const std::string allowed = allowed_text(option);
  const bool is_closed = std::isfinite(option.min) && std::isfinite(option.max);
  const std::string from = is_closed ? " from " : " ";
  const auto with_range = [&](const std::string& what) { return allowed.empty() ? what : what + from + allowed; };
  return "must be " +
         std::visit(Overloaded{
                        [](bool*) -> std::string { return "true or false"; },
                        [&](std::integral auto*) { return with_range("a whole number"); },
                        [&](double*) { return with_range("a number"); },
                        [&](std::optional<double>*) { return with_range("a number"); },
                        [&](std::optional<int64_t>*) { return "auto or " + with_range("a whole number"); },
                        [&](const NumberOrAuto&) {
                          return kAlsoAuto + "a whole number" + from + allowed.substr(kAlsoAuto.size());
                        },
                        [&](const FoundNumber&) {
                          return kAlsoAuto + "a number" + from + allowed.substr(kAlsoAuto.size());
                        },
                        [&](Interval*) -> std::string {
                          return option.may_be_time ? "like 500, '500 steps', '2 epochs', '10 %' or '10 minutes'"
                                                    : "like 500, '500 steps', '2 epochs' or '10 %'";
                        },
                        [&](Duration*) -> std::string {
                          return fmt::format("a time like '90 seconds', '10 minutes' or '1.5 hours' ({})", allowed);
                        },
                        [&](const Choice&) { return "one of " + allowed; },
                        [](const auto&) -> std::string { return "text"; },
                    },
                    option.target);
}

// What a wrong value was probably meant to be, or nothing.
std::string hint(const Option& option, std::string_view text, bool is_quoted) {
  const bool is_double = std::holds_alternative<double*>(option.target) ||
                         std::holds_alternative<FoundNumber>(option.target) ||
                         std::holds_alternative<std::optional<double>*>(option.target);
  const bool is_int = std::holds_alternative<int64_t*>(option.target) ||
                      std::holds_alternative<uint64_t*>(option.target) ||
                      std::holds_alternative<std::optional<int64_t>*>(option.target) ||
                      std::holds_alternative<NumberOrAuto>(option.target);
  const auto number = parse<double>(text);
  const bool is_boolean = std::holds_alternative<bool*>(option.target);
  if (is_boolean && (text == "1" || text == "0")) return text == "1" ? "; write true" : "; write false";
  if (is_quoted && (((is_int || is_double) && number) || (is_boolean && boolean(text)))) {
    constexpr size_t kLongest = 40;
    return fmt::format(" as text; write {} without quotes", text.size() <= kLongest ? text : "it");
  }
  if (is_int && number && !parse<int64_t>(text) && *number == std::floor(*number) && std::abs(*number) < 1e15) {
    return fmt::format("; write {}", static_cast<int64_t>(*number));
  }
  const bool is_digits = text.find_first_not_of("0123456789") == std::string_view::npos;
  if (is_int && is_digits && number >= 0x1p63 && !std::isfinite(option.max)) {
    const bool is_unsigned = std::holds_alternative<uint64_t*>(option.target);
    return fmt::format("; the largest is {}", is_unsigned ? std::numeric_limits<uint64_t>::max()
                                                          : uint64_t{std::numeric_limits<int64_t>::max()});
  }
  if (const auto* choices = std::get_if<Choice>(&option.target)) {
    if (const auto near = nearest_value(text, choices->names)) return fmt::format("; did you mean '{}'?", *near);
    if (!option.otherwise.empty()) return "; " + option.otherwise;
  }
  if (std::holds_alternative<Interval*>(option.target)) {
    const auto interval = parse_interval(text);
    if (interval && is_time(*interval) && !option.may_be_time) {
      return "; only checkpoint_interval may be a time, since a run's losses and samples must not depend on its speed";
    }
  }
  return "";
}

// The name that stands for true or false here; `text` where none does. YAML 1.1 takes on and off for true and false, and what a program
// like PyYAML read as such it writes as such.
std::string_view word_for(bool on, const Option& option, const Choice& choice, std::string_view text) {
  if (!option.if_true.empty()) return on ? option.if_true : option.if_false;
  for (const std::string& name : choice.names) {
    if (boolean(name) == on && boolean(text) == on) return name;
  }
  return text;
}

// What YAML 1.1, and with it PyYAML, takes for something else than text: true or false, nothing, a number.
bool is_text_in_yaml(std::string_view word) {
  const std::string lower = normalised(word);
  if (boolean(word) || lower == "y" || lower == "n" || lower == "null") return false;
  const bool is_number = word.find_first_not_of("0123456789_.eExXaAbBcCdDfFoO+-") == std::string_view::npos &&
                         std::isdigit(static_cast<unsigned char>(word[word.starts_with('.') && word.size() > 1]));
  return !is_number && lower != ".inf" && lower != ".nan";
}

}  // namespace

std::optional<bool> boolean(std::string_view text) {
  const std::string word = normalised(text);
  for (const char* yes : {"true", "yes", "on"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "no", "off"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

std::optional<std::string> assign(const Option& option, std::string_view text, bool is_quoted) {
  const auto in_range = [&](auto value) {
    return static_cast<double>(value) >= option.min && static_cast<double>(value) <= option.max;
  };
  const auto number = [&]<class Number>(std::optional<Number>& value) {
    value = is_quoted ? std::nullopt : parse<Number>(text);
    return value && in_range(*value);
  };
  const bool done = std::visit(Overloaded{
                                   [&](bool* target) {
                                     const auto value = is_quoted ? std::nullopt : boolean(text);
                                     if (value) *target = *value;
                                     return value.has_value();
                                   },
                                   [&]<class Number>(Number* target) {
                                     std::optional<Number> value;
                                     if (!number(value)) return false;
                                     *target = *value;
                                     return true;
                                   },
                                   [&](std::string* target) {
                                     const bool is_bare = !option.if_true.empty() && text == "true";
                                     *target = is_bare ? option.if_true : std::string(text);
                                     return true;
                                   },
                                   [&](std::vector<std::string>* target) {
                                     target->emplace_back(text);
                                     return true;
                                   },
                                   [&](std::optional<int64_t>* target) {
                                     std::optional<int64_t> value;
                                     if (!number(value) && text != "auto") return false;
                                     *target = value;
                                     return true;
                                   },
                                   [&](const NumberOrAuto& target) {
                                     std::optional<int64_t> value;
                                     if (!number(value) && text != "auto") return false;
                                     *target.value = value.value_or(0);
                                     return true;
                                   },
                                   [&](const FoundNumber& target) {
                                     std::optional<double> value;
                                     if (!number(value) && text != "auto") return false;
                                     *target.is_auto = !value;
                                     if (value) *target.value = *value;
                                     return true;
                                   },
                                   [&](std::optional<double>* target) {
                                     std::optional<double> value;
                                     if (!number(value)) return false;
                                     *target = value;
                                     return true;
                                   },
                                   [&](Interval* target) {
                                     const auto value = parse_interval(text);
                                     if (!value || !in_range(value->count)) return false;
                                     if (is_time(*value) && !option.may_be_time) return false;
                                     *target = *value;
                                     return true;
                                   },
                                   [&](Duration* target) {
                                     const auto value =
                                         is_quoted && parse<double>(text) ? std::nullopt : parse_duration(text);
                                     if (!value || (value->seconds != 0 && !in_range(value->seconds))) return false;
                                     *target = *value;
                                     return true;
                                   },
                                   [&](const Choice& target) {
                                     std::string_view name = text;
                                     if (const auto on = boolean(text)) name = word_for(*on, option, target, text);
                                     const auto found = std::find(target.names.begin(), target.names.end(), name);
                                     if (found == target.names.end()) return false;
                                     target.set(static_cast<size_t>(found - target.names.begin()));
                                     return true;
                                   },
                                   [&](const Structure& target) {
                                     target.read(parse_node(text, option.key()));
                                     return true;
                                   },
                               },
                               option.target);
  if (done) return std::nullopt;
  return fmt::format("{}, got {}{}", expectation(option), in_quotes(text), hint(option, text, is_quoted));
}

void check_values(const std::vector<Option>& rows) {
  for (const Option& row : rows) {
    const auto fault = assign(row, value_text(row.target), /*is_quoted=*/false);
    if (fault) throw Error(ExitCode::config, fmt::format("'{}' {}", row.key(), *fault));
  }
}

std::string value_text(const Target& target) {
  return std::visit(Overloaded{
                        [](bool* value) -> std::string { return *value ? "true" : "false"; },
                        [](std::integral auto* value) { return fmt::format("{}", *value); },
                        [](double* value) { return number_text(*value); },
                        [](std::string* value) { return *value; },
                        [](std::vector<std::string>* value) { return join(*value); },
                        [](std::optional<int64_t>* value) { return *value ? fmt::format("{}", **value) : "auto"; },
                        [](const NumberOrAuto& of) { return *of.value ? fmt::format("{}", *of.value) : "auto"; },
                        [](const FoundNumber& of) { return *of.is_auto ? "auto" : number_text(*of.value); },
                        [](std::optional<double>* value) { return *value ? number_text(**value) : ""; },
                        [](Interval* value) { return interval_text(*value); },
                        [](Duration* value) { return duration_text(*value); },
                        [](const Choice& value) { return value.names[value.get()]; },
                        [](const Structure& value) { return value.write(); },
                    },
                    target);
}

std::string yaml_scalar(const Target& target) {
  std::string text = value_text(target);
  if (std::holds_alternative<double*>(target) || std::holds_alternative<FoundNumber>(target)) {
    const size_t e = text.find('e');
    if (e != std::string::npos && text.find('.') == std::string::npos) text.insert(e, ".0");
    return text;
  }
  if (std::holds_alternative<Choice>(target))  // true and false mean in YAML what they mean here
    return text == "true" || text == "false" || is_text_in_yaml(text) ? text : '"' + text + '"';
  if (!std::holds_alternative<std::string*>(target)) return text;
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '/' || c == '-'; };
  const bool starts_plain =
      !text.empty() && (std::isalnum(static_cast<unsigned char>(text[0])) || text[0] == '/' || text[0] == '.');
  if (starts_plain && std::all_of(text.begin(), text.end(), is_plain) && is_text_in_yaml(text)) return text;
  return '"' + escaped(text, "\"\\") + '"';
}

std::string allowed_text(const Option& option) {
  if (const auto* choices = std::get_if<Choice>(&option.target)) return join(choices->names);
  const bool may_be_auto =
      std::holds_alternative<NumberOrAuto>(option.target) || std::holds_alternative<FoundNumber>(option.target);
  const std::string also = may_be_auto ? kAlsoAuto : "";
  if (std::holds_alternative<Duration*>(option.target))
    return fmt::format("none, or {} to {}", duration_text({option.min}), duration_text({option.max}));
  const bool low = std::isfinite(option.min), high = std::isfinite(option.max);
  if (low && high) return fmt::format("{}{} to {}", also, bound_text(option.min), bound_text(option.max));
  if (low) return fmt::format("{}>= {}", also, bound_text(option.min));
  return "";
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kLongest = 80;
  return fmt::format("'{}{}'", escaped(text.substr(0, kLongest), ""), text.size() > kLongest ? "..." : "");
}

}  // namespace gpt::config
