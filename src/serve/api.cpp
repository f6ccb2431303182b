#include "gpt/serve/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/running_clock.h"
#include "gpt/http/guard.h"
#include "gpt/serve/completion_response.h"
#include "gpt/serve/page.h"

namespace gpt::serve {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kJson = "application/json";
constexpr std::chrono::milliseconds kLook{
    200};  // how often a waiting connection looks whether its client is still there

struct ClientLeft {};

struct WrongMethod {
  std::string allowed;
};

void send_error(const ApiError& error, http::Responder& responder, std::vector<http::Header> more = {}) {
  if (error.status() == 401) more.push_back({"WWW-Authenticate", "Bearer"});
  if (error.status() == 503) more.push_back({"Retry-After", "1"});
  responder.send(error.status(), kJson, error.json(), more);
}

void log_request(std::string_view what, int status, int64_t tokens, Clock::time_point start) {
  const double seconds = seconds_since(start);
  log::info(fmt::format("{} {}, {}, {:.1f} ms", shortened(printable_line(what), 200),
                        status == 0 ? "client left" : std::to_string(status), plural(tokens, "token"), 1e3 * seconds));
}

// The model's name may be any bytes.
std::string written(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// As vLLM has it, which says of adapters what model they go with.
ordered_json model_object(const ServedModel& model, const ServedModel& base, int64_t created) {
  return {{"id", model.name},   {"object", "model"},
          {"created", created}, {"owned_by", "gpt-serve"},
          {"root", model.root}, {"parent", &model == &base ? ordered_json() : ordered_json(base.name)}};
}

// The model itself is the first.
int64_t adapter_of(const AnswerRequest& request) {
  return request.model == 0 ? ops::RowAdapters::kNone : static_cast<int64_t>(request.model) - 1;
}

// While it exists the worker works for a client; then no longer.
struct Subscription {
  EventQueue& events;
  ~Subscription() { events.leave(); }
};

// Throws ClientLeft.
TextEvent next_event(EventQueue& events, http::Responder& responder) {
  for (;;) {
    std::optional<TextEvent> event = events.next(kLook);
    if (responder.client_has_gone()) throw ClientLeft();  // though events may come one after the other
    if (event) return std::move(*event);
  }
}

std::string as_sse(const std::string& data) { return "data: " + data + "\n\n"; }

// What goes wrong before the first piece is answered like any error, and later within the stream.
void stream(Task& task, const AnswerRequest& request, CompletionWriter& writer, http::Responder& responder) {
  using Usage = CompletionWriter::UsageSoFar;
  const Usage usage = request.continuous_usage ? Usage::told : request.include_usage ? Usage::null : Usage::left_out;
  try {
    while (!writer.is_complete()) {
      const TextEvent event = next_event(task.events, responder);
      if (responder.status() == 0) responder.begin_stream("text/event-stream");
      const std::string piece = writer.piece(event, usage);
      if (!piece.empty() && !responder.write(as_sse(piece))) throw ClientLeft();
    }
    if (request.include_usage) responder.write(as_sse(writer.usage_piece()));
  } catch (const ApiError& error) {
    if (responder.status() == 0) throw;
    log::info(fmt::format("A text was ended within its stream: {}", error.what()));
    responder.write(as_sse(error.json()));
  }
  responder.write(as_sse("[DONE]"));
  responder.end_stream();
}

}  // namespace

Api::Api(ApiOptions options, const generate::Session& session, Batcher& batcher)
    : options_(std::move(options)),
      session_(session),
      encoder_(session),
      batcher_(batcher),
      created_(std::time(nullptr)) {}

void Api::answer(const http::Request& request, http::Responder& responder) {
  const auto start = Clock::now();
  int64_t tokens = 0;
  int status = 0;
  try {
    tokens = route(request, responder);
    status = responder.status();
  } catch (const ApiError& error) {
    std::vector<http::Header> more;
    if (error.status() == 429) more = {{"Retry-After", std::to_string(batcher_.seconds_until_room())}};
    send_error(error, responder, more);
    status = error.status();
  } catch (const WrongMethod& wrong) {
    status = 405;
    send_error({status, fmt::format("{} takes {} only", request.path, wrong.allowed)}, responder,
               {{"Allow", wrong.allowed}});
  } catch (const ClientLeft&) {}
  log_request(fmt::format("{} {}", request.method, request.path), status, tokens, start);
}

void Api::refuse(const http::Refusal& refusal, http::Responder& responder) {
  send_error({refusal.status(), refusal.what()}, responder);
  log_request(refusal.what(), refusal.status(), 0, Clock::now());
}

// Returns how many tokens were drawn.
int64_t Api::route(const http::Request& request, http::Responder& responder) {
  constexpr std::string_view kModels = "/v1/models";
  check_origin(request);
  const std::string& path = request.path;
  const auto read_only = [&request] {
    if (request.method != "GET" && request.method != "HEAD") throw WrongMethod{"GET, HEAD"};
  };
  if (path == "/v1/completions") {
    check_key(request);
    if (request.method != "POST") throw WrongMethod{"POST"};
    return complete(request, responder);
  }
  if (path == "/v1/chat/completions") {
    check_key(request);
    if (request.method != "POST") throw WrongMethod{"POST"};
    return chat(request, responder);
  }
  if (path == kModels || path.starts_with(std::string(kModels) + "/")) {
    check_key(request);
    read_only();
    responder.send(200, kJson, path == kModels ? models() : model(http::unescaped(path.substr(kModels.size() + 1))));
  } else if (path == "/health") {
    read_only();
    responder.send(200, kJson, health());
  } else if (path == "/") {
    read_only();
    responder.send(
        200, "text/html; charset=utf-8", can_chat() ? chat_page() : page(),
        {{"Content-Security-Policy",
          "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
          "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"}});
  } else {
    throw ApiError(404, "there are /v1/completions, /v1/chat/completions, /v1/models, /health and / here");
  }
  return 0;
}

void Api::check_origin(const http::Request& request) const {
  if (const auto why = http::why_foreign(request, !options_.api_key.empty(), "an API key")) throw ApiError(403, *why);
}

void Api::check_key(const http::Request& request) const {
  if (options_.api_key.empty()) return;
  const std::string* const given = request.header("authorization");
  if (given && http::is_same_key(http::bearer_key(*given), options_.api_key)) return;
  throw ApiError(401, "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'", {}, "invalid_api_key");
}

std::string Api::models() const {
  ordered_json all = ordered_json::array();
  for (const ServedModel& model : options_.models) all.push_back(model_object(model, options_.models[0], created_));
  return written({{"object", "list"}, {"data", all}});
}

std::string Api::model(const std::string& name) const {
  const ServedModel& found = options_.models[find_model(name, options_.completions.models)];
  return written(model_object(found, options_.models[0], created_));
}

bool Api::can_chat() const {
  return std::ranges::any_of(options_.models, [](const ServedModel& model) { return model.chat_template.has_value(); });
}

std::string Api::health() const {
  const Batcher::State state = batcher_.state();
  return written({{"status", "ok"},
                  {"model", options_.models[0].name},
                  {"models", options_.completions.models},
                  {"slots", state.slots},
                  {"slots_in_use", state.slots_in_use},
                  {"queue", state.queue},
                  {"queued", state.queued}});
}

int64_t Api::complete(const http::Request& request, http::Responder& responder) {
  const CompletionRequest completion = parse_completion_request(request.body, options_.completions);
  name_left_out(completion);
  const std::shared_ptr<Task> task = make_task(completion);
  int64_t prompt_tokens = 0;
  for (const auto& prompt : task->prompts) prompt_tokens += std::ssize(prompt.tokens);
  CompletionWriter writer(*session_.loaded.tokenizer, served(completion).name, prompt_tokens, task->choices(),
                          task->logprobs.has_value(), echoes(completion, *task));
  return answer_with(completion, task, writer, responder);
}

int64_t Api::answer_with(const AnswerRequest& request, const std::shared_ptr<Task>& task, CompletionWriter& writer,
                         http::Responder& responder) {
  const Subscription subscription{task->events};
  if (!batcher_.submit(task))
    throw ApiError(429, "too many requests are waiting: try again in a moment", {}, "queue_full");
  if (request.stream) {
    stream(*task, request, writer, responder);
  } else {
    while (!writer.is_complete()) writer.add(next_event(task->events, responder));
    responder.send(200, kJson, writer.whole());
  }
  return writer.usage().completion_tokens;
}

int64_t Api::chat(const http::Request& request, http::Responder& responder) {
  if (!can_chat()) throw ApiError(400, options_.models[0].no_chat, {}, "no_chat_template");
  const ChatRequest asked = parse_chat_request(request.body, options_.completions);
  if (!served(asked).chat_template) throw ApiError(400, served(asked).no_chat, {}, "no_chat_template");
  name_left_out(asked);
  const std::shared_ptr<Task> task = make_chat_task(asked);
  CompletionWriter writer(*session_.loaded.tokenizer, served(asked).name, std::ssize(task->prompts[0].tokens),
                          task->choices(), task->logprobs.has_value(), {}, AnswerForm::chat);
  return answer_with(asked, task, writer, responder);
}

std::vector<int32_t> Api::encode_dialogue(const chat::ChatTemplate& chat_template, chat::Dialogue dialogue) {
  try {
    return encoder_.work([&] { return chat_template.encode(dialogue); });
  } catch (const Error& e) { throw ApiError(400, first_line(e.what()), "messages"); }
}

// An answer ends where the context does, of which nothing is cropped: the model would forget who speaks.
std::shared_ptr<Task> Api::make_chat_task(const ChatRequest& request) {
  auto task = std::make_shared<Task>(request.stream);
  const chat::ChatTemplate& chat_template = *served(request).chat_template;
  task->sampling = request.sampling;
  task->sampling.ends = chat_template.ends();
  task->adapter = adapter_of(request);
  task->n = request.n;
  task->logprobs = request.logprobs;
  task->ignores_end = request.ignores_end;
  task->prompts.push_back({encode_dialogue(chat_template, request.dialogue)});
  const int64_t context = session_.loaded.model->config().block_size, size = std::ssize(task->prompts[0].tokens);
  if (size >= context) {
    throw ApiError(
        400,
        fmt::format(
            "the messages have {}, and the model's context only {}: there is no room for an answer; leave the oldest out",
            plural(size, "token"), context),
        "messages", "context_length_exceeded");
  }
  task->sampling.max_new_tokens = std::min(task->sampling.max_new_tokens, context - size);
  return task;
}

// What clients send in vain is said once, with the first requests.
void Api::name_left_out(const AnswerRequest& request) {
  constexpr size_t kMostNamed = 100;
  for (const auto& [field, is_known] : request.left_out) {
    const std::lock_guard lock(mutex_);
    if (named_.size() == kMostNamed || !named_.insert(field).second) continue;
    if (is_known) {
      log::info(fmt::format("Requests have the field '{}', which changes nothing here", field));
    } else {
      log::warn(
          fmt::format("requests have the field '{}', which this server does not know and leaves out: "
                      "--strict-fields refuses them",
                      field));
    }
  }
}

std::shared_ptr<Task> Api::make_task(const CompletionRequest& request) {
  auto task = std::make_shared<Task>(request.stream);
  task->sampling = request.sampling;
  task->sampling.ends = served(request).ends;
  task->adapter = adapter_of(request);
  task->n = request.n;
  task->logprobs = request.logprobs;
  task->ignores_end = request.ignores_end;
  task->scores_prompt = request.echo && request.logprobs;
  for (size_t i = 0; i < request.prompts.size(); ++i) task->prompts.push_back(read_prompt(request, i));
  return task;
}

Task::Prompt Api::read_prompt(const CompletionRequest& request, size_t number) {
  const int64_t context = session_.loaded.model->config().block_size, ids = session_.loaded.tokenizer->vocab_size();
  const auto* const tokens = std::get_if<std::vector<int32_t>>(&request.prompts[number]);
  const auto* const text = std::get_if<std::string>(&request.prompts[number]);
  Task::Prompt prompt = tokens ? Task::Prompt{*tokens} : Task::Prompt{encode(*text), !text->empty()};
  if (request.prompt_tokens) {
    const int64_t most = *request.prompt_tokens < 0 ? context : *request.prompt_tokens;
    const int64_t more = std::max<int64_t>(std::ssize(prompt.tokens) - most, 0);
    prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.begin() + more);
  } else if (text) {
    prompt.silent = unspelled_prefix(*text, prompt.tokens);
  }
  if (std::ssize(prompt.tokens) > context) {
    throw ApiError(400,
                   fmt::format("the prompt has {}, and the model's context only {}: shorten it, or send "
                               "\"truncate_prompt_tokens\": -1 to have its end continued",
                               plural(std::ssize(prompt.tokens), "token"), context),
                   "prompt", "context_length_exceeded");
  }
  for (const int32_t id : prompt.tokens)
    if (id >= ids)
      throw ApiError(400, fmt::format("prompt: token {} is outside the vocabulary of {}", id, ids), "prompt");
  return prompt;
}

