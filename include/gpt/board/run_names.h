// Which folders are those of runs, and what they are called.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace gpt::board {

// The named folders that are a run, or are to become one, and the runs directly in the others.
std::vector<std::string> run_folders(const std::vector<std::string>& named);

// Short names, each of one folder for good.
class RunNames {
 public:
  // The last part of the folder's path, or more of it where another folder is called so.
  const std::string& name_of(const std::string& folder);

 private:
  std::map<std::string, std::string> names_;  // by folder
  std::set<std::string> taken_;
};

}  // namespace gpt::board
