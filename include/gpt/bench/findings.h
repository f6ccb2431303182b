// What one command of gpt-bench found out: a text for people, an object for programs, and the bars of a chart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/bench/document.h"

namespace gpt::bench {

struct Bar {
  std::string name, label;
  double length;  // in the unit that the chart's title names
  bool is_dark;
  bool is_told = true;  // where it is not, the length is that of what is below it, and the bar an outline
};

// What dark and grey bars are.
struct Legend {
  std::string dark, grey;
};

struct Findings {
  Document text;
  std::string json;  // an object
  std::string chart_title;
  std::vector<Bar> bars = {};
  Legend legend = {};
  int64_t threads = 0;    // CPU threads that were used; 0: nothing was measured on this machine
  bool complete = false;  // not stopped by a signal
};

}  // namespace gpt::bench
