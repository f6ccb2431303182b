// Gradients that no process has all of (ZeRO 2): what a backward pass has completed goes to the processes that keep its sum, and its memory
// is free for what comes next.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gpt/parallel/division.h"
#include "gpt/parameters/parameters.h"

namespace gpt::parallel {

// Every process takes part in every round, in which each computes one micro-batch, or where they are not enough, none. While one segment is
// on its way the backward pass fills the next. A process keeps the sums of its spans alone, in float32; but where each has several lanes,
// whose order must not depend on the number of processes, also what each lane adds to them.
class DividedGradients {
 public:
  // From now on the parameters have gradients in segments only.
  DividedGradients(parameters::Parameters parameters, const Division& division);

  void begin_update();  // drops what an abandoned one has left
  // The layer is done, and all that come after it, as LossOptions::layer_done has it.
  void layer_done(int64_t layer, bool has_gradients = true);
  void end_round(bool has_gradients);  // the backward pass has ended; or there was none, which counts as zeros
  // All rounds of the update have ended: then Parameters::gradients_of() says the sum of this process's spans; of a table that another stage
  // has too, with that one's, of which the process there keeps the same part.
  void finish();
  int64_t bytes() const;  // of the sums

 private:
  void send(size_t segment, bool has_gradients);
  std::vector<at::Tensor>& sums_of(size_t segment);
  bool adds() const { return round_ >= slots_; }  // to the sums, in this round; in the first ones it begins them

  parameters::Parameters parameters_;
  Division division_;
  std::vector<int64_t> ends_;  // as layer_ends() has them
  std::vector<Segment> segments_;
  at::ScalarType wire_;
  bool has_other_end_;     // of the last segment, which is a tied table
  int64_t lanes_, slots_;  // of this process; and how many of them are kept until others are added
  // Sums by slot and segment, for each span: (own part), or where there are several lanes (processes, own part).
  std::map<std::pair<int64_t, size_t>, std::vector<at::Tensor>> sums_;
  int64_t round_ = 0;  // of the update
  size_t sent_ = 0;    // segments of this round
};

}  // namespace gpt::parallel
