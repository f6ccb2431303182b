#include "gpt/exchange/model_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <variant>

#include "gpt/checkpoint/history.h"
#include "gpt/config/option.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/printable.h"
#include "gpt/exchange/gguf_tokenizer.h"
#include "gpt/layout/parameter_table.h"

namespace gpt::exchange {
namespace {

constexpr std::string_view kBeginning =
    "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- gpt-train\n---\n";

// With the number of tokens to write, which has to fit into the context.
constexpr std::string_view kUse = R"(
```python
from transformers import AutoModelForCausalLM, {0}

tokenizer = {0}.from_pretrained("PATH")
model = AutoModelForCausalLM.from_pretrained("PATH")
ids = tokenizer("Once", return_tensors="pt").input_ids
print(tokenizer.decode(model.generate(ids, max_new_tokens={1}, do_sample=True, top_k=0)[0]))
```
)";

constexpr std::string_view kUseOfAdapters = R"(
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("BASE"), "PATH")
```
)";

// A cell of a table, or a word of a line of code.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : printable_line(text)) result += c == '|' || c == '`' ? std::string("\\") + c : std::string(1, c);
  return result;
}

std::string data_of(const DataConfig& data) {
  if (data.dataset == DatasetName::shakespeare) return "Shakespeare, as gpt-train installs it";
  const std::string& path = data.text.empty() ? data.bin : data.text;
  return path.empty() ? "not known" : cell(last_name(path));
}

std::string loss_row(const char* what, const report::EvaluationRecord& evaluation) {
  std::string text = fmt::format("| {} | {:.4f}", what, evaluation.loss);
  if (evaluation.bits_per_byte) text += fmt::format(" ({:.4f} bits per byte)", *evaluation.bits_per_byte);
  return text + fmt::format(", after {} |\n", plural(evaluation.step, "step"));
}

std::string losses_of(const checkpoint::Checkpoint& checkpoint, const std::string& path) {
  const report::RunHistory history = checkpoint::history_beside(path, checkpoint.step);
  std::string rows;
  if (history.last_step)
    rows += fmt::format("| training loss | {:.4f}, of step {} |\n", history.last_step->loss,
                        with_commas(history.last_step->step));
  if (history.last_evaluation) rows += loss_row("validation loss", *history.last_evaluation);
  if (history.best_evaluation && history.best_evaluation->step != history.last_evaluation->step)
    rows += loss_row("best validation loss of the run", *history.best_evaluation);
  if (!history.last_evaluation && std::isfinite(checkpoint.best_val_loss))
    rows += fmt::format("| best validation loss of the run | {:.4f} |\n", checkpoint.best_val_loss);
  return rows;
}

// Every setting that is not the default, but for where things are on the machine that trained it.
std::string command_of(Config config) {
  Config defaults;
  const std::vector<config::Option> rows = config::options(config), usual = config::options(defaults);
  std::string command = "gpt-train";
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string& name = rows[i].name;
    const bool is_local = name == "output_dir" || name == "cache_dir" || name == "resume_from" || name == "threads" ||
                          name == "device" || std::holds_alternative<config::Structure>(rows[i].target);
    const std::string value = config::value_text(rows[i].target);
    if (is_local || value == config::value_text(usual[i].target)) continue;
    command +=
        fmt::format(" --{} {}", rows[i].key(), shell_word(printable_line(rows[i].is_path ? last_name(value) : value)));
  }
  return command;
}

std::string form_of(const ModelConfig& m, const Family& family) {
  return fmt::format("{}, {}, {}, width {}, in the form of {}",
                     format_count(static_cast<double>(layout::parameter_count(m))) + " parameters",
                     plural(m.n_layer, "layer"), plural(m.heads(), "head"), m.n_embd, family.name);
}

std::string tokenizer_row(const tokenizer::Tokenizer* tokenizer) {
  if (!tokenizer) return "| tokenizer | none: the run was given token ids |\n";
  const bool is_char = tokenizer->name() == "char";
  return fmt::format("| tokenizer | {}, {}{} |\n", tokenizer->name(), plural(tokenizer->vocab_size(), "token"),
                     is_char ? "; it refuses characters that it does not know" : "");
}

std::string training_rows(const checkpoint::Checkpoint& checkpoint, const std::string& path) {
  const Config& config = checkpoint.config;
  std::string rows = fmt::format("| data | {} |\n", data_of(config.data));
  if (!config.training.init_from.empty())
    rows += fmt::format("| began with | the weights of {} |\n", cell(last_name(config.training.init_from)));
  if (const std::string& teacher = config.training.distillation.from; !teacher.empty())
    rows += fmt::format("| learned from | the predictions of {}, beside the text |\n", cell(last_name(teacher)));
  rows += fmt::format("| trained | {} |\n", plural(checkpoint.step, "step"));
  return rows + losses_of(checkpoint, path);
}

std::string settings_of(const Config& config) {
  return fmt::format("\nIt was trained with these settings:\n\n```\n{}\n```\n", command_of(config));
}

}  // namespace

std::string last_name(const std::string& path) {
  const std::filesystem::path cut(path);
  return (cut.has_filename() ? cut : cut.parent_path()).filename().string();
}

bool is_known_to_auto_tokenizer(const tokenizer::Tokenizer& tokenizer, const Family& family) {
  return family.auto_split.empty() || splits_as(tokenizer, family.auto_split);
}

std::string model_card(const checkpoint::Checkpoint& checkpoint, const std::string& path,
                       const tokenizer::Tokenizer* tokenizer, const Family& family, std::string_view dtype) {
  const Config& config = checkpoint.config;
  std::string card(kBeginning);
  card += "\nA language model that was trained with gpt-train.\n\n| | |\n| --- | --- |\n";
  card += fmt::format("| model | {} |\n", form_of(config.model, family));
  card += fmt::format("| context | {} |\n", plural(config.model.block_size, "token"));
  card += tokenizer_row(tokenizer);
  card += training_rows(checkpoint, path);
  card += fmt::format("| weights | {} |\n", dtype);
  const bool is_auto = !tokenizer || is_known_to_auto_tokenizer(*tokenizer, family);
  card += fmt::format(kUse, is_auto ? "AutoTokenizer" : "PreTrainedTokenizerFast",
                      std::min<int64_t>(100, config.model.block_size / 2));
  return card + settings_of(config);
}

std::string adapter_card(const checkpoint::Checkpoint& checkpoint, const std::string& path, const Family& family) {
  const Config& config = checkpoint.config;
  const LoraConfig& lora = config.training.tuning.lora;
  std::string card(kBeginning);
  card += "\nAdapters (LoRA) of a language model, which were trained with gpt-train.\n\n| | |\n| --- | --- |\n";
  card += fmt::format("| model | {} |\n", form_of(config.model, family));
  card += fmt::format("| adapters | rank {}, of {} |\n", lora.rank, fmt::join(lora.targets, ", "));
  if (!lora.also_train.empty()) card += fmt::format("| trained whole | {} |\n", fmt::join(lora.also_train, ", "));
  card += training_rows(checkpoint, path);
  card += kUseOfAdapters;
  return card + settings_of(config);
}

bool is_model_card(std::string_view text) { return text.starts_with(kBeginning); }

}  // namespace gpt::exchange
