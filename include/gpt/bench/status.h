// The line that says what is being measured and how long it will take.
#pragma once

#include "gpt/bench/effort.h"

namespace gpt::bench {

// Redrawn on a terminal; elsewhere a line for each thing that is measured, and one in ten seconds. `seconds`: that all of it may
// take, as long as its own speed is not known.
Progress show_status(double seconds);

}  // namespace gpt::bench
