// Weights that other processes have, and that are there when their block computes. The model says which block is next.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace gpt::model {

class LayerWeights {
 public:
  virtual ~LayerWeights() = default;

  // A forward pass comes to this block. Fetching the next one's begins.
  void before_forward(int64_t layer) { use(layer), prefetch(layer + 1); }
  // What a backward pass calls for each layer, from n_layer on, which stands for what follows the blocks: it has passed this one and comes
  // to the one before it. `done`, which may be empty, is told so, and may begin to send something before fetching begins.
  virtual std::function<void(int64_t layer)> in_backward(std::function<void(int64_t layer)> done) {
    return [this, done = std::move(done)](int64_t layer) {
      if (layer > 0) use(layer - 1);
      if (done) done(layer);
      prefetch(layer - 2);
    };
  }

  // Takes part in what others send in a forward pass that this process does not compute.
  virtual void join_forward() = 0;
  // Does work in which each process may make as many forward passes as it likes, or none, but must not say anything to the others.
  virtual void work_apart(const std::function<void()>& work) = 0;
  virtual void values_changed() = 0;  // all processes have changed their own
  virtual void await_all() = 0;       // until all that this process keeps are there, to be read

 protected:
  virtual void use(int64_t layer) = 0;         // its weights are there, at least until another one's are used
  virtual void prefetch(int64_t /*layer*/) {}  // where there is such a layer
};

}  // namespace gpt::model
