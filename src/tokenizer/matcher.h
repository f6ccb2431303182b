// Finds places in a text: what splits, replaces and strips texts is told by one of these.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gpt/tokenizer/pre_tokenizer.h"

namespace gpt::tokenizer {

struct Match {
  size_t begin, end;
};

// Immutable, and safe to use from several threads at once. Texts are valid UTF-8.
class Matcher {
 public:
  virtual ~Matcher() = default;
  // The first match that starts at `from` <= text.size() or later. Throws TextError, with an offset in `text`, where a
  // regular expression takes too many steps.
  virtual std::optional<Match> find(std::string_view text, size_t from) const = 0;
};

std::unique_ptr<const Matcher> match_text(std::string text);  // not empty
std::unique_ptr<const Matcher> match_character(bool (*belongs)(char32_t));
std::unique_ptr<const Matcher> match_pieces(SplitPattern pattern);  // every piece, so all of the text
// In Oniguruma's syntax. Throws PatternError.
std::unique_ptr<const Matcher> match_expression(std::string_view pattern);

// Calls `visit(begin, end, is_match)` for the matches and what lies between them, in order, so that all of `text` is
// visited. An empty match counts unless it follows a match directly; an empty text is one that does not match.
using MatchVisitor = std::function<void(size_t begin, size_t end, bool is_match)>;
void visit_matches(const Matcher& matcher, std::string_view text, const MatchVisitor& visit);

}  // namespace gpt::tokenizer
