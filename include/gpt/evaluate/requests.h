// What a model is asked: how probable some tokens are after others. How texts become such requests is the rule of lm-evaluation-harness
// 0.4.13, so that results compare with published ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/tokenizer/tokenizer.h"

namespace gpt::evaluate {

struct Request {
  std::vector<int32_t> ids;          // those that the model sees, at most a window of them, and one more
  int64_t scored = 0;                // the last so many are predicted; at least one
  bool is_cut = false;               // some were left out, because there were too many
  std::vector<int64_t> places = {};  // in ids, from 1: of the scored ones, where these are not the last
};

struct Encoding {
  const tokenizer::Tokenizer& tokenizer;
  int64_t window;  // tokens that the model sees at once
  std::optional<int32_t> prefix =
      {};  // what the first token of a text follows: the token that begins texts, else the one that ends
           // them; nothing where the tokenizer has neither

  std::vector<int32_t> before_texts = {};  // TextFormat::prefix

  Encoding(const tokenizer::Tokenizer& tokenizer, int64_t window, std::vector<int32_t> before_texts = {});

  // The ids of a text from its beginning on.
  std::vector<int32_t> text(std::string_view text) const;
};

// How probable `continuation` is after `context`: white space at the end of the context belongs to the continuation, whose tokens are
// those of both together beyond as many as the context has by itself. An empty context is the prefix. The text of a special token is that
// token. What does not fit the window is cut from the left. Throws gpt::Error(data) without a place: text that the tokenizer lacks, a
// continuation without tokens or with more than fit the window, an empty context without a prefix.
Request encode_pair(const Encoding& encoding, std::string_view context, std::string_view continuation);

// A text of any length in windows: each of its tokens is predicted once. The first window predicts all that it holds; each further one
// reaches `stride` tokens beyond the last, the last one as far as the text does, and predicts these alone, so that they have at least
// window - stride + 1 tokens before them. With a stride of a window this is lm-evaluation-harness's rolling log-likelihood.
class RollingWindows {
 public:
  RollingWindows(int64_t window, int64_t stride) : window_(window), stride_(stride) {}

  void begin(std::optional<int32_t> prefix);  // a text; without a prefix its first token is not predicted
  void add(std::span<const int32_t> ids);
  void end() { is_ended_ = true; }
  std::optional<Request> next();  // nothing until more is added, and at the end; the last one comes only after end()

 private:
  const int64_t window_, stride_;
  std::vector<int32_t> ids_;  // of the text, without those at the beginning that no window needs any more
  int64_t predicted_ = 0;     // the first so many of ids_ are, or need not be
  bool is_first_ = true, is_ended_ = false;
};

}  // namespace gpt::evaluate
