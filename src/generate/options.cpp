#include "gpt/generate/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "gpt/config/arguments.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/process.h"

namespace gpt {
namespace {

const std::map<std::string, Dtype> kDtypes = {{"auto", Dtype::automatic},
                                              {"float32", Dtype::float32},
                                              {"bfloat16", Dtype::bfloat16},
                                              {"float16", Dtype::float16}};

constexpr const char* kModels = "models";  // where gpt-train puts runs unless it is told otherwise

constexpr const char* kFooter = R"(Examples:
  gpt-generate "Once upon a time"
  gpt-generate --checkpoint models/mine "Once" --temperature 0.8 --top-p 0.9
  gpt-generate --checkpoint models/mine/ckpt_best.pt --interactive
  gpt-generate "ROMEO:" --num-samples 3 --seed 7 --output samples.txt
  echo "Once upon a time" | gpt-generate --stop $'\n\n' --json 2>/dev/null

What an object of --json holds:
  prompt, text          the prompt (not with --no-display-prompt) and its continuation
  tokens                how many were drawn; those of a stop text or an end of text count
  prompt_tokens         how many the prompt has
  cropped_tokens        how many of both the model no longer saw, because its context was full
  seconds               for the prompt and the text
  tokens_per_second     after the first token; null where there are fewer than two
  stop_reason           "length", "stop text", "end of text" or "interrupted"
  seed                  of this sample

Exit status:
  0 done, 2 wrong usage, 3 a prompt that cannot be read, 4 a checkpoint that cannot be read, 5 logits that are not finite,
  7 out of memory, 8 output that cannot be written; 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP. The first of these
  ends the text and keeps what was written (there is nothing else to save); a second Ctrl-C, at least a second later, leaves at once.
)";

void declare_sampling(CLI::App& app, SamplingConfig& sampling) {
  app.add_option("-t,--temperature", sampling.temperature,
                 "below 1 is safer, above 1 is wilder, 0 always takes the likeliest token");
  app.add_option("--top-k", sampling.top_k, "draw only from the k likeliest tokens; 0 = from all");
  app.add_option("--top-p", sampling.top_p,
                 "draw only from the likeliest tokens that together have probability p; 1 = from all");
  app.add_option("--min-p", sampling.min_p,
                 "draw only from tokens at least p times as likely as the likeliest one; 0 = from all");
  app.add_option("--repetition-penalty", sampling.repetition_penalty,
                 "above 1 makes tokens that prompt and text already have less likely; 1 = off");
  app.add_option("-s,--seed", sampling.seed, "the same seed gives the same text; each further sample adds 1 to it");
  app.add_option("-n,--max-new-tokens,--max-tokens", sampling.max_new_tokens, "write at most so many tokens");
  app.add_option("--stop", sampling.stop, "end the text where it would write this; may be given several times")
      ->allow_extra_args(false)
      ->default_str("");
}

void declare(CLI::App& app, GenerateOptions& options, std::string& dtype) {
  app.option_defaults()->always_capture_default();
  app.option_defaults()->group("Prompt");
  const auto take_prompt = [&options](const std::string& text) { options.prompt = text; };
  app.get_formatter()->label("Positionals", "Argument");
  app.add_option_function<std::string>(
      "prompt", take_prompt, "the text to continue, in quotes; - reads standard input, and so does a pipe without a prompt");
  app.add_option_function<std::string>("-p,--prompt", take_prompt, "the same as a flag");
  app.add_option("--prompt-file", options.prompt_file, "a file that holds the text to continue")->type_name("FILE");
  app.add_flag("-i,--interactive", options.interactive,
               "continue each line that you type; Ctrl-C stops a text, Ctrl-D leaves");

  app.option_defaults()->group("Sampling");
  declare_sampling(app, options.sampling);
  app.add_option("--num-samples", options.num_samples, "how many texts to write");

  app.option_defaults()->group("Model");
  app.add_option("--checkpoint", options.checkpoint, "a checkpoint file, or the folder of a run: its ckpt.pt")
      ->default_str("the newest run in models/");
  app.add_option("--device", options.device, "auto, cpu, cuda or cuda:N");
  app.add_option("--dtype", dtype, "auto = float32 on a CPU, bfloat16 or float16 on a GPU")
      ->check(CLI::IsMember(&kDtypes));

  app.option_defaults()->group("Output");
  app.add_flag_callback(
      "--no-display-prompt", [&options] { options.display_prompt = false; }, "leave the prompt out");
  app.add_option_function<std::string>(
         "-o,--output", [&options](const std::string& file) { options.output = file; },
         "write into a file instead, all at once at the end; one of that name is replaced")
      ->type_name("FILE");
  app.add_flag("--json", options.json, "write one JSON object per text, each in a line of its own; see below");
  app.add_flag("--raw", options.raw, "send control characters to a terminal as they are, not spelled out");
  app.footer(kFooter);
}

// In quotes that a shell takes off again.
std::string quoted(const std::string& text) {
  if (text.find_first_of("\"\\$`!") == std::string::npos) return '"' + text + '"';
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string quoted_where_needed(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_of(" \t\n\"'\\$`!*?;&|<>()#~[]{}") == std::string::npos;
  return plain ? text : quoted(text);
}

// The command as it was probably meant: the words of the prompt in quotes, which make them one argument.
std::string with_quotes(int argc, const char* const* argv, const std::vector<std::string>& words) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string prompt = quoted(fmt::format("{}", fmt::join(words, " ")));
  const auto first = std::search(arguments.begin(), arguments.end(), words.begin(), words.end());
  if (first == arguments.end()) {
    arguments = {prompt};  // words here and there: the flags between them do not matter
  } else {
    for (std::string& argument : arguments) argument = quoted_where_needed(argument);
    *first = prompt;
    arguments.erase(first + 1, first + words.size());
  }
  std::string command = fmt::format("gpt-generate {}", fmt::join(arguments, " "));
  std::replace(command.begin(), command.end(), '\n', ' ');  // a message is one line
  return command;
}

// The folder in models/ whose ckpt.pt is the newest; "models" where there is none.
std::string newest_run() {
  namespace fs = std::filesystem;
  std::string newest = kModels;
  fs::file_time_type newest_time = fs::file_time_type::min();
  std::error_code error;
  for (fs::directory_iterator entry(kModels, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code missing;
    const fs::file_time_type time = fs::last_write_time(entry->path() / "ckpt.pt", missing);
    if (!missing && time > newest_time) newest = entry->path().string(), newest_time = time;
  }
  return newest;
}

bool is_checkpoint(const std::string& word) {
  std::error_code unimportant;
  return std::filesystem::is_regular_file(word + "/ckpt.pt", unimportant) ||
         (word.ends_with(".pt") && std::filesystem::is_regular_file(word, unimportant));
}

constexpr SizeLimit kPromptSize{"a prompt", 64 << 20};

std::string read_standard_input() {
  const process::LeaveAtFirstSignal waiting;
  std::string text;
  char buffer[1 << 16];
  ssize_t n;
  while ((n = ::read(STDIN_FILENO, buffer, sizeof buffer)) != 0) {
    if (n > 0) {
      text.append(buffer, n);
      if (text.size() > kPromptSize.bytes) {
        throw Error(ExitCode::data, fmt::format("standard input: {} has at most {} bytes", kPromptSize.what,
                                                with_commas(static_cast<int64_t>(kPromptSize.bytes))));
      }
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

// Throws gpt::Error(config) where `options` contradict each other; `words` are arguments that belong to no flag.
void check_combination(const CLI::App& app, const GenerateOptions& options, const std::vector<std::string>& words) {
  const auto refuse = [&app](const std::string& message) { config::refuse_arguments(app, message); };
  for (const std::string& word : words) {
    if (is_checkpoint(word)) refuse(fmt::format("'{}' is a checkpoint: write --checkpoint {}", word, quoted_where_needed(word)));
  }
  if (options.prompt.has_value() + !words.empty() + !options.prompt_file.empty() + options.interactive > 1) {
    refuse("choose one: the prompt as an argument, --prompt, --prompt-file or --interactive");
  }
  if (options.interactive && options.num_samples > 1) refuse("--num-samples and --interactive exclude each other");
  if (options.interactive && options.json) refuse("--json and --interactive exclude each other");
  if (options.interactive && options.output) refuse("--output and --interactive exclude each other");
  if (options.output && options.output->empty()) refuse("--output needs the name of a file");
  if (options.num_samples < 1) refuse(fmt::format("num_samples must be 1 or more, got {}", options.num_samples));
}

}  // namespace

std::optional<GenerateOptions> parse_generate_options(int argc, const char* const* argv) {
  GenerateOptions options;
  std::string dtype = "auto";
  std::vector<std::string> words;
  CLI::App app("Continues a text with a trained model. The text goes to standard output, all else to standard error.",
               "gpt-generate");
  declare(app, options, dtype);
  if (!config::parse_arguments(app, argc, argv, &words)) return std::nullopt;
  check_combination(app, options, words);
  if (words.size() > 1) {
    config::refuse_arguments(app, "put the prompt in quotes: " + with_quotes(argc, argv, words));
  }
  if (!words.empty()) options.prompt = words[0];
  validate(options.sampling);
  options.dtype = kDtypes.at(dtype);
  std::error_code unimportant;
  if (options.checkpoint.empty()) options.checkpoint = newest_run();
  if (std::filesystem::is_directory(options.checkpoint, unimportant)) options.checkpoint += "/ckpt.pt";
  return options;
}

std::string read_prompt(const GenerateOptions& options) {
  if (!options.prompt_file.empty()) return without_final_newline(read_file(options.prompt_file, ExitCode::data, kPromptSize));
  if (options.prompt && *options.prompt != "-") return *options.prompt;
  if (!options.prompt && isatty(STDIN_FILENO)) return "";
  return without_final_newline(read_standard_input());
}

}  // namespace gpt
