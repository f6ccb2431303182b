// The files of a folder that belong together, replaced together: whatever ends the process, and wherever, the folder holds the
// old ones or the new ones.
//
// New files are written into a folder inside. Giving that its second name is the moment from which they count; moving them to
// their places comes after it, and can be finished by whoever opens the folder next.
#pragma once

#include <string>

namespace gpt::data {

class Replacement {
 public:
  // The caller holds the folder's lock. Finishes what a killed process has left, or removes it.
  explicit Replacement(std::string folder);
  ~Replacement();  // without commit(): removes the new files
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  const std::string& path() const { return new_files_; }  // where to write and commit them, each under its own name
  void commit();                                          // throws gpt::Error(disk)

 private:
  const std::string folder_, new_files_;
};

// Puts in their places the files of a process that was killed while it did that; usually there are none. Throws
// gpt::Error(data) where another process works in the folder, or this one may not write there.
void finish_replacement(const std::string& folder);

// Removes new files whose process was killed.
void remove_replacement(const std::string& folder);

}  // namespace gpt::data
