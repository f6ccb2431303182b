#include "gpt/evaluate/results_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpt/config/config.h"
#include "gpt/config/load.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/hash.h"

namespace gpt::evaluate {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr SizeLimit kResultsSize{"a file of results", uint64_t{4} << 30};

ordered_json header(const ResultsOrigin& origin) {
  return {{"program", "gpt-eval"}, {"model", origin.model}, {"tokenizer", origin.tokenizer}, {"dtype", origin.dtype}};
}

ordered_json line_of(const std::string& task, int64_t index, Form form, const Outcome& outcome) {
  ordered_json line{{"task", task}, {"index", index}, {"log_likelihoods", outcome.log_likelihoods}};
  if (!has_loss(form)) line["acc"] = outcome.acc;
  if (form == Form::choices) line["acc_norm"] = outcome.acc_norm, line["acc_bytes"] = outcome.acc_bytes;
  if (has_loss(form)) {
    line["document"] = outcome.document;
    line["tokens"] = outcome.tokens;
    line["bytes"] = outcome.bytes;
    line["words"] = outcome.words;
  }
  if (outcome.cut > 0) line["cut"] = outcome.cut;
  line["hash"] = outcome.hash;
  return line;
}

// Throws json::exception where the line is none of ours.
Outcome outcome_in(const json& line) {
  Outcome outcome{.log_likelihoods = line.at("log_likelihoods").get<std::vector<double>>(),
                  .acc = line.value("acc", 0.0),
                  .acc_norm = line.value("acc_norm", 0.0),
                  .acc_bytes = line.value("acc_bytes", 0.0),
                  .tokens = line.value("tokens", int64_t{0}),
                  .document = line.value("document", int64_t{0}),
                  .bytes = line.value("bytes", int64_t{0}),
                  .words = line.value("words", int64_t{0}),
                  .cut = line.value("cut", int64_t{0}),
                  .hash = line.at("hash").get<std::string>()};
  outcome.log_likelihoods.at(0);
  return outcome;
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& why) {
  throw Error(ExitCode::config, fmt::format("--output {}: {}; name another file", path, why));
}

}  // namespace

std::string hash_of(const model::GPT& model) {
  Hash128 hash;
  Config config;
  config.model = model.config();
  for (const config::Option& row : config::options(config.model))
    hash.update(row.name + config::value_text(row.target));
  for (const auto& [name, value] : model.parameters().values()) {
    const at::Tensor here = value.detach().cpu().contiguous();
    hash.update(name);
    hash.update({static_cast<const char*>(here.const_data_ptr()), here.nbytes()});
  }
  return hash.hex();
}

ResultsFile::ResultsFile(const std::string& path, const ResultsOrigin& origin)
    : path_(path), lock_(path + ".lock", [&](const std::string& holder) {
        refuse_file(path, fmt::format("{} writes into it", holder));
      }) {
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(path, ignored);
  std::string text = is_there ? read_file(path, ExitCode::disk, kResultsSize) : "";
  const size_t whole = text.rfind('\n') + 1;  // 0 where there is no line
  if (!text.empty()) read(text.substr(0, whole), origin);
  if (whole < text.size()) {
    AtomicFile file(path, whole);
    file.write(std::string_view(text).substr(0, whole));
    file.commit();
  }
  file_ = std::make_unique<AppendFile>(path);
  if (text.empty()) file_->line(header(origin).dump());
}

void ResultsFile::read(const std::string& text, const ResultsOrigin& origin) {
  const size_t end = text.find('\n');
  const json first =
      json::parse(text.begin(), text.begin() + static_cast<ptrdiff_t>(end == text.npos ? 0 : end), nullptr, false);
  const auto says = [&](const char* key) {
    return first.is_object() && first.contains(key) && first[key].is_string() ? first[key].get<std::string>() : "";
  };
  if (says("program") != "gpt-eval") refuse_file(path_, "it holds something else than results of gpt-eval");
  const ResultsOrigin known{says("model"), says("tokenizer"), says("dtype")};
  if (known.dtype != origin.dtype)
    refuse_file(path_,
                fmt::format("its results are of dtype {}, and this evaluation is of {}", known.dtype, origin.dtype));
  if (known.model != origin.model) refuse_file(path_, "it holds results of another model");
  if (known.tokenizer != origin.tokenizer) refuse_file(path_, "it holds results with another tokenizer");
  int64_t number = 1;
  for (size_t begin = end + 1; begin < text.size();) {
    const size_t next = text.find('\n', begin);
    read_line(std::string_view(text).substr(begin, next - begin), ++number);
    begin = next + 1;
  }
  for (const auto& [task, outcomes] : known_) counts_[task] = std::ssize(outcomes);
}

void ResultsFile::read_line(std::string_view text, int64_t number) {
  try {
    const json line = json::parse(text);
    std::vector<Outcome>& outcomes = known_[line.at("task").get<std::string>()];
    if (line.at("index").get<int64_t>() == std::ssize(outcomes)) return outcomes.push_back(outcome_in(line));
  } catch (const std::exception&) {}  // json::exception or std::out_of_range: it is refused below
  refuse_file(path_, fmt::format("line {} is not the next result of a task", number));
}

std::vector<Outcome> ResultsFile::outcomes(const std::string& task) const {
  const auto found = known_.find(task);
  return found == known_.end() ? std::vector<Outcome>() : found->second;
}

void ResultsFile::append(const std::string& task, Form form, const Outcome& outcome) {
  file_->line(line_of(task, counts_[task]++, form, outcome).dump());
}

}  // namespace gpt::evaluate
