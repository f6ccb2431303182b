// What precedes the body of a request, from anybody who can connect.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "expect.h"
#include "gpt/http/request.h"

namespace {

using gpt::http::Head;
using gpt::http::Header;

std::string written(const Head& head) {
  const std::string& host = head.request.host;
  const bool is_address = host.find(':') != std::string::npos;
  std::string text = head.request.method + " " +
                     (host.empty() ? "" : "http://" + (is_address ? "[" + host + "]" : host)) + head.request.path +
                     (head.request.understands_chunks ? " HTTP/1.1\r\n" : " HTTP/1.0\r\n");
  for (const Header& header : head.request.headers) text += header.name + ": " + header.value + "\r\n";
  return text + "\r\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpt;
  constexpr size_t kMostBody = 1000;
  Head head;
  try {
    head = http::parse_head({reinterpret_cast<const char*>(data), size}, kMostBody);
  } catch (const http::Refusal& refusal) {
    fuzz::expect(refusal.status() >= 400 && refusal.status() < 600, "a status that says whose fault it is");
    return 0;
  }
  fuzz::expect(head.body_bytes <= kMostBody, "no body beyond the limit");
  fuzz::expect(!head.request.method.empty() && head.request.path.starts_with('/'), "a method and a path");
  for (const Header& header : head.request.headers) {
    fuzz::expect(header.name != "transfer-encoding" || (head.has_chunks && head.body_bytes == 0),
                 "one way to tell where the body ends");
    fuzz::expect(header.value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos,
                 "one line for a header");
  }
  // What another reader makes of it when it is written again, this one makes of it too.
  const Head again = http::parse_head(written(head), kMostBody);
  fuzz::expect(again.request.method == head.request.method && again.request.path == head.request.path &&
                   again.request.host == head.request.host && again.has_chunks == head.has_chunks &&
                   again.body_bytes == head.body_bytes && again.expects_continue == head.expects_continue &&
                   again.request.keeps_alive == head.request.keeps_alive &&
                   again.request.headers.size() == head.request.headers.size(),
               "the same from what was understood");
  return 0;
}
