// The losses that trials at several learning rates ended with, drawn: in a terminal, and as an SVG file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpt::report {

// Trials of one length, by their rates.
struct RateCurve {
  struct Point {
    double rate, loss;  // infinite where the trial diverged: it is not drawn
  };
  int64_t updates = 0;
  std::vector<Point> points;
};

// The longest trials are the line. Nothing where no loss is finite.
std::string draw_rate_curves(const std::vector<RateCurve>& curves, int width, bool unicode);

// A chart for light and dark pages; `rate` is marked, and `why` written below it.
std::string rate_curves_svg(const std::vector<RateCurve>& curves, double rate, const std::string& why);

}  // namespace gpt::report
