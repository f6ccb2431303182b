// Whether the other processes of a run are still there. Every process holds a connection to the first, over which both say so several
// times within `timeout`. One that is killed is known at once, because its connection closes; one that is stopped or cannot be reached,
// once it has been silent for that long. The first process tells the others.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "gpt/distributed/ranks.h"

namespace gpt::distributed {

// Words in the sentence about a process that has said itself why it ends.
inline constexpr const char* kHasEnded = " has ended: ";

class Watch {
 public:
  // At the first process, which waits until all others have come. Afterwards where() says how they find it.
  Watch(const Ranks& ranks, std::chrono::duration<double> timeout);
  // At the others; `where`: that of the first. Throws gpt::Error: peer where nobody there waits for this rank, and interrupted after a signal.
  Watch(const Ranks& ranks, std::chrono::duration<double> timeout, const std::string& where);
  ~Watch();  // says that this process has ended as it should
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  std::string where() const;
  // At the first process: throws gpt::Error(peer), naming those that have not come within `patience`, and gpt::Error(interrupted) after a
  // signal.
  void await_all(std::chrono::duration<double> patience);

  // Which process is lost, and how that is known: a sentence without its full stop. Nothing while all are there.
  std::optional<std::string> lost() const;
  // The same, once something has gone wrong with a connection: waits until it is known, at most a little longer than `timeout`.
  std::string await_lost() const;
  // At the first process: waits until all others have ended, or one is lost. At another: says that it has, and waits for the first, which may
  // still be saving: many launchers end all processes as soon as one has ended with another status than 0.
  void await_ends() const;
  // Tells the others why this process ends.
  void leave(const std::string& why);
  // Sends a warning to the first process, for its log (log::warn_of_rank).
  void forward_warning(const std::string& warning);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpt::distributed
