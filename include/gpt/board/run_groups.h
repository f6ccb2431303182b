// Which runs may be compared, in what order, and what may be said of the best of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/report/run_history.h"

namespace gpt::board {

// What losses depend on besides the model: two runs whose strings are equal read one text, or have the same tokens of it.
struct TextAndTokens {
  std::string text, tokens;
};
TextAndTokens text_and_tokens(const Config& config);

struct RunSummary {
  std::string folder;
  report::RunHistory history;
  std::optional<Config> config;  // the effective one, where the folder has one that can be read
  // "trains", "done", "stopped", or "cut off" where a run neither ended nor stopped and no process writes in its folder; "-": not known.
  std::string state = "-";
  std::optional<int64_t> parameters() const;
};

// Runs that read one text, the best first: by their lowest validation loss, or where their tokens differ, by bits per byte. Those that
// have not been validated come last.
struct RunGroup {
  std::vector<RunSummary> runs;
  bool have_same_tokens = true;
  double value_of(const RunSummary& run) const;  // that number; NaN where there is none
};

// Groups of runs with the same text, as far as their configurations tell; a run without one is alone.
std::vector<RunGroup> grouped(std::vector<RunSummary> runs);

// In a sentence: whether the best settings are better than the next by more than what the seed changes, which several runs that differ in
// nothing else show. Empty where there is nothing to compare.
std::string verdict_on(const RunGroup& group);

// The settings that are not the same in all runs, each with its value in every run; "-" where a run does not say.
std::vector<std::vector<std::string>> differing_settings(const std::vector<RunSummary>& runs);

}  // namespace gpt::board
