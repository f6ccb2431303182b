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
};

struct Findings {
  Document text;
  std::string json;  // an object
  std::string chart_title;
  std::vector<Bar> bars = {};
  int64_t threads = 0;    // CPU threads that were used; 0: nothing was measured on this machine
  bool complete = false;  // not stopped by a signal
};

}  // namespace gpt::bench
