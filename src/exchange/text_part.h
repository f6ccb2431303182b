// Models that see images, too: what they read and write text with is a model of a family, which is all that this program has of them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::exchange {

// Their model_type in config.json.
std::vector<std::string> models_with_images();

// What config.json would say of the text model alone; nothing where it describes no model that sees images.
std::optional<nlohmann::json> text_part(const nlohmann::json& config);

// What a tensor is called in a text model of transformers', by its name in either; empty: it is for images.
std::string name_in_text_model(std::string_view name);

}  // namespace gpt::exchange
