#include "gpt/model/gpt.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "cached_texts.h"
#include "gpt/config/block_form.h"
#include "gpt/device/device.h"
#include "gpt/layout/freeze.h"
#include "gpt/model/attention_form.h"
#include "gpt/model/gradient_mark.h"
#include "gpt/model/recompute.h"
#include "gpt/ops/classifier.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/ops/part.h"
#include "gpt/ops/rotary.h"
#include "rotations.h"

namespace gpt {
namespace {

// How a forward pass computes.
struct Pass {
  ops::SharedOperators ops;
  std::vector<ops::RotaryTables> rotary;  // for its positions, of each rotation of the model
  bool training = false;                  // with dropout
  at::Tensor dropout_place = {};          // as ops::DropoutSpec has it
  std::optional<int64_t> window = {};     // of windowed layers, instead of their own
  GradientCheckpointing checkpointing = GradientCheckpointing::none;
  BodyRun run = BodyRun::first;     // the run of what is recomputed
  at::Tensor document_starts = {};  // as ops::AttentionSpec has it

  ops::DropoutSpec dropout(const ops::DropoutSpec& of_model) const {
    if (!training) return {};
    return {of_model.probability, of_model.site, dropout_place};
  }
  // For a product whose input is computed again from `level` on.
  ops::ProductInput input_from(GradientCheckpointing level) const {
    return checkpointing >= level ? ops::ProductInput::repeat : ops::ProductInput::keep;
  }
};

struct Linear {
  ops::LinearLayer layer;

  at::Tensor operator()(const at::Tensor& x, const Pass& pass,
                        ops::ProductInput input = ops::ProductInput::keep) const {
    const InPart part(part::kProducts);
    return pass.ops->linear(x, layer, input);
  }

  // As the last product of what is recomputed.
  at::Tensor last(const at::Tensor& x, const Pass& pass, ops::ProductInput input) const {
    if (pass.run == BodyRun::first) return (*this)(x, pass, input);
    const InPart part(part::kProducts);
    return pass.ops->linear_for_backward(x, layer);
  }
};

// The residual stream. What a layer adds to it joins it where it is read next, in one pass with the normalization there.
struct Stream {
  at::Tensor x, branch;           // (B, T, C); the branch undefined where nothing is to be added
  ops::DropoutSpec dropout = {};  // dropout of the branch
};

ops::Normalized add_norm(const ops::Normalization& norm, const Stream& stream, const Pass& pass) {
  const InPart part(part::kNorm);
  return pass.ops->add_norm(norm, stream.x, stream.branch, stream.dropout);
}

// The sum, with the dropout that a normalization of it would draw.
at::Tensor joined(const ops::Normalization& norm, const Stream& stream, const Pass& pass) {
  if (stream.dropout.probability > 0) return add_norm(norm, stream, pass).sum;
  const InPart part(part::kNorm);
  return stream.x + stream.branch;
}

// The keys and values that one layer has seen so far, and where the next ones go.
struct LayerCache {
  at::Tensor keys, values;  // (slots, kv heads, capacity, D)
  at::Tensor means;         // (slots, kv heads, blocks, D), where queries choose blocks
  const TextsOfPass& texts;
};

struct Attention {
  ops::AttentionSpec spec;
  size_t rotation;                 // which of the model's
  ops::DropoutSpec dropout_after;  // of what it adds to the stream
  Linear c_attn, c_proj;

  // Before the output product.
  at::Tensor operator()(const at::Tensor& x, const Pass& pass, const LayerCache* cache) const {
    at::Tensor qkv = c_attn(x, pass, pass.input_from(GradientCheckpointing::norm));  // (B, T, (H + 2 kv heads) D)
    return cache ? attend_to(*cache, std::move(qkv), pass) : attend(std::move(qkv), pass);
  }

 private:
  at::Tensor attend(at::Tensor qkv, const Pass& pass) const {
    const InPart part(part::kAttention);
    ops::AttentionSpec of_pass = spec;
    of_pass.dropout = pass.dropout(spec.dropout), of_pass.document_starts = pass.document_starts;
    if (spec.window > 0) of_pass.window = pass.window.value_or(spec.window);
    return pass.ops->attention(std::move(qkv), of_pass, pass.rotary[rotation]);
  }

