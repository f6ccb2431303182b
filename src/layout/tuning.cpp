#include "gpt/layout/tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/printable.h"

namespace gpt::layout {
namespace {

using Parts = std::vector<std::string_view>;

Parts parts_of(std::string_view name) {
  constexpr std::string_view kRoot = "transformer.";
  if (name.starts_with(kRoot)) name.remove_prefix(kRoot.size());
  Parts parts;
  for (size_t dot; (dot = name.find('.')) != std::string_view::npos; name.remove_prefix(dot + 1))
    parts.push_back(name.substr(0, dot));
  parts.push_back(name);
  return parts;
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

bool stands_for(std::string_view pattern, std::string_view part) {
  if (pattern == "*" || pattern == part) return true;
  const size_t dash = pattern.find('-');
  if (dash == std::string_view::npos) return false;
  const auto first = number_of(pattern.substr(0, dash)), last = number_of(pattern.substr(dash + 1)),
             number = number_of(part);
  return first && last && number && *first <= *number && *number <= *last;
}

bool is_named(const std::string& name, const Parts& pattern) {
  const Parts parts = parts_of(name);
  return pattern.size() <= parts.size() && std::equal(pattern.begin(), pattern.end(), parts.begin(), stands_for);
}

// "wte, h.0-11, ln_f": what patterns can begin with.
std::string beginnings(const std::vector<ParameterRow>& rows) {
  std::string_view last_block;
  for (const ParameterRow& row : rows)
    if (const Parts parts = parts_of(row.name); parts[0] == "h") last_block = parts[1];
  std::vector<std::string> names;
  for (const ParameterRow& row : rows) {
    const std::string_view first = parts_of(row.name)[0];
    std::string name = first == "h" ? fmt::format("h.0-{}", last_block) : std::string(first);
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

bool is_named_by(const std::string& pattern, const ParameterRow& row) {
  const Parts parts = parts_of(pattern);
  return is_named(row.name, parts) || (!row.tied_name.empty() && is_named(row.tied_name, parts));
}

// `kinds`: what the key takes beside patterns, each with ", " behind it.
[[noreturn]] void refuse_pattern(const char* key, const std::string& pattern, const std::vector<ParameterRow>& rows,
                                 std::string_view kinds = "") {
  throw Error(
      ExitCode::config,
      fmt::format("{}: {} names no parameter of this model; there are {}{}, and parts of blocks such as h.0.attn, "
                  "h.*.mlp or h.2-5.ln_1.weight",
                  key, printable(pattern), kinds, beginnings(rows)));
}

void freeze(std::vector<ParameterRow>& rows, const std::string& pattern) {
  bool names_any = false;
  for (ParameterRow& row : rows) {
    if (!is_named_by(pattern, row)) continue;
    row.is_trained = false;
    names_any = true;
  }
  if (!names_any) refuse_pattern("training.freeze", pattern, rows);
}

// As Hugging Face's Llama names a product of a block, of which several may be one here.
struct Product {
  std::string_view name;
  ParameterRole role;
};
constexpr std::string_view kEmbeddings = "embeddings", kNorms = "norms";  // for lora_also_train
constexpr std::string_view kQueries = "q_proj", kKeys = "k_proj", kValues = "v_proj", kAll = "all-linear";
constexpr Product kProducts[] = {
    {kQueries, ParameterRole::attention_in}, {kKeys, ParameterRole::attention_in},
    {kValues, ParameterRole::attention_in},  {"o_proj", ParameterRole::attention_out},
    {"gate_proj", ParameterRole::mlp_gate},  {"up_proj", ParameterRole::mlp_in},
    {"down_proj", ParameterRole::mlp_out},
};

// Which rows of this weight give the result of that product.
RowCut::Piece outputs_of(const ParameterRow& weight, std::string_view product) {
  const int64_t queries = weight.query_rows, keys = (weight.shape[0] - queries) / 2;
  if (product == kQueries) return {0, queries};
  if (product == kKeys) return {queries, keys};
  if (product == kValues) return {queries + keys, keys};
  return {0, weight.shape[0]};
}

bool is_target(const LoraConfig& lora, std::string_view product) {
  return std::ranges::any_of(lora.targets, [&](const std::string& one) { return one == kAll || one == product; });
}

void require_products(const LoraConfig& lora, const std::vector<ParameterRow>& rows) {
  const auto is_there = [&](const Product& product) {
    return std::ranges::any_of(rows, [&](const ParameterRow& row) { return row.role == product.role; });
  };
  std::vector<std::string_view> names{kAll};
  for (const Product& product : kProducts)
    if (is_there(product)) names.push_back(product.name);
  for (const std::string& target : lora.targets) {
    if (std::ranges::find(names, target) == names.end())
      throw Error(ExitCode::config,
                  fmt::format("training.lora_targets: {} names no product of this model; there are {}",
                              printable(target), fmt::join(names, ", ")));
  }
  if (lora.targets.empty())
    throw Error(ExitCode::config, "training.lora_targets names no product, so that nothing would be learned");
}

// The adapter of one weight: nothing where no target is computed with it. A is drawn with the spread that peft draws it with, 1 / sqrt(3
// inputs), and B is zero, so that the model begins as it is.
std::vector<ParameterRow> adapter_of(const ParameterRow& weight, const LoraConfig& lora) {
  AdapterPart part{.scale = lora.scale(), .dropout = lora.dropout};
  int64_t outputs = 0;
  for (const auto& [name, role] : kProducts) {
    if (role != weight.role || !is_target(lora, name)) continue;
    part.outputs.push_back(outputs_of(weight, name));
    outputs += part.outputs.back().length;
  }
  if (part.outputs.empty()) return {};
  const int64_t inputs = weight.shape[1], rank = lora.rank * static_cast<int64_t>(part.outputs.size());
  const std::string name = weight.name.substr(0, weight.name.rfind('.'));
  const auto row = [&](const char* factor, std::vector<int64_t> shape, const InitialValue& initial) {
    return ParameterRow{.name = name + factor,
                        .shape = std::move(shape),
                        .role = weight.role,
                        .layer = weight.layer,
                        .is_bias = false,
                        .initial = initial,
                        .adapter = part};
  };
  std::vector<ParameterRow> rows;
  rows.push_back(row(".lora_A", {rank, inputs}, {.normal_std = 1 / std::sqrt(3 * static_cast<double>(inputs))}));
  part.is_a = false;
  rows.push_back(row(".lora_B", {outputs, lora.rank}, {}));
  return rows;
}

// In which few bits a matrix of the model is kept, if any.
BaseType kept_type(const ParameterRow& row, BaseType of_model) {
  if (!is_product_matrix(row)) return BaseType::automatic;
  return of_model == BaseType::int4 && is_vocabulary(row.role) ? BaseType::int8 : of_model;
}

// The words for parameters of one kind, and otherwise a pattern.
bool is_also_trained(const std::string& name, const ParameterRow& row) {
  if (name == kEmbeddings)
    return row.role == ParameterRole::token_embedding || row.role == ParameterRole::position_embedding;
  if (name == kNorms) return is_norm(row.role);
  return is_named_by(name, row);
}

// The bias of a product with an adapter is no more than the product itself, as in peft.
void train_whole(std::vector<ParameterRow>& rows, const std::string& name, const std::vector<ParameterRow>& adapters) {
  constexpr const char* kKey = "training.lora_also_train";
  bool names_any = false;
  for (ParameterRow& row : rows) {
    if (!is_also_trained(name, row)) continue;
    const auto goes_with_row = [&row](const ParameterRow& adapter) {
      return adapter.role == row.role && adapter.layer == row.layer;
    };
    if (std::ranges::any_of(adapters, goes_with_row))
      throw Error(ExitCode::config,
                  fmt::format("{}: {} names '{}', and its product has adapters; leave that out here or "
                              "in training.lora_targets",
                              kKey, printable(name), row.name));
    row.is_trained = true;
    row.kept = BaseType::automatic;
    names_any = true;
  }
  if (!names_any) refuse_pattern(kKey, name, rows, fmt::format("{}, {}, ", kEmbeddings, kNorms));
}

void add_adapters(std::vector<ParameterRow>& rows, const LoraConfig& lora) {
  require_products(lora, rows);
  std::vector<ParameterRow> added;
  for (ParameterRow& row : rows) {
    row.is_trained = false;
    row.kept = kept_type(row, lora.base);
    if (row.is_bias || row.shape.size() < 2) continue;
    std::ranges::move(adapter_of(row, lora), std::back_inserter(added));
  }
  for (const std::string& name : lora.also_train) train_whole(rows, name, added);
  std::ranges::move(added, std::back_inserter(rows));
}

}  // namespace

std::vector<ParameterRow> parameter_table(const ModelConfig& config, const TuningConfig& tuning) {
  std::vector<ParameterRow> rows = parameter_table(config);
  for (const std::string& pattern : tuning.freeze) freeze(rows, pattern);
  if (tuning.lora.is_on()) add_adapters(rows, tuning.lora);
  if (std::ranges::none_of(rows, &ParameterRow::is_trained))
    throw Error(ExitCode::config,
                "training.freeze names all parameters, so that nothing would be learned; leave some out");
  return rows;
}

void require_tunable(ModelConfig config, const TuningConfig& tuning) {
  if (!config.vocab_size) config.vocab_size = 1;  // no name follows from it
  (void)parameter_table(config, tuning);
}

bool is_trained_whole(const ParameterRow& row) { return row.is_trained && !row.adapter; }

std::vector<ParameterRow> adapter_rows(const std::vector<ParameterRow>& rows) {
  std::vector<ParameterRow> adapters;
  std::ranges::copy_if(rows, std::back_inserter(adapters),
                       [](const ParameterRow& row) { return row.adapter.has_value(); });
  return adapters;
}

}  // namespace gpt::layout
