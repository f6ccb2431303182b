#include "gpt/plan/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <variant>

#include "gpt/core/format.h"
#include "gpt/core/printable.h"
#include "gpt/core/text_table.h"

namespace gpt::plan {
namespace {

using Status = Check::Status;

std::string_view word(Status status) {
  return status == Status::pass ? "pass" : status == Status::warn ? "warn" : "fail";
}

std::string_view colour_code(Status status) {
  return status == Status::pass ? "32" : status == Status::warn ? "33" : "31";
}

int64_t count(const Checks& checks, Status status) {
  return std::count_if(checks.begin(), checks.end(), [&](const Check& check) { return check.status == status; });
}

// What LibTorch or a driver says may hold line breaks, and a path anything; a check is one line.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return printable(text);
}

Check make(std::string name, Status status, std::string detail, std::string fix) {
  return {.name = std::move(name),
          .status = status,
          .detail = one_line(std::move(detail)),
          .fix = one_line(std::move(fix))};
}

// The answers in columns, after an empty line; nothing without any.
std::string answers(const Checks& checks, int columns) {
  TextTable table{{{}, {}}};
  for (const auto& check : checks) {
    if (!check.answer.question.empty()) table.rows.push_back({check.answer.question, check.answer.text});
  }
  return table.rows.empty() ? "" : '\n' + table.text(columns);
}

std::string savers(const Checks& checks, int columns) {
  TextTable table{.columns = {{TextColumn::right, 7}, {}, {}}, .before = "  "};
  for (const auto& check : checks) {
    if (!check.shows_savers) continue;
    for (const auto& [setting, bytes, price] : check.savers)
      table.rows.push_back({format_bytes(bytes), setting, price});
  }
  return table.rows.empty() ? "" : "\nSettings that would save memory, each on its own:\n" + table.text(columns);
}

}  // namespace

Check passed(std::string name, std::string detail) {
  return make(std::move(name), Status::pass, std::move(detail), "");
}

Check warned(std::string name, std::string detail, std::string fix) {
  return make(std::move(name), Status::warn, std::move(detail), std::move(fix));
}

Check failed(std::string name, std::string detail, std::string fix) {
  return make(std::move(name), Status::fail, std::move(detail), std::move(fix));
}

bool any_failed(const Checks& checks) { return count(checks, Status::fail) > 0; }

std::string to_table(const Checks& checks, bool colour, int columns) {
  TextTable table{{{}, {}, {}}};
  for (const auto& check : checks) {
    table.rows.push_back(
        {std::string(word(check.status)), check.name, check.detail + (check.fix.empty() ? "" : "  -> " + check.fix)});
  }
  std::string text;
  const std::vector<std::string> lines = table.lines(columns);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view status = word(checks[i].status);
    const std::string shown =
        colour ? fmt::format("\033[{}m{}\033[0m", colour_code(checks[i].status), status) : std::string(status);
    text += shown + lines[i].substr(status.size()) + '\n';
  }
  return text +
         fmt::format("\n{} passed, {} warned, {} failed\n", count(checks, Status::pass), count(checks, Status::warn),
                     count(checks, Status::fail)) +
         answers(checks, columns) + savers(checks, columns);
}

std::string to_json(const Checks& checks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& check : checks) {
    list.push_back(
        {{"name", check.name}, {"status", word(check.status)}, {"detail", check.detail}, {"fix", check.fix}});
    for (const auto& [name, value] : check.values)
      std::visit([&list, &name](const auto& number) { list.back()["values"][name] = number; }, value);
    for (const auto& [setting, bytes, price] : check.savers)
      list.back()["savers"].push_back({{"setting", setting}, {"bytes", bytes}, {"price", price}});
  }
  const nlohmann::ordered_json report{{"checks", std::move(list)},
                                      {"summary",
                                       {{"pass", count(checks, Status::pass)},
                                        {"warn", count(checks, Status::warn)},
                                        {"fail", count(checks, Status::fail)}}}};
  // A path or a corpus may hold bytes that are not UTF-8: they are replaced, not refused.
  return report.dump(2, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace gpt::plan
