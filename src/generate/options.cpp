#include "gpt/generate/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "gpt/config/arguments.h"
#include "gpt/config/config.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"

namespace gpt {
namespace {

const std::map<std::string, Dtype> kDtypes = {{"auto", Dtype::automatic},
                                              {"float32", Dtype::float32},
                                              {"bfloat16", Dtype::bfloat16},
                                              {"float16", Dtype::float16}};

constexpr const char* kExamples = R"(Examples:
  gpt-generate --prompt 'ROMEO:'
  gpt-generate --prompt 'ROMEO:' --temperature 0.8 --top-k 50 --num-samples 3 --seed 7
  echo 'Once upon a time' | gpt-generate --stop $'\n\n' 2>/dev/null
  gpt-generate --checkpoint models/run/ckpt_best.pt --interactive
)";

void declare(CLI::App& app, GenerateOptions& options, std::string& dtype) {
  app.option_defaults()->always_capture_default();
  app.option_defaults()->group("Prompt");
  app.add_option_function<std::string>(
      "-p,--prompt", [&options](const std::string& text) { options.prompt = text; },
      "text to continue; - is standard input, as is a pipe without any of these");
  app.add_option("--prompt-file", options.prompt_file, "file with the text to continue");
  app.add_flag("-i,--interactive", options.interactive, "continue each line typed; Ctrl-C stops a text, Ctrl-D leaves");

  app.option_defaults()->group("Sampling");
  SamplingConfig& sampling = options.sampling;
  app.add_option("-t,--temperature", sampling.temperature,
                 "below 1 safer, above 1 wilder, 0 always the likeliest token");
  app.add_option("--top-k", sampling.top_k, "draw from the k likeliest tokens; 0 = all");
  app.add_option("--top-p", sampling.top_p, "draw from the likeliest tokens that together reach p; 1 = all");
  app.add_option("-s,--seed", sampling.seed, "same seed, same text; sample k draws from seed + k - 1");
  app.add_option("-n,--max-new-tokens,--max-tokens", sampling.max_new_tokens, "tokens to write at most");
  app.add_option("--stop", sampling.stop, "text that ends a sample; may be repeated")
      ->allow_extra_args(false)
      ->default_str("");
  app.add_option("--num-samples", options.num_samples, "texts to write");

  app.option_defaults()->group("Model");
  app.add_option("--checkpoint", options.checkpoint, "checkpoint file, or the folder of its ckpt.pt");
  app.add_option("--device", options.device, "auto | cpu | cuda | cuda:N");
  app.add_option("--dtype", dtype, "auto = float32 on a CPU, bfloat16 or float16 on a GPU")
      ->check(CLI::IsMember(&kDtypes));

  app.option_defaults()->group("Output");
  app.add_flag_callback(
      "--no-display-prompt", [&options] { options.display_prompt = false; },
      "write the continuation without the prompt");
  app.add_flag("--raw", options.raw, "write control characters to a terminal as they are");
  app.footer(kExamples);
}

std::string read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  ssize_t n;
  while ((n = ::read(STDIN_FILENO, buffer, sizeof buffer)) != 0) {
    if (n > 0) {
      text.append(buffer, n);
    } else if (errno != EINTR) {
      throw Error(ExitCode::data, "standard input: cannot read: " + std::generic_category().message(errno));
    }
  }
  return text;
}

std::string without_final_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

std::optional<GenerateOptions> parse_generate_options(int argc, const char* const* argv) {
  GenerateOptions options;
  options.checkpoint = Config{}.output_dir + "/ckpt.pt";
  std::string dtype = "auto";
  CLI::App app("Writes text with a trained model: the text to standard output, all else to standard error.",
               "gpt-generate");
  declare(app, options, dtype);
  if (!config::parse_arguments(app, argc, argv)) return std::nullopt;
  const auto refuse = [&app](const std::string& message) { config::refuse_arguments(app, message); };
  if (options.prompt.has_value() + !options.prompt_file.empty() + options.interactive > 1) {
    refuse("choose one of --prompt, --prompt-file and --interactive");
  }
  if (options.interactive && options.num_samples > 1) refuse("--num-samples and --interactive exclude each other");
  if (options.num_samples < 1) refuse(fmt::format("num_samples must be 1 or more, got {}", options.num_samples));
  validate(options.sampling);
  options.dtype = kDtypes.at(dtype);
  if (std::filesystem::is_directory(options.checkpoint)) options.checkpoint += "/ckpt.pt";
  return options;
}

std::string read_prompt(const GenerateOptions& options) {
  if (!options.prompt_file.empty()) return without_final_newline(read_file(options.prompt_file, ExitCode::data));
  if (options.prompt && *options.prompt != "-") return *options.prompt;
  if (!options.prompt && isatty(STDIN_FILENO)) return "";
  return without_final_newline(read_standard_input());
}

}  // namespace gpt
