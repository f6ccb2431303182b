#include "text_part.h"

#include <algorithm>
#include <array>

namespace gpt::exchange {
namespace {

using nlohmann::json;

// text_config names the family; where it has a name of its own for that, it is this one.
struct ModelWithImages {
  std::string_view model_type, family;
};
constexpr ModelWithImages kModels[] = {
    {"gemma3", "gemma3_text"}, {"mistral3", "mistral"}, {"qwen2_vl", "qwen2"},
    {"qwen2_5_vl", "qwen2"},   {"qwen3_vl", "qwen3"},   {"smolvlm", "llama"},
    {"idefics3", "llama"},     {"llava", "llama"},      {"internvl", "qwen2"},
};

// Where the text model lies in the whole one, and what that is in a model of text alone. Files of the models above have one of these.
constexpr std::pair<std::string_view, std::string_view> kPlaces[] = {{"language_model.", ""},
                                                                     {"model.language_model.", "model."},
                                                                     {"model.text_model.", "model."}};
constexpr std::array kOfImages = {"vision_tower.", "vision_model.", "multi_modal_projector.", "visual.", "connector."};

}  // namespace

std::vector<std::string> models_with_images() {
  std::vector<std::string> names;
  for (const ModelWithImages& model : kModels) names.emplace_back(model.model_type);
  return names;
}

std::optional<json> text_part(const json& config) {
  const json type = config.value("model_type", json());
  const auto known = std::find_if(std::begin(kModels), std::end(kModels),
                                  [&](const ModelWithImages& model) { return model.model_type == type; });
  if (known == std::end(kModels)) return std::nullopt;
  // Older files of Qwen's have no object of its own for it.
  json text = config.contains("text_config") && config["text_config"].is_object() ? config["text_config"] : config;
  const std::string whole(known->model_type);
  const json own = text.value("model_type", json());
  if (own.is_null() || own == whole || own == whole + "_text") text["model_type"] = known->family;
  if (config.contains("tie_word_embeddings")) text["tie_word_embeddings"] = config["tie_word_embeddings"];
  if (!text.contains("vocab_size") && config.contains("vocab_size")) text["vocab_size"] = config["vocab_size"];
  return text;
}

std::string name_in_text_model(std::string_view name) {
  const std::string_view inside = name.starts_with("model.") ? name.substr(std::string_view("model.").size()) : name;
  const auto begins_inside = [&](const char* beginning) { return inside.starts_with(beginning); };
  if (std::any_of(kOfImages.begin(), kOfImages.end(), begins_inside)) return "";
  for (const auto& [place, instead] : kPlaces)
    if (name.starts_with(place)) return std::string(instead).append(name.substr(place.size()));
  return std::string(name);
}

}  // namespace gpt::exchange
