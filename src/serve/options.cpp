#include "gpt/serve/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "gpt/config/arguments.h"
#include "gpt/core/error.h"
#include "gpt/http/server.h"

namespace gpt::serve {
namespace {

constexpr const char* kServeExamples = R"(  gpt-serve --checkpoint models/mine
  gpt-serve --checkpoint models/mine --port 9000 --slots 16 --queue 200
  gpt-serve --checkpoint smollm2 --adapter mails=models/mails --adapter code=downloads/code-lora
  GPT_SERVE_API_KEY=... gpt-serve --checkpoint models/mine --host 0.0.0.0
  curl http://127.0.0.1:8080/v1/completions -d '{"prompt": "Once", "max_tokens": 50}'
)";

constexpr const char* kServeEnding = R"(What is served
  POST /v1/completions   as OpenAI's API has it: prompt (text or tokens), max_tokens, temperature, top_p, n, stop, seed, stream, echo, logprobs; and top_k, min_p, repetition_penalty
  POST /v1/chat/completions   likewise with messages, for a model that has a chat template
  GET /v1/models         the model and its adapters, one of which a request names in its field model
  GET /health, and a page to try it at /

Exit status
  0 after --help or --version, 2 wrong usage, or an address that cannot be had; 4 a checkpoint that cannot be read, 7 out of memory; 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP, which end the requests under way with an error
)";

std::vector<config::Option> model_rows(ServeOptions& o) {
  std::vector<config::Option> rows = generate::options(o.model, generate::kThreadsAreTried);
  rows.insert(rows.begin() + 1,
              {.name = "adapter",
               .target = &o.adapters,
               .help = "NAME=PATH of adapters (LoRA) of the model, which requests choose as the model "
                       "NAME: a folder of peft, or a run with training.lora_rank; a path alone is "
                       "called as its folder or file; may be given several times",
               .aliases = {{"lora-modules"}, {"lora"}}});
  return rows;
}

std::vector<config::Section> serve_sections(ServeOptions& o) {
  return {
      {"Address",
       {{.name = "host",
         .target = &o.host,
         .help = "the address to listen at; one that other machines reach, such as 0.0.0.0, needs an API key"},
        {.name = "port",
         .target = &o.port,
         .help = "0 = any that is free, which the log tells",
         .min = 0,
         .max = 65535},
        {.name = "api-key",
         .target = &o.api_key,
         .help = "what clients must send as 'Authorization: Bearer KEY'; the variable GPT_SERVE_API_KEY hides it from "
                 "the list of processes"}}},
      {"Limits",
       {{.name = "slots",
         .target = &o.slots,
         .help = "texts that grow at once; each has a cache of its own; 0 = up to 16, as memory allows",
         .min = 0,
         .max = 256},
        {.name = "queue",
         .target = &o.queue,
         .help = "requests that may wait for a slot; further ones are told to try again (status 429)",
         .min = 0,
         .max = 100'000},
        {.name = "max-tokens",
         .target = &o.most_tokens,
         .help = "the largest max_tokens that a request may ask for",
         .min = 1},
        config::switch_row("strict-fields", o.strict_fields,
                           "refuse requests with a field that this server does not know, which may be misspelled; "
                           "otherwise the log names it once"),
        config::switch_row("ignore-tools", o.ignore_tools,
                           "answer chats that offer the model tools as if they offered none, for clients that always "
                           "do; otherwise they are refused"),
        config::switch_row("trust-markup", o.trust_markup,
                           "special tokens that are spelled out in the messages of a chat are those tokens; otherwise "
                           "they are text")}},
      {"Model", model_rows(o)}};
}

void check_key(const ServeOptions& options) {
  const auto is_plain = [](char c) { return c > ' ' && c < 0x7F; };
  if (!std::all_of(options.api_key.begin(), options.api_key.end(), is_plain))
    throw Error(ExitCode::config, "the API key must consist of visible ASCII characters without spaces");
  if (!options.api_key.empty() || http::is_loopback(options.host)) return;
  throw Error(ExitCode::config,
              fmt::format("--host {}: other machines could reach the model: set an API key in {} or with --api-key, or "
                          "listen at 127.0.0.1",
                          options.host, kApiKeyVariable));
}

}  // namespace

std::optional<ServeOptions> parse_serve_options(int argc, const char* const* argv) {
  ServeOptions options;
  if (const char* const key = std::getenv(kApiKeyVariable)) options.api_key = key;
  const std::vector<config::Section> rows = serve_sections(options);
  const auto arguments = config::parse_arguments(
      {.name = "gpt-serve",
       .description = "Serves a trained model over HTTP, as programs for OpenAI's completions and chats expect it.",
       .usage = "[--checkpoint CHECKPOINT] [--FLAG VALUE ...]",
       .sections = rows,
       .guide = {.first = {"checkpoint", "port"}, .examples = kServeExamples, .ending = kServeEnding}},
      argc, argv);
  if (!arguments) return std::nullopt;
  const config::Origins given = config::apply_settings(arguments->settings, config::rows_of(rows));
  if (given.count("api-key") && options.api_key.empty()) throw Error(ExitCode::config, "--api-key needs a key");
  check_key(options);
  options.model.checkpoint = generate::find_model(options.model.checkpoint);
  return options;
}

}  // namespace gpt::serve
