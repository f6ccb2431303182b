// What lies beside a bin of tokens.
#include <cstddef>
#include <cstdint>

#include "expect.h"
#include "gpt/data/metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpt;
  fuzz::accept_or_refuse([&] {
    const data::Metadata metadata = data::parse_metadata({reinterpret_cast<const char*>(data), size}, "input");
    fuzz::expect(data::parse_metadata(data::to_json(metadata), "again") == metadata, "the metadata to come back");
  });
  return 0;
}
