// A file in which processes met before is never believed because it is there. The processes are threads of the test.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "core/scratch_folder.h"
#include "distributed/local_group.h"
#include "gpt/core/file.h"
#include "gpt/core/sockets.h"
#include "gpt/distributed/group.h"
#include "gpt/distributed/watch.h"

namespace gpt::distributed {
namespace {

constexpr double kTimeout = 60;

class MeetingTest : public testing::Test {
 protected:
  void leave_file(const std::string& text) const {
    AtomicFile file(path_);
    file.write(text);
    file.commit(Durability::unsynced);
  }
  std::thread begin(int64_t rank, std::string& heard) {
    return std::thread([this, rank, &heard] {
      try {
        const Group group(test::local_rank(rank, 2), at::kCPU, folder_.path(), kTimeout);
        heard = group.from_all("name", "of " + std::to_string(rank)).back();
      } catch (const std::exception& error) { heard = error.what(); }
    });
  }

  const ScratchFolder folder_;
  const std::string path_ = folder_.path() + "/.ranks-0-0";
};

// Somebody else listens by now where the first process of a killed run did: he hears of the second process and knows nothing of it.
TEST_F(MeetingTest, AFileThatAKilledRunLeftIsTriedAndNotBelieved) {
  const ListeningSocket stranger = listen_at("127.0.0.1");
  leave_file("1 127.0.0.1 " + std::to_string(stranger.port) + " 0123456789abcdef PID 7 on a machine");
  std::string first, second;
  std::thread other = begin(1, second);
  const int connection = accept(stranger.fd, nullptr, nullptr);
  close(connection), close(stranger.fd);  // from here on it is refused
  std::thread one = begin(0, first);
  one.join(), other.join();
  EXPECT_EQ(first, "of 1");
  EXPECT_EQ(second, "of 1");
  EXPECT_EQ(names_in(folder_.path()).size(), 0U);
}

TEST_F(MeetingTest, AFileThatIsNotCompleteIsReadAgain) {
  leave_file("4711");
  std::string first, second;
  std::thread other = begin(1, second), one = begin(0, first);
  one.join(), other.join();
  EXPECT_EQ(first, "of 1");
  EXPECT_EQ(second, "of 1");
}

// One that is still at work does not wait for the second process of another run.
TEST_F(MeetingTest, TheFirstProcessOfARunThatIsCompleteIsNotTheOneOfAnother) {
  Watch old(test::local_rank(0, 2), std::chrono::duration<double>(kTimeout));
  const Watch its_second(test::local_rank(1, 2), std::chrono::duration<double>(kTimeout), old.where());
  leave_file("1 " + old.where());
  std::string first, second;
  std::thread other = begin(1, second), one = begin(0, first);
  one.join(), other.join();
  EXPECT_EQ(first, "of 1");
  EXPECT_EQ(second, "of 1");
  EXPECT_EQ(old.lost(), std::nullopt);
}

}  // namespace
}  // namespace gpt::distributed
