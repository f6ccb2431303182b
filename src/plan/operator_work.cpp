#include "gpt/plan/operator_work.h"

#include <algorithm>

namespace gpt::plan {
namespace {

constexpr double kBytesOfId = 8, kBytesOfToken = 4;  // in a batch, and in a text on the device

}  // namespace

OperatorWork::OperatorWork(const ModelConfig& model, const Types& types, double tokens)
    : model_(model),
      tokens_(tokens),
      width_(tokens * static_cast<double>(model.n_embd)),
      attention_(tokens * static_cast<double>(model.attention_width())),
      packed_(tokens * static_cast<double>((model.heads() + 2 * model.kv_heads()) * model.head_dim())),
      product_(bytes_of(types.products)),
      stream_(bytes_of(types.stream)),
      gradient_(bytes_of(types.gradient)) {}

// Each token of a window is read once, and written as an input and as a target.
Work OperatorWork::batch() const {
  const double sequences = tokens_ / static_cast<double>(model_.block_size);
  return {0, (tokens_ + sequences) * kBytesOfToken + 2 * tokens_ * kBytesOfId};
}

// Rows of the table, positions and what becomes of them; then gradients, and the rows that they are added to.
OperatorWork::Passes OperatorWork::embedding() const {
  const double C = static_cast<double>(model_.n_embd), V = static_cast<double>(*model_.vocab_size),
               positions = model_.position == Position::learned ? static_cast<double>(model_.block_size) : 0,
               rows = C * (std::min(tokens_, V) + positions);
  return {{0, (rows + width_) * stream_}, {0, width_ * stream_ + 2 * rows * gradient_}};
}

// x, branch, sum and normalized; then sum, two gradients and that of x.
OperatorWork::Passes OperatorWork::norm(bool has_branch) const {
  return {{0, (has_branch ? 4 : 2) * width_ * stream_}, {0, 4 * width_ * stream_}};
}

OperatorWork::Passes OperatorWork::norms_of_block() const {
  const Passes sum = norm(/*has_branch=*/true), alone = norm(/*has_branch=*/false);
  const double outputs = model_.norm_place == NormPlace::input ? 0 : 2,
               queries_and_keys = model_.qk_norm == QkNorm::all ? packed_ / width_ : 0,
               others = outputs + queries_and_keys;
  return {2 * sum.forward + others * alone.forward, 2 * sum.backward + others * alone.backward};
}

// Two products in the backward pass, for the gradients of their input and of the weight.
OperatorWork::Passes OperatorWork::product(int64_t in, int64_t out) const {
  const double weight = static_cast<double>(in * out), x = tokens_ * static_cast<double>(in),
               y = tokens_ * static_cast<double>(out), flops = 2 * tokens_ * weight;
  return {{flops, (x + weight + y) * product_},
          {2 * flops, (y + weight + x) * product_ + (x + y) * product_ + weight * gradient_}};
}

// Two products of T x T by D, half of which is masked, and of which a share is computed; five in the backward pass. Scores are not stored,
// and those of whole blocks, by which queries choose, are less than a hundredth of all.
OperatorWork::Passes OperatorWork::attention(double share) const {
  const double flops = 2 * attention_ * static_cast<double>(model_.block_size) * share;
  return {{flops, (packed_ + attention_) * product_}, {2.5 * flops, 2 * (packed_ + attention_) * product_}};
}

// In and out; then in, its gradient and that of what came out. A gate is a second input with a gradient.
OperatorWork::Passes OperatorWork::activation() const {
  const double tensor = tokens_ * static_cast<double>(model_.hidden()) * product_;
  const double inputs = model_.is_gated() ? 2 : 1;
  return {{0, (inputs + 1) * tensor}, {0, (2 * inputs + 1) * tensor}};
}

OperatorWork::Passes OperatorWork::head() const {
  const double weight = static_cast<double>(model_.n_embd * model_.padded_vocab()), flops = 2 * tokens_ * weight;
  return {{flops, (width_ + weight) * product_ + tokens_ * kBytesOfId},
          {2 * flops, (2 * width_ + weight) * product_ + weight * gradient_}};
}

Work norm_of_gradients(double parameters, const ParameterBytes& bytes) { return {0, parameters * bytes.gradient}; }

// All but the gradients are written, and all but the copies are read.
Work adamw(double parameters, const ParameterBytes& bytes) {
  return {0, parameters * (bytes.gradient + 2 * bytes.weight + bytes.copy + 4 * bytes.moment)};
}

// Two passes over a matrix, and between them Newton-Schulz, which reads and writes the direction at least once.
Work muon(double parameters, const ParameterBytes& bytes, double flops) {
  constexpr double kDirection = 2;
  return {flops, parameters * (bytes.gradient + 2 * bytes.weight + bytes.copy + 2 * bytes.moment + 4 * kDirection)};
}

}  // namespace gpt::plan
