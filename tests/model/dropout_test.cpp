// A model's dropout masks: which place and which site each of its operators is given, and that gradients do not depend on how the
// samples of an update are cut into micro-batches.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "gpt/model/gpt.h"
#include "gpt/ops/operator_sets.h"
#include "support/dropout_at.h"
#include "support/tolerance.h"

namespace gpt::model {
namespace {

constexpr int64_t kSequences = 4, kPositions = 16, kTokens = 97;

at::Tensor drawn_ids(int64_t batch, uint64_t seed) {
  return at::randint(kTokens, {batch, kPositions}, at::detail::createCPUGenerator(seed), at::dtype(at::kLong));
}

// Both architectures, and one whose hidden rows are not whole blocks of columns.
std::vector<ModelConfig> models_with_dropout() {
  ModelConfig llama;
  llama.n_layer = 2, llama.n_head = 4, llama.n_kv_head = 2, llama.n_embd = 32;
  llama.block_size = kPositions, llama.vocab_size = kTokens, llama.dropout = 0.3;
  ModelConfig gpt2 = llama, with_rest = llama;
  gpt2.norm = Norm::layernorm, gpt2.mlp = Mlp::gelu, gpt2.position = Position::learned, gpt2.bias = true;
  with_rest.n_hidden = 100;
  return {llama, gpt2, with_rest};
}

at::Tensor place_of(int64_t key, int64_t first_sample) {
  return test::dropout_at(at::kCPU, 0, key, first_sample).place;
}

struct Learned {
  double loss = 0;
  std::vector<at::Tensor> gradients;
};

// An update of all sequences, so many at once.
Learned learn(const GPT& model, int64_t at_once, int64_t key) {
  const at::Tensor ids = drawn_ids(kSequences, 1), targets = drawn_ids(kSequences, 2);
  const at::Tensor share = at::full({}, static_cast<double>(at_once) / kSequences);
  Learned result;
  for (int64_t first = 0; first < kSequences; first += at_once) {
    const at::Tensor loss = model.loss(ids.narrow(0, first, at_once), targets.narrow(0, first, at_once),
                                       {.upstream = share, .dropout_place = place_of(key, first)});
    loss.backward(share);
    result.loss += loss.item<double>() * share.item<double>();
  }
  for (const auto& [name, gradient] : model.parameters().gradients()) result.gradients.push_back(gradient.clone());
  model.parameters().clear_gradients();
  return result;
}

TEST(ModelDropout, MasksDoNotDependOnHowTheSamplesAreCut) {
  for (const ModelConfig& config : models_with_dropout()) {
    GPT model(config, at::kCPU, 1);
    model.train(true);
    const Learned whole = learn(model, kSequences, 7);
    // Sums of float32 in another order; another mask changes the loss by a hundredth.
    const int64_t roundings = config.n_layer * (5 * config.n_embd + config.head_dim() + kPositions + config.hidden()) +
                              kSequences * kPositions;
    for (const int64_t at_once : {1, 2}) {
      const Learned parts = learn(model, at_once, 7);
      EXPECT_NEAR(parts.loss, whole.loss, test::tolerance(at::kFloat, kSequences * kPositions, whole.loss));
      for (size_t i = 0; i < whole.gradients.size(); ++i) {
        EXPECT_LE((parts.gradients[i] - whole.gradients[i]).norm().item<double>(),
                  test::tolerance(at::kFloat, roundings, whole.gradients[i].norm().item<double>()))
            << model.parameters().rows()[i].name;
      }
    }
    EXPECT_GT(std::abs(learn(model, kSequences, 8).loss - whole.loss), 1e-4) << "another key has other masks";
  }
}

// Takes down what dropouts are asked for, in their order.
class NotesDropout : public ops::WrappedOperators {
 public:
  explicit NotesDropout(std::vector<ops::DropoutSpec>& noted)
      : WrappedOperators(ops::fused_operators()), noted_(noted) {}
  at::Tensor embedding(const at::Tensor& ids, const parameters::Parameter& table,
                       const parameters::Parameter& positions, const at::Tensor& starts,
                       const ops::DropoutSpec& dropout) const override {
    noted_.push_back(dropout);
    return inner_->embedding(ids, table, positions, starts, dropout);
  }
  ops::Normalized add_norm(const ops::Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                           const ops::DropoutSpec& dropout) const override {
    if (branch.defined() && dropout.probability > 0) noted_.push_back(dropout);
    return inner_->add_norm(norm, x, branch, dropout);
  }
  at::Tensor attention(at::Tensor qkv, const ops::AttentionSpec& spec, const ops::RotaryTables& rotary) const override {
    noted_.push_back(spec.dropout);
    return inner_->attention(std::move(qkv), spec, rotary);
  }
  at::Tensor activate_gated(ops::Activation activation, const at::Tensor& gate, const at::Tensor& in,
                            const ops::DropoutSpec& dropout) const override {
    noted_.push_back(dropout);
    return inner_->activate_gated(activation, gate, in, dropout);
  }

 private:
  std::vector<ops::DropoutSpec>& noted_;
};

TEST(ModelDropout, EveryDropoutHasASiteOfItsOwnAndThePlaceOfTheStep) {
  using enum ops::DropoutKind;
  for (const ModelConfig& config : models_with_dropout()) {
    GPT model(config, at::kCPU, 1);
    model.train(true);
    std::vector<ops::DropoutSpec> noted;
    model.set_operators(std::make_shared<NotesDropout>(noted));
    const at::Tensor place = place_of(7, 0);
    (void)model.loss(drawn_ids(2, 1), drawn_ids(2, 2), {.dropout_place = place});
    std::vector<uint32_t> sites, expected{ops::dropout_site(embedding, -1)};
    for (const ops::DropoutSpec& dropout : noted) {
      sites.push_back(dropout.site);
      EXPECT_EQ(dropout.probability, config.dropout);
      EXPECT_TRUE(dropout.place.is_same(place));
    }
    for (int64_t layer = 0; layer < config.n_layer; ++layer) {
      for (const ops::DropoutKind kind : {attention, attention_out, mlp})
        expected.push_back(ops::dropout_site(kind, layer));
    }
    EXPECT_EQ(sites, expected);
  }
}

}  // namespace
}  // namespace gpt::model
