#include "gpt/http/guard.h"

#include <gtest/gtest.h>

#include <string>

namespace gpt::http {
namespace {

Request request_to(const std::string& host, const std::string& origin = "") {
  std::string head = "GET /events?token=a HTTP/1.1\r\nHost: " + host + "\r\n";
  if (!origin.empty()) head += "Origin: " + origin + "\r\n";
  return parse_head(head + "\r\n", 0).request;
}

TEST(Guard, PagesOfOtherSitesAreForeign) {
  EXPECT_FALSE(why_foreign(request_to("127.0.0.1:8090"), false, "a token"));
  EXPECT_FALSE(why_foreign(request_to("localhost", "http://localhost"), false, "a token"));
  EXPECT_FALSE(why_foreign(request_to("[::1]:8090"), false, "a token"));
  EXPECT_EQ(why_foreign(request_to("127.0.0.1", "http://evil.example"), false, "a token"),
            "pages of other sites may not ask this server");
  EXPECT_TRUE(why_foreign(request_to("127.0.0.1", "null"), false, "a token"));
}

TEST(Guard, WithoutAKeyOnlyNamesOfThisMachineAreAnswered) {
  EXPECT_EQ(why_foreign(request_to("evil.example:8090"), false, "a token"),
            "without a token this server answers only as 127.0.0.1 or localhost");
  EXPECT_TRUE(why_foreign(request_to("127.0.0.1.evil.example"), false, "a token"));
  EXPECT_FALSE(why_foreign(request_to("node7:8090"), true, "a token"));
  EXPECT_TRUE(why_foreign(request_to("node7:8090", "http://node8:8090"), true, "a token"));
}

TEST(Guard, KeysAreEqualInWhole) {
  EXPECT_TRUE(is_same_key("secret", "secret"));
  for (const char* other : {"", "secre", "secret2", "Secret", "secretsecret"})
    EXPECT_FALSE(is_same_key(other, "secret"));
  EXPECT_FALSE(is_same_key("", ""));
  EXPECT_EQ(bearer_key("bEARER  k"), "k");
  EXPECT_EQ(bearer_key("Basic k"), "");
}

TEST(Guard, FindsValuesInAQuery) {
  EXPECT_EQ(value_in_query("name=a%20b%2Fc&token=t", "name"), "a b/c");
  EXPECT_EQ(value_in_query("name=a&token=t", "token"), "t");
  EXPECT_EQ(value_in_query("token=", "token"), "");
  for (const char* query : {"", "&&", "tokens=t", "xtoken=t", "token"}) EXPECT_FALSE(value_in_query(query, "token"));
  EXPECT_EQ(unescaped("%zz%4"), "%zz%4");
  EXPECT_EQ(escaped("a b/ü&"), "a%20b%2F%C3%BC%26");
  EXPECT_EQ(unescaped(escaped("a b/ü&=%")), "a b/ü&=%");
}

}  // namespace
}  // namespace gpt::http
