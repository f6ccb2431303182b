#include "gpt/serve/adapters.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "gpt/checkpoint/adapters.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/home.h"
#include "gpt/core/log.h"
#include "gpt/generate/adapter_reader.h"
#include "gpt/serve/model_name.h"

namespace gpt::serve {
namespace {

NamedAdapter parse_adapter(const std::string& written) {
  const size_t equals = written.find('=');
  const std::string before = written.substr(0, equals);
  const bool is_named = equals != std::string::npos && before.find('/') == std::string::npos;
  const std::string path = expand_home(is_named ? written.substr(equals + 1) : written);
  if (path.empty() || (is_named && before.empty()))
    throw Error(ExitCode::config, fmt::format("--adapter {}: NAME=PATH is needed, or a path alone", written));
  return {is_named ? before : model_name(path), generate::find_model(path)};
}

[[noreturn]] void refuse_change(const std::string& path, const std::string& parameter) {
  generate::refuse_adapter(
      path, fmt::format("it changes '{}', and products of blocks alone have adapters while they are served; "
                        "gpt-export merges it into a model of its own",
                        parameter));
}

ops::AdapterFactors factors_of(const std::string& path, const checkpoint::WeightAdapter& one, const model::GPT& model) {
  const auto& [outputs, a, b] = one.product;
  const std::vector<layout::ParameterRow>& rows = model.parameters().rows();
  const auto row = std::ranges::find(rows, one.weight, &layout::ParameterRow::name);
  if (row == rows.end() || !layout::is_product_matrix(*row) || layout::is_vocabulary(row->role))
    refuse_change(path, one.weight);
  if (a.size(1) != row->shape[1] || outputs.begin + outputs.length > row->shape[0])
    generate::refuse_adapter(path, fmt::format("it adds [{}, {}] to '{}', which is [{}, {}] in the model", b.size(0),
                                               a.size(1), one.weight, row->shape[0], row->shape[1]));
  const at::Device device = model.device();
  return {{row->role, row->layer}, outputs, a.to(device, at::kFloat), b.to(device, at::kFloat) * one.scale};
}

LoadedAdapter load_adapter(const std::string& path, generate::AdapterReader& reader, const generate::LoadedModel& of) {
  const generate::ReadAdapter found = reader.read(path);
  if (!found.changes.whole.empty()) refuse_change(path, found.changes.whole[0].parameter);
  if (found.changes.added.empty()) generate::refuse_adapter(path, "it has no factors of any product");
  LoadedAdapter loaded{{}, of.text_format};
  for (const checkpoint::WeightAdapter& one : found.changes.added)
    loaded.factors.push_back(factors_of(path, one, *of.model));
  found.change(loaded.text_format);
  return loaded;
}

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

std::vector<LoadedAdapter> load_adapters(const std::vector<NamedAdapter>& adapters,
                                         const generate::ModelOptions& of_model, const generate::LoadedModel& loaded) {
  std::vector<LoadedAdapter> found;
  if (adapters.empty()) return found;
  generate::require_no_averages(of_model.averages);
  generate::AdapterReader reader(of_model.checkpoint, loaded.model->config(), loaded.tokenizer.get());
  for (const NamedAdapter& adapter : adapters) {
    const LoadedAdapter& one = found.emplace_back(load_adapter(adapter.path, reader, loaded));
    log::info(fmt::format("Adapter \"{}\" from {}: {}, rank {}", adapter.name, adapter.path,
                          plural(std::ssize(one.factors), "product"), ranks_of(one.factors)));
  }
  return found;
}

}  // namespace gpt::serve
