// Whoever speaks to a run, and however: it hears whole requests alone, in their order, and nobody can hold it up.
#include "gpt/control/inbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/control/tell.h"
#include "gpt/core/error.h"
#include "gpt/core/lock.h"
#include "support/captured_log.h"
#include "support/expect_error.h"

namespace gpt::control {
namespace {

constexpr std::chrono::minutes kHangs(20);

// A client that says whatever it likes.
class Client {
 public:
  explicit Client(const std::string& folder) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int opened = open(folder.c_str(), O_PATH | O_CLOEXEC);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = "/proc/self/fd/" + std::to_string(opened) + "/control.sock";
    path.copy(static_cast<char*>(address.sun_path), path.size());
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    close(opened);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void say(const std::string& text) const { (void)!send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  void say_no_more() const { shutdown(fd_, SHUT_WR); }
  std::string hear() const {  // to the end
    std::string text;
    char bytes[512];
    for (ssize_t count; (count = recv(fd_, static_cast<char*>(bytes), sizeof bytes, 0)) > 0;)
      text.append(static_cast<char*>(bytes), static_cast<size_t>(count));
    return text;
  }

 private:
  int fd_;
};

class InboxTest : public testing::Test {
 protected:
  std::unique_ptr<Inbox> open(std::chrono::milliseconds patience = kHangs) {
    return std::make_unique<Inbox>(folder_.path(), [this] { ++stops_; }, patience);
  }
  // The next request, which is there or comes.
  static Inbox::Asked next(Inbox& inbox) {
    EXPECT_TRUE(inbox.wait(kHangs));
    const auto asked = inbox.take(1);
    return asked.empty() ? Inbox::Asked{} : asked[0];
  }
  static std::future<Answer> told(const std::string& folder, const Request& request) {
    return std::async(std::launch::async, [=] { return tell(folder, request); });
  }

