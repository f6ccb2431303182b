// Tokens that are found in a text as they are, before anything else is done with it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::tokenizer {

struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool special = false;
  bool single_word = false;                      // found only where no letter, digit or underscore is beside it
  bool left_strip = false, right_strip = false;  // takes the white space on that side with it
  bool normalized = false;                       // looked for in the normalized text
  bool in_vocabulary = false;                    // the model has it too
  bool operator==(const AddedToken&) const = default;
};

class AddedTokens {
 public:
  static constexpr size_t kLongest = 1024;  // bytes of a token

  explicit AddedTokens(std::vector<AddedToken> tokens = {});  // no two with the same text
  bool empty() const { return tokens_.empty(); }

  // Calls `visit(part, token)` for what lies between tokens, where `token` is null, and for each token, in order. Of
  // several tokens that begin together the longest is found. Without `specials` those are ordinary text, in which no
  // other token is found. `text` is valid UTF-8.
  using Visitor = std::function<void(std::string_view part, const AddedToken* token)>;
  void split(std::string_view text, bool specials, const Visitor& visit) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;  // sorted by text
  std::vector<bool> begins_;        // by byte: whether a token begins with it
};

}  // namespace gpt::tokenizer
