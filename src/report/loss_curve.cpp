#include "gpt/report/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "gpt/core/format.h"

namespace gpt::report {
namespace {

using StepLabel = std::function<std::string(double step)>;

constexpr int kLabelWidth = 8;  // columns for losses, to the left of the axis

struct Marks {
  std::array<const char*, 6> curves;
  const char *axis, *tick, *corner, *line, *line_tick;
};

// The mark of each curve; in Unicode the first one is what the legend shows for a line of dots.
constexpr Marks kUnicode{{"⣿", "●", "▲", "◆", "○", "△"}, "│", "┤", "└", "─", "┬"};
constexpr Marks kAscii{{"*", "o", "+", "x", "#", "@"}, "|", "+", "+", "-", "+"};

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Where a value lies, from 0 at the low end to `cells` - 1 at the high one.
  int cell(double value, int cells) const {
    if (high == low) return cells / 2;
    return std::clamp(static_cast<int>(std::lround((value - low) / (high - low) * (cells - 1))), 0, cells - 1);
  }
};

// The mean loss in each of `columns` equal parts of the steps, where there is one.
std::vector<std::optional<double>> column_means(const LossCurve& curve, const Range& steps, int columns) {
  std::vector<double> sums(columns), counts(columns);
  for (const CurvePoint& point : curve.points) {
    const int column = steps.cell(static_cast<double>(point.step), columns);
    sums[column] += *point.value;
    ++counts[column];
  }
  std::vector<std::optional<double>> means(columns);
  for (int i = 0; i < columns; ++i) {
    if (counts[i] > 0) means[i] = sums[i] / counts[i];
  }
  return means;
}

// The cells between the axes, each holding what it prints.
class Canvas {
 public:
  Canvas(int columns, int rows) : columns_(columns), rows_(rows), dots_(columns * rows), marks_(columns * rows) {}
  int columns() const { return columns_; }
  int rows() const { return rows_; }

  void mark(int column, int row, const char* mark) { marks_[row * columns_ + column] = mark; }

  // x and y count dots, y from the top.
  void dot(int x, int y) {
    constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    dots_[y / 4 * columns_ + x / 2] |= kBits[y % 4][x % 2];
  }

  std::string row(int row) const {
    std::string text;
    for (int i = row * columns_; i < (row + 1) * columns_; ++i) {
      if (marks_[i]) {
        text += marks_[i];
      } else if (dots_[i]) {
        const uint8_t bits = dots_[i];  // U+2800 + bits in UTF-8
        text += {'\xE2', static_cast<char>(0xA0 | bits >> 6), static_cast<char>(0x80 | (bits & 0x3F))};
      } else {
        text += ' ';
      }
    }
    return text.erase(text.find_last_not_of(' ') + 1);
  }

