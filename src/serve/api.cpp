#include "gpt/serve/api.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
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

void send_error(const ApiError& error, http::Responder& responder) {
  std::vector<http::Header> more;
  if (error.status() == 401) more.push_back({"WWW-Authenticate", "Bearer"});
  if (error.status() == 429 || error.status() == 503) more.push_back({"Retry-After", "1"});
  responder.send(error.status(), kJson, error.json(), more);
}

void log_request(std::string_view what, int status, int64_t tokens, Clock::time_point start) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  log::info(fmt::format("{} {}, {}, {:.1f} ms", shortened(printable_line(what), 200),
                        status == 0 ? "client left" : std::to_string(status), plural(tokens, "token"), 1e3 * seconds));
}

// The name or address of a Host header or an Origin, without scheme and port.
std::string host_in(std::string_view value) {
  if (const size_t scheme = value.find("://"); scheme != std::string_view::npos) value.remove_prefix(scheme + 3);
  const size_t end = value.starts_with('[') ? value.find(']') : value.rfind(':');
  std::string_view host = value.substr(0, end);
  if (host.starts_with('[')) host.remove_prefix(1);
  return std::string(host);
}

// While it exists the worker works for a client; then no longer.
struct Subscription {
  EventQueue& events;
  ~Subscription() { events.leave(); }
};

// Throws ClientLeft.
TextEvent next_event(EventQueue& events, const http::Responder& responder) {
  for (;;) {
    std::optional<TextEvent> event = events.next(kLook);
    if (responder.client_has_gone()) throw ClientLeft();  // though events may come one after the other
    if (event) return std::move(*event);
  }
}

std::string as_sse(const std::string& data) { return "data: " + data + "\n\n"; }

// What goes wrong before the first piece is answered like any error, and later within the stream.
void stream(Task& task, bool with_usage, CompletionWriter& writer, http::Responder& responder) {
  try {
    while (!writer.is_complete()) {
      const TextEvent event = next_event(task.events, responder);
      if (responder.status() == 0) responder.begin_stream("text/event-stream");
      const std::string piece = writer.piece(event, with_usage);
      if (!piece.empty() && !responder.write(as_sse(piece))) throw ClientLeft();
    }
    if (with_usage) responder.write(as_sse(writer.usage_piece()));
  } catch (const ApiError& error) {
    if (responder.status() == 0) throw;
    responder.write(as_sse(error.json()));
  }
  responder.write(as_sse("[DONE]"));
  responder.end_stream();
}

}  // namespace

bool is_same_key(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |=
        static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key[key.empty() ? 0 : i % key.size()]);
  return difference == 0 && !key.empty();
}

Api::Api(ApiOptions options, const Session& session, Batcher& batcher)
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
    send_error(error, responder);
    status = error.status();
  } catch (const ClientLeft&) {}
  log_request(fmt::format("{} {}", request.method, request.path), status, tokens, start);
}

void Api::refuse(const http::Refusal& refusal, http::Responder& responder) {
  send_error({refusal.status(), refusal.what()}, responder);
  log_request(refusal.what(), refusal.status(), 0, Clock::now());
}

// Returns how many tokens were drawn.
int64_t Api::route(const http::Request& request, http::Responder& responder) {
  check_origin(request);
  const auto only = [&request](const char* method) {
    if (request.method != method) throw ApiError(405, fmt::format("{} takes {} only", request.path, method));
  };
  if (request.path == "/v1/completions") {
    check_key(request);
    only("POST");
    return complete(request, responder);
  }
  if (request.path == "/v1/models") {
    check_key(request);
    only("GET");
    responder.send(200, kJson, models());
  } else if (request.path == "/health") {
    only("GET");
    responder.send(200, kJson, health());
  } else if (request.path == "/") {
    only("GET");
    responder.send(
        200, "text/html; charset=utf-8", page(),
        {{"Content-Security-Policy",
          "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
          "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"}});
  } else {
    throw ApiError(404, "there are /v1/completions, /v1/models, /health and / here");
  }
  return 0;
}

