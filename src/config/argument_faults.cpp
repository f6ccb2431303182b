#include "argument_faults.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "foreign.h"
#include "gpt/config/value.h"

namespace gpt::config {
namespace {

// CLI11 describes an option by its type and its checks: "INT:INT in [1 - 8]", "TEXT:TEXT in {a,b}", "FLOAT:POSITIVE".
std::string between(std::string_view text, char open, char close) {
  const size_t begin = text.find(open), end = text.find(close, begin);
  return end == std::string_view::npos ? "" : std::string(text.substr(begin + 1, end - begin - 1));
}

std::vector<std::string> choices(const std::string& declared) {
  std::vector<std::string> names;
  const std::string list = between(declared, '{', '}');
  if (list.empty()) return names;
  for (const std::string& name : CLI::detail::split(list, ',')) names.push_back(name.substr(0, name.find("->")));
  return names;
}

constexpr const char* kText = "text";

std::string type_in_words(const std::string& declared) {
  constexpr std::pair<std::string_view, const char*> kPaths[] = {{":FILE", "an existing file"},
                                                                 {":DIR", "an existing folder"},
                                                                 {":PATH(existing)", "an existing path"},
                                                                 {":PATH(non-existing)", "a path that is not in use"}};
  for (const auto& [check, words] : kPaths) {
    if (declared.find(check) != std::string::npos) return words;
  }
  if (declared.starts_with("INT") || declared.starts_with("UINT")) return "a whole number";
  if (declared.starts_with("FLOAT") || declared.find(":NUMBER") != std::string::npos) return "a number";
  return declared.starts_with("BOOLEAN") ? "true or false" : kText;
}

std::string range_in_words(const std::string& declared) {
  if (std::string range = between(declared, '[', ']'); !range.empty()) {
    if (const size_t dash = range.find(" - "); dash != std::string::npos) range.replace(dash, 3, " to ");
    return " " + range;
  }
  if (declared.find(":POSITIVE") != std::string::npos) return " > 0";
  return declared.find(":NONNEGATIVE") != std::string::npos || declared.starts_with("UINT") ? " >= 0" : "";
}

std::string in_words(const std::string& declared) {
  if (const auto names = choices(declared); !names.empty()) return fmt::format("one of {}", fmt::join(names, ", "));
  return type_in_words(declared) + range_in_words(declared);
}

std::string refusal(const CLI::Option& option, const std::string& value) {
  const std::string declared = option.get_type_name();
  const auto near = nearest_value(value, choices(declared));
  return fmt::format("{} must be {}, got {}{}", option.get_name(), in_words(declared), in_quotes(value),
                     near ? fmt::format("; did you mean '{}'?", *near) : "");
}

std::string wrong_value(const CLI::Option& option, const CLI::ParseError& error) {
  const std::string declared = option.get_type_name(), unchecked = declared.substr(0, declared.find(':'));
  const std::string value = fmt::format("{}", fmt::join(option.results(), " "));
  if (option.get_items_expected_max() == 0) {
    return fmt::format("{} is a switch and takes no value, got {}", option.get_name(), in_quotes(value));
  }
  const bool is_own_check = error.get_name() == "ValidationError" && in_words(declared) == in_words(unchecked);
  return is_own_check ? fmt::format("{}, got {}", error.what(), in_quotes(value)) : refusal(option, value);
}

// A value too many or too few, or nothing.
std::optional<std::string> wrong_count(const CLI::Option& option) {
  const int given = static_cast<int>(option.count());
  const int least = option.get_items_expected_min(), most = option.get_items_expected_max();
  if (option.get_multi_option_policy() != CLI::MultiOptionPolicy::Throw || most == 0) return std::nullopt;
  if (most == 1 && given > 1) return option.get_name() + " is given twice; keep one";
  if (given >= least && given <= most) return std::nullopt;
  return fmt::format("{} takes {} values, got {}", option.get_name(), given > most ? most : least, given);
}

// The fault of one option that was given, or nothing.
std::optional<std::string> fault_of(CLI::Option& option) {
  if (const auto fault = wrong_count(option)) return fault;
  const std::string name = option.get_name();
  for (const CLI::Option* other : option.get_needs()) {
    if (other->count() == 0) return fmt::format("{} needs {} too", name, other->get_name());
  }
  for (const CLI::Option* other : option.get_excludes()) {
    if (other->count() > 0) return fmt::format("{} and {} exclude each other; keep one", name, other->get_name());
  }
  try {
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    return wrong_value(option, error);
  }
  return std::nullopt;
}

}  // namespace

std::string missing_value(const CLI::Option& option) {
  const std::string words = in_words(option.get_type_name());
  return fmt::format("{} needs a value{}", option.get_name(), words == kText ? "" : ", " + words);
}

std::optional<std::string> misread_value(const CLI::Option& option, const std::string& value) {
  const std::string declared = option.get_type_name();
  const bool is_natural = declared.starts_with("UINT");
  const bool is_number = is_natural || declared.starts_with("INT") || declared.starts_with("FLOAT");
  const bool is_misread = (is_number && value.empty()) || (is_natural && value.starts_with('-'));
  return is_misread ? std::optional(refusal(option, value)) : std::nullopt;
}

std::string argument_fault(CLI::App& app) {
  for (CLI::Option* option : app.get_options({})) {
    if (option->count() > 0) {
      if (const auto fault = fault_of(*option)) return *fault;
    } else if (option->get_required()) {
      return fmt::format("{} is missing; it takes {}", option->get_name(), in_words(option->get_type_name()));
    }
  }
  return "these arguments do not go together";
}

}  // namespace gpt::config
