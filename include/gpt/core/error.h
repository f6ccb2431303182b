// The one exception type for errors that a user can cause. Its text is a single line: where, what, got, what to do.
// Programs catch it once, in core/process; the code becomes the exit status.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace gpt {

// Exit statuses of every program. 128 + a signal's number means that it stopped the program and that everything worth
// saving was saved, or that there was nothing to save yet.
enum class ExitCode : int {
  ok = 0,
  failed_check = 1,  // gpt-diagnose only: at least one check failed
  config = 2,        // configuration or usage
  data = 3,
  checkpoint = 4,
  numerics = 5,
  peer = 6,
  memory = 7,
  disk = 8,
  left_unsaved = 9,  // a second Ctrl-C: updates since the last checkpoint are lost
  hung_up = 129,
  interrupted = 130,
  terminated = 143,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// For a file, or another source of data, that cannot be used: "WHERE: WHY".
[[noreturn]] inline void fail(const std::string& where, const std::string& why) {
  throw Error(ExitCode::data, where + ": " + why);
}

// The first line of any exception's message: LibTorch's what() goes on with a backtrace of many lines.
inline std::string first_line(std::string_view what) { return std::string(what.substr(0, what.find('\n'))); }

}  // namespace gpt
