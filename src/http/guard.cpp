#include "gpt/http/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "gpt/http/server.h"

namespace gpt::http {
namespace {

// Whether the page that asks, http://HOST:PORT, comes from where it asks.
bool is_own_page(std::string_view origin, const std::string& host) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.starts_with(scheme)) return host_name(origin.substr(scheme.size())) == host;
  return false;
}

}  // namespace

std::optional<std::string> why_foreign(const Request& request, bool has_key, std::string_view key) {
  const std::string* const origin = request.header("origin");
  if (origin && !is_own_page(*origin, request.host)) return "pages of other sites may not ask this server";
  const bool names_host = !request.host.empty() || request.header("host");
  if (!has_key && names_host && !is_loopback(request.host))
    return fmt::format("without {} this server answers only as 127.0.0.1 or localhost", key);
  return std::nullopt;
}

bool is_same_key(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |=
        static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key[key.empty() ? 0 : i % key.size()]);
  return difference == 0 && !key.empty();
}

std::string_view bearer_key(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  const auto is_same = [](char wanted, char given) { return given == wanted || (given | 0x20) == wanted; };
  if (authorization.size() < kScheme.size() ||
      !std::equal(kScheme.begin(), kScheme.end() - 1, authorization.begin(), is_same) ||
      authorization[kScheme.size() - 1] != ' ')
    return "";
  return authorization.substr(std::min(authorization.find_first_not_of(' ', kScheme.size()), authorization.size()));
}

std::string unescaped(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char* const digits = text.data() + i + 1;
    unsigned char byte = 0;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      result += static_cast<char>(byte);
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          std::string_view("-_.~").find(c) != std::string_view::npos;
    result += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

std::optional<std::string> value_in_query(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(part.size() + 1, query.size()));
    if (part.starts_with(name) && part.size() > name.size() && part[name.size()] == '=')
      return unescaped(part.substr(name.size() + 1));
  }
  return std::nullopt;
}

}  // namespace gpt::http