// How many tokens the model's texts begin with that were put before this one.
int64_t Api::unspelled_prefix(const std::string& text, const std::vector<int32_t>& tokens) const {
  const generate::LoadedModel& loaded = session_.loaded;
  const std::vector<int32_t>& prefix = loaded.text_format.prefix;
  if (prefix.empty() || !std::ranges::equal(prefix, std::span(tokens).first(std::min(tokens.size(), prefix.size()))))
    return 0;
  return text.starts_with(loaded.tokenizer->decode(prefix)) ? 0 : std::ssize(prefix);
}

std::vector<int32_t> Api::encode(const std::string& prompt) {
  try {
    return encoder_.encode(prompt);
  } catch (const Error& e) { throw ApiError(400, first_line(e.what()), "prompt"); }
}

// By choice, where they are wanted.
std::vector<std::string> Api::echoes(const CompletionRequest& request, const Task& task) const {
  std::vector<std::string> texts;
  for (int64_t choice = 0; request.echo && choice < task.choices(); ++choice) {
    const int64_t prompt = choice / task.n;
    const auto* const text = std::get_if<std::string>(&request.prompts[prompt]);
    texts.push_back(text && !request.prompt_tokens ? *text
                                                   : session_.loaded.tokenizer->decode(task.prompts[prompt].tokens));
  }
  return texts;
}

}  // namespace gpt::serve
