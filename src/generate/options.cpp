#include "gpt/generate/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/version.h"

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

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ExitCode::config, message + "; see gpt-generate --help");
}

void declare(CLI::App& app, GenerateOptions& options, std::string& dtype) {
  app.set_help_flag("-h,--help", "show this and leave");
  app.set_version_flag("--version", version_text(), "show the version and leave");
  app.option_defaults()->always_capture_default();

  app.get_formatter()->column_width(48);

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

// The arguments as CLI11 understands them: names with '-' (to us '_' is the same), `--name=value` in two (it would take
// the next argument for an empty value). Values stay as they are.
std::vector<std::string> respelled(const CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    std::string name = argument.substr(0, equals);
    if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
    const CLI::Option* option = name.starts_with("-") ? app.get_option_no_throw(name) : nullptr;
    const bool takes_value = option && option->get_expected_min() > 0;
    if (equals != std::string::npos && !takes_value) name = argument;
    arguments.push_back(name);
    if (!takes_value) continue;
    if (equals != std::string::npos) {
      arguments.push_back(argument.substr(equals + 1));
    } else if (i + 1 < argc) {
      arguments.push_back(argv[++i]);
    }
  }
  return arguments;
}

void refuse_unknown(const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty()) return;
  const std::string flag = unknown[0].substr(0, unknown[0].find('='));
  if (!flag.starts_with("-"))
    refuse(fmt::format("unexpected argument '{}'; a text with spaces needs quotes", unknown[0]));
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  const auto nearest = config::did_you_mean(flag.substr(flag.find_first_not_of('-')), names);
  refuse(fmt::format("unknown flag '{}'{}", flag, nearest ? fmt::format("; did you mean '--{}'?", *nearest) : ""));
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
  app.allow_extras();
  std::vector<std::string> arguments = respelled(app, argc, argv);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::Success& answered) {
    app.exit(answered, std::cout, std::cerr);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    refuse(e.what());
  }
  refuse_unknown(app);
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
