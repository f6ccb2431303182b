// tokenizer.json, NUL, a text to encode; or a model of SentencePiece.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "expect.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "src/tokenizer/pipeline_tokenizer.h"
#include "src/tokenizer/sentencepiece_model.h"

namespace {

using namespace gpt;

// One that normalizes does not give the text back, and need not be able to encode it.
void use_pipeline(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  for (const std::vector<int32_t>& ids : {tokenizer.encode(text), tokenizer.encode_with_specials(text)}) {
    tokenizer.decode(ids);
    for (const int32_t id : ids) tokenizer.piece(id, false);
  }
  const size_t cut = tokenizer.last_cut(text);
  if (cut == 0) return;
  std::vector<int32_t> ids = tokenizer.encode(text.substr(0, cut));
  tokenizer.encode(text.substr(cut), ids);
  fuzz::expect(ids == tokenizer.encode(text), "the ids of the parts where a text may be cut");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view file = fuzz::next_part(text);
  fuzz::accept_or_refuse([&] { fuzz::use(tokenizer::parse_tokenizer_json(file, "input"), text); });
  fuzz::accept_or_refuse([&] {
    const std::string_view whole(reinterpret_cast<const char*>(data), size);
    use_pipeline(*tokenizer::tokenizer_from_json(tokenizer::json_of_sentencepiece_model(whole, "input"), "input"),
                 "the <sep> question");
  });
  fuzz::accept_or_refuse([&] {  // the characters and bytes of a checkpoint come this way too
    const auto tokenizer = tokenizer::tokenizer_from_json(file, "input");
    fuzz::expect(tokenizer::tokenizer_from_json(tokenizer->to_json(), "again")->to_json() == tokenizer->to_json(),
                 "the same tokenizer again");
    if (dynamic_cast<const tokenizer::PipelineTokenizer*>(tokenizer.get())) return use_pipeline(*tokenizer, text);
    fuzz::expect(tokenizer->decode(tokenizer->encode(text)) == text, "the text to come back from its ids");
  });
  return 0;
}
