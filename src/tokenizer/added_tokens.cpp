#include "added_tokens.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "gpt/core/utf8.h"
#include "matcher.h"
#include "unicode_class.h"

namespace gpt::tokenizer {
namespace {

// One character that belongs to a word, by the tables of tokenizers' other engine.
const Matcher& word_character() {
  static const std::unique_ptr<const Matcher> matcher =
      match_expression(R"([\w\x{200C}\x{200D}&&[^\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}]])");
  return *matcher;
}

bool is_word_character(std::string_view text) {
  const std::optional<Match> match = word_character().find(text, 0);
  return match && match->begin == 0;
}

bool is_white(std::string_view text, size_t at) {
  return unicode::character_class(utf8::scan(text, at).value) == unicode::CharacterClass::space;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const size_t before = utf8::last_character(text.substr(0, begin));
  if (begin > 0 && is_word_character(text.substr(before, begin - before))) return false;
  return end == text.size() || !is_word_character(text.substr(end, utf8::scan(text, end).bytes));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), begins_(256) {
  std::sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) { return a.text < b.text; });
  for (const AddedToken& token : tokens_) begins_[static_cast<unsigned char>(token.text[0])] = true;
}

const AddedToken* AddedTokens::longest_at(std::string_view text) const {
  const AddedToken* longest = nullptr;
  auto first = tokens_.begin(), last = tokens_.end();
  for (size_t length = 1; length <= text.size() && first != last; ++length) {
    const auto byte_of = [length](const AddedToken& token) { return token.text[length - 1]; };
    const auto byte = static_cast<unsigned char>(text[length - 1]);
    first =
        std::partition_point(first, last, [&](const auto& t) { return static_cast<unsigned char>(byte_of(t)) < byte; });
    last = std::partition_point(first, last,
                                [&](const auto& t) { return static_cast<unsigned char>(byte_of(t)) <= byte; });
    if (first == last) break;
    if (first->text.size() == length) longest = &*first++;
  }
  return longest;
}

void AddedTokens::split(std::string_view text, bool specials, const Visitor& visit) const {
  size_t visited = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* const token =
        begins_[static_cast<unsigned char>(text[at])] ? longest_at(text.substr(at)) : nullptr;
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at += token->text.size();
    if ((token->special && !specials) || (token->single_word && !stands_alone(text, begin, end))) continue;
    while (token->left_strip && begin > visited) {
      const size_t before = utf8::last_character(text.substr(0, begin));
      if (!is_white(text, before)) break;
      begin = before;
    }
    while (token->right_strip && end < text.size() && is_white(text, end)) end += utf8::scan(text, end).bytes;
    if (visited < begin) visit(text.substr(visited, begin - visited), nullptr);
    visit(text.substr(begin, end - begin), token);
    visited = end;  // before where it was if the token lies in the white space that the one before took
  }
  if (visited < text.size()) visit(text.substr(visited), nullptr);
}

}  // namespace gpt::tokenizer
