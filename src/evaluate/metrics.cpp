#include "gpt/evaluate/metrics.h"

#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

namespace gpt::evaluate {
namespace {

constexpr double kNormal95 = 1.959963984540054;  // so many standard errors on both sides have 95 %
constexpr int64_t kEnoughDocuments = 30;

Metric plain(const std::string& name, const Mean& mean) {
  Metric metric{name, mean.value, mean.standard_error};
  if (const auto error = mean.standard_error)
    metric.interval = {mean.value - kNormal95 * *error, mean.value + kNormal95 * *error};
  return metric;
}

// The share of right answers. The interval is Wilson's, which has no part below 0 or above 1 (Wilson, 1927).
Metric share(const std::string& name, const std::vector<double>& is_right) {
  const Mean mean = mean_of(is_right);
  Metric metric{name, mean.value, mean.standard_error};
  if (!mean.standard_error) return metric;
  const double n = static_cast<double>(is_right.size()), p = mean.value, z2 = kNormal95 * kNormal95;
  const double middle = p + z2 / (2 * n), half = kNormal95 * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  metric.interval = {(middle - half) / (1 + z2 / n), (middle + half) / (1 + z2 / n)};
  return metric;
}

// The exponential of a mean.
Metric exponential(const std::string& name, const Mean& mean) {
  Metric metric{name, std::exp(mean.value)};
  if (const auto error = mean.standard_error) {
    metric.standard_error = metric.value * *error;
    metric.interval = {std::exp(mean.value - kNormal95 * *error), std::exp(mean.value + kNormal95 * *error)};
  }
  return metric;
}

Mean scaled(const Mean& mean, double factor) {
  Mean result{mean.value * factor};
  if (mean.standard_error) result.standard_error = *mean.standard_error * factor;
  return result;
}

std::vector<double> values_of(const std::vector<Outcome>& outcomes,
                              const std::function<double(const Outcome&)>& value) {
  std::vector<double> values;
  for (const Outcome& outcome : outcomes) values.push_back(value(outcome));
  return values;
}

// Losses and tokens of the units that the standard error takes for independent.
struct Units {
  std::vector<double> losses, tokens;

  Units(Form form, const std::vector<Outcome>& outcomes, int64_t window) {
    const bool by_document =
        form == Form::answers || outcomes.back().document - outcomes.front().document + 1 >= kEnoughDocuments;
    const Outcome* last = nullptr;
    for (const Outcome& outcome : outcomes) {
      const bool goes_on =
          last && (by_document ? last->document == outcome.document : tokens.back() < static_cast<double>(window));
      if (!goes_on) losses.push_back(0), tokens.push_back(0);
      losses.back() -= outcome.log_likelihoods[0];
      tokens.back() += static_cast<double>(outcome.tokens);
      last = &outcome;
    }
  }
};

std::vector<Metric> of_text(Form form, const std::vector<Outcome>& outcomes, int64_t window) {
  const Units units(form, outcomes, window);
  const Mean loss = ratio_of(units.losses, units.tokens);
  double tokens = 0, bytes = 0, words = 0;
  for (const Outcome& outcome : outcomes) {
    tokens += static_cast<double>(outcome.tokens);
    bytes += static_cast<double>(outcome.bytes);
    words += static_cast<double>(outcome.words);
  }
  const Mean per_byte = scaled(loss, tokens / bytes);
  std::vector<Metric> metrics{plain("loss", loss), exponential("perplexity", loss)};
  if (bytes > 0) {  // there are answers of a single special token
    metrics.push_back(plain("bits_per_byte", scaled(per_byte, 1 / std::numbers::ln2)));
    metrics.push_back(exponential("byte_perplexity", per_byte));
  }
  if (form == Form::text) metrics.push_back(exponential("word_perplexity", scaled(loss, tokens / words)));
  return metrics;
}

}  // namespace

Mean mean_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  Mean mean{std::accumulate(values.begin(), values.end(), 0.0) / n};
  if (values.size() < 2) return mean;
  double squares = 0;
  for (const double value : values) squares += std::pow(value - mean.value, 2);
  mean.standard_error = std::sqrt(squares / (n - 1) / n);
  return mean;
}

Mean ratio_of(const std::vector<double>& values, const std::vector<double>& sizes) {
  const double size = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  Mean mean{std::accumulate(values.begin(), values.end(), 0.0) / size};
  if (values.size() < 2) return mean;
  double squares = 0;
  for (size_t i = 0; i < values.size(); ++i) squares += std::pow(values[i] - mean.value * sizes[i], 2);
  const auto n = static_cast<double>(values.size());
  mean.standard_error = std::sqrt(squares * n / (n - 1)) / size;
  return mean;
}

std::vector<Metric> metrics_of(Form form, const std::vector<Outcome>& outcomes, int64_t window) {
  if (has_loss(form)) return of_text(form, outcomes, window);
  const Metric acc = share("acc", values_of(outcomes, [](const Outcome& o) { return o.acc; }));
  if (form == Form::choices) {
    return {acc, share("acc_norm", values_of(outcomes, [](const Outcome& o) { return o.acc_norm; })),
            share("acc_bytes", values_of(outcomes, [](const Outcome& o) { return o.acc_bytes; }))};
  }
  const auto losses = values_of(outcomes, [](const Outcome& o) { return -o.log_likelihoods[0]; });
  return {acc, exponential("perplexity", mean_of(losses))};
}

}  // namespace gpt::evaluate
