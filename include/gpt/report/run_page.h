// What a page shows of a run, as the JSON that its script (src/report/html_report.js) reads: in report.html all of it at once, on the page
// of gpt-board what has changed.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gpt/report/run_history.h"

namespace gpt::report {

struct RunPage {
  // Where somebody follows the run as it goes.
  struct Live {
    std::string state;             // "starting", "running", "stopped", "done", "killed"; empty: not known
    std::string activity = {};     // "validating 40%"
    double remaining_seconds = 0;  // 0: not known
    double silent_seconds = 0;     // nothing was heard for so long, which is long; otherwise 0
    std::vector<std::string> warnings = {};
    bool may_be_told = false;  // what to do, by this page
  };

  std::string name;
  bool has_ended = false;
  std::string stopped = {};  // why, for a run that stopped before its end
  double written = 0, silent_seconds = 0;
  int64_t step = 0, total_steps = 0;
  double epochs = 0;
  int64_t parameters = 0;
  std::string machine = {}, configuration = {};
  std::optional<double> efficiency = {};
  std::optional<Live> live = {};
};

// What of each curve a page has.
class SentCurves {
 public:
  // What it lacks: {NAME: {"steps": [...], "values": [...], "from": STEP}}, whose points take the place of those from that step on, or of
  // all where there is none.
  nlohmann::ordered_json next(const RunHistory& history);

 private:
  struct Sent {
    int64_t width = 0, last_step = -1;
  };
  std::map<std::string, Sent> sent_;
};

nlohmann::ordered_json page_head(const RunPage& page, const RunHistory& history);  // all but what follows
nlohmann::ordered_json page_samples(const RunHistory& history);
nlohmann::ordered_json page_events(const RunHistory& history);
nlohmann::ordered_json whole_page(const RunPage& page, const RunHistory& history);

// At most six significant digits; null where it is not finite.
nlohmann::ordered_json page_number(double value);

// JSON that may stand in a <script> element: bytes that are not UTF-8 are U+FFFD, and neither "<", by which a sample could end
// the element, nor the two characters that JSON allows and older JavaScript does not are in it.
std::string script_safe(const nlohmann::ordered_json& value);

}  // namespace gpt::report
