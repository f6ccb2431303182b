// Which folders something has happened in, as the system tells (inotify). Where it does not, because a file system is another machine's or
// there are too many watches, nothing comes: whoever asks has to look by himself now and then.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>

namespace gpt::board {

class FolderWatch {
 public:
  FolderWatch();
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  void add(const std::string& folder);  // again, where another folder has the name now
  void remove(const std::string& folder);
  // Waits until something has happened, wake() was called or the time is over. Folders, each once; all of them where the system lost count.
  std::set<std::string> wait(std::chrono::milliseconds most);
  void wake();  // by any thread

 private:
  int events_, wake_;
  std::map<int, std::string> folders_;
};

}  // namespace gpt::board
