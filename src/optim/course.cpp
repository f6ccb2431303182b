#include "gpt/optim/course.h"

#include <algorithm>
#include <cmath>

namespace gpt::optim {

double Course::position_at(int64_t step) const {
  if (planned == 0) return static_cast<double>(step);
  if (step >= total) return static_cast<double>(planned);
  const double done = static_cast<double>(step - since) / static_cast<double>(total - since);
  return position + (static_cast<double>(planned) - position) * done;
}

void Course::end_at(int64_t end, int64_t step) {
  if (planned == 0) {
    *this = {.planned = end, .total = end, .since = step, .position = static_cast<double>(step)};
    return;
  }
  position = position_at(step);
  since = step;
  total = std::max(end, step);
}

void Course::stretch(double times, int64_t step) {
  position = position_at(step);
  since = step;
  const double per_step = position > 0 ? position / static_cast<double>(step) : 1;
  planned = std::max<int64_t>(1, std::llround(times * static_cast<double>(planned)));
  const double left = std::max(0.0, static_cast<double>(planned) - position);
  position = std::min(position, static_cast<double>(planned));
  total = step + std::llround(left / per_step);
}

}  // namespace gpt::optim
