// From tokens back to text, as the decoders of tokenizer.json say.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "matcher.h"

namespace gpt {

class TokenDecoder {
 public:
  // Steps, in the order in which they are added.
  void add_replace(std::shared_ptr<const Matcher> matcher, std::string content);
  void add_strip(std::string character, size_t most);  // from the start of each text that there is at that point
  void add_metaspace(std::string replacement, bool strips_first);
  void add_byte_fallback();
  void add_fuse();  // the tokens become one text

  bool fuses() const { return fuses_; }

  // The text of `tokens`. Bytes of <0x..> that are not UTF-8 become U+FFFD each, with the bytes beside them.
  std::string decode(std::vector<std::string> tokens) const;
  // The text that `tokens` add to one that has begun, which loses nothing at its start; bytes stay as they are.
  std::string continuation(std::vector<std::string> tokens) const;

 private:
  using Step = std::function<void(std::vector<std::string>& texts, bool continues)>;
  std::vector<Step> steps_;
  bool fuses_ = false;
};

}  // namespace gpt
