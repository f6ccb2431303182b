#include "gpt/report/loss_curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace gpt::report {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// As a terminal counts: one for every character, all of which are narrow.
size_t columns_of(const std::string& line) {
  size_t columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return columns;
}

LossCurve falling(const std::string& name, double end) {
  LossCurve curve{name, {}};
  for (int64_t step = 0; step <= 10'000; step += 10)
    curve.points.push_back({step, end + 3 * std::exp(-static_cast<double>(step) / 1000)});
  return curve;
}

TEST(LossCurve, IsReadableInAscii) {
  const LossCurve curve{"training", {{0, 4}, {1, 3}, {2, 2}, {3, 1}}};
  EXPECT_EQ(draw_loss_curve({curve}, 40, 7, false),
            "   loss * training 1.0000\n"
            "  4.000 +*\n"
            "        |          *\n"
            "        |                    *\n"
            "  1.000 +                              *\n"
            "        ++--------------+--------------+\n"
            "         0              2        3 steps");
}

TEST(LossCurve, LabelsHaveTheDigitsThatTellThemApart) {
  const auto labels = [](double high, double low) {
    std::string text;
    for (const std::string& line : lines_of(draw_loss_curve({{"training", {{0, high}, {1, low}}}}, 40, 9, false)))
      if (line.find(" +") == 7 && line[6] != ' ') text += line.substr(0, 7);
    return text;
  };
  EXPECT_EQ(labels(4.2331, 4.2319), " 4.2331 4.2326 4.2319");
  EXPECT_EQ(labels(4.23301, 4.23299), "4.233014.233004.23299");
  EXPECT_EQ(labels(4, 4), "  4.000  4.000  4.000");
  EXPECT_EQ(labels(512, 511), "  512.0  511.6  511.0");
  EXPECT_EQ(labels(123456, 1), " 123456  74074      1");
}

TEST(LossCurve, ALineOfDotsInUnicode) {
  const LossCurve curve{"training", {{0, 1}, {1, 0}}};
  EXPECT_EQ(draw_loss_curve({curve}, 40, 6, true),
            "   loss ⣿ training 0.0000\n"
            "  1.000 ┤⠉⠉⠉⠒⠒⠒⠤⠤⢄⣀⣀⡀\n"
            "        │           ⠈⠉⠉⠒⠒⠒⠤⠤⢄⣀⣀⡀\n"
            "  0.000 ┤                      ⠈⠉⠉⠒⠒⠒⠤⠤⢄\n"
            "        └┬──────────────┬──────────────┬\n"
            "         0                       1 steps");
}

TEST(LossCurve, FitsTheTerminal) {
  for (const bool unicode : {false, true}) {
    for (const int width : {40, 80, 200}) {
      const auto lines = lines_of(draw_loss_curve({falling("training", 1.5)}, width, 15, unicode));
      EXPECT_EQ(lines.size(), 15);
      for (size_t i = 1; i < lines.size(); ++i) EXPECT_LE(columns_of(lines[i]), width) << lines[i];
    }
  }
}

TEST(LossCurve, SeveralCurvesHaveMarksAndLastLosses) {
  const std::string ascii = draw_loss_curve({falling("a", 1), falling("b", 2), falling("c", 3)}, 80, 20, false);
  EXPECT_NE(ascii.find("* a 1.0001   o b 2.0001   + c 3.0001"), std::string::npos) << ascii;
  const auto lines = lines_of(ascii);
  EXPECT_EQ(lines[17].back(), '*') << ascii;  // a ends lowest, c highest
  const std::string plotted = ascii.substr(ascii.find('\n'));
  for (const char mark : {'*', 'o'}) EXPECT_NE(plotted.find(mark), std::string::npos) << ascii;
  EXPECT_NE(plotted.find("++++++"), std::string::npos) << ascii;
  EXPECT_GT(draw_loss_curve({falling("a", 1), falling("b", 2)}, 80, 20, true).rfind("●"),
            200);  // not in the legend alone
}

TEST(LossCurve, ALongLegendTakesSeveralRows) {
  const std::vector<LossCurve> curves{falling("models/the first run", 1), falling("models/the second run", 2),
                                      falling("models/the third run", 3)};
  const auto lines = lines_of(draw_loss_curve(curves, 70, 20, true));
  ASSERT_EQ(lines.size(), 21);
  EXPECT_EQ(lines[0], "   loss ⣿ models/the first run 1.0001   ● models/the second run 2.0001");
  EXPECT_EQ(lines[1], "        ▲ models/the third run 3.0001");
}

TEST(LossCurve, WhatIsNotFiniteIsLeftOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(draw_loss_curve({}, 80, 20, true), "");
  EXPECT_EQ(draw_loss_curve({{"training", {}}}, 80, 20, true), "");
  EXPECT_EQ(draw_loss_curve({{"training", {{1, nan}, {2, infinity}}}}, 80, 20, true), "");
  const std::string some =
      draw_loss_curve({{"validation", {}}, {"training", {{1, 2.0}, {2, nan}, {3, 1.0}, {4, {}}, {9, infinity}}}}, 80,
                      20, false);
  EXPECT_NE(some.find("loss * training 1.0000\n"), std::string::npos);
  EXPECT_NE(some.find("3 steps"), std::string::npos);
  EXPECT_EQ(some.find("nan"), std::string::npos);
}

TEST(LossCurve, OnePointAndAFlatCurveAreDrawn) {
  for (const bool unicode : {false, true}) {
    EXPECT_NE(draw_loss_curve({{"training", {{7, 2.5}}}}, 80, 20, unicode).find("2.500"), std::string::npos);
    const std::string flat = draw_loss_curve({{"training", {{0, 2.5}, {5, 2.5}}}}, 1, 1, unicode);
    EXPECT_EQ(lines_of(flat).size(), 6) << flat;
  }
}

TEST(LossCurve, AnOutlierDoesNotFlattenTheRest) {
  LossCurve curve = falling("training", 1.5);
  curve.points[500].value = 100;  // one of the 14 steps in its column
  const auto lines = lines_of(draw_loss_curve({curve}, 80, 20, false));
  EXPECT_LT(std::stod(lines[1]), 15) << lines[1];
}

}  // namespace
}  // namespace gpt::report
