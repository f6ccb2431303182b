// Loss curves in a terminal: at the end of a run, and to compare several runs.
//
//      loss ⣿ training 1.3549   ● validation 1.4803
//     4.143 ┤⢣
//     2.752 ┤⠈⠢⡀●
//     1.360 ┤  ⠈⠑⠤⠤⠤●⣀⣀●
//           └┬────┬────┬
//            0   5,000 steps
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

struct LossPoint {
  int64_t step = 0;
  double loss = 0;  // one that is not finite is left out
};

struct LossCurve {
  std::string name;
  std::vector<LossPoint> points;
};

// `curves` on common axes, `width` columns and `height` rows in all (at least 40 and 6 are used), each row ending with a
// newline; nothing where no loss is finite. With `unicode` the first curve is a line of braille dots, two across and four down
// in a column; without it, and for the others, each curve has a mark of its own. A column shows the mean of its losses.
std::string draw_loss_curve(const std::vector<LossCurve>& curves, int width, int height, bool unicode);

}  // namespace gpt