// A page of another site that a browser on this machine shows must not reach the model, neither by this server's address nor by a name of
// its own that leads here.
void Api::check_origin(const http::Request& request) const {
  const std::string *const origin = request.header("origin"), *const host = request.header("host");
  if (origin && (!host || host_in(*origin) != host_in(*host)))
    throw ApiError(403, "pages of other sites may not ask this server");
  if (options_.api_key.empty() && host && !http::is_loopback(host_in(*host)))
    throw ApiError(403, "without an API key this server answers only as 127.0.0.1 or localhost");
}

void Api::check_key(const http::Request& request) const {
  if (options_.api_key.empty()) return;
  constexpr std::string_view kScheme = "Bearer ";
  const std::string* const given = request.header("authorization");
  if (given && given->starts_with(kScheme) &&
      is_same_key(std::string_view(*given).substr(kScheme.size()), options_.api_key))
    return;
  throw ApiError(401, "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'", {}, "invalid_api_key");
}

std::string Api::models() const {
  const ordered_json model = {{"id", options_.model},
                              {"object", "model"},
                              {"created", created_},
                              {"owned_by", "gpt-serve"}};
  return ordered_json{{"object", "list"}, {"data", ordered_json::array({model})}}.dump();
}

std::string Api::health() const {
  const Batcher::State state = batcher_.state();
  return ordered_json{{"status", "ok"},       {"model", options_.model},
                      {"slots", state.slots}, {"slots_in_use", state.slots_in_use},
                      {"queue", state.queue}, {"queued", state.queued}}
      .dump();
}

int64_t Api::complete(const http::Request& request, http::Responder& responder) {
  const CompletionRequest completion = parse_completion_request(request.body, options_.model, options_.most_tokens);
  const std::shared_ptr<Task> task = make_task(completion);
  int64_t prompt_tokens = 0;
  for (const auto& prompt : task->prompts) prompt_tokens += std::ssize(prompt.tokens);
  CompletionWriter writer(*session_.loaded.tokenizer, options_.model, prompt_tokens, task->choices(),
                          task->logprobs.has_value(), echoes(completion, *task));
  const Subscription subscription{task->events};
  if (!batcher_.submit(task))
    throw ApiError(429, "too many requests are waiting: try again in a moment", {}, "queue_full");
  if (completion.stream) {
    stream(*task, completion.include_usage, writer, responder);
  } else {
    while (!writer.is_complete()) writer.add(next_event(task->events, responder));
    responder.send(200, kJson, writer.whole());
  }
  return writer.usage().completion_tokens;
}

std::shared_ptr<Task> Api::make_task(const CompletionRequest& request) {
  auto task = std::make_shared<Task>(request.stream);
  task->sampling = request.sampling;
  task->n = request.n;
  task->logprobs = request.logprobs;
  task->scores_prompt = request.echo && request.logprobs;
  const int64_t most = session_.loaded.model->config().block_size, ids = session_.loaded.tokenizer->vocab_size();
  for (const auto& prompt : request.prompts) {
    const auto* const tokens = std::get_if<std::vector<int32_t>>(&prompt);
    const auto* const text = std::get_if<std::string>(&prompt);
    task->prompts.push_back(tokens ? Task::Prompt{*tokens} : Task::Prompt{encode(*text), !text->empty()});
    const std::vector<int32_t>& last = task->prompts.back().tokens;
    if (std::ssize(last) > most) {
      throw ApiError(400,
                     fmt::format("the prompt has {}, and the model's context only {}",
                                 plural(std::ssize(last), "token"), most),
                     "prompt", "context_length_exceeded");
    }
    for (const int32_t id : last)
      if (id >= ids)
        throw ApiError(400, fmt::format("prompt: token {} is outside the vocabulary of {}", id, ids), "prompt");
  }
  return task;
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
    texts.push_back(text ? *text : session_.loaded.tokenizer->decode(task.prompts[prompt].tokens));
  }
  return texts;
}

}  // namespace gpt::serve
