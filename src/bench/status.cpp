#include "gpt/bench/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "gpt/core/format.h"
#include "gpt/core/log.h"

namespace gpt::bench {
namespace {

class Status {
 public:
  explicit Status(double seconds) : seconds_(seconds) {}
  ~Status() { log::status(""); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  void show(double share, const std::string& what) {
    constexpr double kKnown = 0.05;  // the share of the work from which its speed is known
    constexpr double kBetweenLines = 10;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    const double left = share > kKnown ? passed.count() / share * (1 - share) : seconds_ - passed.count();
    const std::string text =
        fmt::format("measuring {:.0f}%: {}, about {} left", 100 * share, what, format_duration(std::max(0.0, left)));
    if (log::is_terminal()) {
      if (text != shown_) log::status(text);
      shown_ = text;
      return;
    }
    if (what == last_ && passed.count() < next_line_) return;
    log::info(text);
    last_ = what, next_line_ = passed.count() + kBetweenLines;
  }

 private:
  double seconds_, next_line_ = 0;
  std::string last_;   // what the last written line was about
  std::string shown_;  // on the terminal: steps can be shorter than it takes to redraw a line
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

Progress show_status(double seconds) {
  return [status = std::make_shared<Status>(seconds)](double share, const std::string& what) {
    status->show(share, what);
  };
}

}  // namespace gpt::bench
