// config.json, written and read: what all families say in it. Transformers ignores what it does not know, so a file may say anything;
// whatever would change what the model computes is either implemented or refused by name.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "config_settings.h"
#include "gpt/config/load.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/exchange/text_format_files.h"
#include "text_part.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// The ranges of our keys, and what they must have in common.
void require_valid(const ModelConfig& model, const std::string& origin) {
  Config config;
  config.model = model;
  try {
    config::check_values(config::options(config.model));
    config::validate(config, origin);
  } catch (const Error& error) {
    throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: {}", origin, error.what()));
  }
}

json parse_config(std::string_view text, const std::string& origin) {
  constexpr int kDeepest = 16;
  const auto refuse = [&](const char* why) {
    throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: {}", origin, why));
  };
  json object;
  try {
    object = json::parse(text, [&](int depth, json::parse_event_t, json&) {
      if (depth > kDeepest) refuse("it is nested too deep");
      return true;
    });
  } catch (const json::exception&) { refuse("it is not JSON"); }
  if (!object.is_object()) refuse("it is no JSON object");
  return object;
}

const Family& family_named(const json& model_type, const ConfigSettings& settings) {
  std::vector<std::string> known;
  for (const Family* const family : families()) {
    if (model_type == family->model_type) return *family;
    known.emplace_back(family->model_type);
  }
  settings.refuse("model_type", fmt::format("this program has only {}, and the text models of {}", enumerated(known),
                                            enumerated(models_with_images())));
}

}  // namespace

ordered_json config_json(const ModelConfig& model, const Family& family, std::string_view dtype,
                         const tokenizer::TextFormat& format) {
  ordered_json file = family.config_json(model);
  file["vocab_size"] = *model.vocab_size;
  file["tie_word_embeddings"] = model.tie_weights;
  file["initializer_range"] = 0.02;
  // What is left out is some number of a family's own, which may be beyond the vocabulary.
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"}) file[token] = nullptr;
  file.update(numbered_tokens(format));
  file["dtype"] = dtype;
  file["torch_dtype"] = dtype;  // its name in transformers 4
  file["use_cache"] = true;
  return file;
}

ForeignForm read_config_json(std::string_view text, const std::string& origin) {
  const json object = parse_config(text, origin);
  const std::optional<json> of_text = text_part(object);
  const json& own = of_text ? *of_text : object;
  const ConfigSettings settings(own, of_text && object.contains("text_config") ? "text_config." : "", origin);
  ConfigSettings(object, "", origin).must_be_absent("quantization_config");
  const Family& family = family_named(own.value("model_type", json()), settings);
  for (const char* key : {"qk_norm", "use_qk_norm"}) settings.must_be(key, {false});
  ForeignForm form{&family, family.read_config(settings)};
  if (of_text) form.text_part_of = object["model_type"];
  const bool has_vocabulary = settings.has("vocab_size") || !form.model.vocab_size;
  if (has_vocabulary) form.model.vocab_size = settings.count("vocab_size");
  require_valid(form.model, origin);
  return form;
}

}  // namespace gpt::exchange
