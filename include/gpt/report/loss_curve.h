// Loss curves in a terminal: at the end of a run, and to compare several runs.
//
//      loss ⣿ training 1.3549   ● validation 1.4803
//     4.143 ┤⢣
//     2.752 ┤⠈⠢⡀●
//     1.360 ┤  ⠈⠑⠤⠤⠤●⣀⣀●
//           └┬────┬────┬
//            0   5,000 steps
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpt/report/curve.h"

namespace gpt::report {

struct LossCurve {
  std::string name;
  std::vector<CurvePoint> points;  // those that are not finite are left out, and so is a curve without any other
};

// `curves` on common axes, in `width` columns and `height` rows (at least 40 and 6 are used, and more rows where the legend does
// not fit into one) with newlines between them; nothing where no loss is finite. With `unicode` the first curve is a line of braille
// dots, two across and four down in a column; without it, and for the others, each curve has a mark of its own. A column shows the mean
// of its losses. `quantity`, above the labels of the axis, has at most seven characters. `label`: of a step, where that is not its number.
std::string draw_loss_curve(std::vector<LossCurve> curves, int width, int height, bool unicode,
                            const char* quantity = "loss",
                            const std::function<std::string(double step)>& label = nullptr);

}  // namespace gpt::report
