#include "gpt/generate/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "gpt/core/format.h"
#include "gpt/core/log.h"

namespace gpt {
namespace {

std::string tokens(int64_t count) { return plural(count, "token"); }

std::string_view ending(std::string_view stop_reason) {
  if (stop_reason == "length") return "ended at --max-new-tokens";
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

void report(const GenerationResult& result, uint64_t seed, int64_t block_size) {
  const auto speed = tokens_per_second(result);
  log::info(fmt::format("Seed {}: {} in {}{}, prompt of {} in {}; {}", seed, tokens(result.new_tokens),
                        format_short_duration(result.seconds - result.prefill_seconds),
                        speed ? fmt::format(" ({} tokens/s)", format_number(*speed)) : "", tokens(result.prompt_tokens),
                        format_short_duration(result.prefill_seconds), ending(result.stop_reason)));
  if (result.cropped_tokens > 0) {
    log::info(fmt::format("note: prompt and text outgrew the model's context of {} (block_size): dropped the oldest {}",
                          tokens(block_size), tokens(result.cropped_tokens)));
  }
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

}  // namespace gpt
