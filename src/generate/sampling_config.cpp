#include "gpt/generate/sampling_config.h"

#include <fmt/format.h>

#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/utf8.h"

namespace gpt::generate {

// All but the seed, which each program chooses in its own way.
std::vector<config::Option> options(SamplingConfig& c) {
  return {
      {.name = "temperature",
       .target = &c.temperature,
       .help = "below 1 is safer, above 1 is wilder, 0 always takes the likeliest token",
       .min = 0,
       .aliases = {{"t"}}},
      {.name = "top-k", .target = &c.top_k, .help = "draw only from the k likeliest tokens; 0 = from all", .min = 0},
      {.name = "top-p",
       .target = &c.top_p,
       .help = "draw only from the likeliest tokens that together have probability p; 1 = from all",
       .min = 1e-9,
       .max = 1},
      {.name = "min-p",
       .target = &c.min_p,
       .help = "draw only from tokens at least p times as likely as the likeliest one; 0 = from all",
       .min = 0,
       .max = 1},
      {.name = "repetition-penalty",
       .target = &c.repetition_penalty,
       .help = "above 1 makes tokens that prompt and text already have less likely; 1 = off",
       .min = 0.01,
       .max = 100},
      {.name = "max-new-tokens",
       .target = &c.max_new_tokens,
       .help = "write at most this many tokens",
       .min = 0,
       .aliases = {{"n"}, {"max-tokens"}}},
      {.name = "stop", .target = &c.stop, .help = "end the text where it would write this; may be given several times"},
  };
}

void validate(const SamplingConfig& config) {
  SamplingConfig copy = config;
  config::check_values(options(copy));
  for (const std::string& stop : config.stop) {
    if (!stop.empty() && utf8::is_valid(stop)) continue;
    throw Error(ExitCode::config,
                fmt::format("a stop text must be UTF-8 and not empty, got {}", config::in_quotes(stop)));
  }
}

}  // namespace gpt::generate
