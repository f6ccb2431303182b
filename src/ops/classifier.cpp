#include "gpt/ops/classifier.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>

#include "gpt/device/device.h"
#include "gpt/ops/precomputed_loss.h"
#include "gpt/products/product.h"
#include "kernels.h"

namespace gpt::ops {
namespace {

// The numbers of the rows whose targets count, (M); undefined where that is all of them, or unknown, as a GPU's are.
at::Tensor counted_rows(const at::Tensor& targets) {
  if (!targets.is_cpu()) return {};
  const at::Tensor counts = targets != kMaskedTarget;
  return counts.all().item<bool>() ? at::Tensor() : counts.nonzero().squeeze(1);
}

struct Classifier {
  at::Tensor rows, weight;                  // (N, C) and (Vp, C) in the type of the products
  at::Tensor teacher_rows, teacher_weight;  // the same of the teacher, if there is one
  at::Tensor counted;                       // (M): of the N rows those that go through the head; undefined: all
  at::Tensor targets;                       // (M)
  ClassifierOptions options;
  cpu::MatrixLibrary library;

  Classifier(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
             const ClassifierOptions& options)
      : rows(in_product_type(x.reshape({-1, x.size(-1)}))),
        weight(in_product_type(head.product_value(rows.scalar_type()))),
        counted(counted_rows(targets.reshape({-1}))),
        targets(targets.reshape({-1}).contiguous()),
        options(options),
        library(product_library(x)) {
    const at::ScalarType type = rows.scalar_type();
    TORCH_CHECK(type == weight.scalar_type(), "classifier: x of type ", type, " does not fit a head of type ",
                weight.scalar_type());
    check_kernel_type("classifier", rows);
    if (counted.defined()) this->targets = this->targets.index_select(0, counted);
    if (const at::Tensor& of_teacher = options.teacher.rows; of_teacher.defined()) {
      teacher_rows = in_product_type(of_teacher.reshape({-1, of_teacher.size(-1)}));
      teacher_weight = in_product_type(options.teacher.head);
      TORCH_CHECK(teacher_rows.scalar_type() == type && teacher_weight.scalar_type() == type,
                  "classifier: a teacher of types ", teacher_rows.scalar_type(), " and ", teacher_weight.scalar_type(),
                  " does not fit x of ", type);
    }
  }

  // The loss of each row.
  at::Tensor losses() const {
    return for_each_chunk({}, [](int64_t, const at::Tensor&, const at::Tensor&) {});
  }

  // Their mean, and the gradients times `upstream`: added to the head's and written to `x_gradient` (N, C), if that is defined.
  at::Tensor loss_and_gradients(const at::Tensor& upstream, const parameters::Parameter& head,
                                const at::Tensor& x_gradient) const {
    const at::Tensor scale = upstream / static_cast<double>(rows.size(0));
    if (counted.defined()) begin_without_rows(head, x_gradient);
    return mean_loss(
        for_each_chunk(scale, [&](int64_t begin, const at::Tensor& chunk, const at::Tensor& logits_gradient) {
          if (x_gradient.defined()) put_product(x_gradient, begin, logits_gradient);
          if (head.is_trained()) accumulate_product(head, logits_gradient, chunk, library);
        }));
  }

 private:
  // Where rows are masked, all of them may be.
  void begin_without_rows(const parameters::Parameter& head, const at::Tensor& x_gradient) const {
    if (x_gradient.defined()) x_gradient.zero_();
    if (head.is_trained() && counted.numel() == 0 && !head.begin_contribution()) head.gradient().zero_();
  }

  // The rows of the chunk that begins with this one of those that count.
  at::Tensor chunk_of(const at::Tensor& all, int64_t begin, int64_t count) const {
    return counted.defined() ? all.index_select(0, counted.narrow(0, begin, count)) : all.narrow(0, begin, count);
  }

  // The gradients of a chunk's rows, where they belong in those of x (N, C).
  void put_product(const at::Tensor& x_gradient, int64_t begin, const at::Tensor& logits_gradient) const {
    const int64_t count = logits_gradient.size(0);
    if (!counted.defined()) return product_out(x_gradient.narrow(0, begin, count), logits_gradient, weight, library);
    const at::Tensor of_chunk = at::empty({count, x_gradient.size(1)}, x_gradient.options());
    product_out(of_chunk, logits_gradient, weight, library);
    x_gradient.index_copy_(0, counted.narrow(0, begin, count), of_chunk);
  }

