#include "gpt/http/request.h"

#include <gtest/gtest.h>

#include <string>

namespace gpt::http {
namespace {

constexpr size_t kMost = 1000;

Head parse(const std::string& text) { return parse_head(text, kMost); }

int refusal_of(const std::string& text) {
  try {
    parse(text);
  } catch (const Refusal& refusal) { return refusal.status(); }
  return 0;
}

std::string post(const std::string& headers) { return "POST / HTTP/1.1\r\nHost: a\r\n" + headers; }

TEST(Request, IsReadWithItsHeaders) {
  const Head head =
      parse("POST /v1/completions?x=1 HTTP/1.1\r\nHost: a:80\r\nX-Name: \t one, two \r\ncontent-length: 12");
  EXPECT_EQ(head.request.method, "POST");
  EXPECT_EQ(head.request.path, "/v1/completions");
  EXPECT_EQ(head.request.query, "x=1");
  EXPECT_EQ(*head.request.header("host"), "a:80");
  EXPECT_EQ(*head.request.header("x-name"), "one, two");
  EXPECT_EQ(head.request.header("x-nam"), nullptr);
  EXPECT_EQ(head.body_bytes, 12);
  EXPECT_TRUE(head.request.keeps_alive && head.request.understands_chunks);
  EXPECT_FALSE(head.expects_continue);
  EXPECT_EQ(parse("GET http://a/health HTTP/1.1\r\nHost: a").request.path, "/health");  // as proxies write it
  EXPECT_EQ(parse("GET /?a=/b?c#d?e HTTP/1.1\r\nHost: a").request.query, "a=/b?c");
  EXPECT_EQ(parse("GET /#d?e HTTP/1.1\r\nHost: a").request.query, "");
  EXPECT_EQ(parse("GET http://[::1]:80/ HTTP/1.0").request.host, "::1");
}

TEST(Request, SaysWhetherTheConnectionGoesOn) {
  const auto keeps_alive = [](const std::string& version, const std::string& header) {
    return parse("GET / " + version + "\r\nHost: a" + header).request.keeps_alive;
  };
  EXPECT_TRUE(keeps_alive("HTTP/1.1", ""));
  EXPECT_FALSE(keeps_alive("HTTP/1.1", "\r\nConnection: Close"));
  EXPECT_FALSE(keeps_alive("HTTP/1.1", "\r\nConnection: x, close"));
  EXPECT_FALSE(keeps_alive("HTTP/1.0", ""));
  EXPECT_TRUE(keeps_alive("HTTP/1.0", "\r\nConnection: keep-alive"));
  EXPECT_FALSE(parse("GET / HTTP/1.0").request.understands_chunks);
  EXPECT_TRUE(parse(post("Content-Length: 3\r\nExpect: 100-Continue")).expects_continue);
}

TEST(Request, IsRefusedWhereItIsNone) {
  for (const char* text :
       {"", "GET", "GET /", "GET / HTTP/1.1", "GET / FTP/1.1\r\nHost: a", "G@T / HTTP/1.1\r\nHost: a",
        "GET x HTTP/1.1\r\nHost: a", "GET /a b HTTP/1.1\r\nHost: a", "GET /\x01 HTTP/1.1\r\nHost: a",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b", "GET / HTTP/1.1\r\nHost: a\r\nNoColon",
        "GET / HTTP/1.1\r\nHost: a\r\n folded: 1", "GET http:///x HTTP/1.1\r\nHost: a",
        "GET http://b/ HTTP/1.1\r\nHost: a", "GET http://u@a/ HTTP/1.1\r\nHost: a", "GET / HTTP/1.1\r\nHost: http://a",
        "GET / HTTP/1.1\r\nHost : a", "GET / HTTP/1.1\r\nHost: a\x7f", "GET / HTTP/1.1\nHost: a"}) {
    EXPECT_EQ(refusal_of(text), 400) << text;
  }
  EXPECT_EQ(refusal_of(std::string("GET / HTTP/1.1\r\nHost: a\0b", 25)), 400);
  EXPECT_EQ(refusal_of("GET / HTTP/2.0\r\nHost: a"), 505);
  EXPECT_EQ(refusal_of(post("Content-Length: 1\r\nExpect: tea")), 417);
}

// Where two readers see different lengths, one takes the rest of a body for another client's request.
TEST(Request, HasOneLength) {
  EXPECT_EQ(refusal_of(post("Content-Length: 1000")), 0);
  EXPECT_EQ(refusal_of(post("Content-Length: 1001")), 413);
  EXPECT_EQ(refusal_of(post("Content-Length: 99999999999999999999999")), 413);
  EXPECT_EQ(refusal_of(post("X: y")), 411);
  EXPECT_EQ(refusal_of(post("Content-Length: 3\r\nTransfer-Encoding: chunked")), 400);
  EXPECT_EQ(refusal_of(post("Transfer-Encoding: chunked\r\nContent-Length: 3")), 400);
  for (const char* wrong : {"gzip", "gzip, chunked", "chunked, chunked", "", "chunked\r\nTransfer-Encoding: chunked"})
    EXPECT_EQ(refusal_of(post("Transfer-Encoding: " + std::string(wrong))), 501) << wrong;
  EXPECT_EQ(refusal_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked"), 501);
  EXPECT_TRUE(parse(post("Transfer-Encoding: Chunked")).has_chunks);
  for (const char* wrong : {"", "-1", "+1", "1 ", "0x1", "1,1", "1\r\nContent-Length: 1"})
    EXPECT_EQ(refusal_of(post("Content-Length: " + std::string(wrong))), std::string(wrong) == "1 " ? 0 : 400) << wrong;
}

// Nothing but a name counts: a page that a browser on this machine shows may be at http://anything@127.0.0.1.
TEST(HostName, IsANameOrAnAddress) {
  const auto read = [](const char* text) { return host_name(text).value_or("none"); };
  EXPECT_EQ(read("LocalHost:8080"), "localhost");
  EXPECT_EQ(read("a_b-c.example.org"), "a_b-c.example.org");
  EXPECT_EQ(read("127.0.0.1:"), "127.0.0.1");
  EXPECT_EQ(read("[::FFFF:7f00:1]:1"), "::ffff:7f00:1");
  for (const char* wrong :
       {"", ":80", "::1", "[::1", "[::1]x", "[x]", "[127.0.0.1]", "a:b", "a:123456", "a b", "a/b", "x@127.0.0.1",
        "http://127.0.0.1", "evil://127.0.0.1:80", "127.0.0.1:80:80", "a,b", "%61", "\xc3\xa4"})
    EXPECT_EQ(read(wrong), "none") << wrong;
  EXPECT_FALSE(host_name(std::string_view("[::1\0x]", 8)));
}

}  // namespace
}  // namespace gpt::http
