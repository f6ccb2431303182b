#include "gpt/prune/amounts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/printable.h"

namespace gpt::prune {
namespace {

[[noreturn]] void refuse(const std::string& flag, const std::string& written, const std::string& why) {
  throw Error(ExitCode::config, fmt::format("--{} {}: {}", flag, written, why));
}

std::string text_of(const Amount& amount) { return fmt::format("{}{}", amount.number, amount.is_share ? "%" : ""); }

struct Whole {
  const char* owner;  // what has so many of them
  int64_t count;
  const char* noun;
};

// A number, or a share as a multiple of `unit`, but at least one unit; fewer than all.
int64_t count_of(const std::string& flag, const Amount& amount, const Whole& all, int64_t unit) {
  if (amount.number == 0) return 0;
  int64_t count = std::llround(amount.number);
  if (amount.is_share) {
    const double units = amount.number / 100 * static_cast<double>(all.count) / static_cast<double>(unit);
    count = unit * std::max<int64_t>(1, std::llround(units));
    if (count >= all.count && all.count > unit) count -= unit;  // only by rounding
  }
  if (count < all.count) return count;
  refuse(flag, text_of(amount),
         fmt::format("{} has {}, and at least one must be left", all.owner, plural(all.count, all.noun)));
}

// Heads share their keys and values in groups: either whole groups go, or equally many queries of each.
void require_divisible(int64_t heads, const ModelConfig& model, const Amount& amount) {
  const int64_t kv = model.kv_heads(), group = model.heads() / kv;
  const auto is_possible = [&](int64_t count) { return count % group == 0 || count % kv == 0; };
  if (is_possible(heads)) return;
  int64_t below = heads, above = heads;
  while (!is_possible(below)) --below;
  while (!is_possible(above)) ++above;
  std::string would_do = below > 0 ? fmt::format("{}", below) : "";
  if (above < model.heads()) would_do += fmt::format("{}{}", would_do.empty() ? "" : " or ", above);
  refuse("heads", text_of(amount),
         fmt::format(
             "the {} of a layer share {}, so that either all {} of a group go or equally many of each group; use {}",
             plural(model.heads(), "head"), plural(kv, "key and value head"), group, would_do));
}

}  // namespace

Amount parse_amount(const std::string& flag, const std::string& text) {
  Amount amount;
  const char *const begin = text.data(), *const end = begin + text.size();
  const auto [rest, fault] = std::from_chars(begin, end, amount.number);
  amount.is_share = rest + 1 == end && *rest == '%';
  const bool is_whole = amount.is_share || (rest == end && amount.number == std::floor(amount.number));
  if (fault != std::errc() || !is_whole || !(amount.number >= 0) || !(amount.number <= 1e9))
    refuse(flag, printable_line(text), "a share such as 25% or a whole number is needed");
  if (amount.is_share && amount.number >= 100) refuse(flag, text, "a share is less than 100%");
  return amount;
}

Removal removal_from(const Amounts& amounts, const ModelConfig& model) {
  constexpr int64_t kNeurons = 32;
  const int64_t hidden = model.hidden(), unit = hidden % kNeurons == 0 && hidden > kNeurons ? kNeurons : 1;
  const int64_t kv = model.kv_heads(), group = model.heads() / kv;
  Removal removal;
  removal.neurons = count_of("mlp", amounts.mlp, {"each layer", hidden, "neuron"}, unit);
  removal.heads = count_of("heads", amounts.heads, {"each layer", model.heads(), "head"}, kv == 1 ? 1 : group);
  removal.layers = count_of("layers", amounts.layers, {"the model", model.n_layer, "layer"}, 1);
  require_divisible(removal.heads, model, amounts.heads);
  if (removal.heads > 0 && model.qk_norm == QkNorm::all)
    refuse("heads", text_of(amounts.heads), "the model normalizes all heads of a token together (model.qk_norm all)");
  return removal;
}

}  // namespace gpt::prune
