#include "gpt/config/schedule_config.h"

#include "gpt/config/option.h"

namespace gpt::config {

std::vector<Option> options(ScheduleConfig& c) {
  return {
      {.name = "epochs",
       .target = &c.epochs,
       .help = "length of the run in passes over the data; auto = as long as max_steps says",
       .min = 1,
       .max = 1e9,
       .aliases = {{"num_epochs"}, {"max_epochs"}, {"num_train_epochs"}},
       .tried = {"auto", "1"}},
      {.name = "max_steps",
       .target = &c.max_steps,
       .help = "length of the run in updates; auto = 5000 unless epochs or max_time is set",
       .min = 1,
       .max = 1e12,
       .aliases = {{"max_iters"}, {"steps"}, {"max_train_steps"}, {"num_steps"}},
       .tried = {"auto", "100"}},
      {.name = "max_time",
       .target = &c.max_time,
       .help =
           "time that the run takes, from the start of the program on, while it runs: as many updates as the machine does in it, with the "
           "learning rate at its end by then; epochs or max_steps may end it earlier",
       .min = 1,
       .max = 3650.0 * 86400,
       .aliases = {{.name = "max_minutes", .unit = "minutes"}, {.name = "max_hours", .unit = "hours"}}},
      {.name = "learning_rate",
       .target = FoundNumber{&c.learning_rate, &c.finds_learning_rate},
       .help =
           "peak learning rate, of AdamW and Muon alike, with init_from 1e-4, or 1e-3 of adapters, unless set; auto = found by short runs before the first update, in about a minute, and kept with the run",
       .min = 0,
       .max = 10,
       .aliases = {{"lr"}},
       .tried = {"0.001", "auto"}},
      {.name = "min_lr",
       .target = &c.min_lr,
       .help = "learning rate at the end of the schedule; with plateau the lowest one",
       .min = 0,
       .max = 10},
      {.name = "warmup_steps",
       .target = &c.warmup_steps,
       .help =
           "updates until learning_rate is reached; auto = 1000, with init_from 100, but at most a tenth of the run",
       .min = 0,
       .max = 1e12,
       .aliases = {{"warmup_iters"}, {"num_warmup_steps"}, {"lr_warmup_steps"}},
       .tried = {"auto", "5"}},
      {.name = "lr_schedule",
       .target = choice(c.lr_schedule, {{"cosine", LrSchedule::cosine},
                                        {"constant", LrSchedule::constant},
                                        {"linear", LrSchedule::linear},
                                        {"wsd", LrSchedule::wsd},
                                        {"plateau", LrSchedule::plateau}}),
       .help =
           "learning rate after the warm-up; cosine and linear = down to min_lr over the rest of the run; wsd = constant, then down "
           "to min_lr over the last decay_fraction, and with a larger max_steps the run goes on from before the decay; "
           "plateau = lower whenever the validation loss has stopped improving",
       .aliases = {{"use_lr_scheduler", "cosine", "constant"},
                   {"decay_lr", "cosine", "constant"},
                   {"lr_scheduler"},
                   {"lr_scheduler_type"}}},
      {.name = "decay_fraction",
       .target = &c.decay_fraction,
       .help = "share of the run, at its end, in which the learning rate of lr_schedule wsd decays",
       .min = 0.01,
       .max = 1,
       .aliases = {{"warmdown_ratio"}, {"cooldown_fraction"}, {"cooldown_frac"}}},
      {.name = "decay_shape",
       .target = choice(c.decay_shape, {{"linear", DecayShape::linear}, {"1-sqrt", DecayShape::one_minus_sqrt}}),
       .help =
           "how the learning rate of lr_schedule wsd decays; 1-sqrt = fast at first, by the root of the share of the decay "
           "that is done",
       .aliases = {{"decay_type"}}},
      {.name = "plateau_factor",
       .target = &c.plateau.factor,
       .help =
           "what lr_schedule plateau multiplies the learning rate by when the validation loss has stopped improving",
       .min = 0.001,
       .max = 0.999},
      {.name = "plateau_patience",
       .target = &c.plateau.patience,
       .help =
           "validations in a row without an improvement that lr_schedule plateau bears; with one more it lowers the "
           "learning rate",
       .min = 0,
       .max = 1e9},
      {.name = "plateau_threshold",
       .target = &c.plateau.threshold,
       .help =
           "share of the best validation loss by which one must be below it to be an improvement for lr_schedule plateau",
       .min = 0,
       .max = 0.999},
      {.name = "plateau_cooldown",
       .target = &c.plateau.cooldown,
       .help =
           "validations after lr_schedule plateau has lowered the learning rate in which none without an improvement counts",
       .min = 0,
       .max = 1e9},
  };
}

}  // namespace gpt::config
