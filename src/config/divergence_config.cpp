#include "gpt/config/divergence_config.h"

#include "gpt/config/option.h"

namespace gpt::config {

std::vector<Option> options(DivergenceConfig& d) {
  return {
      {.name = "on_divergence",
       .target = choice(d.reaction, {{"off", OnDivergence::off},
                                     {"stop", OnDivergence::stop},
                                     {"skip", OnDivergence::skip},
                                     {"rollback", OnDivergence::rollback}}),
       .help =
           "what follows a spike, an update whose loss or gradient norm is far above those before; it is never applied, except "
           "with off, which looks for none; stop = the run ends; skip = it goes on; rollback = weights and optimizer go back to "
           "the last good checkpoint, which needs a checkpoint_interval in steps or epochs",
       .if_false = "off"},
      {.name = "spike_window",
       .target = &d.spike_window,
       .help =
           "updates before it that a spike is told by, and that a checkpoint must be followed by, without a spike, to be "
           "good",
       .min = 8,
       .max = 1024},
      {.name = "spike_threshold",
       .target = &d.spike_threshold,
       .help =
           "how far above the median of spike_window a spike begins, in standard deviations, which are estimated as 1.4826 "
           "times the median distance from the median and are at least 0.5 % of it for the loss, a fifth for the norm",
       .min = 1,
       .max = 1e6},
      {.name = "rollback_lr_factor",
       .target = &d.rollback_lr_factor,
       .help = "what the learning rate of the rest of the run is multiplied by at each rollback",
       .min = 0.01,
       .max = 1},
      {.name = "max_rollbacks",
       .target = &d.max_rollbacks,
       .help = "rollbacks of a run; where one more would be needed it stops",
       .min = 1,
       .max = 1e6},
  };
}

}  // namespace gpt::config
