#include "gpt/generate/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "gpt/core/format.h"
#include "gpt/core/log.h"

namespace gpt::generate {
namespace {

std::string tokens(int64_t count) { return plural(count, "token"); }

std::string_view ending(const GenerationResult& result) {
  const std::string_view stop_reason = result.stop_reason;
  if (stop_reason == "length")
    return result.fills_context ? "the model's context is full" : "ended at --max-new-tokens";
  if (stop_reason == "stop text") return "ended at a stop text";
  if (stop_reason == "end of text") return "the model ended the text";
  return "interrupted";
}

}  // namespace

std::optional<double> tokens_per_second(const GenerationResult& result) {
  const double seconds = result.seconds - result.prefill_seconds;
  if (result.new_tokens < 2 || seconds <= 0) return std::nullopt;
  return static_cast<double>(result.new_tokens - 1) / seconds;
}

std::string describe(const GenerationResult& result, uint64_t seed) {
  const auto speed = tokens_per_second(result);
  return fmt::format("Seed {}: {} in {}{}, prompt of {} in {}; {}", seed, tokens(result.new_tokens),
                     format_short_duration(result.seconds - result.prefill_seconds),
                     speed ? fmt::format(" ({} tokens/s)", format_number(*speed)) : "", tokens(result.prompt_tokens),
                     format_short_duration(result.prefill_seconds), ending(result));
}

void GenerationReport::operator()(const GenerationResult& result, uint64_t seed) {
  if (!is_brief_) {
    log::info(describe(result, seed));
  } else if (result.fills_context) {
    log::info(fmt::format("The answer is cut off: the model sees {} at once (block_size)", tokens(block_size_)));
  }
  if (result.cropped_tokens == 0 || std::exchange(has_outgrown_, true)) return;
  log::info(fmt::format("The model sees {} at once (block_size): from there on it goes on without the oldest of them",
                        tokens(block_size_)));
}

std::string json_line(const std::optional<std::string>& prompt, const GenerationResult& result, uint64_t seed,
                      bool ascii) {
  using nlohmann::ordered_json;
  const auto speed = tokens_per_second(result);
  ordered_json line;
  if (prompt) line["prompt"] = *prompt;
  line["text"] = result.text;
  line["tokens"] = result.new_tokens;
  line["prompt_tokens"] = result.prompt_tokens;
  line["cropped_tokens"] = result.cropped_tokens;
  line["seconds"] = result.seconds;
  line["tokens_per_second"] = speed ? ordered_json(*speed) : ordered_json();
  line["stop_reason"] = result.stop_reason;
  line["seed"] = seed;
  return line.dump(-1, ' ', ascii, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gpt::generate