  // The keys and values go into the cache, and the queries see all that is there of their text.
  at::Tensor attend_to(const LayerCache& cache, at::Tensor qkv, const Pass& pass) const {
    const ops::Heads heads = pass.ops->split_heads(std::move(qkv), spec, pass.rotary[rotation]);
    const auto& [few, groups] = cache.texts;  // where queries choose blocks, all texts are among the first
    if (few.empty() && groups.size() == 1) return attend_to_past(heads, cache.keys, cache.values, groups[0], spec);
    const at::Tensor y =
        at::empty({1, heads.q.size(1), heads.q.size(2) * heads.q.size(3)}, heads.q.options());  // (1, N, H D)
    if (spec.blocks.top > 0)
      ops::cached_chosen_attention(heads, cache.keys, cache.values, cache.means, few, y, spec.blocks);
    else if (!few.empty())
      ops::cached_attention(heads, cache.keys, cache.values, few, y, spec.window);
    for (const CachedTexts& texts : groups)
      y.narrow(1, texts.first, texts.count * texts.tokens)
          .copy_(attend_to_past(heads, cache.keys, cache.values, texts, spec));
    return y;
  }
};

// The gated MLP applies dropout before its projection; what GPT-2 applies after it is the stream's.
struct FeedForward {
  Mlp kind;
  ops::DropoutSpec dropout;
  Linear gate, in, out;  // gelu has no gate

  at::Tensor operator()(const at::Tensor& x, const Pass& pass) const {
    const ops::ProductInput of_norm = pass.input_from(GradientCheckpointing::norm),
                            of_activation = pass.input_from(GradientCheckpointing::activation);
    if (!is_gated(kind)) return out.last(pass.ops->linear_gelu(x, in.layer, of_norm), pass, of_activation);
    const auto [open, opened] = gate_and_in(x, pass, of_norm);
    return out.last(gated(open, opened, pass), pass, of_activation);
  }

  ops::DropoutSpec dropout_after() const { return is_gated(kind) ? ops::DropoutSpec() : dropout; }

 private:
  std::pair<at::Tensor, at::Tensor> gate_and_in(const at::Tensor& x, const Pass& pass, ops::ProductInput input) const {
    const InPart part(part::kProducts);
    return pass.ops->linear_pair(x, gate.layer, in.layer, input);
  }

  at::Tensor gated(const at::Tensor& open, const at::Tensor& x, const Pass& pass) const {
    using ops::Activation;
    const InPart part(part::kActivation);
    const Activation activation = kind == Mlp::swiglu ? Activation::silu : Activation::gelu;
    return pass.ops->activate_gated(activation, open, x, pass.dropout(dropout));
  }
};

struct Block {
  ops::Normalization ln_1;
  Attention attn;
  ops::Normalization ln_2;
  FeedForward mlp;

  Stream operator()(const Stream& in, const Pass& pass, const LayerCache* cache = nullptr) const {
    const auto [x, first] = add_norm(ln_1, in, pass);
    return after_attention(x, attn(first, pass, cache), pass);
  }

  // The same with gradient checkpointing of what comes after attention, or of all; pass.checkpointing says which.
  Stream recomputed(const Stream& in, const Pass& pass, bool draws) const {
    const auto inner_pass = [pass](BodyRun run) {
      Pass inner = pass;
      inner.checkpointing = GradientCheckpointing::none, inner.run = run;
      return inner;
    };
    if (pass.checkpointing == GradientCheckpointing::block) {
      const auto body = [this, inner_pass](const std::vector<at::Tensor>& x, BodyRun run) {
        const Pass inner = inner_pass(run);
        return joined(ln_1, (*this)({x[0], {}}, inner), inner);
      };
      return {recompute_in_backward(body, {in.x}, draws), {}};
    }
    const auto [x, first] = add_norm(ln_1, in, pass);
    const at::Tensor attended = attn(first, pass, /*cache=*/nullptr);
    const auto body = [this, inner_pass](const std::vector<at::Tensor>& inputs, BodyRun run) {
      const Pass inner = inner_pass(run);
      return joined(ln_2, after_attention(inputs[0], inputs[1], inner), inner);
    };
    return {recompute_in_backward(body, {x, attended}, draws), {}};
  }

