#include "token_decoder.h"

#include <charconv>
#include <numeric>
#include <string_view>
#include <utility>

#include "gpt/core/utf8.h"

namespace gpt::tokenizer {
namespace {

constexpr std::string_view kReplacementCharacter = "\uFFFD";

std::optional<char> byte_in(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(&token[3], &token[5], value, 16);
  if (error != std::errc() || end != &token[5]) return std::nullopt;
  return static_cast<char>(value);
}

std::string without_start(std::string text, std::string_view start, size_t most) {
  size_t from = 0;
  for (; most > 0 && std::string_view(text).substr(from).starts_with(start); --most) from += start.size();
  return text.substr(from);
}

std::string replaced(const Matcher& matcher, const std::string& text, const std::string& content) {
  std::string result;
  visit_matches(matcher, text, [&](size_t begin, size_t end, bool is_match) {
    if (is_match) {
      result += content;
    } else {
      result.append(text, begin, end - begin);
    }
  });
  return result;
}

std::string joined_texts(const std::vector<std::string>& texts) {
  return std::accumulate(texts.begin(), texts.end(), std::string());
}

// Bytes in a row become one text.
std::vector<std::string> with_bytes(const std::vector<std::string>& texts, bool keeps_broken) {
  std::vector<std::string> result;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (!keeps_broken && !utf8::is_valid(bytes)) {
      for (size_t i = 0; i < bytes.size(); ++i) result.emplace_back(kReplacementCharacter);
    } else {
      result.push_back(bytes);
    }
    bytes.clear();
  };
  for (const std::string& text : texts) {
    if (const std::optional<char> byte = byte_in(text)) {
      bytes += *byte;
    } else {
      flush();
      result.push_back(text);
    }
  }
  flush();
  return result;
}

}  // namespace

void TokenDecoder::add_replace(std::shared_ptr<const Matcher> matcher, std::string content) {
  steps_.emplace_back(
      [matcher = std::move(matcher), content = std::move(content)](std::vector<std::string>& texts, Mode) {
        for (std::string& text : texts) text = replaced(*matcher, text, content);
      });
}

void TokenDecoder::add_strip(std::string character, size_t most) {
  steps_.emplace_back(
      [character = std::move(character), most, whole = fuses_](std::vector<std::string>& texts, Mode mode) {
        if (whole && !mode.begins_text) return;
        for (std::string& text : texts) text = without_start(std::move(text), character, most);
      });
}

void TokenDecoder::add_metaspace(std::string replacement, bool strips_first) {
  steps_.emplace_back([matcher = std::shared_ptr(match_text(std::move(replacement))),
                       strips_first](std::vector<std::string>& texts, Mode mode) {
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i] = replaced(*matcher, texts[i], i == 0 && strips_first && mode.begins_text ? "" : " ");
    }
  });
}

void TokenDecoder::add_byte_fallback() {
  steps_.emplace_back([](std::vector<std::string>& texts, Mode mode) { texts = with_bytes(texts, mode.keeps_bytes); });
}

void TokenDecoder::add_fuse() {
  fuses_ = true;
  steps_.emplace_back([](std::vector<std::string>& texts, Mode) { texts = {joined_texts(texts)}; });
}

std::string TokenDecoder::apply(std::vector<std::string> texts, Mode mode) const {
  for (const Step& step : steps_) step(texts, mode);
  return joined_texts(texts);
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  return apply(std::move(tokens), {.begins_text = true, .keeps_bytes = false});
}

std::string TokenDecoder::piece(std::string token, bool begins_text) const {
  return apply({std::move(token)}, {.begins_text = begins_text, .keeps_bytes = true});
}

}  // namespace gpt::tokenizer
