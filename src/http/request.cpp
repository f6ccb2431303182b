#include "gpt/http/request.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

namespace gpt::http {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

[[noreturn]] void refuse(const std::string& message, int status = 400) { throw Refusal(status, message); }

// Names of methods and headers (RFC 9110, section 5.6.2).
bool is_token(std::string_view text) {
  const auto belongs = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), belongs);
}

bool is_control(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F; }

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Whether a list such as "keep-alive, upgrade" has the word.
bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (lower(without_blanks(list.substr(0, comma))) == word) return true;
    list = comma == std::string_view::npos ? "" : list.substr(comma + 1);
  }
  return false;
}

// The authority of a target such as http://AUTHORITY/PATH, as proxies are asked, which is taken off.
std::string_view take_authority(std::string_view& target) {
  constexpr std::string_view kScheme = "http://";
  if (!target.starts_with(kScheme)) return "";
  target.remove_prefix(kScheme.size());
  const std::string_view authority = target.substr(0, target.find('/'));
  target.remove_prefix(authority.size());
  if (authority.empty()) refuse("the request line names no host");
  return authority;
}

// Returns the authority that the line names, or an empty text.
std::string_view parse_request_line(std::string_view line, Request& request) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) refuse("the request line is not METHOD PATH HTTP/1.1");
  const std::string_view version = line.substr(last + 1);
  std::string_view target = line.substr(first + 1, last - first - 1);
  request.method = line.substr(0, first);
  if (!is_token(request.method)) refuse("the request line does not begin with a method");
  if (!version.starts_with("HTTP/")) refuse("the request line is not METHOD PATH HTTP/1.1");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") refuse("only HTTP/1.1 and HTTP/1.0 are spoken here", 505);
  request.understands_chunks = request.keeps_alive = version == "HTTP/1.1";
  const std::string_view authority = take_authority(target);
  const auto is_stray = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7F; };
  if (!target.starts_with('/') || std::any_of(target.begin(), target.end(), is_stray))
    refuse("the path must begin with / and have no spaces");
  request.path = target.substr(0, target.find_first_of("?#"));
  target.remove_prefix(request.path.size());
  if (target.starts_with('?')) request.query = target.substr(1, target.find('#') - 1);
  return authority;
}

// Whom the client means must be clear, because pages of other sites are told by it.
void read_host(std::string_view authority, Request& request) {
  const auto is_host = [](const Header& header) { return header.name == "host"; };
  const auto hosts = std::count_if(request.headers.begin(), request.headers.end(), is_host);
  if (hosts > 1 || (hosts == 0 && request.understands_chunks)) refuse("there must be one Host header");
  for (const std::string_view text : {authority, hosts ? std::string_view(*request.header("host")) : ""}) {
    if (text.empty()) continue;
    const std::optional<std::string> host = host_name(text);
    if (!host) refuse("the host is not NAME or NAME:PORT");
    if (!request.host.empty() && *host != request.host) refuse("the request line and the Host header name two hosts");
    request.host = *host;
  }
}

// Two readers must not have two opinions of the length: one of them would take the rest for another request.
void read_length(size_t most, Head& head) {
  const Request& request = head.request;
  bool has_length = false;
  for (const Header& header : request.headers) {
    if (header.name == "transfer-encoding") {
      if (head.has_chunks || !request.understands_chunks || lower(header.value) != "chunked")
        refuse("the only Transfer-Encoding that is understood is chunked, once and of HTTP/1.1", 501);
      head.has_chunks = true;
    }
    if (header.name != "content-length") continue;
    if (has_length) refuse("there are two lengths of the body");
    const char* const end = header.value.data() + header.value.size();
    const auto [parsed, error] = std::from_chars(header.value.data(), end, head.body_bytes);
    if (parsed != end || header.value.empty() || error == std::errc::invalid_argument)
      refuse("the Content-Length is not a number");
    if (error == std::errc::result_out_of_range || head.body_bytes > most) throw body_too_long(most);
    has_length = true;
  }
  if (has_length && head.has_chunks) refuse("the body has a Content-Length and is in chunks: send one of them");
  if (!has_length && !head.has_chunks && request.method == "POST") refuse("the Content-Length is missing", 411);
}

}  // namespace

Refusal body_too_long(size_t most) {
  return {413, "the body is too long: it may have " + std::to_string(most) + " bytes"};
}

Header parse_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) refuse("a header is not NAME: VALUE");
  const std::string_view value = without_blanks(line.substr(colon + 1));
  if (std::any_of(value.begin(), value.end(), is_control)) refuse("a header holds a control character");
  return {lower(line.substr(0, colon)), std::string(value)};
}

std::optional<std::string> host_name(std::string_view text) {
  const bool has_brackets = text.starts_with('[');
  const size_t end = has_brackets ? text.find(']') : text.find(':');
  if (has_brackets && end == std::string_view::npos) return std::nullopt;
  const std::string_view port = end == std::string_view::npos ? "" : text.substr(end + (has_brackets ? 1 : 0));
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!port.empty() &&
      (!port.starts_with(':') || port.size() > 6 || !std::all_of(port.begin() + 1, port.end(), is_digit)))
    return std::nullopt;
  const std::string host = lower(has_brackets ? text.substr(1, end - 1) : text.substr(0, end));
  in6_addr address{};
  const auto belongs = [&](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || std::string_view(".-_:").find(c) != std::string_view::npos;
  };
  if (host.empty() || !std::all_of(host.begin(), host.end(), belongs)) return std::nullopt;
  if (has_brackets && inet_pton(AF_INET6, host.c_str(), &address) != 1) return std::nullopt;
  return host;
}

const std::string* Request::header(std::string_view name) const {
  const auto is_it = [name](const Header& header) { return header.name == name; };
  const auto found = std::find_if(headers.begin(), headers.end(), is_it);
  return found == headers.end() ? nullptr : &found->value;
}

Head parse_head(std::string_view text, size_t most_body) {
  Head head;
  Request& request = head.request;
  std::string_view authority;
  for (bool is_first = true; !text.empty(); is_first = false) {
    const size_t end = text.find(kLineEnd);
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? "" : text.substr(end + kLineEnd.size());
    if (is_first) {
      authority = parse_request_line(line, request);
    } else if (!line.empty()) {
      request.headers.push_back(parse_header(line));
    }
  }
  read_host(authority, request);
  read_length(most_body, head);
  if (const std::string* connection = request.header("connection")) {
    if (has_word(*connection, "close")) request.keeps_alive = false;
    if (has_word(*connection, "keep-alive")) request.keeps_alive = request.keeps_alive || !request.understands_chunks;
  }
  if (const std::string* expected = request.header("expect")) {
    if (lower(*expected) != "100-continue") refuse("only Expect: 100-continue is understood", 417);
    head.expects_continue = request.understands_chunks;
  }
  return head;
}

}  // namespace gpt::http
