#include "marked_words.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>
#include <unordered_set>

#include "gpt/core/error.h"
#include "gpt/core/utf8.h"

namespace gpt::chat {
namespace {

// The noncharacters that no text may end with, in the order in which they are used.
std::vector<std::string> noncharacters() {
  std::vector<std::string> all;
  const auto add = [&all](char32_t value) { utf8::append(all.emplace_back(), value); };
  for (char32_t value = 0xFDD0; value <= 0xFDEF; ++value) add(value);
  for (char32_t plane = 1; plane <= 16; ++plane) add(plane * 0x10000 + 0xFFFE), add(plane * 0x10000 + 0xFFFF);
  return all;
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// A place where special tokens are spelled out.
struct Spelled {
  size_t begin, length;
};

// All of them, the longest first of those that begin together.
std::vector<Spelled> spelled_specials(std::string_view text, std::span<const tokenizer::SpecialToken> specials) {
  std::unordered_set<std::string_view> texts;
  std::set<size_t, std::greater<>> lengths;
  for (const tokenizer::SpecialToken& special : specials)
    texts.insert(special.text), lengths.insert(special.text.size());
  std::vector<Spelled> places;
  for (size_t at = 0; at < text.size(); ++at) {
    for (const size_t length : lengths)
      if (length > 0 && at + length <= text.size() && texts.contains(text.substr(at, length)))
        places.push_back({at, length});
  }
  return places;
}

bool has_any_between(const std::vector<size_t>& places, size_t begin, size_t end) {
  const auto first = std::lower_bound(places.begin(), places.end(), begin);
  return first != places.end() && *first < end;
}

// Whether what stands before it, or after it, could make a special token together with one of its ends.
bool may_end_one(std::string_view content, const std::string& special) {
  for (size_t i = 1; i < special.size(); ++i)
    if (content.starts_with(std::string_view(special).substr(i))) return true;
  return false;
}

bool may_begin_one(std::string_view content, const std::string& special) {
  for (size_t i = 1; i < special.size(); ++i)
    if (content.ends_with(std::string_view(special).substr(0, i))) return true;
  return false;
}

}  // namespace

MarkedWords::MarkedWords(const Dialogue& dialogue, std::string_view source, const tokenizer::Tokenizer& tokenizer,
                         Markup markup) {
  for (std::string& mark : noncharacters()) {
    const auto has_it = [&mark](const Message& message) { return message.content.find(mark) != std::string::npos; };
    if (source.find(mark) == std::string_view::npos && std::none_of(dialogue.begin(), dialogue.end(), has_it))
      free_marks_.push_back(std::move(mark));
  }
  std::reverse(free_marks_.begin(), free_marks_.end());
  around_answers_ = mark_for("");
  const auto specials =
      markup == Markup::text ? tokenizer.special_tokens() : std::span<const tokenizer::SpecialToken>();
  for (const Message& message : dialogue) contents_.push_back(protect(message.content, specials));
}

std::string MarkedWords::mark_for(std::string_view character) {
  const auto [place, is_new] = marks_.try_emplace(std::string(character));
  if (!is_new) return place->second;
  if (free_marks_.empty())
    fail("the dialogue", "it has all of Unicode's noncharacters, of which a few are needed to read it");
  place->second = std::move(free_marks_.back());
  free_marks_.pop_back();
  meanings_[place->second] = place->first;
  return place->second;
}

std::string MarkedWords::protect(std::string_view content, std::span<const tokenizer::SpecialToken> specials) {
  std::set<size_t> places;
  for (const Spelled& place : spelled_specials(content, specials)) places.insert(place.begin);
  // Templates take the white space around a message away.
  const auto first = std::find_if_not(content.begin(), content.end(), is_space);
  const auto last = std::find_if_not(content.rbegin(), content.rend(), is_space);
  if (first != content.end()) {
    const std::string_view words(first, last.base());
    const auto begin = static_cast<size_t>(words.data() - content.data());
    for (const tokenizer::SpecialToken& special : specials) {
      if (may_end_one(words, special.text) || special.text.find(words) != std::string::npos) places.insert(begin);
      if (may_begin_one(words, special.text)) places.insert(begin + utf8::last_character(words));
    }
  }
  std::string marked;
  size_t done = 0;
  for (const size_t place : places) {
    // A token that begins inside a character is no token of this text.
    if (place < done || !utf8::begins_character(content[place])) continue;
    const size_t bytes = utf8::scan(content, place).bytes;
    marked.append(content.substr(done, place - done)).append(mark_for(content.substr(place, bytes)));
    done = place + bytes;
  }
  return marked.append(content.substr(done));
}

std::string MarkedWords::answer(size_t message) const {
  return around_answers_ + std::to_string(message) + around_answers_;
}

std::optional<AnswerPlace> MarkedWords::next_answer(std::string_view text, size_t from) const {
  const size_t begin = text.find(around_answers_, from);
  if (begin == std::string_view::npos) return std::nullopt;
  AnswerPlace place{0, begin, 0};
  const char* const digits = text.data() + begin + around_answers_.size();
  const auto end =
      static_cast<size_t>(std::from_chars(digits, text.data() + text.size(), place.message).ptr - text.data());
  // What a template has cut is no answer.
  if (!text.substr(end).starts_with(around_answers_) || place.message >= contents_.size()) return std::nullopt;
  place.end = end + around_answers_.size();
  return place;
}

PlainText MarkedWords::without_marks(std::string_view text) const {
  PlainText plain;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8::scan(text, at).bytes;
    const auto mark = bytes < 3 ? meanings_.end() : meanings_.find(std::string(text.substr(at, bytes)));
    if (mark != meanings_.end()) plain.plain.push_back(plain.text.size());
    plain.text += mark != meanings_.end() ? std::string_view(mark->second) : text.substr(at, bytes);
    at += bytes;
  }
  return plain;
}

// The text is cut at the special tokens that count. What lies between two others is encoded by the tokenizer as a whole, so that it takes
// white space and added tokens as it always does.
void encode_plain(const PlainText& text, const tokenizer::Tokenizer& tokenizer, std::vector<int32_t>& ids) {
  const std::string_view all = text.text;
  size_t done = 0, cut = 0;  // before which everything is encoded; behind the last special token that counts
  const auto encode_until = [&](size_t begin, size_t end, bool is_plain) {
    const std::string_view part = all.substr(begin, end - begin);
    const std::vector<int32_t> more = is_plain ? tokenizer.encode(part) : tokenizer.encode_with_specials(part);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  // From the last special token up to the next one, or the end, there are plain bytes: those are apart from what is before them.
  const auto finish_stretch = [&](size_t end) {
    if (!has_any_between(text.plain, cut, end)) return;
    if (done < cut) encode_until(done, cut, /*is_plain=*/false);
    encode_until(cut, end, /*is_plain=*/true);
    done = end;
  };
  if (!text.plain.empty()) {
    for (const Spelled& place : spelled_specials(all, tokenizer.special_tokens())) {
      const size_t end = place.begin + place.length;
      if (place.begin < cut || has_any_between(text.plain, place.begin, end)) continue;
      finish_stretch(place.begin);
      cut = end;
    }
    finish_stretch(all.size());
  }
  if (done < all.size()) encode_until(done, all.size(), /*is_plain=*/false);
}

}  // namespace gpt::chat
