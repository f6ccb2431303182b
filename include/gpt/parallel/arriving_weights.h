// New weights of an update whose state is divided (ZeRO 1 and 2): each process has changed its own spans of them, and those of the others
// arrive while the next forward pass computes, in the order in which it needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "gpt/layout/stages.h"
#include "gpt/model/gpt.h"
#include "gpt/model/layer_weights.h"
#include "gpt/parallel/division.h"
#include "gpt/parameters/parameters.h"

namespace gpt::parallel {

class ArrivingWeights : public model::LayerWeights {
 public:
  // `overlaps`: otherwise all have arrived when values_changed() returns.
  ArrivingWeights(const model::GPT& model, Division division, bool overlaps);
  ~ArrivingWeights() override;  // waits, because the others wait for what this process sends
  ArrivingWeights(const ArrivingWeights&) = delete;
  ArrivingWeights& operator=(const ArrivingWeights&) = delete;

  // After a forward pass all have arrived, so that there is nothing to do in the backward one.
  std::function<void(int64_t layer)> in_backward(std::function<void(int64_t layer)> done) override { return done; }
  void join_forward() override {}
  void work_apart(const std::function<void()>& work) override { work(); }
  // New weights begin to arrive. The embeddings are there when it returns, because a forward pass begins with any of their rows.
  void values_changed() override;
  void await_all() override { await_from(0); }

 protected:
  void use(int64_t layer) override;

 private:
  void await_from(int64_t offset);  // all that lies there in the flat buffer, and behind it

  const parameters::Parameters parameters_;
  const Division division_;
  const layout::LayerSpan layers_;
  const bool overlaps_;
  const std::vector<int64_t> ends_;           // as layer_ends() has them
  std::vector<OwnedSpan> spans_;              // from the end of the flat buffer to its beginning
  std::vector<std::function<void()>> waits_;  // for each of them, once values have changed
  size_t arrived_ = 0;                        // so many stretches
};

}  // namespace gpt::parallel
