// What the outcomes of a task say together, under the names of lm-evaluation-harness.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/evaluate/example.h"

namespace gpt::evaluate {

struct Interval {
  double low, high;
};

struct Metric {
  std::string name;
  double value = 0;
  std::optional<double> standard_error = {};  // nothing where there is too little to tell
  std::optional<Interval> interval = {};      // of 95 %
};

// choices: acc, acc_norm, acc_bytes. cloze: acc and perplexity per ending. text and answers: loss and perplexity per token, bits_per_byte,
// byte_perplexity; text: word_perplexity, too. `outcomes` must not be empty.
//
// Standard errors: of a mean its usual one; of a mean per token that of a ratio over units which are taken for independent of each other:
// conversations; documents, or where they are fewer than 30, stretches of at least a window. Intervals are those of a normal distribution, and of
// shares Wilson's. The standard errors of perplexities come from the means by the delta method, and their intervals are the exponentials
// of the means' intervals.
std::vector<Metric> metrics_of(Form form, const std::vector<Outcome>& outcomes, int64_t window);

// A mean and its standard error, with n - 1 in the variance: nothing for a single value.
struct Mean {
  double value = 0;
  std::optional<double> standard_error = {};
};
Mean mean_of(const std::vector<double>& values);

// The sum of `values` divided by that of `sizes`, unit by unit, and the standard error of this ratio.
Mean ratio_of(const std::vector<double>& values, const std::vector<double>& sizes);

}  // namespace gpt::evaluate
