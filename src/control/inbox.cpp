#include "gpt/control/inbox.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/surroundings.h"
#include "socket_address.h"

namespace gpt::control {
namespace {

using Clock = std::chrono::steady_clock;

constexpr mode_t kOwnerAlone = 0600;

int close_failed(int descriptor) {
  const int number = errno;
  if (descriptor >= 0) close(descriptor);
  errno = number;
  return -1;
}

// The name gets the mode that the socket has had before it was bound.
int bind_in(int folder) {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = address_in(folder);
  if (listener < 0 || fchmod(listener, kOwnerAlone) != 0) return close_failed(listener);
  if (unlinkat(folder, kSocketFile, 0) != 0 && errno != ENOENT) return close_failed(listener);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener, Inbox::kMostClients) != 0)
    return close_failed(listener);
  return listener;
}

}  // namespace

Inbox::Inbox(const std::string& folder, std::function<void()> stop, std::chrono::milliseconds patience)
    : stop_(std::move(stop)), patience_(patience), folder_(open_folder(folder)), listener_(open_socket(folder)) {
  if (listener_ < 0) return;
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ >= 0) thread_ = surroundings::thread_if_possible([this] { serve(); });
  if (!thread_.joinable()) log::warn(fmt::format("{} takes no requests: no thread can be started for them", folder));
}

Inbox::~Inbox() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  if (wake_ >= 0) eventfd_write(wake_, 1);
  if (thread_.joinable()) thread_.join();
  if (listener_ >= 0) unlinkat(folder_, kSocketFile, 0);
  for (const int descriptor : {folder_, listener_, wake_})
    if (descriptor >= 0) close(descriptor);
}

int Inbox::open_socket(const std::string& folder) {
  const int listener = folder_ < 0 ? -1 : bind_in(folder_);
  if (listener < 0)
    log::warn(fmt::format("{}/{} cannot be made ({}): the run takes no requests, and goes on", folder, kSocketFile,
                          std::generic_category().message(errno)));
  return listener;
}

bool Inbox::has_requests() const {
  const std::lock_guard lock(mutex_);
  return !requests_.empty();
}

bool Inbox::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return asked_.wait_for(lock, most, [this] { return !requests_.empty(); });
}

std::vector<Inbox::Asked> Inbox::take(size_t most) {
  const std::lock_guard lock(mutex_);
  const auto end = requests_.begin() + static_cast<std::ptrdiff_t>(std::min(most, requests_.size()));
  std::vector<Asked> taken(requests_.begin(), end);
  requests_.erase(requests_.begin(), end);
  return taken;
}

void Inbox::answer(uint64_t id, const Answer& answer) {
  {
    const std::lock_guard lock(mutex_);
    answers_.emplace_back(id, answer);
  }
  eventfd_write(wake_, 1);
}

// The buffer of a new connection has room for an answer, and one that nobody reads is lost.
void Inbox::say(int socket, const Answer& answer) {
  const std::string line = to_line(answer);
  (void)!send(socket, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  close(socket);
}

// Until the next client has been waited for long enough; -1: there is none.
int Inbox::milliseconds_left() const {
  std::optional<Clock::time_point> first;
  for (const Client& client : clients_)
    if (!client.has_asked) first = std::min(first.value_or(client.deadline), client.deadline);
  if (!first) return -1;
  return static_cast<int>(
      std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(*first - Clock::now()).count()));
}

void Inbox::serve() {
  for (bool is_over = false; !is_over;) {
    std::vector<pollfd> events{{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Client& client : clients_) events.push_back({client.has_asked ? -1 : client.socket, POLLIN, 0});
    if (poll(events.data(), events.size(), milliseconds_left()) < 0 && errno != EINTR) return;
    if (events[0].revents != 0) {
      eventfd_t ignored = 0;
      eventfd_read(wake_, &ignored);
    }
    const auto now = Clock::now();
    size_t at = 2;
    std::erase_if(clients_, [&](Client& client) {
      const bool has_said = events[at++].revents != 0;
      if (client.has_asked) return false;
      if (has_said) return !read_from(client);
      if (now < client.deadline) return false;
      say(client.socket, {false, "no request has come: send a line and its end"});
      return true;
    });
    if (events[1].revents != 0) accept_client();
    give_answers();
    const std::lock_guard lock(mutex_);
    is_over = is_over_;
  }
  for (const Client& client : clients_) say(client.socket, {false, "the run has ended"});
}

void Inbox::accept_client() {
  const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) return;  // it has gone
  if (clients_.size() == kMostClients)
    return say(socket, {false, "too many others are waiting for an answer: try again"});
  clients_.push_back({socket, ++last_id_, Clock::now() + patience_});
}

bool Inbox::read_from(Client& client) {
  char bytes[kMostBytes];
  const ssize_t count = recv(client.socket, static_cast<char*>(bytes), kMostBytes - client.text.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (count < 0 || (count == 0 && client.text.empty())) {
    close(client.socket);
    return false;
  }
  client.text.append(static_cast<char*>(bytes), static_cast<size_t>(count));
  const bool is_whole = count == 0 || client.text.find('\n') != std::string::npos;
  if (is_whole) return take_line(client);
  if (client.text.size() < kMostBytes) return true;
  say(client.socket, {false, fmt::format("a request has at most {} bytes", kMostBytes)});
  return false;
}

bool Inbox::take_line(Client& client) {
  Request request;
  try {
    request = read_request(std::string_view(client.text).substr(0, client.text.find('\n')));
  } catch (const Error& error) {
    say(client.socket, {false, error.what()});
    return false;
  }
  client.text.clear();
  if (request.verb == Verb::stop) {
    stop_();
    say(client.socket, {true, "the run ends as after Ctrl-C: it saves, and the same command goes on"});
    return false;
  }
  client.has_asked = true;
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back({client.id, request});
  }
  asked_.notify_all();
  return true;
}

void Inbox::give_answers() {
  std::vector<std::pair<uint64_t, Answer>> answers;
  {
    const std::lock_guard lock(mutex_);
    answers.swap(answers_);
  }
  for (const auto& [id, answer] : answers) {
    std::erase_if(clients_, [&, id = id, &answer = answer](const Client& client) {
      if (client.id != id) return false;
      say(client.socket, answer);
      return true;
    });
  }
}

}  // namespace gpt::control
