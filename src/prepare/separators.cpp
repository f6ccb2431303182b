#include "separators.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "gpt/core/error.h"

namespace gpt::prepare {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";  // GPT-2's, which texts for other tokenizers have too

std::optional<std::string> own_end_of_text(const tokenizer::Tokenizer& tokenizer) {
  const std::optional<int32_t> id = tokenizer.end_of_text();
  for (const tokenizer::SpecialToken& special : tokenizer.special_tokens()) {
    if (special.id == id) return special.text;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> separators(const std::string& document_separator, const tokenizer::Tokenizer* tokenizer) {
  if (document_separator == "none") return {};
  if (document_separator != kAutomaticSeparator) {
    if (!document_separator.empty() && document_separator.find_first_of("\r\n") == std::string::npos)
      return {document_separator};
    throw Error(ExitCode::config,
                fmt::format("document_separator: it is {}; give the text of a whole line, auto or none",
                            document_separator.empty() ? "empty" : "more than a line"));
  }
  std::vector<std::string> result = {kEndOfText};
  const auto own = tokenizer ? own_end_of_text(*tokenizer) : std::nullopt;
  if (own && *own != kEndOfText) result.push_back(*own);
  return result;
}

int64_t count_ends_in(std::string_view text, const std::vector<std::string>& ends) {
  int64_t count = 0;
  for (const std::string& end : ends) {
    for (size_t at = text.find(end); at != std::string_view::npos; at = text.find(end, at + end.size())) ++count;
  }
  return count;
}

void between_names(std::string_view text, const std::vector<std::string>& names,
                   const std::function<void(std::string_view)>& take) {
  std::vector<size_t> places(names.size());
  for (size_t i = 0; i < names.size(); ++i) places[i] = text.find(names[i]);
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.size(), length = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      if (places[i] < begin) places[i] = text.find(names[i], begin);
      if (places[i] < end) end = places[i], length = names[i].size();
    }
    take(text.substr(begin, end - begin));
    begin = end + length;
  }
}

size_t name_across(std::string_view text, size_t cut, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const size_t longest = std::min(cut, name.size() - 1);
    for (size_t start = cut - longest; start < cut; ++start) {
      if (std::string_view(name).starts_with(text.substr(start, name.size()))) return start;
    }
  }
  return cut;
}

}  // namespace gpt::prepare
