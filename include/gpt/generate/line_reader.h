// Lines from standard input. At a terminal they can be edited, and earlier ones come back (libedit).
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace gpt::generate {

class LineReader {
 public:
  LineReader();  // one at a time; sets the locale's character type to UTF-8 for an editor
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool at_terminal() const { return at_terminal_; }  // somebody types: a prompt is shown before each line

  // A line without its end, LF or CRLF. Nothing at the end of the input, and at a terminal once process::stop_signal() is set: its modes
  // are restored first. From anything else the first signal leaves at once.
  std::optional<std::string> next();

 private:
  class Editor;

  const bool at_terminal_;
  std::unique_ptr<Editor> editor_;  // where the terminal allows it
};

}  // namespace gpt::generate
