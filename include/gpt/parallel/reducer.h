// The gradients of an update come together: those of this process's lanes, and those of all processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/parallel/division.h"
#include "gpt/parameters/parameters.h"

namespace gpt::parallel {

// Adds stretches of the flat buffer, from its beginning on, because a backward pass completes them in that order: some of them on their way
// while it computes others.
class Reducer {
 public:
  // `model`: the whole one, of which `frozen` is not trained.
  Reducer(const ModelConfig& model, const std::vector<std::string>& frozen, Parameters parameters, Division division);

  // A sum begins. A lane without gradients, by number, counts as zeros. All others are complete but for the one in use, of which
  // layer_done() will tell. Until finish() nobody may touch what is complete.
  void begin(const std::vector<bool>& has_gradients);
  void layer_done(int64_t layer);  // and all that come after it, as LossOptions::layer_done has it
  // All are done. Then the first lane, which is in use, has the sum; of what Division::spans() says, where that is not all.
  void finish();

  // Of the sum: a float32 scalar on the device. With Division::divides_state, and between stages, processes exchange norms of blocks, with
  // which `loss` travels: that of each, a float32 scalar too, becomes the sum of all. Where the model is divided, what several processes have
  // counts once.
  at::Tensor norm(const at::Tensor& loss) const;
  // After a change of a tied table, before what processes have divided of it comes together: where the two stages that have it may have
  // rounded it differently, both take the first one's.
  void make_table_equal() const;

 private:
  at::Tensor block_norms(const at::Tensor& loss) const;
  at::Tensor norm_of_parts(const at::Tensor& block_norms) const;
  at::Tensor norms_of_stages(const at::Tensor& block_norms, const at::Tensor& loss) const;
  void add_other_end() const;
  void complete(int64_t end);  // of the flat buffer, from its beginning
  void sum(const Stretch& stretch);

  Parameters parameters_;
  Division division_;
  std::vector<int64_t> ends_;  // as layer_ends() has them
  at::ScalarType wire_;        // the type in which they travel
  std::vector<Stretch> stretches_;
  std::vector<FlatSpan> spans_;
  at::Tensor is_cut_;  // bool, for each block of the flat buffer; undefined where layers are not divided
  FlatSpan of_stage_;  // the flat buffer of this stage within that of the whole model, which ends at whole_size_
  int64_t whole_size_;
  Parameter tied_table_;         // which another stage has and trains too; empty where there is none
  bool rounds_table_at_random_;  // by its place in the buffer, which is another one there
  size_t summed_ = 0;            // so many stretches' sums have begun
};

}  // namespace gpt::parallel
