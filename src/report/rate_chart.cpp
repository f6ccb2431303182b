#include "gpt/report/rate_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

#include "gpt/core/format.h"
#include "gpt/report/loss_curve.h"

namespace gpt::report {
namespace {

constexpr double kStepsOfOctave = 1000;  // whole numbers stand for the logarithms of rates

std::string rate_text(double rate) { return fmt::format("{:.2g}", rate); }

struct Bounds {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double value) { low = std::min(low, value), high = std::max(high, value); }
  double share(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

// Where things lie in the picture, which is 640 wide.
struct Plane {
  Bounds rates, losses;  // of their logarithms, and of those that are finite
  static constexpr double kLeft = 60, kRight = 470, kTop = 50, kBottom = 320;
  double x(double rate) const { return kLeft + (kRight - kLeft) * rates.share(std::log2(rate)); }
  double y(double loss) const { return kBottom - (kBottom - kTop) * losses.share(loss); }
};

Plane plane_of(const std::vector<RateCurve>& curves) {
  Plane plane;
  for (const RateCurve& curve : curves) {
    for (const auto& [rate, loss] : curve.points) {
      plane.rates.add(std::log2(rate));
      if (std::isfinite(loss)) plane.losses.add(loss);
    }
  }
  return plane;
}

std::string axes_svg(const std::vector<RateCurve>& curves, const Plane& plane) {
  std::string text;
  if (plane.losses.low > plane.losses.high) return text;  // none is finite
  std::vector<double> rates;
  for (const RateCurve& curve : curves)
    for (const auto& point : curve.points) rates.push_back(point.rate);
  std::sort(rates.begin(), rates.end());
  rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
  for (size_t i = 0; i < rates.size(); i += 2)
    text += fmt::format("<text class=\"fact\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                        plane.x(rates[i]), Plane::kBottom + 18, rate_text(rates[i]));
  constexpr int kTicks = 4;
  for (int i = 0; i <= kTicks; ++i) {
    const double loss = plane.losses.low + (plane.losses.high - plane.losses.low) * i / kTicks;
    text += fmt::format(
        "<text class=\"fact\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3f}</text>\n<path class=\"grid\" d=\"M{} {:.1f}H{}\"/>\n",
        Plane::kLeft - 8, plane.y(loss) + 4, loss, Plane::kLeft, plane.y(loss), Plane::kRight);
  }
  return text;
}

std::string curve_svg(const RateCurve& curve, const Plane& plane, const char* kind) {
  std::string path, dots;
  for (const auto& [rate, loss] : curve.points) {
    if (!std::isfinite(loss)) continue;
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", plane.x(rate), plane.y(loss));
    dots +=
        fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>\n", kind, plane.x(rate), plane.y(loss));
  }
  return path.empty() ? "" : fmt::format("<path class=\"{}\" fill=\"none\" d=\"{}\"/>\n{}", kind, path, dots);
}

}  // namespace

std::string draw_rate_curves(const std::vector<RateCurve>& curves, int width, bool unicode) {
  constexpr int kRows = 12;
  std::vector<LossCurve> drawn;
  for (auto curve = curves.rbegin(); curve != curves.rend(); ++curve) {
    LossCurve line{.name = "after " + plural(curve->updates, "update"), .points = {}};
    for (const auto& [rate, loss] : curve->points)
      line.points.push_back({std::llround(kStepsOfOctave * std::log2(rate)), loss});
    drawn.push_back(std::move(line));
  }
  return draw_loss_curve(std::move(drawn), width, kRows, unicode, "loss",
                         [](double step) { return rate_text(std::exp2(step / kStepsOfOctave)); });
}

std::string rate_curves_svg(const std::vector<RateCurve>& curves, double rate, const std::string& why) {
  constexpr const char* kStyle =
      "text { font-family: sans-serif; font-size: 13px; fill: #1b2027 }\n"
      ".title { font-size: 16px } .fact { font-size: 12px; fill: #667080 }\n"
      ".page { fill: #ffffff } .grid { stroke: #e4e8ee }\n"
      "path.longest { stroke: #2a6f97; stroke-width: 2 } circle.longest { fill: #2a6f97 }\n"
      "path.shorter { stroke: #b8c4cc } circle.shorter { fill: #b8c4cc } .found { stroke: #c8553d; stroke-dasharray: 4 3 }\n"
      "@media (prefers-color-scheme: dark) {\n"
      "  text { fill: #e4e8ee } .fact { fill: #97a1af } .page { fill: #12151a } .grid { stroke: #262c35 }\n"
      "  path.longest { stroke: #6ea8ff } circle.longest { fill: #6ea8ff }\n"
      "  path.shorter { stroke: #47525f } circle.shorter { fill: #47525f }\n"
      "}\n";
  Plane plane = plane_of(curves);
  plane.rates.add(std::log2(rate));
  std::string body = axes_svg(curves, plane);
  double label = Plane::kTop + 4;
  for (size_t i = curves.size(); i-- > 0;) {
    const bool is_longest = i + 1 == curves.size();
    body += curve_svg(curves[i], plane, is_longest ? "longest" : "shorter");
    body += fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\">{} {}</text>\n", is_longest ? "" : "fact",
                        Plane::kRight + 14, label, "after", plural(curves[i].updates, "update"));
    label += 20;
  }
  constexpr int kColumns = 100, kLineHeight = 17;  // of the facts, in the picture's width
  double bottom = Plane::kBottom + 48;
  std::istringstream lines(wrap_text(why, kColumns, 0));
  for (std::string line; std::getline(lines, line);) {
    body += fmt::format("<text class=\"fact\" x=\"10\" y=\"{}\">{}</text>\n", bottom, line);
    bottom += kLineHeight;
  }
  body +=
      fmt::format("<path class=\"found\" d=\"M{0:.1f} {1}V{2}\"/>\n", plane.x(rate), Plane::kTop - 6, Plane::kBottom);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 {0}\" width=\"640\" height=\"{0}\">\n<style>\n{1}</style>\n"
      "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n<text class=\"title\" x=\"10\" y=\"24\">Learning rate {2}: losses of "
      "short runs</text>\n{3}</svg>\n",
      bottom, kStyle, rate_text(rate), body);
}

}  // namespace gpt::report
