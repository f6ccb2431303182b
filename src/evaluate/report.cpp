#include "gpt/evaluate/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpt/core/format.h"
#include "gpt/core/printable.h"
#include "gpt/core/text_table.h"

namespace gpt::evaluate {
namespace {

using nlohmann::ordered_json;

struct Totals {
  int64_t documents = 0, tokens = 0, bytes = 0, words = 0, cut = 0;

  explicit Totals(const std::vector<Outcome>& outcomes) : documents(outcomes.back().document + 1) {
    for (const Outcome& outcome : outcomes) {
      tokens += outcome.tokens;
      bytes += outcome.bytes;
      words += outcome.words;
      cut += outcome.cut;
    }
  }
};

std::vector<std::string> row(const Metric& metric) {
  // Four digits after the point, or for the large perplexities as many as they are written with.
  const bool is_large = metric.value >= 1000;
  const auto number = [&](double value) { return is_large ? format_perplexity(value) : fmt::format("{:.4f}", value); };
  return {metric.name, number(metric.value), metric.standard_error ? "± " + number(*metric.standard_error) : "",
          metric.interval ? fmt::format("95 %: {} to {}", number(metric.interval->low), number(metric.interval->high))
                          : ""};
}

int64_t count_of(const TaskResult& result, const Totals& totals) {
  return has_loss(result.form) ? totals.documents : std::ssize(result.outcomes);
}

// What is counted.
const char* unit_of(Form form) {
  return form == Form::text ? "document" : form == Form::answers ? "conversation" : "example";
}

std::string heading(const TaskResult& result, const Totals& totals) {
  std::string text =
      fmt::format("{} ({}): {}", result.name, printable_line(fmt::format("{}", fmt::join(result.inputs, " "))),
                  plural(count_of(result, totals), unit_of(result.form)));
  if (has_loss(result.form)) {
    text += fmt::format(", {}, {} predicted; windows of {}", plural(totals.bytes, "byte"),
                        plural(totals.tokens, "token"), plural(result.window, "token"));
  }
  if (result.form == Form::text) text += fmt::format(", stride {}", with_commas(result.stride));
  return text + "\n";
}

std::string describe_cut(const TaskResult& result, int64_t cut) {
  const auto counted = [cut](const std::string& what) {
    return cut == 1 ? fmt::format("1 {} was", what) : fmt::format("{} {}s were", with_commas(cut), what);
  };
  return result.form == Form::answers
             ? fmt::format("{} longer than the window of {}: what follows the last answer that fits was left out",
                           counted("conversation"), plural(result.window, "token"))
             : fmt::format("{} longer than the window of {}, so the beginning was left out", counted("prompt"),
                           plural(result.window, "token"));
}

// What else has to be known, a line each.
std::vector<std::string> notes(const TaskResult& result, const Totals& totals, const std::vector<Metric>& metrics) {
  std::vector<std::string> lines;
  const int64_t count = count_of(result, totals);
  if (result.limit > 0 && count == result.limit)
    lines.push_back(fmt::format("only the first {} (--limit)", plural(count, unit_of(result.form))));
  if (totals.cut > 0) lines.push_back(describe_cut(result, totals.cut));
  if (result.form == Form::text && !result.has_prefix) {
    lines.emplace_back(
        "the first token of each document is not predicted, because the tokenizer has no token that begins or "
        "ends a text");
  }
  if (!metrics[0].interval) lines.emplace_back("there is too little of it to say how exact these figures are");
  return lines;
}

ordered_json json_of(const Metric& metric) {
  ordered_json object{{"value", metric.value}};
  if (metric.standard_error) object["stderr"] = *metric.standard_error;
  if (metric.interval) object["interval_95"] = {metric.interval->low, metric.interval->high};
  return object;
}

ordered_json json_of(const TaskResult& result) {
  const Totals totals(result.outcomes);
  ordered_json object{{"task", result.name}, {"inputs", result.inputs}, {"window", result.window}};
  if (has_loss(result.form)) {
    object[std::string(unit_of(result.form)) + "s"] = totals.documents;
    object["tokens"] = totals.tokens;
    object["bytes"] = totals.bytes;
  }
  if (result.form == Form::text) {
    object["stride"] = result.stride;
    object["words"] = totals.words;
    object["first_token_predicted"] = result.has_prefix;
  } else if (result.form == Form::answers) {
    object["conversations_cut"] = totals.cut;
  } else {
    object["examples"] = result.outcomes.size();
    object["prompts_cut"] = totals.cut;
  }
  object["limit"] = result.limit > 0 ? ordered_json(result.limit) : ordered_json(nullptr);
  for (const Metric& metric : result.metrics()) object["metrics"][metric.name] = json_of(metric);
  return object;
}

}  // namespace

std::string table(const TaskResult& result) {
  const Totals totals(result.outcomes);
  const std::vector<Metric> metrics = result.metrics();
  TextTable table{.columns = {{TextColumn::left, 16}, {TextColumn::right, 10}, {TextColumn::left, 12}, {}},
                  .before = "  ",
                  .between = " "};
  for (const Metric& metric : metrics) table.rows.push_back(row(metric));
  std::string text = heading(result, totals) + table.text();
  for (const std::string& note : notes(result, totals, metrics)) text += "  note: " + note + "\n";
  return text;
}

std::string json_report(const ModelFacts& model, const std::vector<TaskResult>& results) {
  ordered_json report{{"checkpoint", model.checkpoint}, {"model_hash", model.hash}, {"parameters", model.parameters},
                      {"dtype", model.dtype},           {"device", model.device},   {"results", ordered_json::array()}};
  for (const TaskResult& result : results) report["results"].push_back(json_of(result));
  return report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gpt::evaluate
