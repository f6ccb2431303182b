// From the bytes of tokens to text that can be shown at once: whole characters only, and nothing of a stop text, however
// tokens cut either of them. The result does not depend on where the cuts are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpt::generate {

class TextStream {
 public:
  // `stop` are non-empty UTF-8 texts; the one that is complete first ends the stream.
  explicit TextStream(std::vector<std::string> stop = {}) : stop_(std::move(stop)) {}

  std::string push(std::string_view bytes);  // what is now certain to be shown; bytes that are no UTF-8 become U+FFFD
  std::string finish();                      // what was held back
  bool stopped() const { return stopped_; }  // a stop text came; later bytes are ignored

 private:
  std::string release();

  std::vector<std::string> stop_;
  std::string bytes_;  // the start of an unfinished character
  std::string text_;   // whole characters that may be the start of a stop text
  bool stopped_ = false;
};

}  // namespace gpt::generate