  // Calls work(first row, rows, logits) with what cross_entropy() made of the logits of each chunk, and returns the losses (N).
  template <class Work>
  at::Tensor for_each_chunk(const at::Tensor& scale, const Work& work) const {
    const int64_t N = targets.size(0), Vp = weight.size(0),
                  size = classifier_chunk_rows(N, {Vp, weight.size(1)}, rows.scalar_type(), options.chunk_rows,
                                               device::multiprocessors_of(rows.device()));
    const at::Tensor buffer = at::empty({size, Vp}, rows.options());
    at::Tensor teacher_buffer;
    if (teacher_rows.defined()) teacher_buffer = at::empty({size, teacher_weight.size(0)}, rows.options());
    const at::Tensor losses = at::empty({N}, rows.options().dtype(at::kFloat));
    for (int64_t begin = 0; begin < N; begin += size) {
      const int64_t count = std::min(size, N - begin);
      const at::Tensor chunk = chunk_of(rows, begin, count), logits = buffer.narrow(0, 0, count);
      product_out(logits, chunk, weight.t(), library);
      score(logits, begin, teacher_buffer, losses.narrow(0, begin, count), scale);
      work(begin, chunk, logits);
    }
    if (!counted.defined()) return losses;
    return at::zeros({rows.size(0)}, losses.options()).index_copy_(0, counted, losses);
  }

