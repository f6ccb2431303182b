#include "gpt/http/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <system_error>

#include "connection.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/sockets.h"
#include "gpt/http/chunked_body.h"

namespace gpt::http {
namespace {

constexpr std::string_view kEmptyLine = "\r\n\r\n";

// Whoever connects and goes away before it is accepted must not make the server wait.
ListeningSocket listen_without_waiting(const std::string& host, uint16_t port) {
  try {
    const ListeningSocket listener = listen_at(host, port);
    fcntl(listener.fd, F_SETFL, fcntl(listener.fd, F_GETFL) | O_NONBLOCK);
    return listener;
  } catch (const Error& error) {
    throw Error(ExitCode::config, fmt::format("{}; choose another --host or --port", error.what()));
  }
}

}  // namespace

bool is_loopback(const std::string& host) {
  in_addr address{};
  in6_addr long_address{};
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) return ntohl(address.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, host.c_str(), &long_address) == 1) return IN6_IS_ADDR_LOOPBACK(&long_address);
  return host == "localhost";
}

Server::Server(const std::string& host, uint16_t port, const Limits& limits, Handler& handler)
    : limits_(limits), handler_(handler) {
  const ListeningSocket listener = listen_without_waiting(host, port);
  listener_ = listener.fd, port_ = listener.port;
  stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  acceptor_ = std::thread(&Server::accept_all, this);
}

Server::~Server() {
  stop();
  ::close(listener_);
  ::close(stop_);
}

void Server::stop_accepting() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  const uint64_t one = 1;
  (void)!::write(stop_, &one, sizeof one);
  if (acceptor_.joinable()) acceptor_.join();
  ::shutdown(listener_, SHUT_RDWR);  // those who connect now are told so
}

bool Server::is_stopping() {
  const std::lock_guard lock(mutex_);
  return is_stopping_;
}

void Server::stop() {
  stop_accepting();
  std::unique_lock lock(mutex_);
  const auto all_ended = [this] { return open_.empty(); };
  if (changed_.wait_for(lock, std::chrono::seconds(3), all_ended)) return;
  for (const auto& [socket, state] : open_) ::shutdown(socket, SHUT_RDWR);  // readers that do not read
  changed_.wait(lock, all_ended);
}

void Server::accept_all() {
  for (;;) {
    pollfd events[] = {{listener_, POLLIN, 0}, {stop_, POLLIN, 0}};
    ::poll(events, 2, -1);
    if (events[1].revents != 0 || !make_room()) return;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) {
      start(socket);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      {
        const std::lock_guard lock(mutex_);
        close_longest_waiting();
      }
      ::poll(&events[1], 1, 100);  // until some connection ends
    }
  }
}

// For one more connection. While all are being answered, the system keeps those who connect. False where the server stops.
bool Server::make_room() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_ && open_.size() >= limits_.connections) {
    say_full();
    close_longest_waiting();
    changed_.wait_for(lock, limits_.rest);
  }
  return !is_stopping_;
}

// One at a time: those who connect and ask for nothing would keep everybody else out. What it has sent by now is still answered.
void Server::close_longest_waiting() {
  auto longest = open_.end();
  for (auto one = open_.begin(); one != open_.end(); ++one) {
    if (one->second.is_closing) return;
    if (one->second.waits_since && (longest == open_.end() || one->second.waits_since < longest->second.waits_since))
      longest = one;
  }
  if (longest == open_.end() || Clock::now() < *longest->second.waits_since + limits_.rest) return;
  longest->second.is_closing = true;
  ::shutdown(longest->first, SHUT_RD);
}

void Server::say_full() {
  const auto now = Clock::now();
  if (was_full_ && now < *was_full_ + std::chrono::minutes(1)) return;
  was_full_ = now;
  log::warn(
      fmt::format("All {} connections are in use: for each further one the one that has waited longest for a request "
                  "is closed",
                  limits_.connections));
}

void Server::start(int socket) {
  const std::lock_guard lock(mutex_);
  try {
    open_[socket] = {.waits_since = Clock::now()};
    std::thread(&Server::serve, this, socket).detach();
  } catch (const std::system_error&) {  // no thread: the client sees its connection closed
    open_.erase(socket);
    ::close(socket);
  }
}

void Server::set_waiting(int socket, bool is_waiting) {
  const std::lock_guard lock(mutex_);
  Open& connection = open_[socket];
  if (!is_waiting) {
    connection = {};
  } else if (!connection.waits_since) {
    connection.waits_since = Clock::now();
  }
  changed_.notify_all();
}

// Nothing where the client has sent no further one.
std::optional<Request> Server::read_request(Connection& connection, std::string& buffer) {
  if (buffer.empty() && !connection.read(buffer, Clock::now() + limits_.idle)) return std::nullopt;
  const auto deadline = Clock::now() + limits_.request;
  const auto read_more = [&] {
    if (connection.read(buffer, deadline)) return;
    if (Clock::now() >= deadline) throw Refusal(408, "the request took too long to arrive");
    if (is_stopping()) throw Refusal(503, "the server is stopping");
    throw Refusal(400, "the request ended before it was complete");
  };
  size_t end;
  while ((end = buffer.find(kEmptyLine)) == std::string::npos && buffer.size() <= limits_.head_bytes) read_more();
  if (end == std::string::npos || end > limits_.head_bytes)
    throw Refusal(431, fmt::format("the headers are too long: they may have {} bytes", limits_.head_bytes));
  Head head = parse_head(std::string_view(buffer).substr(0, end), limits_.body_bytes);
  buffer.erase(0, end + kEmptyLine.size());
  if (head.expects_continue && buffer.size() < head.body_bytes + (head.has_chunks ? 1 : 0))
    connection.write("HTTP/1.1 100 Continue\r\n\r\n", deadline);
  if (head.has_chunks) {
    ChunkedBody body(limits_.body_bytes, limits_.head_bytes);
    while (!body.take(buffer)) read_more();
    head.request.body = std::move(body.text());
  } else {
    while (buffer.size() < head.body_bytes) read_more();
    head.request.body = buffer.substr(0, head.body_bytes);
    buffer.erase(0, head.body_bytes);
  }
  return std::move(head.request);
}

void Server::serve(int socket) {
  std::optional<Connection> connection(std::in_place, socket, stop_);
  std::string buffer;
  int64_t left = limits_.requests;
  while (left > 0 && answer_next(*connection, buffer, --left > 0)) {}
  connection->linger();
  const std::lock_guard lock(mutex_);
  connection.reset();  // its number may be the next one's
  open_.erase(socket);
  changed_.notify_all();
}

// Whether the connection goes on.
bool Server::answer_next(Connection& connection, std::string& buffer, bool may_go_on) {
  Responder responder(connection, limits_.write, limits_.silence);
  try {
    set_waiting(connection.socket(), true);
    const std::optional<Request> request = read_request(connection, buffer);
    set_waiting(connection.socket(), false);
    if (!request) return false;
    responder.answer_to(*request, request->keeps_alive && may_go_on);
    handler_.answer(*request, responder);
  } catch (const Refusal& refusal) {
    set_waiting(connection.socket(), false);
    Request unread;
    if (buffer.starts_with("HEAD ")) unread.method = "HEAD";
    responder.answer_to(unread, /*keeps_alive=*/false);
    handler_.refuse(refusal, responder);
  } catch (const std::exception& e) {
    if (responder.status() == 0) handler_.refuse(Refusal(500, first_line(e.what())), responder);
  }
  return responder.keeps_alive();
}

}  // namespace gpt::http
