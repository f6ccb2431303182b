#include "gpt/serve/chat_request.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "request_fields.h"

namespace gpt::serve {
namespace {

using nlohmann::json;

std::string read_role(Fields& fields) {
  const json* const role = fields.find("role");
  const std::string field = fields.full("role");
  if (!role || !role->is_string())
    refuse(fmt::format("{} must be \"system\", \"user\" or \"assistant\"", field), field);
  if (*role == "developer") return chat::kSystem;  // its name since 2024
  if (*role == chat::kSystem || *role == chat::kUser || *role == chat::kAssistant) return role->get<std::string>();
  if (*role == "tool" || *role == "function")
    refuse(fmt::format("{} {} is not supported: this server calls no tools", field, shown(*role)), field);
  refuse(fmt::format("{} must be \"system\", \"user\" or \"assistant\", got {}", field, shown(*role)), field);
}

// A text, or a list of parts that are texts.
std::string read_content(Fields& fields) {
  const json* const content = fields.find("content");
  const std::string field = fields.full("content");
  if (content && content->is_string()) return content->get<std::string>();
  if (!content || !content->is_array())
    refuse(fmt::format("{} must be a text, or a list of parts of type \"text\"", field), field);
  std::string text;
  for (const json& part : *content) {
    const json type = part.is_object() ? part.value("type", json()) : json();
    if (type != "text")
      refuse(fmt::format("{}: a part of type {} is not supported: the model reads texts", field, shown(type)), field);
    const json words = part.value("text", json());
    if (!words.is_string())
      refuse(fmt::format("{}: the text of a part must be a text, got {}", field, shown(words)), field);
    text += words.get<std::string>();
  }
  return text;
}

void read_messages(Fields& fields, bool refuses_unknown, ChatRequest& request) {
  const json* const messages = fields.find("messages");
  if (!messages || !messages->is_array() || messages->empty())
    refuse("messages must be a list with at least one message, each with role and content", "messages");
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string prefix = fmt::format("messages[{}].", i);
    const json& message = (*messages)[i];
    if (!message.is_object())
      refuse(fmt::format("messages[{}] must be an object, got {}", i, shown(message)), "messages");
    Fields inner(message, prefix);
    std::string role = read_role(inner);
    inner.only("tool_calls", json::array());
    inner.only("function_call", nullptr);
    inner.only("audio", nullptr);
    request.dialogue.push_back({std::move(role), read_content(inner)});
    for (const char* name : {"name", "refusal", "annotations"}) inner.find(name);  // they are not shown to the model
    for (AnswerRequest::LeftOut& field : inner.leave_out_others(refuses_unknown)) {
      field.field.replace(0, prefix.size(), "messages[].");  // which is said once for all of them
      request.left_out.push_back(std::move(field));
    }
  }
}

int64_t read_most_tokens(Fields& fields, int64_t most) {
  const int64_t older = fields.integer("max_tokens", -1, -1, most);
  const int64_t tokens = fields.integer("max_completion_tokens", older, -1, most);
  return tokens >= 0 ? tokens : most;
}

std::optional<int64_t> read_logprobs_of_chat(Fields& fields) {
  const bool wanted = fields.boolean("logprobs");
  const int64_t top = fields.integer("top_logprobs", 0, 0, kMostLogprobs);
  if (top > 0 && !wanted) refuse("top_logprobs needs logprobs: true", "top_logprobs");
  return wanted ? std::optional(top) : std::nullopt;
}

// A model may answer by itself wherever it is left to it whether a tool is called.
void read_tools(Fields& fields, bool ignores_tools, ChatRequest& request) {
  for (const char* name : {"tools", "functions"}) {
    const json* const tools = fields.find(name);
    if (!tools || *tools == json::array()) continue;
    if (!ignores_tools) {
      refuse(fmt::format("{} is not supported: leave it out, or send []; gpt-serve --ignore-tools answers without them",
                         name),
             name);
    }
    request.left_out.push_back({name, /*is_known=*/true});
  }
  if (const json* const choice = fields.find("tool_choice"); choice && *choice != "auto")
    fields.only("tool_choice", "none");
  if (const json* const call = fields.find("function_call"); call && *call != "auto")
    fields.only("function_call", "none");
  fields.find("parallel_tool_calls");
}

// What other servers can do with a dialogue, and clients name where they want nothing of it.
void refuse_what_is_not_there(Fields& fields) {
  fields.only("modalities", json::array({"text"}));
  fields.only("audio", nullptr);
  fields.only("prediction", nullptr);
  fields.only("web_search_options", nullptr);
  fields.only("reasoning_effort", nullptr);
  fields.only("verbosity", nullptr);
  fields.only("add_generation_prompt", true);
  fields.only("continue_final_message", false);
  fields.only("chat_template", nullptr);
  fields.only("chat_template_kwargs", json::object());
  fields.only("echo", false);
}

}  // namespace

ChatRequest parse_chat_request(std::string_view body, const CompletionRules& rules) {
  const json object = parse_object(body);
  Fields fields(object);
  ChatRequest request;
  request.model = read_model(fields, rules);
  read_messages(fields, rules.strict_fields, request);
  request.sampling.max_new_tokens = read_most_tokens(fields, rules.most_tokens);
  read_sampling(fields, request.sampling);
  request.n = fields.integer("n", 1, 1, kMostChoices);
  request.logprobs = read_logprobs_of_chat(fields);
  request.ignores_end = fields.boolean("ignore_eos");
  read_tools(fields, rules.ignore_tools, request);
  std::vector<AnswerRequest::LeftOut> before = std::move(request.left_out);
  read_stream(fields, rules.strict_fields, request);
  refuse_other_sampling(fields);
  refuse_what_is_not_there(fields);
  fields.find("user");  // who asks changes nothing
  for (std::vector<AnswerRequest::LeftOut> more : {std::move(before), fields.leave_out_others(rules.strict_fields)})
    request.left_out.insert(request.left_out.end(), more.begin(), more.end());
  return request;
}

}  // namespace gpt::serve
