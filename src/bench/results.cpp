#include "gpt/bench/results.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/config/load.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/version.h"
#include "gpt/device/host.h"

namespace gpt::bench {
namespace {

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

// On one line.
std::string versions(const Machine& machine) {
  std::string text;
  for (const char c : version_text()) text += c == '\n' ? std::string(", ") : std::string(1, c);
  if (!machine.driver.empty()) text += fmt::format(", NVIDIA driver {}, cuDNN {}", machine.driver, machine.cudnn);
  return text;
}

std::string in_words(const Machine& machine) {
  const std::string cores = machine.cores > 0 ? plural(machine.cores, "core") + ", " : "";
  return fmt::format("{}, {}{}, {} of memory; {}", machine.cpu, cores, plural(machine.cpu_threads, "hardware thread"),
                     format_bytes(static_cast<double>(machine.memory_bytes)), machine.system);
}

nlohmann::ordered_json json_of(const Machine& machine) {
  nlohmann::ordered_json json{{"cpu", machine.cpu},
                              {"cores", machine.cores},
                              {"cpu_threads", machine.cpu_threads},
                              {"memory_bytes", machine.memory_bytes},
                              {"system", machine.system}};
  if (machine.cores == 0) json["cores"] = nullptr;
  if (!machine.driver.empty()) json["driver"] = machine.driver, json["cudnn"] = machine.cudnn;
  return json;
}

std::string title_of(const BenchResults& results) { return "gpt-bench " + results.title; }

std::string machine_of(const BenchResults& results) {
  const int64_t threads = results.findings.threads;
  return threads > 0 ? fmt::format("{}, {}", results.device.name, plural(threads, "thread")) : results.device.name;
}

std::string model_of(const BenchResults& results) {
  const ModelConfig& m = results.wanted.config.model;
  return fmt::format("{}, {}, width {}, {} x {} tokens", plural(m.n_layer, "layer"), plural(m.heads(), "head"),
                     m.n_embd, results.wanted.config.training.batch_size, results.wanted.config.sequence_length());
}

// The facts, and what was found out.
Document document_of(const BenchResults& results) {
  Document text{fmt::format("`{}`, {}", results.command, results.date),
                fmt::format("{}; {}", machine_of(results), model_of(results))};
  if (results.findings.threads > 0) text.push_back(in_words(results.machine));
  text.push_back(versions(results.machine));
  if (!results.findings.complete) text.push_back("Stopped before it was complete.");
  text.insert(text.end(), results.findings.text.begin(), results.findings.text.end());
  return text;
}

}  // namespace

Machine this_machine(at::Device device) {
  Machine machine{.cpu = host::cpu_name(),
                  .system = host::system_name(),
                  .memory_bytes = host::memory_bytes(),
                  .cores = host::cpu_cores(),
                  .cpu_threads = sysconf(_SC_NPROCESSORS_CONF),
                  .driver = {},
                  .cudnn = {}};
  if (device.is_cuda()) machine.driver = host::nvidia_driver_version(), machine.cudnn = device::cudnn_version();
  return machine;
}

std::string to_markdown(const BenchResults& results) {
  return fmt::format("# {}\n\n{}", title_of(results), to_markdown(document_of(results)));
}

std::string to_plain_text(const BenchResults& results, int columns) {
  return fmt::format("{}\n\n{}", title_of(results), to_plain_text(document_of(results), columns));
}

std::string to_json(const BenchResults& results) {
  nlohmann::ordered_json json{{"title", results.title},
                              {"command", results.command},
                              {"date", results.date},
                              {"version", version_text()},
                              {"commit", commit_id()},
                              {"device", results.device.name},
                              {"threads", results.findings.threads},
                              {"machine", json_of(results.machine)},
                              {"configuration", config::dump(results.wanted.config)},
                              {"complete", results.findings.complete}};
  json.update(nlohmann::ordered_json::parse(results.findings.json));
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

namespace {

std::string class_of(const Bar& bar) { return !bar.is_told ? "untold" : bar.is_dark ? "kept" : "other"; }

// A square and its meaning for each kind of bar that is there, in one line.
std::string legend_svg(const Findings& findings, int x, int y) {
  constexpr int kSquare = 12, kCharacter = 7, kGap = 30;
  std::string text;
  for (const auto& [kind, meaning] : {std::pair<std::string, std::string>{"kept", findings.legend.dark},
                                      {"other", findings.legend.grey},
                                      {"untold", "cannot tell"}}) {
    const bool is_there =
        std::any_of(findings.bars.begin(), findings.bars.end(), [&](const Bar& bar) { return class_of(bar) == kind; });
    if (!is_there || meaning.empty()) continue;
    text += fmt::format(
        "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n<text class=\"fact\" x=\"{}\" y=\"{}\">{}</text>\n",
        kind, x, y - kSquare + 2, kSquare, kSquare, x + kSquare + 6, y, escaped(meaning));
    x += kSquare + kGap + kCharacter * static_cast<int>(meaning.size());
  }
  return text;
}

}  // namespace

std::string to_svg(const BenchResults& results) {
  constexpr int kRow = 26, kLeft = 290, kWidth = 400, kRight = 210, kLine = 18, kTitle = 26;
  constexpr const char* kStyle =
      "text { font-family: sans-serif; font-size: 13px; fill: #1b2027 }\n"
      ".title { font-size: 16px } .fact { font-size: 12px; fill: #667080 }\n"
      ".page { fill: #ffffff } .kept { fill: #2a6f97 } .other { fill: #b8c4cc }\n"
      ".untold { fill: none; stroke: #b8c4cc; stroke-dasharray: 4 3 }\n"
      "@media (prefers-color-scheme: dark) {\n"
      "  text { fill: #e4e8ee } .fact { fill: #97a1af }\n"
      "  .page { fill: #12151a } .kept { fill: #6ea8ff } .other { fill: #47525f } .untold { stroke: #47525f }\n"
      "}\n";
  const std::vector<Bar>& bars = results.findings.bars;
  double longest = 0;
  for (const Bar& bar : bars) longest = std::max(longest, bar.length);
  if (longest == 0) longest = 1;
  int y = kTitle;
  std::string lines =
      fmt::format("<text class=\"title\" x=\"10\" y=\"{}\">{}</text>\n", y, escaped(results.findings.chart_title));
  for (const std::string& fact : {title_of(results) + ", " + results.date, machine_of(results), model_of(results)})
    lines += fmt::format("<text class=\"fact\" x=\"10\" y=\"{}\">{}</text>\n", y += kLine, escaped(fact));
  y += kLine;
  for (const Bar& bar : bars) {
    const double width = kWidth * bar.length / longest;
    lines += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"/>\n"
        "<text x=\"{:.1f}\" y=\"{}\">{}</text>\n",
        kLeft - 8, y + 13, escaped(bar.name), class_of(bar), kLeft, y, width, kRow - 8, kLeft + width + 6, y + 13,
        escaped(bar.label));
    y += kRow;
  }
  if (const std::string legend = legend_svg(results.findings, kLeft, y + kLine - 4); !legend.empty())
    lines += legend, y += kLine;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\">\n<style>\n{}</style>\n"
      "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
      kLeft + kWidth + kRight, y + 6, kStyle, lines);
}

std::string write_results(const BenchResults& results, const std::string& folder) {
  create_folders(folder);
  std::string date = results.date;
  std::erase(date, ':');
  const std::string path = fmt::format("{}/{}-{}", folder, results.title, date);
  const std::pair<const char*, std::string> files[] = {{".md", to_markdown(results)},
                                                       {".json", to_json(results)},
                                                       {".svg", to_svg(results)}};
  for (const auto& [ending, text] : files) {
    AtomicFile file(path + ending);
    file.write(text);
    file.commit(Durability::unsynced);
  }
  return path;
}

}  // namespace gpt::bench
