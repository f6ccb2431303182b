#include "gpt/exchange/hugging_face.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"

namespace gpt::exchange {
namespace {

// The same with what is auto, or may be said in several ways, in one of them: patterns have a letter for each layer.
ModelConfig written_out(ModelConfig model) {
  std::string windows, rotations;
  bool has_windows = false;
  for (int64_t layer = 0; layer < model.n_layer; ++layer) {
    // One as long as the sequences is none, but for the base of its rotations.
    const bool has_window = model.window(layer) > 0 || (model.has_window(layer) && model.rope_window_theta > 0);
    has_windows = has_windows || has_window;
    windows += has_window ? 'S' : 'L';
    rotations += model.rotates(layer) ? 'R' : 'N';
  }
  if (!has_windows) {
    model.attention_window = 0;
    model.rope_window_theta = 0;
  }
  model.window_pattern = windows, model.last_layer_full = false;
  const bool all_rotate = model.position == Position::learned || rotations.find('N') == std::string::npos;
  model.rope_pattern = all_rotate ? "R" : rotations;
  model.n_kv_head = model.kv_heads();
  model.n_head_dim = model.head_dim();
  return model;
}

// What of a form a family does not have: "model.mlp geglu (Llama has swiglu)".
std::vector<std::string> differences(const ModelConfig& model, const Family& family) {
  ModelConfig own = written_out(model), theirs = own;
  if (model.top_blocks() > 0) {
    theirs.attention = AttentionForm::full;
  } else {
    own.attention = theirs.attention = AttentionForm::full;  // of which every query sees all
  }
  family.set_form(theirs);
  std::vector<std::string> found;
  const std::vector<config::Option> rows = config::options(own), wanted = config::options(theirs);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string value = config::value_text(rows[i].target), other = config::value_text(wanted[i].target);
    if (value != other) found.push_back(fmt::format("{} {} ({} has {})", rows[i].key(), value, family.name, other));
  }
  return found;
}

// What the program that is `named` does where it does not compute the model; empty: it does.
std::string limit_of(const ModelConfig& model, std::span<const Limit> limits, const std::string& named) {
  const ModelConfig whole = written_out(model);
  for (const Limit& limit : limits)
    if (limit.is_beyond(whole)) return fmt::format("{} {}", named, limit.has);
  return "";
}

std::string limit_of(const ModelConfig& model, const Architecture& architecture) {
  return limit_of(model, architecture.limits, fmt::format("its architecture {}", architecture.name));
}

// The reason of the first architecture, where none computes the model.
std::string llama_cpp_limit(const ModelConfig& model, const Family& family) {
  for (const Architecture* const architecture : family.architectures)
    if (limit_of(model, *architecture).empty()) return "";
  return limit_of(model, *family.architectures.front());
}

}  // namespace

std::string misfits(const ModelConfig& model) {
  std::optional<std::vector<std::string>> fewest;  // of several families the first one's
  for (const Family* const family : families()) {
    std::vector<std::string> found = differences(model, *family);
    if (!fewest || found.size() < fewest->size()) fewest = std::move(found);
  }
  return fmt::format("{}", fmt::join(*fewest, ", "));
}

std::string heads_that_do_not_divide(const ModelConfig& model) {
  if (model.n_embd % model.heads() == 0) return "";
  return fmt::format("model.n_head {} does not divide model.n_embd {}", model.heads(), model.n_embd);
}

ModelConfig with_scales_moved(const ModelConfig& model) {
  for (const bool offset : {model.norm_unit_offset, !model.norm_unit_offset}) {
    for (const bool scaled : {model.scaled_embedding, !model.scaled_embedding}) {
      ModelConfig other = model;
      other.norm_unit_offset = offset, other.scaled_embedding = scaled;
      if (misfits(other).empty()) return other;
    }
  }
  return model;
}

std::string export_limits(const ModelConfig& own) {
  const ModelConfig model = with_scales_moved(own);
  if (const std::string misfit = misfits(model); !misfit.empty())
    return fmt::format(
        "gpt-export will not write this model for transformers or llama.cpp, which have no such form: {}; it will with "
        "--format quantized, for the programs here",
        misfit);
  const std::string of_heads = heads_that_do_not_divide(model),
                    of_llama_cpp = llama_cpp_limit(model, family_of(model, "", ""));
  if (of_heads.empty() && of_llama_cpp.empty()) return "";
  if (of_heads.empty())
    return fmt::format("gpt-export will write this model for transformers, but not for llama.cpp: {}", of_llama_cpp);
  if (of_llama_cpp.empty())
    return fmt::format("gpt-export will write this model for llama.cpp, but not for transformers: {}", of_heads);
  return fmt::format("gpt-export will write this model with --format quantized alone: {}, {}", of_heads, of_llama_cpp);
}

std::string limit_of_reader(const ModelConfig& model, std::span<const Limit> limits) {
  return limit_of(model, limits, "it");
}

const Family& family_of(const ModelConfig& model, const std::string& origin, std::string_view program) {
  std::vector<std::string> forms;
  for (const Family* const family : families()) {
    if (differences(model, *family).empty()) return *family;
    forms.push_back(fmt::format("{}'s{} ({})", family->name, forms.empty() ? " form" : "", family->form));
  }
  throw Error(ExitCode::checkpoint, fmt::format("{}: {} has no model of this form: {}; it takes {}", origin, program,
                                                misfits(model), enumerated(forms)));
}

LlamaCppForm llama_cpp_form(const ModelConfig& model, const std::string& origin) {
  const Family& family = family_of(model, origin, "llama.cpp");
  for (const Architecture* const architecture : family.architectures)
    if (limit_of(model, *architecture).empty()) return {family, *architecture};
  throw Error(ExitCode::checkpoint,
              fmt::format("{}: llama.cpp has no model of this form: {}; transformers has one ({}): leave --format out",
                          origin, llama_cpp_limit(model, family), family.name));
}

std::vector<Counterpart> counterparts(const ModelConfig& model, const Family& family) {
  std::vector<Counterpart> parts = family.counterparts(model);
  std::sort(parts.begin(), parts.end(), [](const Counterpart& a, const Counterpart& b) { return a.name < b.name; });
  return parts;
}

}  // namespace gpt::exchange
