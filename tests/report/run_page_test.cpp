#include "gpt/report/run_page.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

namespace gpt::report {
namespace {

using nlohmann::ordered_json;

LossRecord loss_at(int64_t step) {
  return {.step = step, .loss = 0.5 * static_cast<double>(step % 7), .learning_rate = 1, .grad_norm = 2};
}

// As the script of the page does.
void merge(const ordered_json& message, std::map<std::string, std::vector<std::pair<int64_t, ordered_json>>>& curves) {
  for (const auto& [name, curve] : message.items()) {
    auto& known = curves[name];
    std::erase_if(known, [&](const auto& point) { return point.first >= curve.value("from", 0); });
    for (size_t i = 0; i < curve["steps"].size(); ++i) known.emplace_back(curve["steps"][i], curve["values"][i]);
  }
}

TEST(SentCurves, WhatIsAddedMakesTheWholeCurve) {
  RunHistory history;
  SentCurves sent;
  std::map<std::string, std::vector<std::pair<int64_t, ordered_json>>> page, whole;
  for (int64_t step = 1; step <= 5000; ++step) {  // far beyond Curve::kMaxPoints, so that buckets become wider
    history.add(loss_at(step));
    if (step % 251 == 0) merge(sent.next(history), page);
  }
  merge(sent.next(history), page);
  merge(SentCurves().next(history), whole);
  EXPECT_EQ(page, whole);
  EXPECT_GT(page["mean_loss"].size(), 500u);
}

TEST(SentCurves, SendsWhatHasChangedAndNoMore) {
  RunHistory history;
  SentCurves sent;
  EXPECT_EQ(sent.next(history)["loss"]["steps"], ordered_json::array());  // so that a page knows all of them
  EXPECT_TRUE(sent.next(history).empty());
  for (int64_t step = 1; step <= 100; ++step) history.add(loss_at(step));
  (void)sent.next(history);
  history.add(loss_at(101));
  const ordered_json next = sent.next(history);
  EXPECT_EQ(next["loss"]["steps"], (ordered_json{100, 101}));
  EXPECT_FALSE(next.contains("validation_loss"));
}

TEST(RunPage, SaysWhatTheDeviceDoesBesideTheShareOfItsLimit) {
  RunPage page{.name = "a"};
  RunHistory history;
  EXPECT_FALSE(page_head(page, history).contains("device"));
  history.add(StepRecord{.step = 1, .mfu = 0.2, .devices = {{.utilization = 0.99}}});
  EXPECT_EQ(page_head(page, history)["device"]["verdicts"][0],
            "The GPU is busy 99 % of the time, at 20 % of its peak speed.");
  EXPECT_EQ(page_head(page, history)["device"]["read"], ordered_json{"busy 99 %"});
  EXPECT_EQ(SentCurves().next(history)["gpu_busy"]["values"], ordered_json{0.99});
  page.efficiency = 0.75;
  EXPECT_EQ(page_head(page, history)["device"]["verdicts"],
            ordered_json{
                "The GPU is busy 99 % of the time, at 75 % of what a large product and a large copy would allow."});
}

TEST(RunPage, NamesTheDeviceOfSeveral) {
  RunHistory history;
  history.add(StepRecord{.step = 1, .mfu = {}, .devices = {{.utilization = 0.99}, {.utilization = 0.5}}});
  const ordered_json device = page_head({.name = "a"}, history)["device"];
  EXPECT_EQ(device["read"], (ordered_json{"GPU 0: busy 99 %", "GPU 1: busy 50 %"}));
  ASSERT_EQ(device["verdicts"].size(), 2u) << device;
  EXPECT_EQ(device["verdicts"][0], "GPU 1: The GPU is busy 50 % of the time.");
}

TEST(RunPage, HasCurvesOfEachLayer) {
  RunHistory history;
  EXPECT_EQ(page_head({.name = "a"}, history)["layers"], ordered_json::array());
  history.add(StepRecord{.step = 5,
                         .mfu = {},
                         .norms = LayerNorms{.gradient = {1, 2, 3}, .weight = {4, 5, 6}, .update = {1, 5, 3}}});
  EXPECT_EQ(page_head({.name = "a"}, history)["layers"], (ordered_json{"embeddings", "h.0", "final"}));
  const ordered_json curves = SentCurves().next(history);
  EXPECT_EQ(curves["layer_gradient embeddings"]["values"], ordered_json{1.0});
  EXPECT_EQ(curves["layer_weight h.0"]["values"], ordered_json{5.0});
  EXPECT_EQ(curves["layer_change final"]["values"], ordered_json{0.5});
}

TEST(RunPage, SaysWhatHappensOnlyWhereItIsLive) {
  RunPage page{.name = "a", .written = 12.75};
  EXPECT_FALSE(page_head(page, {}).contains("live"));
  EXPECT_EQ(page_head(page, {})["written"], 12);
  page.live = RunPage::Live{.state = "running", .activity = "saving", .warnings = {"w"}};
  EXPECT_EQ(page_head(page, {})["live"]["activity"], "saving");
}

}  // namespace
}  // namespace gpt::report