 private:
  Stream after_attention(const at::Tensor& x, const at::Tensor& attended, const Pass& pass) const {
    const auto [y, second] = add_norm(ln_2, {x, attn.c_proj(attended, pass), pass.dropout(attn.dropout_after)}, pass);
    return {y, mlp(second, pass), pass.dropout(mlp.dropout_after())};
  }
};

}  // namespace

struct GPT::Transformer {
  Parameter wte, wpe;  // (Vp, C); (block_size, C) or empty
  ops::DropoutSpec dropout;
  std::vector<Block> h;  // of this stage
  ops::Normalization ln_f;
  Parameter lm_head;    // (Vp, C); the embedding itself where they are tied
  Rotations rotations;  // of the blocks, for block_size positions

  Transformer(const ModelConfig& config, const Parameters& parameters, const LayerSpan& layers, int64_t parts)
      : rotations(config.block_size, config.head_dim(), parameters.device()) {
    using Role = ParameterRole;
    using ops::DropoutKind;
    require_attention_on(config, parameters.device());
    const auto dropout_at = [&](DropoutKind kind, int64_t layer) {
      return ops::DropoutSpec{config.dropout, dropout_site(kind, layer)};
    };
    const auto linear = [&](Role role, int64_t layer) {
      return Linear{{parameters.weight(role, layer), parameters.bias(role, layer), {role, layer}}};
    };
    const auto norm = [&](const NormForm& form, Role role, int64_t layer) {
      return ops::Normalization{
          form.kind, form.eps, parameters.weight(role, layer), parameters.bias(role, layer), {role, layer}};
    };
    const auto attention = [&](const BlockForm& form, int64_t layer) {
      return ops::AttentionSpec{config.heads() / parts,
                                config.kv_heads() / parts,
                                dropout_at(DropoutKind::attention, layer),
                                layer,
                                form.window,
                                /*document_starts=*/{},
                                {config.attention_block, config.top_blocks()}};
    };
    const int64_t before = -1, after = config.n_layer;
    wte = parameters.weight(Role::token_embedding, before);
    wpe = parameters.weight(Role::position_embedding, before);
    dropout = dropout_at(DropoutKind::embedding, before);
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
      const BlockForm form = block_form(config, layer);
      h.push_back({norm(form.norm, Role::attention_norm, layer),
                   {attention(form, layer), rotations.add(form.rotary), dropout_at(DropoutKind::attention_out, layer),
                    linear(Role::attention_in, layer), linear(Role::attention_out, layer)},
                   norm(form.norm, Role::mlp_norm, layer),
                   {form.mlp.kind, dropout_at(DropoutKind::mlp, layer), linear(Role::mlp_gate, layer),
                    linear(Role::mlp_in, layer), linear(Role::mlp_out, layer)}});
    }
    ln_f = norm(final_norm_form(config), Role::final_norm, after);
    lm_head = config.tie_weights ? wte : parameters.weight(Role::head, after);
  }

  at::Tensor embed(const at::Tensor& ids, const at::Tensor& starts, const Pass& pass) const {
    const InPart part(part::kEmbedding);
    return pass.ops->embedding(ids, wte, wpe, starts, pass.dropout(dropout));  // (B, T, C)
  }

  // What the head takes; or where the blocks of another stage follow, the stream. Any normalization adds up as the next one would, to the bit.
  at::Tensor leave(const Stream& stream, const Pass& pass) const {
    if (ln_f.weight.defined()) return add_norm(ln_f, stream, pass).normed;
    return stream.branch.defined() ? add_norm(h.back().ln_2, stream, pass).sum : stream.x;
  }

  // The same for tokens with these positions (N).
  at::Tensor embed_at(const at::Tensor& ids, const at::Tensor& positions, const Pass& pass) const {
    const InPart part(part::kEmbedding);
    const at::Tensor x = pass.ops->embedding(ids, wte, /*positions=*/{}, /*starts=*/{}, /*dropout=*/{});
    return wpe.defined() ? x + wpe.compute_value().index_select(0, positions) : x;
  }
};

