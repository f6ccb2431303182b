// The model and the tasks that scripts/make_eval_fixtures.py made.
#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gpt/exchange/import.h"
#include "gpt/exchange/weights.h"
#include "gpt/model/gpt.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/source_folder.h"

namespace gpt::test {

inline std::string eval_fixture(const std::string& name) { return source_folder() + "/tests/fixtures/eval/" + name; }

inline nlohmann::json eval_json(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(eval_fixture(name)));
}

struct FixtureModel {
  exchange::ForeignModel stored = exchange::read_foreign_model(eval_fixture("model"));
  model::GPT model{stored.model, at::kCPU, exchange::read_weights(eval_fixture("model"), stored.model, *stored.family)};
  std::unique_ptr<tokenizer::Tokenizer> tokenizer = tokenizer::tokenizer_from_json(stored.tokenizer, "fixture");
};

}  // namespace gpt::test
