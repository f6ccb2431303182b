#include "own_files.h"

#include <algorithm>

#include "gpt/config/run_files.h"
#include "gpt/data/metadata.h"

namespace gpt {

OwnFiles::OwnFiles(const std::vector<std::string>& names)
    : holds_run_(holds_run(names)),
      holds_tokens_(std::find(names.begin(), names.end(), kTokenizerFile) != names.end()) {}

const char* OwnFiles::file(const std::string& name) const {
  // A start that was refused leaves a log and no run.
  if (name == kRunLog || (holds_run_ && (belongs_to_run(name) || name == kSetAside))) return "a run";
  const bool is_tokens = name == kBinFile || name == kTokenizerFile || name == kMetadataFile;
  if (holds_tokens_ && (is_tokens || name == "train.bin" || name == "val.bin")) return "token ids";
  return nullptr;
}

}  // namespace gpt
