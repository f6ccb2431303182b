#include "gpt/http/chunked_body.h"

#include <gtest/gtest.h>

#include <string>

#include "gpt/http/request.h"

namespace gpt::http {
namespace {

constexpr size_t kMostBody = 20, kMostTrailer = 30;

// "BODY|REST" of a whole body, "more" of the beginning of one, or the status with which it is refused; fed in pieces of that size.
std::string read_chunks(const std::string& bytes, size_t piece = 1000) {
  ChunkedBody body(kMostBody, kMostTrailer);
  std::string received;
  try {
    for (size_t i = 0; i < bytes.size(); i += piece) {
      received += bytes.substr(i, piece);
      if (body.take(received)) return body.text() + "|" + received + bytes.substr(std::min(i + piece, bytes.size()));
    }
  } catch (const Refusal& refusal) { return std::to_string(refusal.status()); }
  return "more";
}

TEST(ChunkedBody, IsPutTogether) {
  const std::string body = "3\r\nabc\r\n00A;x=\"y\" ; z\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET";
  for (size_t piece = 1; piece <= body.size(); ++piece)
    EXPECT_EQ(read_chunks(body, piece), "abc0123456789|GET") << piece;
  EXPECT_EQ(read_chunks("0\r\n\r\n"), "|");
  EXPECT_EQ(read_chunks("1\r\na\r\n0\r\n"), "more");
}

TEST(ChunkedBody, IsRefusedWhereTwoReadersCouldDiffer) {
  for (const char* wrong : {"x\r\n", "\r\n", ";a\r\n", "-1\r\n", "+1\r\n", "0x1\r\na\r\n", " 1\r\na\r\n", "1 \r\na\r\n",
                            "1 2\r\na\r\n", "1\na\r\n\r\n", "1;\x01\r\na\r\n", "1;a\nb\r\na\r\n", "1\r\nab\r\n",
                            "1\r\na\n\n", "0\r\nnone\r\n\r\n", "0\r\n: x\r\n\r\n", "0\r\n folded\r\n\r\n"})
    EXPECT_EQ(read_chunks(wrong), "400") << wrong;
}

TEST(ChunkedBody, HasTheLimitsOfOthers) {
  EXPECT_EQ(read_chunks("14\r\n" + std::string(20, 'a') + "\r\n0\r\n\r\n"), std::string(20, 'a') + "|");
  for (const char* wrong :
       {"15\r\n", "13\r\naaaaaaaaaaaaaaaaaaa\r\n2\r\n", "ffffffffffffffff\r\n", "10000000000000000\r\n"})
    EXPECT_EQ(read_chunks(wrong), "413") << wrong;
  EXPECT_EQ(read_chunks(std::string(300, '0')), "400");
  EXPECT_EQ(read_chunks("0\r\nX: " + std::string(100, 'y')), "431");
  EXPECT_EQ(read_chunks("0\r\na:" + std::string(20, 'y') + "\r\nb:" + std::string(20, 'y') + "\r\n\r\n"), "431");
}

}  // namespace
}  // namespace gpt::http
