#include "gpt/config/stages.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/config/node.h"
#include "gpt/config/option.h"
#include "gpt/config/suggest.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/home.h"

namespace gpt {

std::vector<Stage> growing_stages(int64_t block_size, int64_t updates) {
  if (updates < 3) return {};
  return {{.from = 0, .block_size = std::max<int64_t>(1, block_size / 4), .mix = {}},
          {.from = updates / 3, .block_size = std::max<int64_t>(1, block_size / 2), .mix = {}},
          {.from = 2 * updates / 3, .block_size = block_size, .mix = {}}};
}

}  // namespace gpt

namespace gpt::config {
namespace {

constexpr const char* kMix = "mix";

[[noreturn]] void fail(const Node& node, const std::string& what) {
  throw Error(ExitCode::config, fmt::format("{}: {}", node.where, what));
}

std::string shown(const Node& node) {
  return node.kind == Node::Kind::scalar ? in_quotes(node.text) : node.kind == Node::Kind::list ? "a list" : "a map";
}

std::vector<Option> stage_options(Stage& stage) {
  return {
      {.name = "from", .target = &stage.from, .help = "the step at which it begins", .min = 0, .max = 1e12},
      {.name = "block_size", .target = &stage.block_size, .help = "length of its sequences", .min = 1, .max = 1e6},
      {.name = "attention_window",
       .target = &stage.attention_window,
       .help = "window of the model's windowed layers",
       .min = 1,
       .max = 1e6},
  };
}

void set(const Option& option, const Node& value) {
  if (value.kind != Node::Kind::scalar)
    fail(value, fmt::format("{} takes one value, got {}", in_quotes(option.name), shown(value)));
  if (const auto fault = assign(option, value.text, value.quoted))
    fail(value, fmt::format("{} {}", in_quotes(option.name), *fault));
}

std::string path_of(const Node& file) {
  try {
    return expand_home(file.text);
  } catch (const Error& fault) { fail(file, fault.what()); }
}

std::vector<std::pair<std::string, double>> read_mix(const Node& node) {
  if (node.kind != Node::Kind::map || node.entries.empty()) {
    fail(node,
         fmt::format("'mix' must be files and their weights, like {{main: 3, hard.txt: 1}}, got {}", shown(node)));
  }
  std::vector<std::pair<std::string, double>> mix;
  for (const auto& [file, weight] : node.entries) {
    const auto is_same = [name = path_of(file)](const auto& other) { return other.first == name; };
    if (std::any_of(mix.begin(), mix.end(), is_same)) {
      fail(file, fmt::format("{} is already in this mix; keep one", in_quotes(file.text)));
    }
    mix.emplace_back(path_of(file), 0.0);
    set({.name = file.text, .target = &mix.back().second, .help = "", .min = 1e-6, .max = 1e6}, weight);
  }
  double total = 0;
  for (const auto& [file, weight] : mix) total += weight;
  for (size_t i = 0; i < mix.size(); ++i) {
    if (mix[i].second >= 0.001 * total) continue;
    fail(node.entries[i].second,
         fmt::format("{} has less than a thousandth of the weights of its stage; raise its weight or leave it out",
                     in_quotes(mix[i].first)));
  }
  return mix;
}

Stage read_stage(const Node& node) {
  if (node.kind != Node::Kind::map)
    fail(node, fmt::format("a stage is a map like {{from: 500, block_size: 64}}, got {}", shown(node)));
  Stage stage;
  const std::vector<Option> rows = stage_options(stage);
  std::vector<std::string> seen;
  for (const auto& [key, value] : node.entries) {
    if (std::find(seen.begin(), seen.end(), key.text) != seen.end())
      fail(key, fmt::format("'{}' is given twice; keep one", key.text));
    seen.push_back(key.text);
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&name = key.text](const Option& option) { return option.name == name; });
    if (key.text == kMix) {
      stage.mix = read_mix(value);
    } else if (row != rows.end()) {
      set(*row, value);
    } else {
      const auto near = did_you_mean(key.text, {"from", "block_size", "attention_window", kMix});
      fail(key, fmt::format("unknown key {} in a stage; {}", in_quotes(key.text),
                            near ? fmt::format("did you mean '{}'?", *near)
                                 : "its keys are from, block_size, attention_window and mix"));
    }
  }
  if (std::find(seen.begin(), seen.end(), "from") == seen.end())
    fail(node, "a stage needs 'from', the step at which it begins");
  return stage;
}

std::vector<Stage> read_stages(const Node& node) {
  if (node.kind != Node::Kind::list) {
    fail(node, fmt::format("'data.stages' must be a list like [{{from: 0, block_size: 64}}, {{from: 500}}], got {}",
                           shown(node)));
  }
  std::vector<Stage> stages;
  for (const Node& item : node.items) {
    stages.push_back(read_stage(item));
    const int64_t from = stages.back().from;
    if (stages.size() == 1 && from != 0) fail(item, fmt::format("the first stage must begin at step 0, got {}", from));
    if (stages.size() > 1 && from <= stages[stages.size() - 2].from) {
      fail(item, fmt::format("stages must be in ascending order: this one begins at step {}, the one before it at {}",
                             from, stages[stages.size() - 2].from));
    }
  }
  return stages;
}

std::string stages_text(const std::vector<Stage>& stages) {
  std::vector<std::string> parts;
  for (Stage stage : stages) {
    std::string part = fmt::format("from: {}", stage.from);
    if (stage.block_size) part += fmt::format(", block_size: {}", *stage.block_size);
    if (stage.attention_window) part += fmt::format(", attention_window: {}", *stage.attention_window);
    std::vector<std::string> mix;
    for (auto& [file, weight] : stage.mix)
      mix.push_back(fmt::format("{}: {}", yaml_scalar(&file), yaml_scalar(&weight)));
    if (!mix.empty()) part += fmt::format(", mix: {{{}}}", fmt::join(mix, ", "));
    parts.push_back("{" + part + "}");
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

}  // namespace

Structure structure(std::vector<Stage>& stages) {
  return {.read = [&stages](const Node& node) { stages = read_stages(node); },
          .write = [&stages] { return stages_text(stages); }};
}

}  // namespace gpt::config
