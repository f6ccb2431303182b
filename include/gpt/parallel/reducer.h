// The gradients of an update come together: those of this process's lanes, and those of all processes.
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/parallel/division.h"
#include "gpt/parameters/parameters.h"

namespace gpt::parallel {

// Adds spans of the flat buffer, from its beginning on, because a backward pass completes them in that order: some of them on their way
// while it computes others.
class Reducer {
 public:
  Reducer(parameters::Parameters parameters, Division division);

  // A sum begins. A lane without gradients, by number, counts as zeros. All others are complete but for the one in use, of which
  // layer_done() will tell. Until finish() nobody may touch what is complete.
  void begin(const std::vector<bool>& has_gradients);
  void layer_done(int64_t layer);  // and all that come after it, as LossOptions::layer_done has it
  // All are done. Then the first lane, which is in use, has the sum; of what Division::spans() says, where that is not all.
  void finish();

 private:
  void add_other_end() const;
  void complete(int64_t end);  // of the flat buffer, from its beginning
  void sum(const OwnedSpan& span);

  parameters::Parameters parameters_;
  Division division_;
  std::vector<int64_t> ends_;  // as layer_ends() has them
  at::ScalarType wire_;        // the type in which they travel
  std::vector<OwnedSpan> spans_;
  parameters::Parameter tied_table_;  // which another stage has and trains too; empty where there is none
  size_t summed_ = 0;                 // so many spans' sums have begun
};

}  // namespace gpt::parallel
