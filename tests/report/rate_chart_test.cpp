#include "gpt/report/rate_chart.h"

#include <gtest/gtest.h>

#include <limits>

namespace gpt::report {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

const std::vector<RateCurve> kCurves = {{40, {{1e-3, 3.5}, {2e-3, 3.2}, {4e-3, 3.3}, {8e-3, kInfinite}}},
                                        {80, {{1e-3, 3.1}, {2e-3, 2.8}, {4e-3, 2.9}}}};

TEST(RateChart, ATerminalHasTheRatesBelowTheLosses) {
  const std::string text = draw_rate_curves(kCurves, 80, /*unicode=*/false);
  EXPECT_NE(text.find("* after 80 updates 2.9000   o after 40 updates 3.3000"), std::string::npos) << text;
  const std::string labels = text.substr(text.rfind('\n'));
  EXPECT_NE(labels.find("0.001 "), std::string::npos) << labels;
  EXPECT_TRUE(labels.ends_with("0.004")) << labels;
  EXPECT_EQ(draw_rate_curves({{40, {{1e-3, kInfinite}}}}, 80, false), "");
}

TEST(RateChart, APictureIsWideEnoughForWhatIsWrittenBelowIt) {
  std::string why;
  for (int i = 0; i < 60; ++i) why += "so many words ";
  const std::string svg = rate_curves_svg(kCurves, 2.2e-3, why + "end");
  const std::string begin = "<text class=\"fact\" x=\"10\" y=\"";
  size_t lines = 0;
  for (size_t at = svg.find(begin); at != std::string::npos; at = svg.find(begin, at + 1), ++lines) {
    const size_t text = svg.find('>', at) + 1;
    EXPECT_LE(svg.find('<', text) - text, 100u);
  }
  EXPECT_GT(lines, 4u);
  const size_t height = svg.find("height=\"") + 8;
  EXPECT_GT(std::stoi(svg.substr(height)), 320 + 48 + 17 * 8);
}

TEST(RateChart, APictureHasAPointForEachTrialThatEndedAndMarksTheRate) {
  const std::string svg = rate_curves_svg(kCurves, 2.2e-3, "because");
  size_t points = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++points;
  EXPECT_EQ(points, 6u);
  EXPECT_NE(svg.find("Learning rate 0.0022"), std::string::npos);
  EXPECT_NE(svg.find(">because</text>"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(rate_curves_svg({}, 1e-3, "").find("inf"), std::string::npos);
}

}  // namespace
}  // namespace gpt::report
