#include "gpt/data/document_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/printable.h"

namespace gpt::data {
namespace {

// How many documents begin behind others in so many tokens: all, unless a source is so large that only its beginning is looked at.
struct Borders {
  int64_t count = 0, tokens = 0;
  bool is_all = true;
};

Borders borders_in(const Corpus& corpus, int32_t separator) {
  constexpr int64_t kLookedAt = int64_t{1} << 22;
  Borders borders;
  for (const Tokens& tokens : corpus.sources) {
    // The last token is only predicted, and before the first there is nothing.
    const int64_t inputs = std::max<int64_t>(0, tokens.size() - 1), end = std::min(inputs, kLookedAt);
    for (int64_t i = 1; i < end; ++i) borders.count += tokens[i] == separator ? 1 : 0;
    borders.tokens += end;
    borders.is_all = borders.is_all && end == inputs;
  }
  return borders;
}

std::string separator_text(const Corpus& corpus, int32_t separator) {
  for (const tokenizer::SpecialToken& token : corpus.tokenizer->special_tokens())
    if (token.id == separator) return printable_line(token.text);
  return fmt::format("token {}", separator);
}

}  // namespace

std::optional<int32_t> document_separator(const DataConfig& config, const Corpus& corpus) {
  if (!config.document_mask) return std::nullopt;
  if (!corpus.tokenizer)
    throw Error(
        ExitCode::config,
        fmt::format("data.document_mask: true needs the token that separates documents, and the tokenizer of {} "
                    "is not known; name it in data.tokenizer, or set data.document_mask: false",
                    corpus.source));
  if (const auto end = corpus.tokenizer->end_of_text()) return end;
  if (const auto begin = corpus.tokenizer->begin_of_text()) return begin;
  throw Error(ExitCode::config,
              "data.document_mask: true needs documents, and this tokenizer marks no end of text; set "
              "data.document_mask: false, or a tokenizer such as bpe:4096 or gpt2");
}

MaskedDocuments find_documents(const Corpus& corpus, int32_t separator) {
  const Borders borders = borders_in(corpus, separator);
  const std::string text = separator_text(corpus, separator);
  MaskedDocuments documents{fmt::format("attention stays within a document, which begins with {}", text), ""};
  if (borders.count > 0) {
    documents.description += fmt::format("; one has about {}", plural(borders.tokens / borders.count, "token"));
  } else if (borders.is_all) {
    documents.idle =
        fmt::format("data.document_mask changes nothing: the training data is one document, without {} inside", text);
  }
  return documents;
}

}  // namespace gpt::data
