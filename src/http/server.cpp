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
#include "gpt/core/sockets.h"

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
  ended_.notify_all();
  const uint64_t one = 1;
  (void)!::write(stop_, &one, sizeof one);
  if (acceptor_.joinable()) acceptor_.join();
  ::shutdown(listener_, SHUT_RDWR);  // those who connect now are told so
}

void Server::stop() {
  stop_accepting();
  std::unique_lock lock(mutex_);
  const auto all_ended = [this] { return sockets_.empty(); };
  if (ended_.wait_for(lock, std::chrono::seconds(3), all_ended)) return;
  for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);  // readers that do not read
  ended_.wait(lock, all_ended);
}

void Server::accept_all() {
  while (wait_for_room()) {
    pollfd events[] = {{listener_, POLLIN, 0}, {stop_, POLLIN, 0}};
    ::poll(events, 2, -1);
    if (events[1].revents != 0) return;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) {
      start(socket);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      ::poll(&events[1], 1, 100);  // until some connection ends
    }
  }
}

// For one more connection; until then the system keeps those who connect. False where the server stops.
bool Server::wait_for_room() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return is_stopping_ || sockets_.size() < limits_.connections; });
  return !is_stopping_;
}

void Server::start(int socket) {
  const std::lock_guard lock(mutex_);
  try {
    sockets_.insert(socket);
    std::thread(&Server::serve, this, socket).detach();
  } catch (const std::system_error&) {  // no thread: the client sees its connection closed
    sockets_.erase(socket);
    ::close(socket);
  }
}

// Nothing where the client has sent no further one.
std::optional<Request> Server::read_request(Connection& connection, std::string& buffer) {
  const auto too_slow = [] { return Refusal(408, "the request took too long to arrive"); };
  if (buffer.empty() && !connection.read(buffer, Clock::now() + limits_.idle)) return std::nullopt;
  const auto deadline = Clock::now() + limits_.request;
  size_t end;
  while ((end = buffer.find(kEmptyLine)) == std::string::npos) {
    if (buffer.size() > limits_.head_bytes) break;
    if (!connection.read(buffer, deadline)) throw too_slow();
  }
  if (end == std::string::npos || end > limits_.head_bytes)
    throw Refusal(431, fmt::format("the headers are too long: they may have {} bytes", limits_.head_bytes));
  Head head = parse_head(std::string_view(buffer).substr(0, end), limits_.body_bytes);
  buffer.erase(0, end + kEmptyLine.size());
  if (head.expects_continue && buffer.size() < head.body_bytes)
    connection.write("HTTP/1.1 100 Continue\r\n\r\n", deadline);
  while (buffer.size() < head.body_bytes)
    if (!connection.read(buffer, deadline)) throw too_slow();
  head.request.body = buffer.substr(0, head.body_bytes);
  buffer.erase(0, head.body_bytes);
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
  sockets_.erase(socket);
  ended_.notify_all();
}

// Whether the connection goes on.
bool Server::answer_next(Connection& connection, std::string& buffer, bool may_go_on) {
  Responder responder(connection, limits_.write);
  try {
    const std::optional<Request> request = read_request(connection, buffer);
    if (!request) return false;
    responder.answer_to(*request, request->keeps_alive && may_go_on);
    handler_.answer(*request, responder);
  } catch (const Refusal& refusal) {
    responder.answer_to({}, /*keeps_alive=*/false);
    handler_.refuse(refusal, responder);
  } catch (const std::exception& e) {
    if (responder.status() == 0) handler_.refuse(Refusal(500, first_line(e.what())), responder);
  }
  return responder.keeps_alive();
}

}  // namespace gpt::http
