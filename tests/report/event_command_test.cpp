// What a program of the user's is started for, and with what. Each start appends its input to a file, which is read when the run is over.
#include "gpt/report/event_command.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "support/captured_log.h"
#include "support/expect_error.h"

namespace gpt::report {
namespace {

using nlohmann::json;

class EventCommandTest : public testing::Test {
 protected:
  // A line has less than a pipe takes at once, so that two that are appended do not mix.
  std::vector<std::string> appends() const {
    return {"sh", "-c", "read -r line; printf '%s\\n' \"$line\" >> \"$1\"", "name", folder_ / "heard"};
  }
  std::vector<json> heard() const {
    std::vector<json> all;
    std::ifstream file(folder_ / "heard");
    for (std::string line; std::getline(file, line);) all.push_back(json::parse(line));
    return all;
  }
  // Until so many have been heard, which are not waited for by the run.
  std::vector<json> await(size_t count) const {
    while (heard().size() < count) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return heard();
  }
  RunRecord run() const {
    RunRecord run;
    run.total_steps = 2000, run.folder = folder_ / "models/mine";
    return run;
  }

  const ScratchFolder folder_;
};

TEST_F(EventCommandTest, IsStartedForEachKindOfEvent) {
  {
    EventCommand command(appends());
    log::hear_warnings(nullptr);  // those of this test alone
    command.begin(run());
    (void)await(1);
    command.activity({.step = 500, .what = "validating"});
    command.evaluation({.step = 500, .loss = 1.25, .bits_per_byte = 0.5, .is_best = true});
    command.evaluation({.step = 600, .loss = 1.5, .bits_per_byte = {}, .is_best = false});
    (void)await(2);
    command.stop({500, "by SIGINT; the same command resumes it"});
  }
  const std::vector<json> all = await(3);
  EXPECT_EQ(all[0]["event"], "start");
  EXPECT_EQ(all[0]["text"], "mine: step 0 of 2,000: the run begins");
  EXPECT_EQ(all[0]["run"], "mine");
  EXPECT_EQ(all[0]["folder"], folder_ / "models/mine");
  EXPECT_EQ(all[1]["event"], "best");
  EXPECT_EQ(all[1]["val_loss"], 1.25);
  EXPECT_EQ(all[1]["val_bits_per_byte"], 0.5);
  EXPECT_EQ(all[1]["step"], 500);
  EXPECT_EQ(all[2]["event"], "stop");
  EXPECT_EQ(all[2]["text"], "mine: step 500 of 2,000: stopped by SIGINT; the same command resumes it");
  EXPECT_EQ(all.size(), 3u);
}

TEST_F(EventCommandTest, HearsWarningsOnceTheRunHasBegun) {
  test::CapturedLog log;
  {
    EventCommand command(appends());
    log::warn("before");
    command.begin(run());
    (void)await(1);
    log::warn("a \"quoted\"\nline");
    EXPECT_EQ(await(2)[1]["text"], "mine: step 0 of 2,000: warning: a \"quoted\"\nline");
    command.end();
  }
  log::warn("after");
  const std::vector<json> all = await(3);
  EXPECT_EQ(all[2]["event"], "end");
  EXPECT_EQ(all.size(), 3u);
}

// The program hangs until it is told: what comes meanwhile neither waits nor piles up, and the end is told all the same.
TEST_F(EventCommandTest, AProgramThatHangsHoldsNothingUp) {
  test::CapturedLog log;
  const std::string gate = folder_.file("gate", "");
  const std::vector<std::string> hangs = {
      "sh",
      "-c",
      "read -r line; printf '%s\\n' \"$line\" >> \"$1\"; while [ -e \"$2\" ]; do sleep 0.05; done",
      "name",
      folder_ / "heard",
      gate};
  {
    EventCommand command(hangs);
    command.begin(run());
    for (int i = 0; i < 1000; ++i) command.evaluation({.step = i, .loss = 1, .bits_per_byte = {}, .is_best = true});
    (void)await(EventCommand::kMostAtOnce);
    command.end();
  }
  const std::vector<json> all = await(EventCommand::kMostAtOnce + 1);
  EXPECT_EQ(all.back()["event"], "end");
  EXPECT_EQ(heard().size(), EventCommand::kMostAtOnce + 1);
  EXPECT_NE(log.text().find("training.on_event: some events are left out"), std::string::npos);
}

TEST_F(EventCommandTest, AProgramThatFailsIsNamedOnce) {
  test::CapturedLog log;
  {
    EventCommand command({"sh", "-c", "echo >> \"$1\"; exit 3", "name", folder_ / "ran"});
    command.begin(run());
    const auto lines = [this] {
      std::ifstream file(folder_ / "ran");
      return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
    };
    // The last of them is started only once one before it has ended and is known to have failed.
    for (size_t i = 1; i <= EventCommand::kMostAtOnce; ++i)
      command.evaluation({.step = static_cast<int64_t>(i), .loss = 1, .bits_per_byte = {}, .is_best = true});
    while (lines() < static_cast<int64_t>(EventCommand::kMostAtOnce) + 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::string said = log.text();
  const std::string line = "training.on_event: sh failed for the event ";
  ASSERT_NE(said.find(line), std::string::npos) << said;
  EXPECT_NE(said.find("(exit status 3)"), std::string::npos) << said;
  EXPECT_EQ(said.find("training.on_event", said.find(line) + 1), std::string::npos) << said;
}

TEST_F(EventCommandTest, AProgramThatIsNotThereIsRefused) {
  require_event_command({});
  require_event_command({"sh"});
  EXPECT_ERROR(require_event_command({"crul", "x"}), ExitCode::config, "training.on_event: there is no program 'crul'");
}

}  // namespace
}  // namespace gpt::report
