// The documents of a source, however its bytes arrive and are asked for.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "expect.h"
#include "src/prepare/document_stream.h"

namespace gpt::fuzz {

// At most `step` bytes at a time.
class Trickle final : public prepare::ByteStream {
 public:
  Trickle(std::string_view bytes, size_t step) : bytes_(bytes), step_(step) {}
  size_t read(char* to, size_t size) override {
    const size_t count = std::min({size, step_, bytes_.size()});
    std::memcpy(to, bytes_.data(), count);
    bytes_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view bytes_;
  const size_t step_;
};

struct Documents {
  std::vector<std::string> texts;
  std::string fault;  // why it is refused; empty where it is not
  bool operator==(const Documents&) const = default;
};

inline Documents documents_of(prepare::TextKind kind, std::string_view bytes, size_t arriving, size_t asked) {
  Documents documents;
  std::string buffer(asked, '\0');
  accept_or_refuse([&] {
    try {
      const auto stream = prepare::open_documents({.path = "", .name = "input", .kind = kind},
                                                  {.kind = kind,
                                                   .packing = prepare::Packing::none,
                                                   .bytes = std::make_unique<prepare::Lookahead>(
                                                       std::make_unique<Trickle>(bytes, arriving))},
                                                  {"<|endoftext|>"});
      while (stream->next_document()) {
        documents.texts.emplace_back();
        while (const size_t count = stream->read(buffer.data(), buffer.size()))
          documents.texts.back().append(buffer, 0, count);
      }
    } catch (const Error& error) {
      documents.fault = error.what();
      throw;
    }
  });
  return documents;
}

}  // namespace gpt::fuzz
