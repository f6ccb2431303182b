#include "text_splitter.h"

#include <optional>
#include <utility>

#include "gpt/tokenizer/byte_alphabet.h"

namespace gpt::tokenizer {
namespace {

// What visit_matches() finds, joined as the behavior says.
class PieceJoiner {
 public:
  PieceJoiner(TextPiece piece, SplitBehavior behavior, const PieceVisitor& next)
      : piece_(piece), behavior_(behavior), next_(next) {}

  void add(size_t begin, size_t end, bool is_match) {
    const bool joins = waiting_ && joins_waiting(is_match);
    if (joins) {
      waiting_->second = end;
    } else {
      flush();
      if (!is_match || behavior_ != SplitBehavior::removed) waiting_.emplace(begin, end);
    }
    was_match_ = is_match;
  }

  void flush() {
    if (waiting_ && waiting_->first < waiting_->second) {
      next_({piece_.text.substr(waiting_->first, waiting_->second - waiting_->first),
             piece_.starts_text && waiting_->first == 0});
    }
    waiting_.reset();
  }

 private:
  bool joins_waiting(bool is_match) const {
    switch (behavior_) {
      case SplitBehavior::isolated:
      case SplitBehavior::removed: return false;
      case SplitBehavior::contiguous: return is_match == was_match_;
      case SplitBehavior::merged_with_previous: return is_match && !was_match_;
      case SplitBehavior::merged_with_next: return !is_match && was_match_;
    }
    return false;
  }

  const TextPiece piece_;
  const SplitBehavior behavior_;
  const PieceVisitor& next_;
  std::optional<std::pair<size_t, size_t>> waiting_;  // may still be joined by what follows
  bool was_match_ = false;
};

}  // namespace

TextSplitter split_at(std::shared_ptr<const Matcher> matcher, SplitBehavior behavior, bool invert) {
  return [matcher = std::move(matcher), behavior, invert](TextPiece piece, const PieceVisitor& next) {
    PieceJoiner joiner(piece, behavior, next);
    visit_matches(*matcher, piece.text,
                  [&](size_t begin, size_t end, bool is_match) { joiner.add(begin, end, is_match != invert); });
    joiner.flush();
  };
}

TextSplitter byte_level(bool prefix_space, bool as_gpt2, bool spell) {
  return [prefix_space, as_gpt2, spell](TextPiece piece, const PieceVisitor& next) {
    std::string prefixed;
    if (prefix_space && !piece.text.starts_with(' ')) piece.text = prefixed.append(" ").append(piece.text);
    for (size_t begin = 0; begin < piece.text.size();) {
      const size_t end = as_gpt2 ? piece_end(SplitPattern::gpt2, piece.text, begin) : piece.text.size();
      const std::string_view part = piece.text.substr(begin, end - begin);
      const std::string spelled = spell ? byte_alphabet::spell(part) : std::string();
      next({spell ? spelled : part, piece.starts_text && begin == 0});
      begin = end;
    }
  };
}

TextSplitter metaspace(std::string replacement, PrependScheme scheme, bool split) {
  return [replacement = std::move(replacement), scheme, split](TextPiece piece, const PieceVisitor& next) {
    std::string text;
    for (const char c : piece.text) {
      if (c == ' ') {
        text += replacement;
      } else {
        text += c;
      }
    }
    const bool may_prepend = scheme == PrependScheme::always || (scheme == PrependScheme::first && piece.starts_text);
    if (may_prepend && !text.starts_with(replacement)) text.insert(0, replacement);
    for (size_t begin = 0; begin < text.size();) {
      // Several in a row are a piece each, but for the last, which begins the word behind it.
      size_t end = split ? text.find(replacement, begin + replacement.size()) : std::string::npos;
      if (split && !std::string_view(text).substr(begin).starts_with(replacement)) end = text.find(replacement, begin);
      if (end == std::string::npos) end = text.size();
      next({std::string_view(text).substr(begin, end - begin), piece.starts_text && begin == 0});
      begin = end;
    }
  };
}

}  // namespace gpt::tokenizer
