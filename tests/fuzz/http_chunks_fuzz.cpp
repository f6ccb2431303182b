// A body in chunks, from anybody who can connect: in whatever pieces it arrives, and written again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "expect.h"
#include "gpt/http/chunked_body.h"
#include "gpt/http/request.h"

namespace {

constexpr size_t kMostBody = 1000, kMostTrailer = 200;

struct Reading {
  int status = 0;  // of its refusal
  bool is_whole = false;
  std::string body = {}, rest = {};  // of a whole one
  bool operator==(const Reading&) const = default;
};

Reading read_in_pieces(std::string_view bytes, size_t piece) {
  gpt::http::ChunkedBody body(kMostBody, kMostTrailer);
  std::string received;
  try {
    while (!bytes.empty()) {
      received += bytes.substr(0, piece);
      bytes.remove_prefix(std::min(piece, bytes.size()));
      if (body.take(received)) return {.is_whole = true, .body = body.text(), .rest = received.append(bytes)};
    }
  } catch (const gpt::http::Refusal& refusal) { return {.status = refusal.status()}; }
  return {};
}

}  // namespace

// The first byte says how large the pieces are.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using gpt::fuzz::expect;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Reading whole = read_in_pieces(bytes, std::max<size_t>(bytes.size(), 1));
  expect(whole == read_in_pieces(bytes, 1 + data[0]), "the same in pieces");
  expect(whole.status == 0 || whole.status == 400 || whole.status == 413 || whole.status == 431,
         "a status that says that the client is at fault");
  expect(whole.body.size() <= kMostBody, "no body beyond the limit");
  expect(!whole.is_whole || bytes.ends_with(whole.rest), "what follows the body to be left");
  if (whole.is_whole) {
    std::string again;
    for (const char byte : whole.body) again += std::string("1\r\n") + byte + "\r\n";
    const Reading second = read_in_pieces(again + "0\r\n\r\n" + whole.rest, bytes.size());
    expect(second.body == whole.body && second.rest == whole.rest, "the same from what was understood");
  }
  return 0;
}
