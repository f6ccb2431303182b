#include "gpt/http/responder.h"

#include <fmt/format.h>

#include <ctime>
#include <string>

#include "connection.h"

namespace gpt::http {
namespace {

std::string_view reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Internal Server Error";
  }
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  static constexpr const char *kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"},
                              *kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon],
                     utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace

void Responder::answer_to(const Request& request, bool keeps_alive) {
  in_chunks_ = request.understands_chunks;
  has_body_ = request.method != "HEAD";
  keeps_alive_ = keeps_alive;
}

void Responder::begin(int status, std::string_view content_type, const std::vector<Header>& more) {
  status_ = status;
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nContent-Type: {}\r\nX-Content-Type-Options: nosniff\r\n", status,
                  reason(status), date(), content_type);
  for (const Header& header : more) head += fmt::format("{}: {}\r\n", header.name, header.value);
  head += keeps_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  put(head);
}

void Responder::send(int status, std::string_view content_type, std::string_view body,
                     const std::vector<Header>& more) {
  std::vector<Header> headers = more;
  headers.push_back({"Content-Length", std::to_string(body.size())});
  begin(status, content_type, headers);
  if (has_body_) put(body);
  is_complete_ = !is_broken_;
}

void Responder::begin_stream(std::string_view content_type) {
  if (!in_chunks_) keeps_alive_ = false;  // the end of the connection is that of the stream
  std::vector<Header> headers = {{"Cache-Control", "no-store"}};
  if (in_chunks_) headers.push_back({"Transfer-Encoding", "chunked"});
  begin(200, content_type, headers);
}

bool Responder::write(std::string_view piece) {
  if (piece.empty()) return !is_broken_;  // an empty chunk would be the end
  return put(in_chunks_ ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : std::string(piece));
}

void Responder::end_stream() {
  if (in_chunks_) put("0\r\n\r\n");
  is_complete_ = !is_broken_;
}

// One that only sends no more is there until something cannot be delivered to it.
bool Responder::client_has_gone() {
  if (!is_broken_ && connection_.sends_no_more()) ask_silent_client();
  return is_broken_ || connection_.is_broken();
}

// Before an answer has begun, a 100 (Continue) changes nothing for a client that is there (RFC 9110, section 15.2), and the system of one
// that has closed its connection refuses it.
void Responder::ask_silent_client() {
  const auto now = Clock::now();
  if (!silent_since_) silent_since_ = now;
  if (was_asked_ || status_ != 0 || !in_chunks_ || now < *silent_since_ + silence_) return;
  was_asked_ = true;
  put("HTTP/1.1 100 Continue\r\n\r\n");
}

bool Responder::put(std::string_view bytes) {
  if (!is_broken_) is_broken_ = !connection_.write(bytes, Clock::now() + patience_);
  return !is_broken_;
}

}  // namespace gpt::http
