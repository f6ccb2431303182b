#include "gpt/exchange/families_reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <vector>

#include "gpt/config/value.h"
#include "gpt/core/format.h"
#include "gpt/exchange/families.h"
#include "text_part.h"

namespace gpt::exchange {
namespace {

// Two models that differ in all that some family has in one way only, after the family has had its say.
struct Probes {
  ModelConfig plain, other;
};

Probes probes_of(const Family& family) {
  Probes probes;
  probes.plain.n_head = 6;
  probes.plain.window_pattern = std::string(static_cast<size_t>(probes.plain.n_layer), 'L');
  ModelConfig& other = probes.other = probes.plain;
  other.norm = Norm::layernorm, other.mlp = Mlp::gelu, other.position = Position::learned;
  other.norm_place = NormPlace::both, other.norm_unit_offset = true, other.scaled_embedding = true;
  other.bias = true, other.qkv_bias = true, other.qk_norm = QkNorm::all;
  other.rope_pattern = "RRRN", other.rope_scaling.kind = RopeScalingKind::yarn;
  other.attention_window = 64, other.window_pattern = "SSSL", other.rope_window_theta = 100;
  family.set_form(probes.plain), family.set_form(other);
  return probes;
}

// A pattern that repeats one letter is that letter.
std::string shortest(const std::string& value) {
  return std::string_view("SLRN").find(value.front()) != std::string_view::npos &&
                 value.find_first_not_of(value.front()) == std::string::npos
             ? value.substr(0, 1)
             : value;
}

// The settings in which a family is not as Llama: `key: value` where it has one alone, `key` where it has any. Those of numbers and of
// positions that are not rotated go without saying.
std::string form_beside_llama(const Family& family) {
  Probes own = probes_of(family), llama = probes_of(kLlamaFamily);
  const std::vector<config::Option> plain = config::options(own.plain), other = config::options(own.other),
                                    llama_plain = config::options(llama.plain),
                                    llama_other = config::options(llama.other);
  std::vector<std::string> settings;
  for (size_t i = 0; i < plain.size(); ++i) {
    const auto value = [&](const std::vector<config::Option>& rows) { return config::value_text(rows[i].target); };
    const std::string key = plain[i].name, one = value(plain);
    const bool is_fixed = one == value(other), is_fixed_in_llama = value(llama_plain) == value(llama_other);
    const bool is_of_rope = key.starts_with("rope_") && own.plain.position == Position::learned;
    if (is_of_rope || key == "n_kv_head" || key == "head_dim") continue;
    const bool is_same = is_fixed_in_llama && one == value(llama_plain);
    if (is_fixed && !is_same) settings.push_back(fmt::format("`{}: {}`", key, shortest(one)));
    if (!is_fixed && is_fixed_in_llama) settings.push_back(fmt::format("`{}`", key));
  }
  return settings.empty() ? "all as here by default" : fmt::format("{}", fmt::join(settings, ", "));
}

// "yes", "no", or "yes, but not with SETTING, SETTING or SETTING".
std::string answer(std::span<const Limit> limits, const std::string& yes) {
  std::vector<std::string> settings;
  for (const Limit& limit : limits) {
    if (limit.setting.empty()) return "no";
    settings.emplace_back(limit.setting);
  }
  if (settings.empty()) return yes;
  const std::string last = settings.back();
  settings.pop_back();
  const std::string earlier = fmt::format("{}", fmt::join(settings, ", "));
  return fmt::format("{}, but not with {}{}{}", yes, earlier, earlier.empty() ? "" : " or ", last);
}

std::string llama_cpp_answer(const Family& family) {
  std::vector<std::string> answers;
  for (const Architecture* const architecture : family.architectures)
    answers.push_back(answer(architecture->limits, fmt::format("`{}`", architecture->name)));
  return fmt::format("{}", fmt::join(answers, "; else "));
}

}  // namespace

std::string families_markdown() {
  std::string text =
      "| family | here | transformers, in and out | llama.cpp | CTranslate2 | mlx-lm |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  for (const Family* const family : families())
    text += fmt::format("| {} | {} | `{}` | {} | {} | {} |\n", family->name, form_beside_llama(*family),
                        family->model_type, llama_cpp_answer(*family), answer(family->ctranslate2_limits, "yes"),
                        answer(family->mlx_lm_limits, "yes"));
  return text + fmt::format("\nOf models that see images, too, the text model is read: {}.\n",
                            enumerated(models_with_images()));
}

}  // namespace gpt::exchange