  const ScratchFolder folder_;
  std::atomic<int> stops_ = 0;
};

TEST_F(InboxTest, ARequestIsHeardAndAnswered) {
  const auto inbox = open();
  EXPECT_FALSE(inbox->has_requests());
  auto first = told(folder_.path(), {Verb::rate, 0.5});
  const Inbox::Asked rate = next(*inbox);
  EXPECT_EQ(rate.request, (Request{Verb::rate, 0.5}));
  auto second = told(folder_.path(), {Verb::save});
  const Inbox::Asked save = next(*inbox);
  inbox->answer(save.id, {true, "saved"});  // in another order
  EXPECT_EQ(second.get().said, "saved");
  inbox->answer(rate.id, {false, "no"});
  const Answer answer = first.get();
  EXPECT_FALSE(answer.is_done);
  EXPECT_EQ(answer.said, "no");
  EXPECT_FALSE(inbox->has_requests());
}

TEST_F(InboxTest, StopWaitsForNothing) {
  const auto inbox = open();
  EXPECT_TRUE(tell(folder_.path(), {Verb::stop}).is_done);
  EXPECT_EQ(stops_, 1);
  EXPECT_FALSE(inbox->has_requests());
}

TEST_F(InboxTest, OnlyThisUserReachesTheSocket) {
  const mode_t before = umask(0);
  const auto inbox = open();
  umask(before);
  struct stat info{};
  ASSERT_EQ(stat((folder_ / kSocketFile).c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(InboxTest, WhatIsNoRequestIsRefusedAtOnce) {
  const auto inbox = open();
  for (const auto& [text, said] :
       std::vector<std::pair<std::string, std::string>>{{"pause\n", "a request is a line such as"},
                                                        {"{\"verb\":\"dance\"}\n", "a run cannot be told 'dance'"},
                                                        {std::string(100, '\0') + "\n", "a request is a line such as"},
                                                        {"\n", "a request is a line such as"},
                                                        {std::string(1 << 20, 'x'),
                                                         "a request has at most 4096 bytes"}}) {
    const Client client(folder_.path());
    client.say(text);
    EXPECT_NE(client.hear().find(said), std::string::npos) << text.substr(0, 50);
  }
  EXPECT_FALSE(inbox->has_requests());
}

TEST_F(InboxTest, ALineMayComeInPartsOrWithoutItsEnd) {
  const auto inbox = open();
  const Client client(folder_.path());
  for (const char letter : std::string(R"({"verb":"save"})")) client.say(std::string(1, letter));
  client.say_no_more();
  EXPECT_EQ(next(*inbox).request, Request{Verb::save});
}

TEST_F(InboxTest, WhoSaysNothingKeepsNobodyWaiting) {
  const auto inbox = open(std::chrono::milliseconds(1));
  const Client silent(folder_.path()), half(folder_.path());
  half.say(R"({"verb":)");
  EXPECT_NE(silent.hear().find("no request has come"), std::string::npos);
  EXPECT_NE(half.hear().find("no request has come"), std::string::npos);
}

TEST_F(InboxTest, WhoSaysNothingDoesNotKeepOthersFromBeingHeard) {
  const auto inbox = open();
  const Client silent(folder_.path());
  auto answer = told(folder_.path(), {Verb::pause});
  const Inbox::Asked pause = next(*inbox);
  inbox->answer(pause.id, {true, "paused"});
  EXPECT_EQ(answer.get().said, "paused");
}

TEST_F(InboxTest, AtMostSoManyAreListenedTo) {
  const auto inbox = open();
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < Inbox::kMostClients; ++i) {
    clients.push_back(std::make_unique<Client>(folder_.path()));
    clients.back()->say("{\"verb\":\"save\"}\n");
  }
  std::vector<Inbox::Asked> all;
  while (all.size() < Inbox::kMostClients) all.push_back(next(*inbox));  // they are listened to
  EXPECT_NE(Client(folder_.path()).hear().find("too many others"), std::string::npos);
  for (const Inbox::Asked& asked : all) inbox->answer(asked.id, {true, "done"});
  for (const auto& client : clients) EXPECT_NE(client->hear().find("done"), std::string::npos);
  auto answer = told(folder_.path(), {Verb::pause});
  inbox->answer(next(*inbox).id, {true, "paused"});
  EXPECT_EQ(answer.get().said, "paused");
}

TEST_F(InboxTest, WhoLeavesBeforeTheAnswerHurtsNobody) {
  const auto inbox = open();
  { Client(folder_.path()).say("{\"verb\":\"save\"}\n"); }
  const Inbox::Asked save = next(*inbox);
  inbox->answer(save.id, {true, "saved"});
  inbox->answer(save.id + 17, {true, "nobody's"});
  auto answer = told(folder_.path(), {Verb::pause});
  inbox->answer(next(*inbox).id, {true, "paused"});
  EXPECT_EQ(answer.get().said, "paused");
}

TEST_F(InboxTest, TheEndOfTheRunIsSaidAndItsSocketGoes) {
  auto inbox = open();
  auto answer = told(folder_.path(), {Verb::save});
  (void)next(*inbox);
  inbox.reset();
  EXPECT_EQ(answer.get().said, "the run has ended");
  EXPECT_FALSE(std::filesystem::exists(folder_ / kSocketFile));
}

// As a killed run leaves it.
TEST_F(InboxTest, ASocketThatWasLeftIsReplaced) {
  const FolderLock lock(folder_.path(), ExitCode::disk, "output_dir");
  std::ofstream(folder_ / kSocketFile) << "left";
  EXPECT_FALSE(may_be_told(folder_.path()));
  const auto inbox = open();
  EXPECT_TRUE(may_be_told(folder_.path()));
  auto answer = told(folder_.path(), {Verb::pause});
  inbox->answer(next(*inbox).id, {true, "paused"});
  EXPECT_EQ(answer.get().said, "paused");
}

TEST_F(InboxTest, TheFoldersPathMayBeLong) {
  std::string path = folder_.path();
  for (int i = 0; i < 3; ++i) path += "/" + std::string(100, 'x');
  std::filesystem::create_directories(path);
  Inbox inbox(path, [] {});
  auto answer = told(path, {Verb::pause});
  inbox.answer(next(inbox).id, {true, "paused"});
  EXPECT_EQ(answer.get().said, "paused");
}

TEST_F(InboxTest, WhereNoSocketCanBeMadeALineSaysSo) {
  std::filesystem::create_directories(folder_ / "control.sock/in the way");
  test::CapturedLog log;
  {
    Inbox inbox(folder_.path(), [] {});
    EXPECT_FALSE(inbox.wait(std::chrono::milliseconds(0)));
  }
  EXPECT_NE(log.text().find("control.sock cannot be made (Is a directory): the run takes no requests, and goes on"),
            std::string::npos);
}

TEST_F(InboxTest, WhereNoRunListensThatIsSaid) {
  const std::string folder = folder_.path();
  EXPECT_ERROR(tell(folder / std::filesystem::path("none"), {Verb::pause}), ExitCode::config,
               "there is no such folder");
  EXPECT_ERROR(tell(folder, {Verb::pause}), ExitCode::failed_check, "no run goes on there");
  const FolderLock lock(folder, ExitCode::disk, "output_dir");
  EXPECT_ERROR(tell(folder, {Verb::pause}), ExitCode::failed_check, "start the same command with --control");
}

}  // namespace
}  // namespace gpt::control