GPT::GPT(const ModelConfig& config, const Parameters& parameters, ops::SharedOperators operators)
    : GPT(config, parameters, std::move(operators), {}, parameters.rows()) {}

GPT::GPT(const ModelConfig& config, Parameters parameters, ops::SharedOperators operators, const ModelPart& part,
         const std::vector<ParameterRow>& of_model)
    : config_(config),
      part_(part),
      layers_(stages_of(config, part.stages)[static_cast<size_t>(part.stage)]),
      parameters_(std::move(parameters)),
      first_trained_(first_trained_layer(of_model)),
      flops_per_token_(gpt::flops_per_token(config, of_model)),
      transformer_(std::make_unique<const Transformer>(config, parameters_, layers_, part.size)),
      operators_(std::move(operators)) {}

GPT::GPT(const ModelConfig& config, at::Device device, const ParameterTypes& types,
         const std::vector<std::string>& frozen, const ModelPart& part)
    : GPT(config, Parameters(cut(parameter_table(config, frozen), config, part), device, types), ops::fused_operators(),
          part, parameter_table(config, frozen)) {}

GPT::GPT(const ModelConfig& config, at::Device device, uint64_t seed, const ParameterTypes& types,
         const std::vector<std::string>& frozen, const ModelPart& part)
    : GPT(config, device, types, frozen, part) {
  parameters_.draw(seed, parameter_table(config, frozen));
}

GPT::GPT(const ModelConfig& config, at::Device device, const NamedTensors& values, const ParameterTypes& types,
         const std::vector<std::string>& frozen, const ModelPart& part)
    : GPT(config, device, types, frozen, part) {
  copy_from(values);
}

void GPT::set_document_separator(std::optional<int64_t> token) {
  if (token) require_whole_sequences(config_);
  document_separator_ = token;
}

GPT::~GPT() = default;
GPT::GPT(GPT&&) noexcept = default;

namespace {

// (B, T) of what a stage is given.
at::IntArrayRef batch_sizes(const at::Tensor& in, const LossOptions& options) {
  return (options.ids.defined() ? options.ids : in).sizes().slice(0, 2);
}

}  // namespace

at::Tensor GPT::hidden(const at::Tensor& in, const LossOptions& options) const {
  TORCH_CHECK(in.dim() == (part_.is_first_stage() ? 2 : 3) && in.size(1) <= config_.block_size,
              "GPT: ids must be (B, T), and what goes from stage to stage (B, T, C), with T <= block_size ",
              config_.block_size, ", got ", in.sizes());
  const at::IntArrayRef sizes = batch_sizes(in, options);
  const bool has_others = training_ && training_operators_;
  Pass pass{of_pass(has_others ? training_operators_ : operators_, sizes),
            transformer_->rotations.before(sizes[1]),
            training_,
            options.dropout_place,
            options.attention_window,
            gradient_checkpointing_};
  const at::AutoGradMode gradients(at::GradMode::is_enabled() && is_passed_backward());
  pass.document_starts = document_starts(in, options);
  const bool draws =
      training_ && recomputing_draws(gradient_checkpointing_, config_, operators_->draws(device(), config_.n_embd));
  auto done = layer_weights_ ? layer_weights_->in_backward(options.layer_done) : options.layer_done;
  if (activation_swap_) done = activation_swap_->in_backward(std::move(done));
  const auto mark = [&done](Stream& stream, int64_t layer) {
    if (done && at::GradMode::is_enabled()) stream.x = mark_gradient(stream.x, [done, layer] { done(layer); });
  };
  const auto through = [&](Stream stream, int64_t begin, int64_t end) {
    for (int64_t layer = begin; layer < end; ++layer) {
      const Block& block = transformer_->h[static_cast<size_t>(layer - layers_.begin)];
      mark(stream, layer);
      if (layer_weights_) layer_weights_->before_forward(layer);
      const bool is_recomputed = gradient_checkpointing_ >= GradientCheckpointing::selective,
                 is_swapped = activation_swap_ && at::GradMode::is_enabled();
      const auto compute = [&] {
        stream = is_recomputed ? block.recomputed(stream, pass, draws) : block(stream, pass);
      };
      is_swapped ? activation_swap_->in_forward(layer, pass.rotary[block.attn.rotation], compute) : compute();
    }
    if (end == config_.n_layer) mark(stream, end);
    return stream;
  };
  const auto enter = [&] {
    return Stream{part_.is_first_stage() ? transformer_->embed(in, options.document_starts, pass) : in, {}};
  };
  const auto [begin, end] = layers_;
  const auto leave = [&, end = end](const Stream& stream) {
    Stream left{transformer_->leave(stream, pass), {}};
    if (!part_.is_last_stage())
      mark(left, end);  // the last block's norm has added it up, and a backward pass comes to that first
    return left.x;
  };
  if (!at::GradMode::is_enabled() || first_trained_ < begin) return leave(through(enter(), begin, end));
  Stream stream = [&] {
    const at::NoGradGuard no_gradients;
    return through(enter(), begin, first_trained_);
  }();
  // A leaf, because what is computed again has no other input that autograd knows.
  stream.x.requires_grad_();
  return leave(through(std::move(stream), first_trained_, end));
}

