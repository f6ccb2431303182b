#include "gpt/serve/serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gpt/chat/chat_template.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/generate/generator.h"
#include "gpt/generate/session.h"
#include "gpt/http/server.h"
#include "gpt/products/row_product.h"
#include "gpt/serve/adapters.h"
#include "gpt/serve/api.h"
#include "gpt/serve/batcher.h"
#include "gpt/serve/model_name.h"

namespace gpt::serve {
namespace {

std::string url(const std::string& host, uint16_t port) {
  const bool has_colons = host.find(':') != std::string::npos;  // IPv6
  return fmt::format("http://{}:{}", has_colons ? "[" + host + "]" : host, port);
}

// A template that cannot be used leaves the model to its completions.
void choose_chat(const tokenizer::TextFormat& format, const tokenizer::Tokenizer& tokenizer, chat::Markup markup,
                 ServedModel& model) {
  if (!chat::can_chat(format, tokenizer)) {
    model.no_chat =
        "this model has no chat template, and its tokenizer lacks <|im_start|> and <|im_end|>: it continues texts at /v1/completions";
    return;
  }
  try {
    chat::ChosenTemplate chosen = chat::choose_template(format, tokenizer, markup);
    model.is_chat_fallback = chosen.is_fallback;
    model.chat_template = std::move(chosen.chat);
  } catch (const Error& error) {
    model.no_chat = first_line(error.what());
    log::warn(fmt::format("no chat: {}", model.no_chat));
  }
}

void announce_chat(const ServedModel& model) {
  if (!model.chat_template) return;
  log::info(
      model.is_chat_fallback
          ? "This model has no chat template: it chats in ChatML, since its tokenizer has <|im_start|> and <|im_end|>"
          : "This model chats, at /v1/chat/completions and on the page: it has a chat template");
}

ServedModel served(std::string name, std::string root, const tokenizer::TextFormat& format, const ServeOptions& options,
                   const tokenizer::Tokenizer& tokenizer) {
  ServedModel model{.name = std::move(name), .root = std::move(root), .ends = format.ends};
  choose_chat(format, tokenizer, options.trust_markup ? chat::Markup::trusted : chat::Markup::text, model);
  return model;
}

// The operators of the model are then these; null where there are none.
std::shared_ptr<const ops::RowAdapters> add_adapters(const std::vector<LoadedAdapter>& adapters,
                                                     generate::LoadedModel& loaded) {
  if (adapters.empty()) return nullptr;
  std::vector<std::vector<ops::AdapterFactors>> factors;
  for (const LoadedAdapter& adapter : adapters) factors.push_back(adapter.factors);
  auto operators = std::make_shared<const ops::RowAdapters>(loaded.model->operators(), factors, loaded.compute_type);
  loaded.model->set_operators(operators);
  return operators;
}

}  // namespace

int serve(const ServeOptions& options) {
  const std::string name = model_name(options.model.checkpoint);
  const std::vector<NamedAdapter> named = parse_adapters(options.adapters, name);
  generate::Session session = generate::open_session(options.model);
  const std::vector<LoadedAdapter> adapters = load_adapters(named, options.model, session.loaded);
  const auto row_adapters = add_adapters(adapters, session.loaded);
  const int64_t slots =
      options.slots > 0 ? options.slots : generate::texts_at_once(*session.loaded.model, ops::kMostFewRows);
  Batcher batcher(session, slots, options.queue, row_adapters);
  ApiOptions api_options{.completions = {{}, options.most_tokens, options.strict_fields, options.ignore_tools},
                         .api_key = options.api_key};
  const auto add = [&](const std::string& called, const std::string& root, const tokenizer::TextFormat& format) {
    api_options.completions.models.push_back(called);
    api_options.models.push_back(served(called, root, format, options, *session.loaded.tokenizer));
  };
  add(name, options.model.checkpoint, session.loaded.text_format);
  announce_chat(api_options.models[0]);
  for (size_t i = 0; i < named.size(); ++i) add(named[i].name, named[i].path, adapters[i].text_format);
  Api api(std::move(api_options), session, batcher);
  // Room for those of all requests that are answered or wait, and some to tell others that the queue is full.
  const size_t connections = std::max<size_t>(256, slots + options.queue + 64);
  http::Server server(options.host, static_cast<uint16_t>(options.port), {.connections = connections}, api);
  const std::string with = named.empty() ? "" : fmt::format(" with {}", plural(std::ssize(named), "adapter"));
  log::info(fmt::format("Serving {}{} at {}: {}, a queue of {}, {}", name, with, url(options.host, server.port()),
                        plural(slots, "slot"), options.queue,
                        options.api_key.empty() ? "no API key needed" : "an API key needed"));
  batcher.run([] { return process::stop_signal() != 0; });
  server.stop();
  log::info("Stopped");
  return static_cast<int>(process::stop_code());
}

}  // namespace gpt::serve
