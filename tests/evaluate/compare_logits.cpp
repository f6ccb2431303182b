// How far the logits of models are from those of the first one, over windows of a text, for scripts/compare_quantized.py.
// usage: compare_logits TEXT WINDOWS MODEL:DTYPE MODEL:DTYPE...   prints one object of JSON for each model
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "gpt/core/file.h"
#include "gpt/generate/loaded_model.h"
#include "gpt/model/quantized_model.h"

namespace {

gpt::generate::LoadedModel open(const std::string& named) {
  const size_t colon = named.rfind(':');
  gpt::generate::ModelOptions options;
  options.checkpoint = gpt::generate::find_model(named.substr(0, colon));
  options.device = "cpu";
  const std::string dtype = named.substr(colon + 1);
  for (const gpt::config::Option& option : gpt::generate::options(options, "")) {
    if (option.name != "dtype") continue;
    const auto& choice = std::get<gpt::config::Choice>(option.target);
    for (size_t i = 0; i < choice.names.size(); ++i)
      if (choice.names[i] == dtype) return choice.set(i), gpt::generate::load_model(options);
  }
  throw std::runtime_error(named + ": no such type");
}

constexpr int64_t kLongest = 256;  // tokens of a window

// (windows, length + 1)
at::Tensor windows_of(const gpt::generate::LoadedModel& loaded, const std::string& text, int64_t windows) {
  const std::vector<int32_t> ids = loaded.tokenizer->encode(text);
  const int64_t width = std::min<int64_t>(kLongest, loaded.model->config().block_size) + 1,
                most = std::ssize(ids) / width;
  if (most == 0) throw std::runtime_error("the text is too short");
  return at::tensor(std::vector<int64_t>(ids.begin(), ids.begin() + std::min(windows, most) * width)).view({-1, width});
}

// What is compared: the logarithms of all probabilities (T, V) of a window.
at::Tensor log_probabilities(const gpt::model::GPT& model, const at::Tensor& window) {
  const c10::InferenceMode inference;
  return at::log_softmax(model.forward(window.slice(0, 0, -1).unsqueeze(0))[0].to(at::kFloat), -1);
}

struct Comparison {
  double loss = 0, divergence = 0, same_top = 0;
  int64_t tokens = 0;

  void add(const at::Tensor& reference, const at::Tensor& found, const at::Tensor& targets) {
    loss -= found.gather(1, targets.unsqueeze(1)).sum(at::kDouble).item<double>();
    divergence += (reference.exp() * (reference - found)).sum(at::kDouble).item<double>();
    same_top += (reference.argmax(1) == found.argmax(1)).sum().item<double>();
    tokens += targets.numel();
  }
};

}  // namespace

int main(int count, char** words) try {
  if (count < 4) throw std::runtime_error("usage: compare_logits TEXT WINDOWS MODEL:DTYPE MODEL:DTYPE...");
  const std::string text = gpt::read_file(words[1], gpt::ExitCode::data);
  const gpt::generate::LoadedModel reference = open(words[3]);
  const at::Tensor windows = windows_of(reference, text, std::stoll(words[2]));
  std::vector<at::Tensor> wanted;
  for (int64_t w = 0; w < windows.size(0); ++w) wanted.push_back(log_probabilities(*reference.model, windows[w]));
  for (int i = 3; i < count; ++i) {
    const gpt::generate::LoadedModel loaded = open(words[i]);
    Comparison sum;
    for (int64_t w = 0; w < windows.size(0); ++w)
      sum.add(wanted[static_cast<size_t>(w)], log_probabilities(*loaded.model, windows[w]), windows[w].slice(0, 1));
    const auto n = static_cast<double>(sum.tokens);
    fmt::print(
        "{{\"model\": \"{}\", \"bytes\": {}, \"tokens\": {}, \"perplexity\": {:.6f}, \"divergence\": {:.8f}, \"same_top\": {:.6f}}}\n",
        words[i], gpt::model::weight_bytes(*loaded.model), sum.tokens, std::exp(sum.loss / n), sum.divergence / n,
        sum.same_top / n);
    std::fflush(stdout);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
