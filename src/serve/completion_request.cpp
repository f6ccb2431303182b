#include "gpt/serve/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/serve/api_error.h"
#include "request_fields.h"

namespace gpt::serve {
namespace {

using nlohmann::json;

std::vector<int32_t> read_ids(const json& list) {
  std::vector<int32_t> ids;
  for (const json& id : list) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
    if (!fits) refuse(fmt::format("prompt: a token must be a whole number from 0 on, got {}", shown(id)), "prompt");
    ids.push_back(id.get<int32_t>());
  }
  if (ids.empty()) refuse("prompt: a list of tokens must have at least one", "prompt");
  return ids;
}

void read_prompts(Fields& fields, CompletionRequest& request) {
  const json* const prompt = fields.find("prompt");
  if (!prompt) refuse("prompt is missing", "prompt");
  if (prompt->is_string()) return request.prompts.emplace_back(prompt->get<std::string>()), void();
  if (!prompt->is_array())
    refuse("prompt must be a text, a list of texts, a list of tokens or a list of those", "prompt");
  if (prompt->empty() || prompt->front().is_number()) return request.prompts.emplace_back(read_ids(*prompt)), void();
  for (const json& one : *prompt) {
    if (one.is_string()) {
      request.prompts.emplace_back(one.get<std::string>());
    } else if (one.is_array()) {
      request.prompts.emplace_back(read_ids(one));
    } else {
      refuse(fmt::format("prompt: each of a list must be a text or a list of tokens, got {}", shown(one)), "prompt");
    }
  }
}

// false is none, as null is.
std::optional<int64_t> read_logprobs(Fields& fields) {
  const json* const logprobs = fields.find("logprobs");
  if (!logprobs || *logprobs == false) return std::nullopt;
  return fields.integer("logprobs", 0, 0, kMostLogprobs);
}

std::optional<int64_t> read_prompt_tokens(Fields& fields) {
  constexpr const char* kName = "truncate_prompt_tokens";
  const json* const tokens = fields.find(kName);
  if (!tokens) return std::nullopt;
  if (*tokens == 0) refuse("truncate_prompt_tokens must be at least 1, or -1 for the model's context; got 0", kName);
  return fields.integer(kName, -1, -1, std::numeric_limits<int64_t>::max());
}

}  // namespace

CompletionRequest parse_completion_request(std::string_view body, const CompletionRules& rules) {
  const json object = parse_object(body);
  Fields fields(object);
  CompletionRequest request;
  request.model = read_model(fields, rules);
  read_prompts(fields, request);
  const int64_t tokens = fields.integer("max_tokens", std::min<int64_t>(16, rules.most_tokens), -1, rules.most_tokens);
  request.sampling.max_new_tokens = tokens >= 0 ? tokens : rules.most_tokens;
  read_sampling(fields, request.sampling);
  request.n = fields.integer("n", 1, 1, kMostChoices);
  if (const auto texts = request.n * std::ssize(request.prompts); texts > kMostChoices)
    refuse(fmt::format("a request may ask for {} texts, got {} (prompts times n)", kMostChoices, texts), "n");
  request.logprobs = read_logprobs(fields);
  request.echo = fields.boolean("echo");
  request.ignores_end = fields.boolean("ignore_eos");
  request.prompt_tokens = read_prompt_tokens(fields);
  read_stream(fields, rules.strict_fields, request);
  fields.only("best_of", request.n);
  fields.only("suffix", "");
  refuse_other_sampling(fields);
  fields.find("user");  // who asks changes nothing
  for (CompletionRequest::LeftOut& field : fields.leave_out_others(rules.strict_fields))
    request.left_out.push_back(std::move(field));
  return request;
}

}  // namespace gpt::serve
