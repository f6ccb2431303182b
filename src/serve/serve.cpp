#include "gpt/serve/serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "gpt/chat/chat_template.h"
#include "gpt/checkpoint/file_names.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/generate/generator.h"
#include "gpt/generate/session.h"
#include "gpt/http/server.h"
#include "gpt/products/row_product.h"
#include "gpt/serve/api.h"
#include "gpt/serve/batcher.h"

namespace gpt::serve {
namespace {

std::string url(const std::string& host, uint16_t port) {
  const bool has_colons = host.find(':') != std::string::npos;  // IPv6
  return fmt::format("http://{}:{}", has_colons ? "[" + host + "]" : host, port);
}

// A template that cannot be used leaves the model to its completions.
void choose_chat(const LoadedModel& loaded, chat::Markup markup, ApiOptions& options) {
  if (!chat::can_chat(loaded.text_format, *loaded.tokenizer)) {
    options.no_chat =
        "this model has no chat template, and its tokenizer lacks <|im_start|> and <|im_end|>: it continues texts at /v1/completions";
    return;
  }
  try {
    chat::ChosenTemplate chosen = chat::choose_template(loaded.text_format, *loaded.tokenizer, markup);
    log::info(
        chosen.is_fallback
            ? "This model has no chat template: it chats in ChatML, since its tokenizer has <|im_start|> and <|im_end|>"
            : "This model chats, at /v1/chat/completions and on the page: it has a chat template");
    options.chat_template = std::move(chosen.chat);
  } catch (const Error& error) {
    options.no_chat = first_line(error.what());
    log::warn(fmt::format("no chat: {}", options.no_chat));
  }
}

}  // namespace

std::string model_name(const std::string& checkpoint) {
  std::filesystem::path path = std::filesystem::absolute(checkpoint).lexically_normal();
  if (path.filename().empty() || path.filename() == kLastCheckpoint) path = path.parent_path();  // gpt2/ is gpt2
  const bool is_file =
      !std::filesystem::is_directory(path) && (path.extension() == ".pt" || path.extension() == ".safetensors");
  const std::string name = is_file ? path.stem() : path.filename();
  return name.empty() ? "model" : name;
}

int serve(const ServeOptions& options) {
  Session session = open_session(options.model);
  const int64_t slots = options.slots > 0 ? options.slots : texts_at_once(*session.loaded.model, ops::kMostFewRows);
  const std::string name = model_name(options.model.checkpoint);
  Batcher batcher(session, slots, options.queue);
  ApiOptions api_options{.completions = {name, options.most_tokens, options.strict_fields, options.ignore_tools},
                         .api_key = options.api_key};
  choose_chat(session.loaded, options.trust_markup ? chat::Markup::trusted : chat::Markup::text, api_options);
  Api api(std::move(api_options), session, batcher);
  // Room for those of all requests that are answered or wait, and some to tell others that the queue is full.
  const size_t connections = std::max<size_t>(256, slots + options.queue + 64);
  http::Server server(options.host, static_cast<uint16_t>(options.port), {.connections = connections}, api);
  log::info(fmt::format("Serving {} at {}: {}, a queue of {}, {}", name, url(options.host, server.port()),
                        plural(slots, "slot"), options.queue,
                        options.api_key.empty() ? "no API key needed" : "an API key needed"));
  batcher.run([] { return process::stop_signal() != 0; });
  server.stop();
  log::info("Stopped");
  return static_cast<int>(process::stop_code());
}

}  // namespace gpt::serve
