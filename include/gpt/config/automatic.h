// model.preset: auto. Who names no model gets sizes, batch, optimizer, length and validation that suit this machine and this text, so
// that a useful model is ready in ten minutes or less. A fixed table, no measurement: the same command chooses the same.
#pragma once

#include <cstdint>
#include <functional>

#include "gpt/config/config.h"
#include "gpt/config/load.h"

namespace gpt::config {

// What the table is asked with.
struct Surroundings {
  bool gpu = false;
  int64_t cores = 1;
  int64_t processes = 1;
  int64_t characters = 0;  // how many the text has; 0 = not known
  bool is_utf8 = true;
  double characters_per_token = 1;
  bool has_conversations = false;
  std::function<bool(const Config&)> fits = {};  // into the memory of the machine; not asked where it is empty
};

// Whether the table is to choose: the preset is auto, and no size of the model was written out. Where training.init_from gives the
// sizes, it chooses the rest, and sequences that may be shorter than the model's context, unless their length was written out.
bool chooses_sizes(const Config& config, const Origins& origins);

// About as many characters as a token of a learned vocabulary of this size has, in English and in programs; other texts have fewer or more.
double characters_in_token(int64_t vocabulary);

// The tokenizer of a run whose sizes are chosen and whose text has none yet, unless one was written out: tokens learned from the text, where
// that is long enough, and seen seldom enough, for them to end lower than its characters in the same time (src/bench/README.md, "The
// tokenizer that auto takes").
void choose_tokenizer(Config& config, const Origins& origins, const Surroundings& surroundings);

// Sets what was not written out; nothing unless chooses_sizes(). Where it does not choose, auto becomes none.
void choose_sizes(Config& config, const Origins& origins, const Surroundings& surroundings);

// Settings of a run that begins with the weights of training.init_from, where they were not written out: a learning rate and a warm-up that
// leave what the model knows, and no dropout. Nothing where it begins with none.
void choose_tuning(Config& config, const Origins& origins);

// How often a run with training.max_time validates, unless that was written out: its steps are not known.
void choose_cadence(Config& config, const Origins& origins);

// training.sequence_length of conversations, which are short, unless it was written out.
void choose_sequence_length(Config& config, const Origins& origins, const Surroundings& surroundings);

// About as many weights as the blocks of such a model have.
double weights_of_blocks(int64_t n_layer, int64_t n_embd);

// How many epochs a model with so many weights of its blocks for each token of its text gains from: seeing it more often, it memorizes it, and
// the validation loss rises. `are_learned`: tokens of several characters, which are memorized sooner.
double useful_epochs(double weights_per_token, double dropout, bool are_learned);
double most_dropout(bool are_learned);  // the most that model.preset: auto takes against that

// A run goes on: sizes, optimizer, amp_mode, gradient_dtype, what batch_size: auto chose and learning_rate: auto found are those that it was
// started with, except for keys that were written out now.
void keep_choices(Config& config, const Origins& origins, const Config& saved);

}  // namespace gpt::config
