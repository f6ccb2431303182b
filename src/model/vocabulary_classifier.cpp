#include "vocabulary_classifier.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "gpt/device/device.h"
#include "gpt/ops/classifier.h"
#include "gpt/ops/precomputed_loss.h"
#include "gpt/products/product.h"

namespace gpt::model {
namespace {

using ops::ClassifierOptions;

// What the softmax over all processes' logits of some rows follows from.
struct Softmax {
  at::Tensor log_sum, of_target, total;  // (rows) float32: of exponentials; the target's logit; the sum of logits
};

class VocabularyClassifier {
 public:
  VocabularyClassifier(const DividedVocabulary& vocabulary, const at::Tensor& x, const parameters::Parameter& head,
                       const at::Tensor& targets, const ClassifierOptions& options)
      : vocabulary_(vocabulary),
        span_(vocabulary.rows()),
        rows_(ops::in_product_type(x.detach().reshape({-1, x.size(-1)}))),
        weight_(ops::in_product_type(head.compute_value().detach())),
        targets_(targets.reshape({-1})),
        options_(options),
        library_(ops::product_library(x)) {
    TORCH_CHECK(targets.scalar_type() == at::kLong && targets_.numel() == rows_.size(0),
                "classifier: targets must be one int64 for each row of x ", x.sizes(), ", got ", targets.sizes());
    TORCH_CHECK(weight_.size(0) == span_.end - span_.begin, "classifier: a head of ", weight_.sizes(),
                " has not the rows ", span_.begin, " to ", span_.end);
  }

  at::Tensor losses() const {
    return for_each_chunk([](int64_t, const at::Tensor&, const at::Tensor&, const Softmax&, const at::Tensor&) {});
  }

  // The mean, and the gradients times `upstream`: added to the head's, and written to `x_gradient` (N, C) if that is defined.
  at::Tensor loss_and_gradients(const at::Tensor& upstream, const parameters::Parameter& head,
                                const at::Tensor& x_gradient) const {
    const at::Tensor scale = upstream / static_cast<double>(rows_.size(0));
    return ops::mean_loss(for_each_chunk([&](int64_t begin, const at::Tensor& logits, const at::Tensor& real,
                                             const Softmax& softmax, const at::Tensor& targets) {
      const int64_t count = logits.size(0);
      differentiate(real, softmax, targets, scale);
      if (real.data_ptr() != logits.data_ptr()) real_part(logits).copy_(real);
      logits.narrow(1, real.size(1), logits.size(1) - real.size(1)).zero_();
      if (x_gradient.defined()) ops::product_out(x_gradient.narrow(0, begin, count), logits, weight_, library_);
      if (head.is_trained()) ops::accumulate_product(head, logits, rows_.narrow(0, begin, count), library_);
    }));
  }

 private:
  // The columns of this process that are no padding.
  int64_t real_columns() const {
    return std::clamp<int64_t>(options_.vocabulary - span_.begin, 0, span_.end - span_.begin);
  }
  at::Tensor real_part(const at::Tensor& logits) const { return logits.narrow(1, 0, real_columns()); }

  // Calls work(first row, logits (rows, columns), those that are no padding in float32, their softmax, targets), and returns the losses
  // (N). All processes take as many rows at once.
  template <class Work>
  at::Tensor for_each_chunk(const Work& work) const {
    const int64_t N = rows_.size(0),
                  size = ops::classifier_chunk_rows(N, {vocabulary_.most_rows(), weight_.size(1)}, rows_.scalar_type(),
                                                    options_.chunk_rows, device::multiprocessors_of(rows_.device()));
    const at::Tensor buffer = at::empty({size, weight_.size(0)}, rows_.options());
    const at::Tensor losses = at::empty({N}, rows_.options().dtype(at::kFloat));
    for (int64_t begin = 0; begin < N; begin += size) {
      const int64_t count = std::min(size, N - begin);
      const at::Tensor logits = buffer.narrow(0, 0, count), targets = targets_.narrow(0, begin, count);
      ops::product_out(logits, rows_.narrow(0, begin, count), weight_.t(), library_);
      const at::Tensor real = real_part(logits).to(at::kFloat);
      const Softmax softmax = softmax_of(real, targets);
      const double smoothing = options_.label_smoothing, V = static_cast<double>(options_.vocabulary);
      losses.narrow(0, begin, count)
          .copy_(softmax.log_sum - softmax.of_target * (1 - smoothing) - softmax.total * (smoothing / V))
          .masked_fill_(targets == ops::kMaskedTarget, 0);
      work(begin, logits, real, softmax, targets);
    }
    return losses;
  }

