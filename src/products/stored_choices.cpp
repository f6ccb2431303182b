#include "stored_choices.h"

#include <nlohmann/json.hpp>

namespace gpt::ops {
namespace {

using Json = nlohmann::ordered_json;

// Calls visit with each field of a key, which is constant where it is written.
template <class Key, class Visit>
void visit_fields(Key& key, const Visit& visit) {
  visit("rows", key.rows), visit("columns", key.columns), visit("inner", key.inner);
  visit("type", key.type), visit("result_type", key.result_type);
  visit("a_transposed", key.a_transposed), visit("b_transposed", key.b_transposed);
  visit("adds", key.adds), visit("has_bias", key.has_bias), visit("has_gelu", key.has_gelu);
  visit("has_gelu_slope", key.has_gelu_slope), visit("has_sums_of_a", key.has_sums_of_a);
  visit("alignment", key.alignment);
}

}  // namespace

std::string write_choices(const std::string& made_for, const std::vector<StoredChoice>& choices) {
  Json products = Json::array();
  for (const auto& [key, way] : choices) {
    Json product;
    visit_fields(key, [&](const char* name, const auto& value) { product[name] = value; });
    product["way"] = way ? Json(*way) : Json();
    products.push_back(std::move(product));
  }
  return Json{{"made_for", made_for}, {"products", std::move(products)}}.dump();
}

std::vector<StoredChoice> read_choices(const std::string& made_for, const std::string& json) {
  std::vector<StoredChoice> choices;
  try {
    const Json stored = Json::parse(json);
    if (stored.at("made_for") != made_for) return {};
    for (const Json& product : stored.at("products")) {
      StoredChoice& choice = choices.emplace_back();
      visit_fields(choice.key, [&](const char* name, auto& value) { product.at(name).get_to(value); });
      if (const Json& way = product.at("way"); !way.is_null()) choice.way = way.get<std::string>();
    }
  } catch (const Json::exception&) { return {}; }
  return choices;
}

}  // namespace gpt::ops
