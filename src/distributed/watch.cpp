#include "gpt/distributed/watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/host_name.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/core/sockets.h"
#include "sockets.h"

namespace gpt::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

std::string own_name() { return fmt::format("PID {} on {}", getpid(), host_name()); }

// So that a stranger who finds the port is not taken for a process of the run.
std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// The messages, each a line: who somebody is, that somebody is there, ends as it should, ends because of an error, or warns of something,
// and, from the first process, whether it has been waiting for that one, and which one is lost.
constexpr std::string_view kHello = "hello ", kBeat = "beat", kEnd = "end", kFault = "fault ", kLost = "lost ",
                           kWarning = "warning ", kWelcome = "welcome", kRefused = "refused ";

// One connection, to a process that has said who it is or not yet.
struct Peer {
  int fd = -1;
  int64_t rank = -1;
  std::string name = {};
  std::string received = {};  // the beginning of a line
  Clock::time_point heard = Clock::now();
  bool has_ended = false;

  std::string title() const { return fmt::format("rank {} ({})", rank, name); }
};

void send_line(int fd, std::string_view text) {
  const std::string line = std::string(text) + "\n";
  (void)send(fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

class Watch::Impl {
 public:
  Impl(const Ranks& ranks, Seconds timeout, const std::string& where)
      : ranks_(ranks), timeout_(timeout), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (ranks.is_first()) {
      const std::string address = own_addresses(ranks).front();
      listener_ = listen_at(address);
      token_ = new_token();
      where_ = fmt::format("{} {} {} {}", address, listener_.port, token_, own_name());
    } else {
      connect_to_first(where);
    }
    thread_ = std::thread([this] { watch(); });
  }

  ~Impl() {
    end_with(kEnd);
    for (const Peer& peer : peers_) close(peer.fd);
    if (listener_.fd >= 0) close(listener_.fd);
    close(wake_);
  }

  const std::string& where() const { return where_; }

  void await_all(Seconds patience) {
    const Clock::time_point begin = Clock::now();
    std::unique_lock lock(mutex_);
    while (present_.size() + 1 < static_cast<size_t>(ranks_.size)) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      if (lost_) throw Error(ExitCode::peer, *lost_);
      leave_if_stopped();
      if (Clock::now() - begin < patience) continue;
      std::vector<int64_t> missing;
      for (int64_t rank = 1; rank < ranks_.size; ++rank)
        if (std::find(present_.begin(), present_.end(), rank) == present_.end()) missing.push_back(rank);
      throw Error(ExitCode::peer,
                  fmt::format("of {} processes, rank {} has not come within {:.0f} s: start all of them, "
                              "with the same address of the first",
                              ranks_.size, fmt::join(missing, ", "), patience.count()));
    }
  }

  std::optional<std::string> lost() const {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

  std::string await_lost() const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout_ + Seconds(1), [this] { return lost_.has_value(); });
    return lost_.value_or("the connection to another process broke");
  }

  void await_ends() const {
    if (!ranks_.is_first() && !ends_) send_line(first_, kEnd);
    const int64_t awaited = ranks_.is_first() ? ranks_.size - 1 : 1;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return lost_ || ends_ || ended_ == awaited; });
  }

  void forward_warning(const std::string& warning) const {
    send_line(first_, fmt::format("{}{}", kWarning, printable_line(warning)));
  }

  // Once: what this process says last.
  void end_with(std::string_view last_words) {
    if (ends_.exchange(true)) return;
    last_words_ = last_words;
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof one);
    thread_.join();
  }

 private:
  void connect_to_first(const std::string& where) {
    const size_t host = where.find(' '), port = where.find(' ', host + 1), token = where.find(' ', port + 1);
    if (token == std::string::npos)
      throw Error(ExitCode::peer, fmt::format("the first process says to be at '{}', which is no place", where));
    Peer first{.fd = connect_to(where.substr(0, host), static_cast<uint16_t>(std::stoi(where.substr(host + 1)))),
               .rank = 0,
               .name = where.substr(token + 1)};
    send_line(first.fd,
              fmt::format("{}{} {} {}", kHello, where.substr(port + 1, token - port - 1), ranks_.rank, own_name()));
    try {
      await_welcome(first);
    } catch (...) {
      close(first.fd);
      throw;
    }
    first_ = first.fd;
    peers_.push_back(std::move(first));
  }

  // Somebody else may listen there by now: who does not answer as the first process does is not it.
  static void await_welcome(Peer& first) {
    constexpr Seconds kPatience(10);
    constexpr int kMilliseconds = 100;
    const Clock::time_point begin = Clock::now();
    size_t end = std::string::npos;
    while ((end = first.received.find('\n')) == std::string::npos && Clock::now() - begin < kPatience) {
      leave_if_stopped();
      pollfd ready{.fd = first.fd, .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, kMilliseconds) <= 0) continue;
      char bytes[4096];
      const ssize_t count = recv(first.fd, bytes, sizeof bytes, MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) break;
      if (count > 0) first.received.append(bytes, static_cast<size_t>(count));
    }
    const std::string answer = end == std::string::npos ? "" : first.received.substr(0, end);
    if (answer.starts_with(kRefused)) throw Error(ExitCode::peer, answer.substr(kRefused.size()));
    if (answer != kWelcome)
      throw Error(ExitCode::peer, fmt::format("the first process ({}) does not answer", first.name));
    first.received.erase(0, end + 1);
  }

  void watch() {
    const auto pause = std::chrono::duration_cast<std::chrono::milliseconds>(std::min(timeout_ / 5, Seconds(1)));
    for (Clock::time_point next = Clock::now(); !ends_;) {
      wait_until(next);
      const Clock::time_point now = Clock::now();
      if (now < next) continue;
      // This process itself was stopped (Ctrl-Z), so that what the others have said meanwhile has not been read.
      if (now - next > timeout_ / 2) std::for_each(peers_.begin(), peers_.end(), [&](Peer& peer) { peer.heard = now; });
      next = now + pause;
      for (const Peer& peer : peers_)
        if (peer.rank >= 0) send_line(peer.fd, kBeat);  // others are answered first
      notice_silence();
      log::show_warnings_of_ranks();
    }
    for (const Peer& peer : peers_) send_line(peer.fd, last_words_);
  }

  // Until something arrives or the time has come.
  void wait_until(Clock::time_point next) {
    std::vector<pollfd> descriptors{{wake_, POLLIN, 0}};
    if (listener_.fd >= 0) descriptors.push_back({listener_.fd, POLLIN, 0});
    const size_t first = descriptors.size();
    for (const Peer& peer : peers_) descriptors.push_back({peer.fd, POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    if (poll(descriptors.data(), descriptors.size(), static_cast<int>(std::max<int64_t>(0, left))) <= 0) return;
    for (size_t i = first; i < descriptors.size(); ++i)
      if (descriptors[i].revents != 0) receive(peers_[i - first]);
    std::erase_if(peers_, [](const Peer& peer) { return peer.fd < 0; });
    if (listener_.fd >= 0 && descriptors[1].revents != 0) {
      if (const int fd = accept4(listener_.fd, nullptr, nullptr, SOCK_CLOEXEC); fd >= 0) peers_.push_back({.fd = fd});
    }
  }

  void receive(Peer& peer) {
    char bytes[4096];
    const ssize_t count = recv(peer.fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return close_peer(peer);
    peer.heard = Clock::now();
    peer.received.append(bytes, static_cast<size_t>(count));
    for (size_t end; peer.fd >= 0 && (end = peer.received.find('\n')) != std::string::npos;) {
      const std::string line = peer.received.substr(0, end);
      peer.received.erase(0, end + 1);
      hear(peer, line);
    }
    constexpr size_t kLongest = 1 << 16;
    if (peer.received.size() > kLongest) close_peer(peer);  // no process of this program
  }

  void hear(Peer& peer, std::string_view line) {
    if (peer.rank < 0) return greet(peer, line);
    if (line == kEnd) note_end(peer);
    if (line.starts_with(kFault)) {
      peer.has_ended = true;
      lose(fmt::format("{}{}{}", peer.title(), kHasEnded, line.substr(kFault.size())));
    }
    if (line.starts_with(kWarning)) log::warn_of_rank(peer.rank, std::string(line.substr(kWarning.size())));
    if (line.starts_with(kLost)) lose(std::string(line.substr(kLost.size())));
  }

  void note_end(Peer& peer) {
    if (std::exchange(peer.has_ended, true)) return;
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }

  // "hello TOKEN RANK NAME"; a stranger is not answered.
  void greet(Peer& peer, std::string_view line) {
    const std::string expected = fmt::format("{}{} ", kHello, token_);
    if (!line.starts_with(expected)) return close_peer(peer);
    const std::string rest(line.substr(expected.size()));
    const int64_t rank = std::strtoll(rest.c_str(), nullptr, 10);
    const std::lock_guard lock(mutex_);
    if (rank < 1 || rank >= ranks_.size || std::find(present_.begin(), present_.end(), rank) != present_.end()) {
      send_line(peer.fd, fmt::format("{}rank {} is not missing among the {} processes of {}", kRefused, rank,
                                     ranks_.size, own_name()));
      return close_peer(peer);
    }
    peer.rank = rank;
    peer.name = rest.substr(std::min(rest.size(), rest.find(' ') + 1));
    send_line(peer.fd, kWelcome);
    present_.push_back(rank);
    changed_.notify_all();
  }

  void close_peer(Peer& peer) {
    close(std::exchange(peer.fd, -1));
    if (peer.rank >= 0 && !peer.has_ended) lose(fmt::format("{} has gone: its connection closed", peer.title()));
  }

  void notice_silence() {
    for (Peer& peer : peers_) {
      const Seconds silence = Clock::now() - peer.heard;
      if (peer.rank < 0 || peer.has_ended || silence < timeout_) continue;
      peer.has_ended = true;
      lose(fmt::format("{} has not been heard of for {:.0f} s (distributed.timeout)", peer.title(), silence.count()));
    }
  }

  // The first loss counts: others follow from it.
  void lose(const std::string& what) {
    {
      const std::lock_guard lock(mutex_);
      if (lost_) return;
      lost_ = what;
      changed_.notify_all();
    }
    if (!ranks_.is_first()) return;
    for (const Peer& peer : peers_)
      if (peer.fd >= 0) send_line(peer.fd, fmt::format("{}{}", kLost, what));
  }

  const Ranks ranks_;
  const Seconds timeout_;
  const int wake_;
  ListeningSocket listener_;
  std::string token_, where_, last_words_;
  std::vector<Peer> peers_;  // once the thread runs, its own
  int first_ = -1;           // the connection to the first process
  std::atomic<bool> ends_ = false;

  mutable std::mutex mutex_;  // for what follows
  mutable std::condition_variable changed_;
  std::vector<int64_t> present_;
  int64_t ended_ = 0;  // as they should
  std::optional<std::string> lost_;

  std::thread thread_;
};

Watch::Watch(const Ranks& ranks, Seconds timeout) : impl_(std::make_unique<Impl>(ranks, timeout, "")) {}

Watch::Watch(const Ranks& ranks, Seconds timeout, const std::string& where)
    : impl_(std::make_unique<Impl>(ranks, timeout, where)) {}

Watch::~Watch() = default;

std::string Watch::where() const { return impl_->where(); }
void Watch::await_all(Seconds patience) { impl_->await_all(patience); }
std::optional<std::string> Watch::lost() const { return impl_->lost(); }
std::string Watch::await_lost() const { return impl_->await_lost(); }
void Watch::await_ends() const { impl_->await_ends(); }
void Watch::forward_warning(const std::string& warning) { impl_->forward_warning(warning); }
void Watch::leave(const std::string& why) { impl_->end_with(std::string(kFault) + printable_line(why)); }

}  // namespace gpt::distributed