at::Tensor GPT::logits(const at::Tensor& rows) const {
  const ops::LinearLayer head{transformer_->lm_head, {}, {ParameterRole::head, config_.n_layer}};
  return operators_->linear(rows, head, ops::ProductInput::keep).narrow(-1, 0, *config_.vocab_size);
}

at::Tensor GPT::forward(const at::Tensor& ids) const {
  const at::AutoGradMode gradients(at::GradMode::is_enabled() && part_.size == 1);
  const at::Tensor x = through_stages(ids);
  return shared(part_.is_last_stage() ? logits(x) : at::Tensor(), {ids.size(0), ids.size(1), *config_.vocab_size});
}

at::Tensor GPT::loss(const at::Tensor& in, const at::Tensor& targets, const LossOptions& options) const {
  TORCH_CHECK(batch_sizes(in, options) == targets.sizes(), "GPT: targets must have the shape of ids, got ",
              targets.sizes());
  const ops::ClassifierOptions classifier{*config_.vocab_size, options.label_smoothing, options.chunk_rows,
                                          options.teacher};
  const at::Tensor x = hidden(in, options);
  const InPart part(part::kHead);
  return of_pass(operators_, targets.sizes())
      ->classifier_loss(x, transformer_->lm_head, targets, classifier, options.upstream);
}

at::Tensor GPT::token_losses(const at::Tensor& ids, const at::Tensor& targets, const at::Tensor& starts) const {
  TORCH_CHECK(ids.sizes() == targets.sizes(), "GPT: targets must have the shape of ids, got ", targets.sizes());
  const at::NoGradGuard no_grad;
  const at::Tensor x = through_stages(ids, starts);
  if (!part_.is_last_stage()) return at::zeros(targets.sizes(), x.options().dtype(at::kFloat));
  const InPart part(part::kHead);
  return operators_->classifier_losses(x, transformer_->lm_head, targets, {.vocabulary = *config_.vocab_size})
      .view_as(targets);
}

