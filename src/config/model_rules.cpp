// What the sizes and forms of a model ask of each other.
#include <fmt/format.h>

#include "rule.h"

namespace gpt::config {
namespace {

bool is_odd_head(const Config& config) {
  return config.model.position == Position::rope && config.model.head_dim() % 2 != 0;
}

}  // namespace

std::vector<RefusalRule> model_rules() {
  return {
      {.keys = {"model.rope_low_freq_factor", "model.rope_high_freq_factor"},
       .when =
           [](const Config& c, const Facts&) {
             const RopeScaling& scaling = c.model.rope_scaling;
             return scaling.kind == RopeScalingKind::llama3 && scaling.low >= scaling.high;
           },
       .why =
           [](const Config& c) {
             return fmt::format("rope_low_freq_factor {} must be less than rope_high_freq_factor {}",
                                c.model.rope_scaling.low, c.model.rope_scaling.high);
           },
       .cures = {Cure{{"model.rope_low_freq_factor", std::nullopt}, {"model.rope_high_freq_factor", std::nullopt}}},
       .advice = "Llama 3.1 has 1 and 4"},
      {.keys = {"model.rope_beta_slow", "model.rope_beta_fast"},
       .when =
           [](const Config& c, const Facts&) {
             const RopeScaling& scaling = c.model.rope_scaling;
             return scaling.kind == RopeScalingKind::yarn && scaling.beta_slow > scaling.beta_fast;
           },
       .why =
           [](const Config& c) {
             return fmt::format("rope_beta_slow {} must not be more than rope_beta_fast {}",
                                c.model.rope_scaling.beta_slow, c.model.rope_scaling.beta_fast);
           },
       .cures = {Cure{{"model.rope_beta_slow", std::nullopt}, {"model.rope_beta_fast", std::nullopt}}},
       .advice = "models have 1 and 32"},
      {.keys = {"model.rope_scaling", "model.rope_theta"},
       .when =
           [](const Config& c, const Facts&) {
             return c.model.rope_scaling.kind == RopeScalingKind::yarn && c.model.rope_theta <= 1;
           },
       .why = "yarn chooses among frequencies, and with rope_theta 1 there is one alone",
       .cures = {Cure{{"model.rope_theta", std::nullopt}}}},
      {.keys = {"model.n_embd", "model.n_head"},
       .when = [](const Config& c,
                  const Facts&) { return !c.model.n_head_dim && c.model.n_embd % c.model.heads() != 0; },
       .why =
           [](const Config& c) {
             return fmt::format("n_embd {} is not divisible by n_head {}", c.model.n_embd, c.model.heads());
           },
       .cures =
           [](const Config& c) {
             const int64_t width = c.model.n_embd, heads = c.model.heads();
             return either(set_to_each("model.n_embd", nearest(width, [&](int64_t n) { return n % heads == 0; })),
                           set_to_each("model.n_head",
                                       nearest(heads, [&](int64_t n) { return n <= width && width % n == 0; })));
           }},
      {.keys = {"model.n_kv_head", "model.n_head"},
       .when = [](const Config& c, const Facts&) { return c.model.heads() % c.model.kv_heads() != 0; },
       .why =
           [](const Config& c) {
             return fmt::format("n_head {} is not divisible by n_kv_head {}", c.model.heads(), c.model.kv_heads());
           },
       .cures =
           [](const Config& c) {
             const int64_t heads = c.model.heads();
             return set_to_each("model.n_kv_head",
                                nearest(c.model.kv_heads(), [&](int64_t n) { return n <= heads && heads % n == 0; }));
           }},
      {.keys = {"model.attention", "model.attention_window"},
       .when = [](const Config& c,
                  const Facts&) { return c.model.attention == AttentionForm::blocks && c.model.attention_window > 0; },
       .why =
           [](const Config& c) {
             return fmt::format(
                 "model.attention blocks chooses what a token sees, and attention_window {} hides it by distance",
                 c.model.attention_window);
           },
       .cures = {set_to("model.attention_window", "0"), set_to("model.attention", "full")}},
      {.keys = {"model.head_dim", "model.position"},
       .when = [](const Config& c, const Facts&) { return is_odd_head(c) && c.model.n_head_dim; },
       .why =
           [](const Config& c) {
             return fmt::format("position rope needs an even head size, but head_dim is {}", c.model.head_dim());
           },
       .cures =
           [](const Config& c) {
             return set_to_each("model.head_dim", nearest(c.model.head_dim(), [](int64_t n) { return n % 2 == 0; }));
           }},
      {.keys = {"model.n_embd", "model.n_head", "model.position"},
       .when = [](const Config& c, const Facts&) { return is_odd_head(c) && !c.model.n_head_dim; },
       .why =
           [](const Config& c) {
             return fmt::format("position rope needs an even head size, but n_embd {} / n_head {} = {}", c.model.n_embd,
                                c.model.heads(), c.model.head_dim());
           },
       .cures =
           [](const Config& c) {
             const int64_t pairs = 2 * c.model.heads();
             return set_to_each("model.n_embd", nearest(c.model.n_embd, [&](int64_t n) { return n % pairs == 0; }));
           }},
  };
}

}  // namespace gpt::config
