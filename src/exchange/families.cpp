#include "gpt/exchange/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace gpt::exchange {

std::span<const Family* const> families() {
  static constexpr const Family* kAll[] = {&kLlamaFamily,   &kGpt2Family,      &kQwen2Family,   &kQwen3Family,
                                           &kMistralFamily, &kMinistralFamily, &kSmolLM3Family, &kGemmaFamily,
                                           &kGemma3Family,  &kOlmo2Family,     &kOlmo3Family,   &kArceeFamily};
  return kAll;
}

void set_plain_norms(ModelConfig& model) {
  model.norm_place = NormPlace::input;
  model.norm_unit_offset = model.scaled_embedding = false;
}

const TensorNames& names_of(const layout::ParameterRow& row, std::span<const RoleNames> family) {
  const auto found =
      std::find_if(family.begin(), family.end(), [&](const RoleNames& of) { return of.role == row.role; });
  if (found == family.end()) throw std::logic_error("the family has no " + row.name);
  return found->names;
}

Counterpart counterpart(const layout::ParameterRow& row, const TensorNames& names, int64_t begin, int64_t size) {
  const auto named = [&](const char* pattern) {
    return fmt::format(fmt::runtime(pattern), row.layer) + (row.is_bias ? ".bias" : ".weight");
  };
  Counterpart part{named(names.transformers), named(names.llama_cpp), row.name, begin, size, row.shape};
  part.shape[0] = size;
  return part;
}

Counterpart counterpart(const layout::ParameterRow& row, const TensorNames& names, const ModelConfig& model) {
  const bool has_vocabulary =
      row.role == layout::ParameterRole::token_embedding || row.role == layout::ParameterRole::head;
  return counterpart(row, names, 0, has_vocabulary ? *model.vocab_size : row.shape[0]);
}

}  // namespace gpt::exchange
