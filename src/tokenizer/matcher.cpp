#include "matcher.h"

#include <utility>

#include "gpt/core/utf8.h"

namespace gpt::tokenizer {
namespace {

class TextMatcher final : public Matcher {
 public:
  explicit TextMatcher(std::string wanted) : wanted_(std::move(wanted)) {}
  std::optional<Match> find(std::string_view text, size_t from) const override {
    const size_t at = text.find(wanted_, from);
    if (at == std::string_view::npos) return std::nullopt;
    return Match{at, at + wanted_.size()};
  }

 private:
  const std::string wanted_;
};

class CharacterMatcher final : public Matcher {
 public:
  explicit CharacterMatcher(bool (*belongs)(char32_t)) : belongs_(belongs) {}
  std::optional<Match> find(std::string_view text, size_t from) const override {
    for (size_t at = from; at < text.size();) {
      const utf8::Scan scan = utf8::scan(text, at);
      if (belongs_(scan.value)) return Match{at, at + scan.bytes};
      at += scan.bytes;
    }
    return std::nullopt;
  }

 private:
  bool (*const belongs_)(char32_t);
};

class PieceMatcher final : public Matcher {
 public:
  explicit PieceMatcher(SplitPattern pattern) : pattern_(pattern) {}
  std::optional<Match> find(std::string_view text, size_t from) const override {
    if (from == text.size()) return std::nullopt;
    return Match{from, piece_end(pattern_, text, from)};
  }

 private:
  const SplitPattern pattern_;
};

}  // namespace

std::unique_ptr<const Matcher> match_text(std::string text) { return std::make_unique<TextMatcher>(std::move(text)); }

std::unique_ptr<const Matcher> match_character(bool (*belongs)(char32_t)) {
  return std::make_unique<CharacterMatcher>(belongs);
}

std::unique_ptr<const Matcher> match_pieces(SplitPattern pattern) { return std::make_unique<PieceMatcher>(pattern); }

void visit_matches(const Matcher& matcher, std::string_view text, const MatchVisitor& visit) {
  if (text.empty()) return visit(0, 0, false);
  size_t visited = 0;
  std::optional<size_t> last_end;
  for (size_t from = 0; from <= text.size();) {
    const std::optional<Match> match = matcher.find(text, from);
    if (!match) break;
    if (match->begin == match->end && match->end == last_end) {
      from += from < text.size() ? utf8::scan(text, from).bytes : 1;
      continue;
    }
    if (visited < match->begin) visit(visited, match->begin, false);
    visit(match->begin, match->end, true);
    visited = from = match->end;
    last_end = match->end;
  }
  if (visited < text.size()) visit(visited, text.size(), false);
}

}  // namespace gpt::tokenizer
