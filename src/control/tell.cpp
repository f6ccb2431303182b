#include "gpt/control/tell.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "gpt/config/suggest.h"
#include "gpt/core/error.h"
#include "gpt/core/lock.h"
#include "socket_address.h"

namespace gpt::control {
namespace {

struct Open {
  int fd;
  ~Open() {
    if (fd >= 0) close(fd);
  }
};

[[noreturn]] void fail_with(const std::string& why) { throw Error(ExitCode::failed_check, why); }

[[noreturn]] void refuse_folder(const std::string& folder, int number) {
  const std::string why = number == ENOENT ? "there is no such folder" : std::generic_category().message(number);
  throw Error(ExitCode::config, fmt::format("{}: {}{}; name the output_dir of a run, such as models/NAME", folder, why,
                                            number == ENOENT ? config::did_you_mean_path(folder) : ""));
}

// The socket is not there, or nobody listens at it.
[[noreturn]] void fail_to_connect(const std::string& folder, int number) {
  const bool is_missing = number == ENOENT || number == ECONNREFUSED;
  if (is_missing && !is_locked(folder)) fail_with(fmt::format("{}: no run goes on there", folder));
  if (is_missing)
    fail_with(fmt::format("{}: the run takes no requests: stop it, and start the same command with --control", folder));
  if (number == EAGAIN) fail_with(fmt::format("{}: too many others are waiting for the run: try again", folder));
  fail_with(fmt::format("{}/{}: {}", folder, kSocketFile, std::generic_category().message(number)));
}

bool send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

std::string receive_line(int socket) {
  constexpr size_t kMostOfAnswer = 1 << 20;
  std::string text;
  char bytes[4096];
  while (text.find('\n') == std::string::npos && text.size() < kMostOfAnswer) {
    const ssize_t count = recv(socket, static_cast<char*>(bytes), sizeof bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(static_cast<char*>(bytes), static_cast<size_t>(count));
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace

Answer tell(const std::string& folder, const Request& request, std::optional<std::chrono::seconds> patience) {
  const Open opened{open_folder(folder)};
  if (opened.fd < 0) refuse_folder(folder, errno);
  const Open connection{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (connection.fd < 0 || !connects(connection.fd, address_in(opened.fd))) fail_to_connect(folder, errno);
  if (patience) {
    const timeval most{.tv_sec = patience->count(), .tv_usec = 0};
    setsockopt(connection.fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  }
  (void)send_all(connection.fd, to_line(request));  // a refusal may have come before
  errno = 0;
  const std::optional<Answer> answer = read_answer(receive_line(connection.fd));
  if (!answer && errno == EAGAIN)
    fail_with(fmt::format("{}: the run has heard it, and has not answered for {} s", folder, patience->count()));
  if (!answer) fail_with(fmt::format("{}: the run has ended without an answer", folder));
  return *answer;
}

bool may_be_told(const std::string& folder) {
  struct stat info{};
  return stat((folder + "/" + kSocketFile).c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
}

}  // namespace gpt::control
