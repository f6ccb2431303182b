// What Python's str does, where a rule of lm-evaluation-harness is made of it. Texts are UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpt::evaluate {

std::string strip(std::string_view text);       // white space at both ends, as Unicode has it
size_t trailing_space(std::string_view text);   // bytes of the white space at the end
std::string capitalize(std::string_view text);  // the first letter a capital and all others small, but for those like ß
                                                // that become several
int64_t characters(std::string_view text);      // len(text)

// len(re.split(r"\s+", text)) of a text that comes in pieces: one more than the runs of white space in it.
class WordCount {
 public:
  void add(std::string_view piece);  // whole characters
  int64_t words() const { return runs_ + 1; }

 private:
  int64_t runs_ = 0;
  bool is_in_space_ = false;
};

}  // namespace gpt::evaluate
