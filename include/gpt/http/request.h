// A request of HTTP/1.1 (RFC 9112), read strictly: what two readers could understand differently is refused.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::http {

struct Header {
  std::string name;  // of a request: in lower case
  std::string value;
};

struct Request {
  std::string method;
  std::string path;   // without what follows a '?'
  std::string query;  // that; it may hold a token, and belongs into no log
  std::string host;   // whom the client means, as host_name() reads it; empty where it does not say
  std::vector<Header> headers;
  std::string body;
  bool understands_chunks = true;  // not of HTTP/1.0
  bool keeps_alive = true;         // its client may send another one over the connection

  const std::string* header(
      std::string_view name) const;  // the first of that name, in lower case; nullptr where there is none
};

// A request that gets no further than this.
class Refusal : public std::runtime_error {
 public:
  Refusal(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// All before the body.
struct Head {
  Request request;
  bool has_chunks = false;        // the body is a ChunkedBody
  size_t body_bytes = 0;          // of one that is not
  bool expects_continue = false;  // the client waits to be told that its body is wanted
};

// The name or address of HOST or HOST:PORT (RFC 3986, section 3.2), in lower case and without the brackets of IPv6; nothing where the text is
// neither.
std::optional<std::string> host_name(std::string_view text);

// What a body of more bytes than that is refused with.
Refusal body_too_long(size_t most);

// NAME: VALUE. Throws Refusal.
Header parse_header(std::string_view line);

// `text` ends with the empty line. Throws Refusal, also for a body of more than `most_body` bytes.
Head parse_head(std::string_view text, size_t most_body);

}  // namespace gpt::http
