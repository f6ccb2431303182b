// The answer to one request: sent whole, or as a stream whose pieces reach the client at once.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "gpt/http/request.h"

namespace gpt::http {

class Connection;

class Responder {
 public:
  // `patience`: with a client, for each piece; `silence`: of one that sends no more, before it is asked whether it is there.
  Responder(Connection& connection, std::chrono::milliseconds patience, std::chrono::milliseconds silence)
      : connection_(connection), patience_(patience), silence_(silence) {}

  void send(int status, std::string_view content_type, std::string_view body, const std::vector<Header>& more = {});
  void begin_stream(std::string_view content_type);
  bool write(std::string_view piece);  // of the stream; false once the client has gone or has not read for too long
  void end_stream();

  // Asked again and again while an answer is computed.
  bool client_has_gone();
  int status() const { return status_; }  // 0 before anything was sent

  // Called by the server: what the client understands, and whether it may send another request.
  void answer_to(const Request& request, bool keeps_alive);
  bool keeps_alive() const { return keeps_alive_ && is_complete_; }

 private:
  void begin(int status, std::string_view content_type, const std::vector<Header>& more);
  bool put(std::string_view bytes);
  void ask_silent_client();

  Connection& connection_;
  const std::chrono::milliseconds patience_, silence_;
  std::optional<std::chrono::steady_clock::time_point> silent_since_;
  bool keeps_alive_ = false, in_chunks_ = true, has_body_ = true, was_asked_ = false;
  bool is_complete_ = false, is_broken_ = false;
  int status_ = 0;
};

}  // namespace gpt::http
