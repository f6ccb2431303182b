// GPT-2's pair and tiktoken's ranks: encoder.json, NUL, vocab.bpe, NUL, a text to encode; or 't', ranks, NUL, a text.
#include <cstddef>
#include <cstdint>

#include "expect.h"
#include "src/tokenizer/tiktoken.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpt;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (rest.starts_with('t')) {
    rest.remove_prefix(1);
    const std::string_view ranks = fuzz::next_part(rest);
    fuzz::accept_or_refuse([&] { tokenizer::parse_tiktoken(ranks, "input"); });
    fuzz::accept_or_refuse([&] {  // as parse_tiktoken() does where the number of ranks is known
      tokenizer::BpeModel model;
      model.tokens = tokenizer::read_tiktoken_ranks(ranks, "input");
      model.merges = tokenizer::merges_of_ranks(model.tokens, "input");
      model.split = tokenizer::SplitPattern::cl100k;
      model.ignore_merges = true;
      fuzz::use(std::move(model), rest);
    });
    return 0;
  }
  const std::string_view encoder = fuzz::next_part(rest), merges = fuzz::next_part(rest);
  fuzz::accept_or_refuse([&] { fuzz::use(tokenizer::parse_gpt2_files(encoder, merges, "input"), rest); });
  return 0;
}
