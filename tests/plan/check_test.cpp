#include "gpt/plan/check.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gpt::plan {
namespace {

const Checks kChecks{passed("CPU", "8 cores"), warned("workers", "none", "set data.num_workers"),
                     failed("dataset", "missing\nfile", "give one")};

TEST(Check, JsonHoldsEveryCheckAndTheirCount) {
  const auto report = nlohmann::json::parse(to_json(kChecks));
  ASSERT_EQ(report["checks"].size(), 3);
  EXPECT_EQ(
      report["checks"][1],
      (nlohmann::json{{"name", "workers"}, {"status", "warn"}, {"detail", "none"}, {"fix", "set data.num_workers"}}));
  EXPECT_EQ(report["summary"], (nlohmann::json{{"pass", 1}, {"warn", 1}, {"fail", 1}}));
}

TEST(Check, JsonSurvivesBytesThatAreNotUtf8) {
  EXPECT_NO_THROW(nlohmann::json::parse(to_json({failed("dataset", "file \xff.txt", "rename it")})));
}

TEST(Check, NothingInItCommandsATerminal) {
  const Checks checks = {failed("checkpoint", "a\x1b[2J\x9b \u202e\n", "use \u009d")};
  EXPECT_TRUE(to_table(checks, /*colour=*/false, /*columns=*/0)
                  .starts_with("fail  checkpoint  a [2J\\x9b \\u202e  -> use \\x9d\n"))
      << to_table(checks, false, 0);
}

TEST(Check, TheTableHasOneLineEachInColumns) {
  EXPECT_EQ(to_table(kChecks, /*colour=*/false, /*columns=*/0),
            "pass  CPU      8 cores\n"
            "warn  workers  none  -> set data.num_workers\n"
            "fail  dataset  missing file  -> give one\n"
            "\n1 passed, 1 warned, 1 failed\n");
}

TEST(Check, ATerminalGetsLinesThatFit) {
  Checks checks = kChecks;
  checks[1].answer = {"Does it fit?", "yes, with some room"};
  EXPECT_EQ(to_table(checks, /*colour=*/true, /*columns=*/28),
            "\033[32mpass\033[0m  CPU      8 cores\n"
            "\033[33mwarn\033[0m  workers  none  -> set\n"
            "               data.num_workers\n"
            "\033[31mfail\033[0m  dataset  missing file\n"
            "               -> give one\n"
            "\n1 passed, 1 warned, 1 failed\n"
            "\nDoes it fit?  yes, with some\n"
            "              room\n");
}

TEST(Check, NumbersAreForProgramsAndAnswersBelowTheTable) {
  Checks checks = kChecks;
  checks[0].values = {{"cores", int64_t{8}}, {"speed", 0.5}, {"idle", true}, {"name", std::string("EPYC")}};
  checks[1].answer = {"Who works?", "nobody"};
  checks[2].answer = {"How long?", "an hour"};
  const auto report = nlohmann::json::parse(to_json(checks));
  EXPECT_EQ(report["checks"][0]["values"],
            (nlohmann::json{{"cores", 8}, {"speed", 0.5}, {"idle", true}, {"name", "EPYC"}}));
  EXPECT_FALSE(report["checks"][1].contains("values"));
  checks[1].savers = {{"key: 1", 2e9, "more time"}, {"longer_key: 2", 1e6, "nothing"}};
  EXPECT_EQ(nlohmann::json::parse(to_json(checks))["checks"][1]["savers"][0],
            (nlohmann::json{{"setting", "key: 1"}, {"bytes", 2e9}, {"price", "more time"}}));
  EXPECT_TRUE(to_table(checks, false, 0).ends_with("1 failed\n\nWho works?  nobody\nHow long?   an hour\n"))
      << to_table(checks, false, 0);
}

TEST(Check, SaversAreShownWhereTheyMatter) {
  Checks checks = kChecks;
  checks[1].savers = {{"key: 1", 2e9, "more time"}, {"longer_key: 2", 1e6, "nothing"}};
  EXPECT_TRUE(to_table(checks, false, 0).ends_with("1 failed\n"));
  checks[1].shows_savers = true;
  EXPECT_TRUE(to_table(checks, false, 0)
                  .ends_with("\n\nSettings that would save memory, each on its own:\n"
                             "  2.00 GB  key: 1         more time\n"
                             "  1.00 MB  longer_key: 2  nothing\n"))
      << to_table(checks, false, 0);
}

TEST(Check, ColoursOnlyWhereAsked) {
  EXPECT_EQ(to_table(kChecks, false, 0).find('\033'), std::string::npos);
  EXPECT_NE(to_table(kChecks, true, 0).find("\033[31mfail\033[0m"), std::string::npos);
}

TEST(Check, OnlyAFailureFails) {
  EXPECT_TRUE(any_failed(kChecks));
  EXPECT_FALSE(any_failed({kChecks[0], kChecks[1]}));
}

}  // namespace
}  // namespace gpt::plan