TokenScores GPT::score(const at::Tensor& ids, const at::Tensor& places, const at::Tensor& targets) const {
  TORCH_CHECK(places.dim() == 1 && places.sizes() == targets.sizes() && places.numel() > 0,
              "GPT: one place is needed for each of the targets ", targets.sizes(), ", got ", places.sizes());
  const at::NoGradGuard no_grad;
  const at::Tensor x = through_stages(ids);
  const auto of_all = [&](const at::Tensor& scores) {  // (2, N)
    const at::Tensor both = shared(scores, {2, places.size(0)});
    return TokenScores{both[0], both[1].to(at::kBool)};
  };
  if (!part_.is_last_stage()) return of_all({});
  const at::Tensor rows = x.flatten(0, 1).index_select(0, places);  // (N, C)
  const InPart part(part::kHead);
  const auto [Vp, C] = std::pair(transformer_->lm_head.value().size(0), rows.size(1));
  const int64_t most = ops::classifier_chunk_rows(rows.size(0), {Vp, C}, at::kFloat, 0, multiprocessors_of(device()));
  std::vector<at::Tensor> scores, greedy;
  for (int64_t begin = 0; begin < rows.size(0); begin += most) {
    const int64_t count = std::min(most, rows.size(0) - begin);
    const at::Tensor chunk = logits(rows.narrow(0, begin, count)).to(at::kFloat);  // (count, V)
    const at::Tensor target = targets.narrow(0, begin, count);
    const at::Tensor of_target = chunk.gather(1, target.unsqueeze(1)).squeeze(1);
    scores.push_back(of_target - chunk.logsumexp(1));
    greedy.push_back(chunk.argmax(1) == target);
  }
  const TokenScores found{at::cat(scores), at::cat(greedy)};
  return link_ ? of_all(at::stack({found.log_probabilities, found.is_greedy.to(at::kFloat)})) : found;
}

at::Tensor GPT::forward_cached(std::span<const NextTokens> texts, KvCache& cache) const {
  const TextsOfPass of_pass = arranged(texts, cache);
  std::vector<int64_t> of_tokens, at_positions, at_ends;
  for (const auto& [slot, ids] : texts) {
    int64_t& length = cache.lengths[static_cast<size_t>(slot)];
    of_tokens.insert(of_tokens.end(), ids.begin(), ids.end());
    for (size_t i = 0; i < ids.size(); ++i) at_positions.push_back(length++);
    at_ends.push_back(std::ssize(of_tokens) - 1);
  }
  const auto on_device = [&](const std::vector<int64_t>& values) { return at::tensor(values).to(device()); };
  const at::Tensor positions = on_device(at_positions);
  const Pass pass{operators_, transformer_->rotations.at(positions)};
  Stream stream;  // (1, N, C)
  if (part_.is_first_stage()) {
    stream.x = transformer_->embed_at(on_device(of_tokens).unsqueeze(0), positions, pass);
  } else {
    link_->receive(stream.x = empty_stream({1, std::ssize(of_tokens), config_.n_embd}));
  }
  for (size_t layer = 0; layer < transformer_->h.size(); ++layer) {
    if (layer_weights_) layer_weights_->before_forward(layers_.begin + static_cast<int64_t>(layer));
    const LayerCache layer_cache{cache.keys[layer], cache.values[layer], cache.means[layer], of_pass};
    stream = transformer_->h[layer](stream, pass, &layer_cache);
  }
  const std::array sizes{std::ssize(texts), *config_.vocab_size};
  if (!part_.is_last_stage()) {
    link_->send(transformer_->leave(stream, pass));
    return shared({}, sizes);
  }
  for (at::Tensor* part : {&stream.x, &stream.branch}) *part = part->select(0, 0);
  if (at_ends.size() < of_tokens.size()) {  // else each token is the last of its text
    const at::Tensor ends = on_device(at_ends);
    for (at::Tensor* part : {&stream.x, &stream.branch}) *part = part->index_select(0, ends);
  }
  return shared(logits(transformer_->leave(stream, pass)), sizes);
}

KvCache GPT::make_cache(int64_t slots, int64_t capacity, at::ScalarType dtype) const {
  TORCH_CHECK(capacity <= config_.block_size, "GPT: a cache of ", capacity, " positions exceeds block_size ",
              config_.block_size);
  KvCache cache{.lengths = std::vector<int64_t>(static_cast<size_t>(slots))};
  const auto options = at::TensorOptions().device(device()).dtype(dtype);
  const int64_t heads = config_.kv_heads() / part_.size, D = config_.head_dim();
  if (config_.top_blocks() > 0) cache.attention_block = config_.attention_block;
  for (int64_t layer = 0; layer < layers_.count(); ++layer) {
    for (auto* const of : {&cache.keys, &cache.values}) of->push_back(at::empty({slots, heads, capacity, D}, options));
    cache.means.push_back(at::empty({slots, heads, cache.blocks_in(capacity), D}, options.dtype(at::kFloat)));
  }
  return cache;
}

}  // namespace gpt
