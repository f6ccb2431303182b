#include "gpt/layout/freeze.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/printable.h"

namespace gpt {
namespace {

using Parts = std::vector<std::string_view>;

Parts parts_of(std::string_view name) {
  constexpr std::string_view kRoot = "transformer.";
  if (name.starts_with(kRoot)) name.remove_prefix(kRoot.size());
  Parts parts;
  for (size_t dot; (dot = name.find('.')) != std::string_view::npos; name.remove_prefix(dot + 1))
    parts.push_back(name.substr(0, dot));
  parts.push_back(name);
  return parts;
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

bool stands_for(std::string_view pattern, std::string_view part) {
  if (pattern == "*" || pattern == part) return true;
  const size_t dash = pattern.find('-');
  if (dash == std::string_view::npos) return false;
  const auto first = number_of(pattern.substr(0, dash)), last = number_of(pattern.substr(dash + 1)),
             number = number_of(part);
  return first && last && number && *first <= *number && *number <= *last;
}

bool is_named(const std::string& name, const Parts& pattern) {
  const Parts parts = parts_of(name);
  return pattern.size() <= parts.size() && std::equal(pattern.begin(), pattern.end(), parts.begin(), stands_for);
}

// "wte, h.0-11, ln_f": what patterns can begin with.
std::string beginnings(const std::vector<ParameterRow>& rows) {
  std::string_view last_block;
  for (const ParameterRow& row : rows)
    if (const Parts parts = parts_of(row.name); parts[0] == "h") last_block = parts[1];
  std::vector<std::string> names;
  for (const ParameterRow& row : rows) {
    const std::string_view first = parts_of(row.name)[0];
    std::string name = first == "h" ? fmt::format("h.0-{}", last_block) : std::string(first);
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::vector<ParameterRow> parameter_table(const ModelConfig& config, const std::vector<std::string>& frozen) {
  std::vector<ParameterRow> rows = parameter_table(config);
  for (const std::string& pattern : frozen) {
    const Parts parts = parts_of(pattern);
    bool names_any = false;
    for (ParameterRow& row : rows) {
      if (!is_named(row.name, parts) && (row.tied_name.empty() || !is_named(row.tied_name, parts))) continue;
      row.is_trained = false;
      names_any = true;
    }
    if (!names_any) {
      throw Error(
          ExitCode::config,
          fmt::format("training.freeze: {} names no parameter of this model; there are {}, and parts of blocks such as "
                      "h.0.attn, h.*.mlp or h.2-5.ln_1.weight",
                      printable(pattern), beginnings(rows)));
    }
  }
  const bool is_any_trained =
      std::any_of(rows.begin(), rows.end(), [](const ParameterRow& row) { return row.is_trained; });
  if (!is_any_trained)
    throw Error(ExitCode::config,
                "training.freeze names all parameters, so that nothing would be learned; leave some out");
  return rows;
}

void require_freezable(ModelConfig config, const std::vector<std::string>& frozen) {
  if (!config.vocab_size) config.vocab_size = 1;  // no name follows from it
  (void)parameter_table(config, frozen);
}

}  // namespace gpt
