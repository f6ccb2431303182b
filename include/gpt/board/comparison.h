// Which of several runs to use and in which settings they differ, for their page: what gpt-diagnose --run says, by the same code.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpt/board/followed_file.h"
#include "gpt/board/run_groups.h"
#include "gpt/report/listener.h"

namespace gpt::board {

struct ComparedRun {
  std::string name, folder;
  std::optional<report::EvaluationRecord> best = {};
};

// Any thread may ask.
class Comparison {
 public:
  static constexpr size_t kMostRuns = 30;  // of a group, the best ones

  // {"groups": [{"verdict": "...", "what": "validation loss", "count": 3, "runs": [{"name", "best", "settings": [...]}], "settings": [KEY...]}]}
  // as JSON: runs that read one text, the best first, each with its values of the settings that differ in the group. Those that are alone with
  // their text are left out. A configuration is read again where its file has changed.
  std::string text(const std::vector<ComparedRun>& runs);
  // Text and tokens of the run in a folder; nothing where it has no configuration that can be read.
  std::optional<TextAndTokens> text_and_tokens(const std::string& folder);

 private:
  struct Read {
    std::optional<FileMark> mark;
    RunSummary run;  // with nothing but its configuration
  };
  const RunSummary& read(const std::string& folder);

  std::mutex mutex_;
  std::map<std::string, Read> read_;  // by folder
};

}  // namespace gpt::board
