// What this program itself writes, where it lies among texts: it is no text to train on.
#pragma once

#include <string>
#include <vector>

namespace gpt::prepare {

// What a folder with these names holds that the program wrote.
class OwnFiles {
 public:
  explicit OwnFiles(const std::vector<std::string>& names);
  // "a run", "token ids" or "a model", which gpt-export or another program may have written: nearly everything in the folder is the program's. Null: it is a folder like any other.
  const char* folder() const {
    return holds_run_ ? "a run" : holds_tokens_ ? "token ids" : holds_model_ ? "a model" : nullptr;
  }
  // What one of the names is, in a folder that holds texts too; null where it is none of the program's.
  const char* file(const std::string& name) const;

 private:
  bool holds_run_, holds_tokens_, holds_model_;
};

}  // namespace gpt::prepare
