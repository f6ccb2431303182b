// Where gpt-generate's texts go: to standard output, each piece at once, or into a file, which appears when it is whole.
#pragma once

#include <string>
#include <string_view>

namespace gpt::generate {

class TextOutput {
 public:
  // An empty `path` is standard output, where a terminal sees control characters spelled out unless `raw`. Throws
  // gpt::Error(disk) for a file that could not be written later.
  TextOutput(const std::string& path, bool raw);

  bool write(std::string_view text);  // false once the reader of standard output has left; throws gpt::Error(disk)
  void end_line();                    // unless the text so far has ended with one
  bool open() const { return is_open_; }
  bool escapes() const { return escapes_; }  // control characters are spelled out
  void
  finish();  // puts the file in place, over one of its name; throws gpt::Error(disk), which leaves that one as it was

 private:
  const std::string path_;
  const bool escapes_;
  std::string text_;  // for the file
  bool is_open_ = true;
  bool at_line_start_ = true;
};

}  // namespace gpt::generate
