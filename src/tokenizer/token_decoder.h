// From tokens back to text, as the decoders of tokenizer.json say.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "matcher.h"

namespace gpt::tokenizer {

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
  // The bytes of one token, of the first of a text or of a later one, from which nothing is taken away.
  std::string piece(std::string token, bool begins_text) const;

 private:
  struct Mode {
    bool begins_text, keeps_bytes;
  };
  using Step = std::function<void(std::vector<std::string>& texts, Mode mode)>;
  std::string apply(std::vector<std::string> texts, Mode mode) const;
  std::vector<Step> steps_;
  bool fuses_ = false;
};

}  // namespace gpt::tokenizer
