// A request of HTTP/1.1 (RFC 9112), read strictly: what two readers could understand differently is refused.
#pragma once

#include <cstddef>
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
  std::string path;  // without what follows a '?'
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
  size_t body_bytes = 0;
  bool expects_continue = false;  // the client waits to be told that its body is wanted
};

// `text` ends with the empty line. Throws Refusal, also for a body of more than `most_body` bytes.
Head parse_head(std::string_view text, size_t most_body);

}  // namespace gpt::http
