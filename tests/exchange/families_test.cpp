#include "gpt/exchange/families.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "gpt/exchange/hugging_face.h"

namespace gpt::exchange {
namespace {

// With every parameter that the family can have.
ModelConfig whole_model(const Family& family) {
  ModelConfig model;
  model.n_layer = 2, model.n_embd = 16, model.n_head = 4, model.n_kv_head = 2, model.n_hidden = 24,
  model.block_size = 8;
  model.vocab_size = 64, model.bias = true, model.tie_weights = false;
  family.set_form(model);
  return model;
}

TEST(Families, AreFoundByTheirOwnForm) {
  for (const Family* const family : families()) {
    const ModelConfig model = whole_model(*family);
    EXPECT_EQ(&family_of(model, "here", "a program"), family) << family->name;
    EXPECT_EQ(misfits(model), "");
  }
}

TEST(Families, HaveEveryRowOfAParameterOnceUnderNamesOfItsOwn) {
  for (const Family* const family : families()) {
    const ModelConfig model = whole_model(*family);
    std::map<std::string, int64_t> rows;
    std::set<std::string> names, gguf_names;
    for (const Counterpart& part : family->counterparts(model)) {
      EXPECT_TRUE(names.insert(part.name).second) << part.name;
      EXPECT_TRUE(gguf_names.insert(part.gguf_name).second) << part.gguf_name;
      EXPECT_EQ(part.begin, rows[part.row]) << part.name << " begins where another one ends";
      EXPECT_TRUE(part.gguf_rope_heads == 0 || part.size == part.gguf_rope_heads * model.head_dim()) << part.name;
      rows[part.row] += part.size;
    }
    for (const ParameterRow& row : parameter_table(model)) EXPECT_EQ(rows[row.name], row.shape[0]) << row.name;
  }
}

}  // namespace
}  // namespace gpt::exchange
