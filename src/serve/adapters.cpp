#include "gpt/serve/adapters.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ranges>
#include <system_error>
#include <utility>

#include "gpt/checkpoint/adapters.h"
#include "gpt/checkpoint/base.h"
#include "gpt/checkpoint/quantized_file.h"
#include "gpt/config/suggest.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/home.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/exchange/adapter_import.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/exchange/import.h"
#include "gpt/exchange/text_format_files.h"
#include "gpt/exchange/weights.h"
#include "gpt/serve/model_name.h"

namespace gpt::serve {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_adapter(const std::string& path, const std::string& why) {
  throw Error(ExitCode::checkpoint, fmt::format("--adapter {}: {}", path, why));
}

NamedAdapter parse_adapter(const std::string& written) {
  const size_t equals = written.find('=');
  const std::string before = written.substr(0, equals);
  const bool is_named = equals != std::string::npos && before.find('/') == std::string::npos;
  const std::string path = expand_home(is_named ? written.substr(equals + 1) : written);
  if (path.empty() || (is_named && before.empty()))
    throw Error(ExitCode::config, fmt::format("--adapter {}: NAME=PATH is needed, or a path alone", written));
  return {is_named ? before : model_name(path), find_model(path)};
}

// What its own run or folder says is read; the factors are named by parameters of the model.
struct ReadAdapter {
  std::vector<WeightAdapter> adapters;
  std::optional<TextFormat> text_format;
};

// Reads adapters of one model, which is known by where it lies, and by the hash of its files.
class AdapterReader {
 public:
  AdapterReader(const ModelOptions& of_model, const LoadedModel& loaded) : path_(of_model.checkpoint), loaded_(loaded) {
    if (of_model.averages)
      throw Error(ExitCode::config, "--averages: an adapter goes with the weights themselves; leave --averages out");
    if (!exchange::is_hugging_face(path_) && is_quantized(path_))
      throw Error(ExitCode::config,
                  fmt::format("--adapter: {} does not say which model it was made of, so no adapter can be known to be "
                              "its own; name that model with --checkpoint, and --dtype {}",
                              path_, weight_name(loaded)));
  }

  LoadedAdapter read(const NamedAdapter& adapter) {
    std::error_code ignored;
    if (!fs::exists(adapter.path, ignored))
      refuse_adapter(adapter.path, "there is no such file or folder" + config::did_you_mean_path(adapter.path));
    const bool is_foreign = exchange::is_hugging_face(adapter.path);
    ReadAdapter found = is_foreign ? read_peft(adapter) : read_checkpoint(adapter);
    LoadedAdapter loaded{{}, loaded_.text_format};
    for (const WeightAdapter& one : found.adapters) loaded.factors.push_back(factors_of(adapter, one));
    if (!found.text_format) return loaded;
    if (const auto& own = found.text_format->chat_template; !own.empty()) loaded.text_format.chat_template = own;
    if (const auto& own = found.text_format->ends; !own.empty()) loaded.text_format.ends = own;
    return loaded;
  }

 private:
  bool is_at(const std::string& path) const {
    std::error_code ignored;
    return fs::equivalent(path, path_, ignored);
  }

  const BaseModel& described() {
    if (!described_) described_ = describe_base(path_);
    return *described_;
  }

  [[noreturn]] void refuse_other(const NamedAdapter& adapter, const BaseModel& base) {
    refuse_adapter(adapter.path, fmt::format("it goes with the model {} (hash {}), and {} (hash {}) is served",
                                             printable_line(base.path), printable_line(base.hash), described().path,
                                             described().hash));
  }

  // Where the base lies at its place its files need not be read.
  bool is_served(const BaseModel& base, const std::string& checkpoint) {
    const auto has_its_hash = [&] { return described().hash == base.hash; };
    try {
      return is_at(find_base(base, checkpoint).path) || has_its_hash();
    } catch (const Error&) { return has_its_hash(); }  // what is served is not where the run had it
  }

  ReadAdapter read_checkpoint(const NamedAdapter& adapter) {
    Checkpoint checkpoint = load_adapters_alone(adapter.path);
    if (!is_served(*checkpoint.base, adapter.path)) refuse_other(adapter, *checkpoint.base);
    if (!checkpoint.tokenizer.empty() && checkpoint.tokenizer != loaded_.tokenizer->to_json())
      refuse_adapter(adapter.path, fmt::format("its run had another tokenizer than {}", path_));
    return {weight_adapters(checkpoint), std::move(checkpoint.text_format)};
  }

