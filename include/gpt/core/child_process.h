// A program that this one starts and waits for. It ends when this process does, however that happens.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpt {

// A file without a name, which nobody has to remove. Its functions throw gpt::Error(failed_check).
class MemoryFile {
 public:
  explicit MemoryFile(const char* name);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const { return fd_; }
  void write(const std::string& text);  // at its beginning
  std::string last_line() const;        // that is not empty

 private:
  int fd_;
};

struct ChildStreams {
  int in, out, errors;  // descriptors that become its standard streams
};

inline constexpr int kNotStarted = 127;  // the exit status of a child whose program could not be run

std::string path_of_this_program();

// What a child has beyond what this process has.
struct ChildAdditions {
  std::vector<std::string> environment = {};  // "NAME=VALUE", in place of those of the same name
  std::vector<int> descriptors = {};          // that it inherits under the same numbers, though exec() would close them
  bool has_own_group = false;                 // Ctrl-C in the terminal does not reach it
};

// command[0] is the path of a program. Throws gpt::Error where no process can be made.
pid_t start_child(const std::vector<std::string>& command, const ChildStreams& streams,
                  const ChildAdditions& additions = {});

// The status that waitpid() gives. The first stop signal of this process is passed on, for it may have been sent to this process alone.
int wait_for_child(pid_t child);

}  // namespace gpt
