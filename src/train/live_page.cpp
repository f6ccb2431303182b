#include "gpt/train/live_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "gpt/core/child_process.h"
#include "gpt/core/error.h"
#include "gpt/core/host_name.h"
#include "gpt/core/installed_data.h"
#include "gpt/core/log.h"
#include "gpt/core/output.h"
#include "gpt/core/text.h"

namespace gpt::train {
namespace {

using LiveClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kStart(10), kEnd(3);

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == 0) read = ends[0], write = ends[1];
  }
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
  static void close_end(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

// The first line that comes; nothing where none comes in time.
std::string first_line_from(int descriptor) {
  std::string text;
  const auto deadline = LiveClock::now() + kStart;
  while (text.find('\n') == std::string::npos) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - LiveClock::now()).count();
    pollfd event{descriptor, POLLIN, 0};
    char bytes[512];
    if (left <= 0 || ::poll(&event, 1, static_cast<int>(left)) <= 0) break;
    const ssize_t count = ::read(descriptor, bytes, sizeof bytes);
    if (count <= 0) break;
    text.append(bytes, static_cast<size_t>(count));
  }
  return first_line(text);
}

// The log is kept and shared, so that it has the address without its token.
void tell_address(const std::string& page) {
  const std::string address = page.substr(0, page.find('?'));
  const std::string port = address.substr(address.rfind(':') + 1, address.rfind('/') - address.rfind(':') - 1);
  if (address != page) {
    log::info(fmt::format("Live page: {} with a token, which only the terminal shows", address));
    output::offer(fmt::format("Live page: {}\n", page));
  } else {
    log::info(
        fmt::format("Live page: {} (from a phone or another machine: ssh -L {}:127.0.0.1:{} {}, and the same "
                    "address there)",
                    page, port, port, host_name()));
  }
}

void warn_of_failure(std::string why) {
  for (const auto& [from, to] : {std::pair{"error: ", ""}, {"--host or --port", "--live ADDRESS:PORT"}})
    why = replaced(why, from, to);
  log::warn("no live page: " + (why.empty() ? "gpt-board has not started" : why));
}

}  // namespace

std::pair<std::string, std::string> live_address(const std::string& text) {
  constexpr int kLargestPort = 65535;
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, std::min(colon, text.size()));
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const bool is_number = !port.empty() && port.size() <= 5 && std::all_of(port.begin(), port.end(), isdigit);
  if (host.empty() || !is_number || std::stoi(port) > kLargestPort)
    throw Error(ExitCode::config, fmt::format("--live: '{}' is not ADDRESS:PORT, such as {}", text, kLiveAddress));
  return {host, port};
}

LivePage::LivePage(const std::string& folder, const std::string& address, bool controls) {
  if (address.empty()) return;
  const auto [host, port] = live_address(address);
  Pipe answers;
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  try {
    std::vector<std::string> command{program_folder() / "gpt-board", "--quiet", "--host", host, "--port", port};
    if (controls) command.emplace_back("--control");
    command.insert(command.end(), {"--", folder});
    child_ = start_child(command, {nothing, answers.write, answers.write}, {.has_own_group = true});
  } catch (const Error& error) { warn_of_failure(error.what()); }
  close(nothing);
  if (child_ < 0) return;
  Pipe::close_end(answers.write);  // so that the child's end is the end of what can be read
  const std::string line = first_line_from(answers.read);
  line.starts_with("http://") ? tell_address(line) : warn_of_failure(line);
}

LivePage::~LivePage() {
  if (child_ < 0) return;
  kill(child_, SIGTERM);
  const auto deadline = LiveClock::now() + kEnd;
  while (waitpid(child_, nullptr, WNOHANG) == 0) {
    if (LiveClock::now() > deadline) kill(child_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace gpt::train
