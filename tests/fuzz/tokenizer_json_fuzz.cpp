// tokenizer.json, NUL, a text to encode.
#include <cstddef>
#include <cstdint>

#include "expect.h"
#include "gpt/tokenizer/make_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpt;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view file = fuzz::next_part(text);
  fuzz::accept_or_refuse([&] { fuzz::use(parse_tokenizer_json(file, "input"), text); });
  fuzz::accept_or_refuse([&] {  // the characters and bytes of a checkpoint come this way too
    const auto tokenizer = tokenizer_from_json(file, "input");
    fuzz::expect(tokenizer_from_json(tokenizer->to_json(), "again")->to_json() == tokenizer->to_json(),
                 "the same tokenizer again");
    fuzz::expect(tokenizer->decode(tokenizer->encode(text)) == text, "the text to come back from its ids");
  });
  return 0;
}