 private:
  int columns_, rows_;
  std::vector<uint8_t> dots_;
  std::vector<const char*> marks_;
};

// A line through the means of columns that are half a cell wide.
void draw_line(const std::vector<std::optional<double>>& means, const Range& losses, Canvas& canvas) {
  const int dots = 4 * canvas.rows();
  std::optional<std::pair<int, int>> last;
  for (int x = 0; x < static_cast<int>(means.size()); ++x) {
    if (!means[x]) continue;
    const int y = dots - 1 - losses.cell(*means[x], dots);
    const auto [from_x, from_y] = last.value_or(std::pair(x, y));
    const int length = std::max({x - from_x, std::abs(y - from_y), 1});
    for (int i = 0; i <= length; ++i)
      canvas.dot(from_x + (x - from_x) * i / length, from_y + (y - from_y) * i / length);
    last = {x, y};
  }
}

void draw_marks(const std::vector<std::optional<double>>& means, const Range& losses, const char* mark,
                Canvas& canvas) {
  for (int column = 0; column < static_cast<int>(means.size()); ++column) {
    if (means[column]) canvas.mark(column, canvas.rows() - 1 - losses.cell(*means[column], canvas.rows()), mark);
  }
}

int columns_of(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// "loss ⣿ training 1.4113   ● validation 1.4803": the last loss of each, in as many rows as they need.
std::string legend(const std::vector<LossCurve>& curves, const char* quantity, const Marks& marks, int width) {
  std::string text, row = fmt::format("{:>{}}", quantity, kLabelWidth - 1);
  const size_t empty = row.size();
  for (size_t i = 0; i < curves.size(); ++i) {
    const std::string entry = fmt::format("{} {} {:.4f}", marks.curves[i % marks.curves.size()], curves[i].name,
                                          *curves[i].points.back().value);
    if (row.size() > empty && columns_of(row) + 3 + columns_of(entry) > width) {
      text += row + "\n";
      row = std::string(empty, ' ');
    }
    row += (row.size() > empty ? "   " : " ") + entry;
  }
  return text + row + "\n";
}

// After the point: as many as tell two labels that are `spacing` apart from each other, and as there is room for.
int label_digits(const Range& losses, double spacing) {
  const double largest = std::max({std::abs(losses.low), std::abs(losses.high), 1.0});
  const int fewest = largest < 100 ? 3 : 0;
  const int most = kLabelWidth - 3 - static_cast<int>(std::log10(largest));
  const int needed = spacing > 0 ? static_cast<int>(std::ceil(-std::log10(spacing))) : 0;
  return std::max(fewest, std::min(needed, most));
}

// The first, the middle and the last step below the axis.
std::string step_labels(const Range& steps, int columns, const StepLabel& label) {
  const auto text = [&](double step) { return label ? label(step) : with_commas(std::lround(step)); };
  const std::string first = text(steps.low);
  const std::string last = text(steps.high) + (label ? "" : " steps");
  const std::string middle = text((steps.low + steps.high) / 2);
  const int gap = columns - static_cast<int>(first.size() + last.size());
  if (steps.high - steps.low < 2 || gap < static_cast<int>(middle.size()) + 4) {
    return fmt::format("{}{:>{}}", first, last, std::max<int>(columns - first.size(), last.size() + 1));
  }
  const int before = columns / 2 - static_cast<int>(middle.size() / 2 + first.size());
  return fmt::format("{}{:>{}}{}{}{}", first, "", std::max(before, 1), middle,
                     std::string(std::max<int>(gap - std::max(before, 1) - middle.size(), 1), ' '), last);
}

// Means of columns, not single losses, decide how high the axis reaches.
Range range_of(const std::vector<std::vector<std::optional<double>>>& curves) {
  Range range;
  for (const auto& means : curves) {
    for (const auto& mean : means) {
      if (mean) range.add(*mean);
    }
  }
  return range;
}

}  // namespace

std::string draw_loss_curve(std::vector<LossCurve> curves, int width, int height, bool unicode, const char* quantity,
                            const StepLabel& label) {
  const Marks& marks = unicode ? kUnicode : kAscii;
  width = std::max(width, 40);
  Canvas canvas(width - kLabelWidth - 1, std::max(height, 6) - 3);
  Range steps;
  for (LossCurve& curve : curves) {
    std::erase_if(curve.points, [](const CurvePoint& point) { return !point.value || !std::isfinite(*point.value); });
    for (const CurvePoint& point : curve.points) steps.add(static_cast<double>(point.step));
  }
  std::erase_if(curves, [](const LossCurve& curve) { return curve.points.empty(); });
  if (curves.empty()) return "";
  std::vector<std::vector<std::optional<double>>> means;
  const auto is_line = [&](size_t curve) { return unicode && curve == 0; };
  for (size_t i = 0; i < curves.size(); ++i) {
    means.push_back(column_means(curves[i], steps, (is_line(i) ? 2 : 1) * canvas.columns()));
  }
  const Range losses = range_of(means);
  for (size_t i = 0; i < curves.size(); ++i) {
    if (is_line(i)) {
      draw_line(means[i], losses, canvas);
    } else {
      draw_marks(means[i], losses, marks.curves[i % marks.curves.size()], canvas);
    }
  }

  std::string text = legend(curves, quantity, marks, width);
  const int rows = canvas.rows(), between = std::max(2, rows / 4);  // rows from one label to the next
  const double per_row = (losses.high - losses.low) / std::max(rows - 1, 1);
  const int digits = label_digits(losses, per_row * (between / 2 + 1));  // the last two may be that close
  for (int row = 0; row < rows; ++row) {
    const double loss = losses.high - per_row * row;
    const bool is_tick = row == rows - 1 || (row % between == 0 && row + between / 2 < rows - 1);
    const std::string label =
        is_tick ? fmt::format("{:>{}.{}f}", loss, kLabelWidth - 1, digits) : std::string(kLabelWidth - 1, ' ');
    text += fmt::format("{} {}{}\n", label, is_tick ? marks.tick : marks.axis, canvas.row(row));
  }
  text += std::string(kLabelWidth, ' ') + marks.corner;
  for (int i = 0; i < canvas.columns(); ++i) {
    const bool is_tick = i == 0 || i == canvas.columns() / 2 || i == canvas.columns() - 1;
    text += is_tick ? marks.line_tick : marks.line;
  }
  return text + fmt::format("\n{:{}}{}", "", kLabelWidth + 1, step_labels(steps, canvas.columns(), label));
}

}  // namespace gpt::report
