// However long a document is, only a part of it is in memory.
#include "gpt/evaluate/text_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/utf8.h"
#include "gpt/evaluate/python_text.h"
#include "gpt/prepare/documents.h"
#include "gpt/tokenizer/text_error.h"

namespace gpt::evaluate {
namespace {

// Where the tokenizer's ids do not depend on what follows, but not inside a character.
size_t cut_between_characters(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  size_t cut = tokenizer.last_cut(text);
  while (cut > 0 && !utf8::begins_character(text[cut])) --cut;
  return cut;
}

class TextSource final : public ExampleSource {
 public:
  TextSource(const std::vector<std::string>& inputs, const std::string& text_field, const Encoding& encoding,
             int64_t stride)
      : inputs_(inputs),
        encoding_(encoding),
        documents_(inputs, text_field, encoding.tokenizer,
                   [&tokenizer = encoding.tokenizer](std::string_view text) {
                     return cut_between_characters(tokenizer, text);
                   }),
        windows_(encoding.window, stride) {}
  Form form() const override { return Form::text; }
  double share() const override {
    const double of_piece =
        1 - static_cast<double>(waiting_) / static_cast<double>(std::max<int64_t>(1, piece_tokens_));
    return share_before_ + (documents_.share() - share_before_) * of_piece;
  }

  std::optional<Example> next() override {
    for (;;) {
      if (std::optional<Request> request = windows_.next()) return example_of(std::move(*request));
      if (!read_piece()) return std::nullopt;
    }
  }

 private:
  Example example_of(Request request) {
    Example example{.requests = {std::move(request)}, .document = document_};
    waiting_ -= example.requests[0].scored;  // nothing is left with the last window alone
    if (waiting_ == 0) example.bytes = bytes_, example.words = words_.words();
    return example;
  }

  bool read_piece() {
    share_before_ = documents_.share();
    const std::optional<prepare::Documents::Piece> piece = documents_.next();
    if (!piece) {
      if (document_ < 0) fail(fmt::format("{}", fmt::join(inputs_, " ")), "there is no text in it");
      return false;
    }
    if (piece->first) begin_document();
    const std::vector<int32_t> ids = encode(piece->text);
    add(ids);
    bytes_ += std::ssize(piece->text);
    words_.add(piece->text);
    if (piece->last) windows_.end();
    piece_tokens_ = waiting_;
    return true;
  }

  void begin_document() {
    ++document_;
    windows_.begin(encoding_.prefix);
    has_context_ = encoding_.prefix.has_value();
    bytes_ = waiting_ = 0;
    words_ = {};
  }

  void add(std::span<const int32_t> ids) {
    windows_.add(ids);
    waiting_ += std::ssize(ids);
    if (has_context_ || ids.empty()) return;
    has_context_ = true;  // the first token of all is only that
    --waiting_;
    bytes_ -= std::ssize(encoding_.tokenizer.decode(ids.first(1)));
  }

  std::vector<int32_t> encode(std::string_view text) const {
    try {
      return encoding_.tokenizer.encode(text);
    } catch (const tokenizer::TextError& error) { fail(documents_.place(error.offset()), error.why_and_remedy()); }
  }

  const std::vector<std::string> inputs_;
  const Encoding encoding_;
  prepare::Documents documents_;
  RollingWindows windows_;
  int64_t document_ = -1;
  int64_t bytes_ = 0;         // of the document, those of a token that is not predicted left out
  int64_t waiting_ = 0;       // tokens that are still to be predicted
  int64_t piece_tokens_ = 0;  // those when the last piece had come
  double share_before_ = 0;   // of the input, before that piece
  WordCount words_;
  bool has_context_ = false;  // for the next token
};

}  // namespace

std::unique_ptr<ExampleSource> open_text(const std::vector<std::string>& inputs, const std::string& text_field,
                                         const Encoding& encoding, int64_t stride) {
  return std::make_unique<TextSource>(inputs, text_field, encoding, stride);
}

}  // namespace gpt::evaluate
