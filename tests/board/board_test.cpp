#include "gpt/board/board.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/scratch_folder.h"
#include "gpt/board/run_names.h"
#include "gpt/report/metrics_file.h"

namespace gpt::board {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

constexpr std::chrono::hours kHangs(1);

// A run that has begun in that folder.
class WrittenRun {
 public:
  explicit WrittenRun(const std::string& folder)
      : metrics_((std::filesystem::create_directories(folder), folder + "/metrics.jsonl")) {
    metrics_.begin({});
  }
  void log(int64_t step) {
    metrics_.step({.step = step, .loss = 2, .step_ms = 10, .tokens_per_second = 50, .mfu = {}});
  }

 private:
  report::MetricsFile metrics_;
};

TEST(Board, TellsWhatIsNewOfARun) {
  const ScratchFolder folder;
  WrittenRun run(folder / "a");
  run.log(1);
  Board board({folder.path()});
  ToldRun told;
  const json whole = json::parse(board.news_of("a", told));
  EXPECT_EQ(whole["is_whole"], true);
  EXPECT_EQ(whole["name"], "a");
  EXPECT_EQ(whole["curves"]["loss"]["steps"], json{1});
  EXPECT_EQ(whole["samples"], json::array());
  EXPECT_EQ(board.news_of("a", told), "");
  run.log(2);
  std::string news;
  for (uint64_t seen = 0; news.empty(); news = board.news_of("a", told)) (void)board.wait(seen, kHangs);
  const json more = json::parse(news);
  EXPECT_FALSE(more.contains("is_whole"));
  EXPECT_FALSE(more.contains("name"));
  EXPECT_EQ(more["step"], 2);
  EXPECT_EQ(more["curves"]["loss"], json({{"from", 1}, {"steps", {1, 2}}, {"values", {2.0, 2.0}}}));
  EXPECT_FALSE(more.contains("samples"));
  EXPECT_EQ(board.news_of("b", told), "");
}

TEST(Board, ARunThatComesLaterIsOneOfAll) {
  const ScratchFolder folder;
  Board board({folder.path()});
  ToldTable told;
  EXPECT_EQ(json::parse(board.news_of_all(told)), json({{"is_whole", true}, {"runs", json::array()}}));
  WrittenRun run(folder / "later");
  run.log(7);
  const auto steps = [&] {
    const std::string news = board.news_of_all(told);
    const json runs = news.empty() ? json::array() : json::parse(news)["runs"];
    return runs.empty() ? json() : runs[0]["step"];
  };
  for (uint64_t seen = 0; steps() != 7;) (void)board.wait(seen, kHangs);
  EXPECT_TRUE(board.has("later"));
  run.log(8);
  for (uint64_t seen = 0; steps() != 8;) (void)board.wait(seen, kHangs);
  std::filesystem::remove_all(folder / "later");
  for (uint64_t seen = 0; board.has("later");) (void)board.wait(seen, kHangs);
  EXPECT_EQ(json::parse(board.news_of_all(told)), json({{"is_whole", true}, {"runs", json::array()}}));
}

TEST(Board, WhatWasWrittenAtTheEndIsTold) {
  const ScratchFolder folder;
  WrittenRun run(folder.path());
  Board board({folder.path()});
  EXPECT_EQ(board.only_run(), std::filesystem::path(folder.path()).filename());
  ToldRun told;
  (void)board.news_of(*board.only_run(), told);
  run.log(9);
  board.stop();
  uint64_t seen = 0;
  EXPECT_FALSE(board.wait(seen, kHangs));
  EXPECT_NE(board.news_of(*board.only_run(), told).find("\"step\":9"), std::string::npos);
}

TEST(RunNames, FoldersOfRunsAreFoundAndCalledByTheirNames) {
  const ScratchFolder folder;
  for (const char* name : {"models/a", "models/b", "others/a", "models/b/set_aside/1"}) (void)WrittenRun(folder / name);
  folder.file("models/text/corpus.txt", "no run");
  const std::string models = folder / "models", others = folder / "others";
  EXPECT_EQ(run_folders({models, others}), (Names{models + "/a", models + "/b", others + "/a"}));
  EXPECT_EQ(run_folders({models + "/b", models}), (Names{models + "/a", models + "/b"}));
  EXPECT_EQ(run_folders({models + "/text"}), Names());
  folder.file("models/text/.lock", "1");  // a run that is just about to begin
  EXPECT_EQ(run_folders({models + "/text"}), Names{models + "/text"});
  RunNames names;
  EXPECT_EQ(names.name_of(models + "/a"), "a");
  EXPECT_EQ(names.name_of(others + "/a"), "others/a");
  EXPECT_EQ(names.name_of(models + "/a"), "a");
}

}  // namespace
}  // namespace gpt::board
