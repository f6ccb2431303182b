#include "gpt/generate/adapter_reader.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "gpt/checkpoint/adapters.h"
#include "gpt/checkpoint/quantized_file.h"
#include "gpt/config/suggest.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/exchange/import.h"
#include "gpt/exchange/text_format_files.h"
#include "gpt/exchange/weights.h"

namespace gpt::generate {

namespace fs = std::filesystem;

void refuse_adapter(const std::string& path, const std::string& why) {
  throw Error(ExitCode::checkpoint, fmt::format("--adapter {}: {}", path, why));
}

void require_no_averages(bool averages) {
  if (averages)
    throw Error(ExitCode::config, "--averages: an adapter goes with the weights themselves; leave --averages out");
}

void ReadAdapter::change(tokenizer::TextFormat& of_model) const {
  if (!text_format) return;
  if (const auto& own = text_format->chat_template; !own.empty()) of_model.chat_template = own;
  if (const auto& own = text_format->ends; !own.empty()) of_model.ends = own;
}

AdapterReader::AdapterReader(std::string path, const ModelConfig& model, const tokenizer::Tokenizer* tokenizer)
    : path_(std::move(path)), model_(model), tokenizer_(tokenizer) {
  if (exchange::is_hugging_face(path_) || !checkpoint::is_quantized(path_)) return;
  throw Error(ExitCode::config,
              fmt::format("--adapter: {} does not say which model it was made of, so no adapter can be known to be its "
                          "own; name that model with --checkpoint, and its bits with --dtype",
                          path_));
}

ReadAdapter AdapterReader::read(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    refuse_adapter(path, "there is no such file or folder" + config::did_you_mean_path(path));
  return exchange::is_hugging_face(path) ? read_peft(path) : read_checkpoint(path);
}

bool AdapterReader::is_at(const std::string& path) const {
  std::error_code ignored;
  return fs::equivalent(path, path_, ignored);
}

const checkpoint::BaseModel& AdapterReader::described() {
  if (!described_) described_ = checkpoint::describe_base(path_);
  return *described_;
}

void AdapterReader::refuse_other(const std::string& path, const checkpoint::BaseModel& base) {
  refuse_adapter(path,
                 fmt::format("it goes with the model {} (hash {}), and not with {} (hash {})",
                             printable_line(base.path), printable_line(base.hash), described().path, described().hash));
}

// Where the base lies at its place its files need not be read.
bool AdapterReader::is_model(const checkpoint::BaseModel& base, const std::string& checkpoint) {
  const auto has_its_hash = [&] { return described().hash == base.hash; };
  try {
    return is_at(checkpoint::find_base(base, checkpoint).path) || has_its_hash();
  } catch (const Error&) { return has_its_hash(); }  // the model is not where the run had it
}

ReadAdapter AdapterReader::read_checkpoint(const std::string& path) {
  checkpoint::Checkpoint checkpoint = checkpoint::load_adapters_alone(path);
  if (!is_model(*checkpoint.base, path)) refuse_other(path, *checkpoint.base);
  if (tokenizer_ && !checkpoint.tokenizer.empty() && checkpoint.tokenizer != tokenizer_->to_json())
    refuse_adapter(path, fmt::format("its run had another tokenizer than {}", path_));
  return {{checkpoint::weight_adapters(checkpoint), {}}, std::move(checkpoint.text_format)};
}

ReadAdapter AdapterReader::read_peft(const std::string& folder) {
  if (!exchange::holds_adapter(folder)) refuse_adapter(folder, "it is a whole model, which --checkpoint names");
  if (const auto base = exchange::find_base_of_adapter(folder); !base) {
    const std::string name = printable_line(exchange::name_of_base(folder));
    log::warn(fmt::format("{} names {} as its model, which is not here: that it goes with {} is taken on trust", folder,
                          name.empty() ? "nothing" : name, path_));
  } else if (!is_at(*base)) {
    if (const checkpoint::BaseModel other = checkpoint::describe_base(*base); other.hash != described().hash)
      refuse_other(folder, other);
  }
  return {exchange::adapter_of(folder, exchange::read_tensors(exchange::file_of_adapter(folder)), model_,
                               exchange::family_of(model_, path_, "peft")),
          exchange::read_text_format(folder, tokenizer_, *model_.vocab_size)};
}

}  // namespace gpt::generate