  // Which of the targets are this process's, and their columns; 0 for the others.
  at::Tensor is_own(const at::Tensor& targets) const {
    return (targets >= span_.begin).logical_and_(targets < span_.begin + real_columns());
  }
  at::Tensor columns_of(const at::Tensor& targets, const at::Tensor& is_own) const {
    return (targets - span_.begin).mul_(is_own).unsqueeze(1);
  }

  Softmax softmax_of(const at::Tensor& real, const at::Tensor& targets) const {
    const at::Tensor own = own_numbers(real, targets);
    const at::Tensor all = gather_from(vocabulary_.group, own);  // (processes, 4, rows)
    const at::Tensor largest = all.select(1, 0), largest_of_all = largest.amax(0);
    const at::Tensor sum = (all.select(1, 1) * (largest - largest_of_all).exp_()).sum(0);
    return {largest_of_all + sum.log(), all.select(1, 2).sum(0), all.select(1, 3).sum(0)};
  }

  // (4, rows)
  at::Tensor own_numbers(const at::Tensor& real, const at::Tensor& targets) const {
    const at::Tensor numbers = at::zeros({4, real.size(0)}, real.options());
    if (real.size(1) == 0) {
      numbers[0].fill_(-std::numeric_limits<float>::infinity());
      return numbers;
    }
    const at::Tensor own = is_own(targets), largest = real.amax(1);
    numbers[0].copy_(largest);
    numbers[1].copy_((real - largest.unsqueeze(1)).exp_().sum(1));
    numbers[2].copy_(real.gather(1, columns_of(targets, own)).squeeze(1).mul_(own));
    if (options_.label_smoothing > 0) numbers[3].copy_(real.sum(1));
    return numbers;
  }

  // The logits become their gradients.
  void differentiate(const at::Tensor& real, const Softmax& softmax, const at::Tensor& targets,
                     const at::Tensor& scale) const {
    if (real.size(1) == 0) return;
    const double smoothing = options_.label_smoothing;
    real.sub_(softmax.log_sum.unsqueeze(1)).exp_();
    if (smoothing > 0) real.sub_(smoothing / static_cast<double>(options_.vocabulary));
    const at::Tensor own = is_own(targets);
    real.scatter_add_(1, columns_of(targets, own), own.to(at::kFloat).mul_(smoothing - 1).unsqueeze(1));
    real.mul_(scale).masked_fill_((targets == ops::kMaskedTarget).unsqueeze(1), 0);
  }

  const DividedVocabulary& vocabulary_;
  layout::FlatSpan span_;
  at::Tensor rows_, weight_;  // (N, C) and this process's rows of the head, in the type of the products
  at::Tensor targets_;        // (N)
  ClassifierOptions options_;
  ops::cpu::MatrixLibrary library_;
};

}  // namespace

at::Tensor vocabulary_loss(const DividedVocabulary& vocabulary, const at::Tensor& x, const parameters::Parameter& head,
                           const at::Tensor& targets, const ClassifierOptions& options, const at::Tensor& upstream) {
  if (!at::GradMode::is_enabled()) return ops::mean_loss(vocabulary_losses(vocabulary, x, head, targets, options));
  const at::Tensor of_loss = upstream.defined() ? upstream : at::ones({}, targets.options().dtype(at::kFloat));
  return ops::precomputed_loss(x, head.value(), of_loss, [&](const at::Tensor& x_gradient) {
    return VocabularyClassifier(vocabulary, x, head, targets, options).loss_and_gradients(of_loss, head, x_gradient);
  });
}

at::Tensor vocabulary_losses(const DividedVocabulary& vocabulary, const at::Tensor& x,
                             const parameters::Parameter& head, const at::Tensor& targets,
                             const ClassifierOptions& options) {
  const at::NoGradGuard no_gradients;
  return VocabularyClassifier(vocabulary, x, head, targets, options).losses();
}

}  // namespace gpt::model
