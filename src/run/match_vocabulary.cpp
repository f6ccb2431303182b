#include "gpt/run/match_vocabulary.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpt/layout/parameter_table.h"

namespace gpt::run {
namespace {

constexpr int64_t kNone = -1;

// What tokens are told by: whether they are special, and their text.
using Key = std::pair<bool, std::string>;

std::vector<Key> keys_of(const tokenizer::Tokenizer& tokenizer) {
  std::vector<Key> keys;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) keys.emplace_back(false, tokenizer.piece(id, false));
  for (const tokenizer::SpecialToken& token : tokenizer.special_tokens()) keys[token.id] = {true, token.text};
  return keys;
}

// For each id of `to`, that of `from`, or kNone.
std::vector<int64_t> matches(const tokenizer::Tokenizer& from, const tokenizer::Tokenizer& to) {
  std::map<Key, int64_t> ids;
  const std::vector<Key> old = keys_of(from);
  for (size_t id = 0; id < old.size(); ++id)
    if (!old[id].second.empty()) ids.emplace(old[id], id);  // the first of several
  std::vector<int64_t> result;
  for (const Key& key : keys_of(to)) {
    const auto found = ids.find(key);
    result.push_back(found == ids.end() ? kNone : found->second);
  }
  const auto end = to.end_of_text(), end_before = from.end_of_text();
  if (end && end_before) result[*end] = *end_before;
  return result;
}

at::Tensor mean_of(const at::Tensor& rows) {
  return rows.to(at::kFloat).mean(0, /*keepdim=*/true).to(rows.scalar_type());
}

at::Tensor matched(const at::Tensor& rows, const std::vector<int64_t>& ids, int64_t vocabulary, int64_t padded) {
  const at::Tensor old = rows.narrow(0, 0, vocabulary), mean = mean_of(old);
  std::vector<int64_t> sources = ids;
  std::replace(sources.begin(), sources.end(), kNone, vocabulary);  // where the mean is
  const at::Tensor result = at::zeros({padded, rows.size(1)}, rows.options());
  result.narrow(0, 0, std::ssize(ids)).copy_(at::cat({old, mean}).index_select(0, at::tensor(sources)));
  return result;
}

at::Tensor extended(const at::Tensor& rows, int64_t from, int64_t tokens, int64_t padded) {
  const at::Tensor result = at::zeros({std::max(padded, rows.size(0)), rows.size(1)}, rows.options());
  result.narrow(0, 0, rows.size(0)).copy_(rows);
  if (tokens > from) result.narrow(0, from, tokens - from).copy_(mean_of(rows.narrow(0, 0, from)));
  return result;
}

// Calls visit(tensor, rows) for those that have a row for each id, with how many the model has.
template <class Visit>
void for_each_vocabulary(parameters::NamedTensors& weights, const ModelConfig& model, const Visit& visit) {
  for (const layout::ParameterRow& row : layout::parameter_table(model)) {
    if (row.role != layout::ParameterRole::token_embedding && row.role != layout::ParameterRole::head) continue;
    for (auto& [name, tensor] : weights)
      if (name == row.name) visit(tensor, row.shape[0]);
  }
}

}  // namespace

MatchedVocabulary match_vocabulary(parameters::NamedTensors& weights, const ModelConfig& model,
                                   const tokenizer::Tokenizer& from, const tokenizer::Tokenizer& to) {
  const at::NoGradGuard no_grad;
  const std::vector<int64_t> ids = matches(from, to);
  for_each_vocabulary(weights, model, [&](at::Tensor& tensor, int64_t rows) {
    tensor = matched(tensor, ids, from.vocab_size(), rows);
  });
  std::set<int64_t> used(ids.begin(), ids.end());
  used.erase(kNone);
  const auto kept = std::ssize(ids) - std::count(ids.begin(), ids.end(), kNone);
  return {.kept = kept, .added = std::ssize(ids) - kept, .dropped = from.vocab_size() - std::ssize(used)};
}

void extend_vocabulary(parameters::NamedTensors& weights, const ModelConfig& model, int64_t from, int64_t tokens) {
  const at::NoGradGuard no_grad;
  for_each_vocabulary(weights, model,
                      [&](at::Tensor& tensor, int64_t rows) { tensor = extended(tensor, from, tokens, rows); });
}

}  // namespace gpt::run