  // The losses of the rows from `begin` on, and what becomes of their logits. The teacher's exist in `teacher_buffer` meanwhile.
  void score(const at::Tensor& logits, int64_t begin, const at::Tensor& teacher_buffer, const at::Tensor& losses,
             const at::Tensor& scale) const {
    const int64_t count = logits.size(0);
    const at::Tensor of_rows = targets.narrow(0, begin, count);
    if (!teacher_buffer.defined()) return kernels_of(rows)->cross_entropy(options, logits, of_rows, losses, scale);
    const at::Tensor of_teacher = teacher_buffer.narrow(0, 0, count);
    product_out(of_teacher, chunk_of(teacher_rows, begin, count), teacher_weight.t(), library);
    kernels_of(rows)->distillation(options, logits, of_teacher, of_rows, losses, scale);
  }
};

void check_teacher(const at::Tensor& x, const ClassifierOptions& options) {
  const auto& [rows, head, weight, temperature] = options.teacher;
  TORCH_CHECK(rows.dim() >= 2 && head.dim() == 2 && rows.size(-1) == head.size(1) &&
                  rows.numel() / rows.size(-1) == x.numel() / x.size(-1) && head.size(0) >= options.vocabulary &&
                  rows.device() == x.device() && head.device() == x.device(),
              "classifier: a teacher's ", rows.sizes(), " and its head of ", head.sizes(), " do not fit x ", x.sizes(),
              " and a vocabulary of ", options.vocabulary);
  TORCH_CHECK(!rows.requires_grad() && !head.requires_grad(), "classifier: a teacher gets no gradients");
  TORCH_CHECK(weight >= 0 && weight <= 1 && temperature > 0,
              "classifier: a teacher's weight must be in [0, 1] and its temperature above 0, got ", weight, " and ",
              temperature);
}

void check(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets, const ClassifierOptions& options) {
  TORCH_CHECK(x.dim() >= 2 && x.numel() > 0 && weight.dim() == 2 && x.size(-1) == weight.size(1), "classifier: x ",
              x.sizes(), " does not fit a head of ", weight.sizes());
  TORCH_CHECK(targets.scalar_type() == at::kLong && targets.numel() == x.numel() / x.size(-1) &&
                  targets.device() == x.device(),
              "classifier: targets must be one int64 for each row of x ", x.sizes(), " on ", x.device(), ", got ",
              targets.sizes(), " ", targets.scalar_type(), " on ", targets.device());
  TORCH_CHECK(options.vocabulary > 0 && options.vocabulary <= weight.size(0), "classifier: a vocabulary of ",
              options.vocabulary, " does not fit a head of ", weight.sizes());
  TORCH_CHECK(options.label_smoothing >= 0 && options.label_smoothing < 1,
              "classifier: label_smoothing must be in [0, 1), got ", options.label_smoothing);
  TORCH_CHECK(options.chunk_rows >= 0, "classifier: chunk_rows must not be negative, got ", options.chunk_rows);
  if (options.teacher.rows.defined()) check_teacher(x, options);
  if (!x.is_cpu()) return;
  const at::Tensor tokens = targets.contiguous();
  const auto* token = tokens.const_data_ptr<int64_t>();
  const auto* outside = std::find_if(token, token + tokens.numel(),
                                     [&](int64_t t) { return t < kMaskedTarget || t >= options.vocabulary; });
  TORCH_CHECK(outside == token + tokens.numel(), "classifier: target ", *outside, " is outside the vocabulary of ",
              options.vocabulary);
}

// On a GPU the product for the gradient of x decides: each multiprocessor computes one of its tiles at a time, which takes long, as it
// is a sum over the vocabulary, so a chunk takes as many of these times, its waves, as its tiles need. Among the sizes with the fewest
// waves in all chunks the smallest takes the least memory. With fewer rows than kLeastRows the products would wait for the head and
// its gradient, which every chunk reads and writes.
int64_t rows_with_fewest_waves(int64_t rows, int64_t columns, int64_t most, int64_t multiprocessors) {
  constexpr int64_t kTileRows = 128, kTileColumns = 256, kLeastRows = 2048;
  const auto waves = [&](int64_t of_chunk) {
    return at::divup(at::divup(of_chunk, kTileRows) * at::divup(columns, kTileColumns), multiprocessors);
  };
  most -= most % kTileRows;
  int64_t best = 0, fewest = 0;
  for (int64_t size = std::min(kLeastRows, most); size <= most; size += kTileRows) {
    const int64_t of_all = rows / size * waves(size) + waves(rows % size);
    if (best == 0 || of_all < fewest) best = size, fewest = of_all;
  }
  return best;
}

}  // namespace

int64_t classifier_chunk_rows(int64_t rows, HeadShape head, at::ScalarType type, int64_t limit,
                              int64_t multiprocessors) {
  // On a CPU the logits stay in a cache that the cores share, but fewer rows than 256 would spend more on the head and its gradient,
  // which every chunk goes through, than that saves.
  constexpr int64_t kBytesOfCpu = 8 << 20, kBytesOfGpu = 600'000'000, kLeastRows = 256;
  const bool is_cpu = multiprocessors == 0, is_chosen = limit == 0;
  const auto row_bytes = head.padded_vocabulary * static_cast<int64_t>(c10::elementSize(type));
  if (is_chosen) limit = std::max(kLeastRows, (is_cpu ? kBytesOfCpu : kBytesOfGpu) / row_bytes);
  if (rows <= limit) return rows;
  if (is_chosen && !is_cpu) return rows_with_fewest_waves(rows, head.columns, limit, multiprocessors);
  const int64_t chunks = at::divup(rows, limit);
  return at::divup(rows, chunks);
}

at::Tensor classifier_loss(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                           const ClassifierOptions& options, const at::Tensor& upstream) {
  check(x, head.value(), targets, options);
  if (!at::GradMode::is_enabled()) return mean_loss(Classifier(x, head, targets, options).losses());
  const at::Tensor of_loss = upstream.defined() ? upstream : at::ones({}, targets.options().dtype(at::kFloat));
  TORCH_CHECK(of_loss.dim() == 0 && of_loss.scalar_type() == at::kFloat && of_loss.device() == x.device(),
              "classifier: upstream must be a float32 scalar on ", x.device());
  return precomputed_loss(x, head.value(), of_loss, [&](const at::Tensor& x_gradient) {
    return Classifier(x, head, targets, options).loss_and_gradients(of_loss, head, x_gradient);
  });
}

at::Tensor classifier_losses(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                             const ClassifierOptions& options) {
  check(x, head.value(), targets, options);
  const at::NoGradGuard no_grad;
  return Classifier(x, head, targets, options).losses();
}

}  // namespace gpt::ops
