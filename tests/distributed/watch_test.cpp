// Who is taken for a process of the run, and who for lost. The other process is a bare connection that speaks the watch's lines.
#include "gpt/distributed/watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "distributed/local_group.h"
#include "distributed/sockets.h"
#include "support/expect_error.h"

namespace gpt::distributed {
namespace {

using Patience = std::chrono::duration<double>;

class BarePeer {
 public:
  explicit BarePeer(const std::string& where) {
    std::istringstream words(where);
    std::string address;
    uint16_t port = 0;
    words >> address >> port >> token_;
    fd_ = connect_to(address, port);
  }
  ~BarePeer() { close(fd_); }
  BarePeer(const BarePeer&) = delete;
  BarePeer& operator=(const BarePeer&) = delete;

  const std::string& token() const { return token_; }
  void greet(const std::string& token) const {
    const std::string line = "hello " + token + " 1 PID 7 on a machine\n";
    ASSERT_EQ(send(fd_, line.data(), line.size(), MSG_NOSIGNAL), std::ssize(line));
  }
  // The next line that the watch says; empty once it has closed the connection.
  std::string hear() const {
    std::string line;
    for (char c = 0; recv(fd_, &c, 1, 0) == 1 && c != '\n';) line += c;
    return line;
  }
  void forget_what_was_said() const {
    char bytes[256];
    while (recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
  }

 private:
  int fd_ = -1;
  std::string token_;
};

TEST(Watch, AStrangerIsNeitherCountedNorMissed) {
  Watch watch(test::local_rank(0, 2), Patience(60));
  {
    const BarePeer stranger(watch.where());
    stranger.greet("0123456789abcdef0123456789abcdef");
    int said = 0;
    constexpr int kMost = 60;  // one a second
    while (said < kMost && !stranger.hear().empty()) ++said;
    EXPECT_LT(said, kMost) << "the connection stays open";
  }
  EXPECT_ERROR(watch.await_all(Patience(0)), ExitCode::peer, "of 2 processes, rank 1 has not come");
  const BarePeer peer(watch.where());
  peer.greet(peer.token());
  watch.await_all(Patience(60));
  EXPECT_EQ(watch.lost(), std::nullopt);
}

TEST(Watch, TheFirstWaitsUntilTheOthersHaveEnded) {
  Watch first(test::local_rank(0, 2), Patience(60));
  std::atomic<bool> has_ended = false;
  std::thread other([&, where = first.where()] {
    Watch second(test::local_rank(1, 2), Patience(60), where);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    has_ended = true;
  });
  first.await_all(Patience(60));
  first.await_ends();
  EXPECT_TRUE(has_ended);
  EXPECT_EQ(first.lost(), std::nullopt);
  other.join();
}

TEST(Watch, TheOthersWaitUntilTheFirstHasEnded) {
  auto first = std::make_unique<Watch>(test::local_rank(0, 2), Patience(60));
  std::atomic<bool> has_ended = false, saw_the_end = false;
  std::thread other([&, where = first->where()] {
    const Watch second(test::local_rank(1, 2), Patience(60), where);
    second.await_ends();
    saw_the_end = has_ended.load();
  });
  first->await_all(Patience(60));
  first->await_ends();  // the other one has nothing more to do
  has_ended = true;
  first.reset();
  other.join();
  EXPECT_TRUE(saw_the_end);
}

TEST(Watch, ARankThatIsThereAlreadyIsRefused) {
  Watch first(test::local_rank(0, 3), Patience(60));
  const BarePeer peer(first.where());
  peer.greet(peer.token());
  EXPECT_EQ(peer.hear(), "welcome");
  EXPECT_ERROR(Watch(test::local_rank(1, 3), Patience(60), first.where()), ExitCode::peer,
               "rank 1 is not missing among the 3 processes of PID ");
  EXPECT_ERROR(first.await_all(Patience(0)), ExitCode::peer, "of 3 processes, rank 2 has not come");
}

TEST(Watch, TheFirstDoesNotWaitForOneThatIsLost) {
  Watch watch(test::local_rank(0, 2), Patience(60));
  std::optional<BarePeer> peer(watch.where());
  peer->greet(peer->token());
  watch.await_all(Patience(60));
  peer.reset();
  watch.await_ends();
  EXPECT_NE(watch.lost(), std::nullopt);
}

TEST(Watch, AConnectionThatClosesIsALoss) {
  Watch watch(test::local_rank(0, 2), Patience(60));
  {
    const BarePeer peer(watch.where());
    peer.greet(peer.token());
    watch.await_all(Patience(60));
  }
  EXPECT_EQ(watch.await_lost(), "rank 1 (PID 7 on a machine) has gone: its connection closed");
}

// Stops this process, as Ctrl-Z does, until another one has slept so long.
void stop_oneself_for(unsigned seconds) {
  const pid_t waker = fork();
  if (waker == 0) {
    sleep(seconds);
    kill(getppid(), SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
  waitpid(waker, nullptr, 0);
}

// Exits with the number of times that a watch has said to be there, after its process was stopped for longer than the timeout, before it
// missed the other one, which says nothing.
[[noreturn]] void exit_with_beats_after_a_stop() {
  Watch watch(test::local_rank(0, 2), Patience(2));
  const BarePeer peer(watch.where());
  peer.greet(peer.token());
  watch.await_all(Patience(60));
  peer.forget_what_was_said();
  stop_oneself_for(4);
  int beats = 0;
  while (peer.hear() == "beat") ++beats;
  std::_Exit(watch.await_lost().starts_with("rank 1 (PID 7 on a machine) has not been heard of for ") ? beats : 0);
}

// It looks for silence each time after it has said to be there. The first of three may have come before the stop, and the second follows it
// at once.
struct HasAtLeast {
  int least;
  bool operator()(int status) const { return WIFEXITED(status) && WEXITSTATUS(status) >= least; }
};

TEST(WatchDeathTest, AProcessThatWasStoppedItselfAccusesNobody) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_beats_after_a_stop(), HasAtLeast{3}, "");
}

}  // namespace
}  // namespace gpt::distributed
