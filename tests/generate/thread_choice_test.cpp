#include "gpt/generate/thread_choice.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

namespace gpt::generate {
namespace {

// A machine whose clock is made up: how long a token takes with so many threads.
using Machine = std::function<double(int64_t threads)>;

struct Outcome {
  double seconds = 0;
  std::map<int64_t, int> tokens;  // by the number of threads
};

Outcome write(ThreadChoice& choice, int tokens, const Machine& machine) {
  Outcome outcome;
  for (int i = 0; i < tokens; ++i) {
    const double seconds = machine(choice.threads());
    ++outcome.tokens[choice.threads()];
    outcome.seconds += seconds;
    choice.took(seconds);
  }
  return outcome;
}

// Each thread takes its share, and all meet often.
double idle(int64_t threads) { return 1.0 / static_cast<double>(threads) + 0.001 * static_cast<double>(threads); }
// Another program keeps a core busy: threads wait for the one that shares it.
double beside_another(int64_t threads) { return threads == 1 ? 1 : 15; }
// More than eight threads wait for memory, and for each other.
double bound_by_memory(int64_t threads) {
  return threads <= 8 ? idle(threads) : idle(8) + 0.02 * static_cast<double>(threads - 8);
}

TEST(ThreadChoice, OneThreadLeavesNothingToChoose) {
  ThreadChoice choice(1);
  EXPECT_EQ(write(choice, 100, idle).tokens, (std::map<int64_t, int>{{1, 100}}));
}

TEST(ThreadChoice, OnAnIdleMachineTakesAll) {
  for (const int64_t most : {2, 3, 8, 12}) {
    ThreadChoice choice(most);
    const Outcome outcome = write(choice, 200, idle);
    EXPECT_EQ(choice.threads(), most);
    // Nine tokens or fewer to find out, of which three with one thread.
    EXPECT_GE(outcome.tokens.at(most), 191) << most;
    EXPECT_LE(outcome.tokens.at(1), 3 + 2) << most;
  }
}

TEST(ThreadChoice, BesideAnotherProgramTakesOne) {
  ThreadChoice choice(8);
  const Outcome outcome = write(choice, 200, beside_another);
  EXPECT_EQ(choice.threads(), 1);
  // Two tokens with all threads and two with two of them: that is all that it costs.
  EXPECT_EQ(outcome.seconds, 196 * 1 + 4 * 15);
}

TEST(ThreadChoice, FindsWhatLiesBetween) {
  ThreadChoice choice(64);
  const Outcome outcome = write(choice, 400, bound_by_memory);
  EXPECT_EQ(choice.threads(), 8);
  EXPECT_LT(outcome.seconds, 1.2 * 400 * bound_by_memory(8));
}

TEST(ThreadChoice, NoticesSoonThatAnotherProgramHasBegun) {
  ThreadChoice choice(4);
  write(choice, 100, idle);
  ASSERT_EQ(choice.threads(), 4);
  const Outcome outcome = write(choice, 100, beside_another);
  EXPECT_EQ(choice.threads(), 1);
  EXPECT_LE(outcome.tokens.at(4), 10);
}

TEST(ThreadChoice, NoticesInTimeThatAnotherProgramHasEnded) {
  ThreadChoice choice(4);
  write(choice, 100, beside_another);
  ASSERT_EQ(choice.threads(), 1);
  // Rounds of trials take a twentieth of the time: the first one beside the other program took 2 x 15 twice.
  write(choice, 20 * 70, idle);
  EXPECT_EQ(choice.threads(), 4);
}

TEST(ThreadChoice, OneDisturbedTokenChangesNothing) {
  ThreadChoice choice(4);
  int token = 0;
  const auto disturbed = [&token](int64_t threads) { return idle(threads) * (++token % 7 == 0 ? 50 : 1); };
  const Outcome outcome = write(choice, 500, disturbed);
  EXPECT_EQ(choice.threads(), 4);
  EXPECT_GE(outcome.tokens.at(4), 450);
}

// Two threads are fast for as long as the other program leaves them both cores, as it does while they are tried; on the whole one thread is
// faster.
TEST(ThreadChoice, LuckyTokensDoNotCountForLong) {
  ThreadChoice choice(2);
  int token = 0;
  const auto by_turns = [&token](int64_t threads) {
    const bool is_lucky = token++ % 12 < 6;
    return threads == 1 ? 1.0 : is_lucky ? 0.9 : 1.3;
  };
  const Outcome outcome = write(choice, 120, by_turns);
  EXPECT_EQ(choice.threads(), 1);
  EXPECT_LT(outcome.seconds, 126) << "with two threads alone it is 132";
}

// Wherever it stands, trials never take more than a small part of the time.
TEST(ThreadChoice, TrialsCostLittle) {
  ThreadChoice choice(32);
  const Outcome outcome = write(choice, 20'000, idle);
  EXPECT_LT(outcome.seconds, 1.08 * 20'000 * idle(32));
}

}  // namespace
}  // namespace gpt::generate
