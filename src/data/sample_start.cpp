#include "gpt/data/sample_start.h"

#include <algorithm>

#include "gpt/core/error.h"

namespace gpt::data {
namespace {

// The beginning of a source is as good as all of it, which may be larger than memory.
int64_t looked_at(const Tokens& tokens) { return std::min<int64_t>(tokens.size(), 1 << 22); }

bool occurs_often(const std::vector<Tokens>& sources, int32_t id) {
  constexpr int kOften = 10;  // an embedding that was trained fewer times is still close to where it was drawn
  int found = 0;
  for (const Tokens& tokens : sources) {
    for (int64_t i = 0, end = looked_at(tokens); i < end; ++i) {
      if (tokens[i] == id && ++found == kOften) return true;
    }
  }
  return false;
}

std::optional<int32_t> line_break(const tokenizer::Tokenizer& tokenizer) {
  try {
    const std::vector<int32_t> ids = tokenizer.encode("\n");
    return ids.size() == 1 ? std::optional(ids[0]) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // a vocabulary of characters without it
  }
}

std::optional<int32_t> most_frequent(const tokenizer::Tokenizer& tokenizer, const std::vector<Tokens>& sources) {
  if (sources.empty() || sources[0].size() == 0) return std::nullopt;
  const Tokens& tokens = sources[0];
  std::vector<int64_t> counts(static_cast<size_t>(tokenizer.vocab_size()));
  for (int64_t i = 0, end = looked_at(tokens); i < end; ++i) {
    if (tokens[i] < tokenizer.vocab_size()) ++counts[tokens[i]];  // others are of a padded vocabulary
  }
  return static_cast<int32_t>(std::max_element(counts.begin(), counts.end()) - counts.begin());
}

}  // namespace

std::optional<int32_t> sample_start(const tokenizer::Tokenizer& tokenizer, const std::vector<Tokens>& sources) {
  for (const std::optional<int32_t>& id : {tokenizer.end_of_text(), line_break(tokenizer)}) {
    if (id && occurs_often(sources, *id)) return id;
  }
  return most_frequent(tokenizer, sources);
}

Opening opening(const tokenizer::Tokenizer& tokenizer, const Tokens& tokens) {
  Opening opening;
  std::vector<int32_t> ids;
  bool is_open = true;
  for (int64_t i = 0; i < tokens.size() && !opening.end; ++i) {
    is_open = is_open && (tokens.mark(i) & TokenMark::kLearned) == 0;
    if (is_open) ids.push_back(tokens[i]);
    if ((tokens.mark(i) & TokenMark::kEnds) != 0) opening.end = tokens[i];
  }
  opening.text = tokenizer.decode(ids);
  return opening;
}

}  // namespace gpt::data