  ReadAdapter read_peft(const NamedAdapter& adapter) {
    const std::string& folder = adapter.path;
    if (!exchange::holds_adapter(folder)) refuse_adapter(folder, "it is a whole model; --checkpoint serves that");
    if (const auto base = exchange::find_base_of_adapter(folder); !base) {
      const std::string name = printable_line(exchange::name_of_base(folder));
      log::warn(fmt::format("{} names {} as its model, which is not here: that it goes with {} is taken on trust",
                            folder, name.empty() ? "nothing" : name, path_));
    } else if (!is_at(*base)) {
      if (const BaseModel other = describe_base(*base); other.hash != described().hash) refuse_other(adapter, other);
    }
    const ModelConfig& model = loaded_.model->config();
    exchange::FolderAdapter read =
        exchange::adapter_of(folder, exchange::read_tensors(exchange::file_of_adapter(folder)), model,
                             exchange::family_of(model, path_, "peft"));
    if (!read.whole.empty()) refuse_change(adapter, read.whole[0].parameter);
    return {std::move(read.added), exchange::read_text_format(folder, loaded_.tokenizer.get(), *model.vocab_size)};
  }

  [[noreturn]] static void refuse_change(const NamedAdapter& adapter, const std::string& parameter) {
    refuse_adapter(adapter.path,
                   fmt::format("it changes '{}', and products of blocks alone have adapters while they are served; "
                               "gpt-export merges it into a model of its own",
                               parameter));
  }

  ops::AdapterFactors factors_of(const NamedAdapter& adapter, const WeightAdapter& one) const {
    const auto& [outputs, a, b] = one.product;
    const std::vector<ParameterRow>& rows = loaded_.model->parameters().rows();
    const auto row = std::ranges::find(rows, one.weight, &ParameterRow::name);
    if (row == rows.end() || !is_product_matrix(*row) || is_vocabulary(row->role)) refuse_change(adapter, one.weight);
    if (a.size(1) != row->shape[1] || outputs.begin + outputs.length > row->shape[0])
      refuse_adapter(adapter.path, fmt::format("it adds [{}, {}] to '{}', which is [{}, {}] in {}", b.size(0),
                                               a.size(1), one.weight, row->shape[0], row->shape[1], path_));
    const at::Device device = loaded_.model->device();
    return {{row->role, row->layer}, outputs, a.to(device, at::kFloat), b.to(device, at::kFloat) * one.scale};
  }

  const std::string path_;
  const LoadedModel& loaded_;
  std::optional<BaseModel> described_;
};

// "3" or "3 to 8".
std::string ranks_of(const std::vector<ops::AdapterFactors>& factors) {
  const auto rank_of = [](const ops::AdapterFactors& one) { return one.a.size(0); };
  const auto [least, most] = std::ranges::minmax(factors | std::views::transform(rank_of));
  return least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
}

}  // namespace

std::vector<NamedAdapter> parse_adapters(const std::vector<std::string>& written, const std::string& model) {
  std::vector<NamedAdapter> adapters;
  for (const std::string& one : written) {
    NamedAdapter adapter = parse_adapter(one);
    if (adapter.name == model)
      throw Error(ExitCode::config, fmt::format("--adapter {}: the model itself is called \"{}\"; give the adapter "
                                                "another name: NAME={}",
                                                one, model, adapter.path));
    if (std::ranges::find(adapters, adapter.name, &NamedAdapter::name) != adapters.end())
      throw Error(ExitCode::config, fmt::format("--adapter {}: there is an adapter \"{}\" already; give it another "
                                                "name: NAME={}",
                                                one, adapter.name, adapter.path));
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

std::vector<LoadedAdapter> load_adapters(const std::vector<NamedAdapter>& adapters, const ModelOptions& of_model,
                                         const LoadedModel& loaded) {
  std::vector<LoadedAdapter> found;
  if (adapters.empty()) return found;
  AdapterReader reader(of_model, loaded);
  for (const NamedAdapter& adapter : adapters) {
    const LoadedAdapter& one = found.emplace_back(reader.read(adapter));
    if (one.factors.empty()) refuse_adapter(adapter.path, "it has no factors of any product");
    log::info(fmt::format("Adapter \"{}\" from {}: {}, rank {}", adapter.name, adapter.path,
                          plural(std::ssize(one.factors), "product"), ranks_of(one.factors)));
  }
  return found;
}

}  // namespace gpt::serve
