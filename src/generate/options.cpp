#include "gpt/generate/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <random>
#include <system_error>
#include <vector>

#include "gpt/checkpoint/file_names.h"
#include "gpt/config/arguments.h"
#include "gpt/config/suggest.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/prepare/plain_text.h"

namespace gpt::generate {
namespace {

constexpr const char* kExamples = R"(  gpt-generate "Once upon a time"
  gpt-generate --checkpoint models/mine "Once" --temperature 0.8 --top-p 0.9
  gpt-generate --checkpoint models/mine/ckpt_best.pt --interactive
  gpt-generate --checkpoint models/mine --chat --system "Answer in one sentence."
  gpt-generate "ROMEO:" --num-samples 3 --seed 7 --output samples.txt
  echo "Once" | gpt-generate --stop $'\n\n' --json 2>/dev/null
)";

constexpr const char* kEnding = R"(What --chat does
  It remembers what was said. Commands are /reset (forget it), /system TEXT
  (begin anew with that system prompt), /save FILE (the dialogue becomes a
  further line of JSON there) and /quit. An answer ends where the model ends it,
  at --max-new-tokens where that is given, or where the context is full. A
  dialogue that outgrows the context loses its oldest turns, and a line says so.
  With --prompt, or a prompt as an argument, it writes one answer. What reads
  like a special token in a message stays text.

What an object of --json holds
  prompt, text          the prompt (not with --no-display-prompt) and what follows
  tokens                how many were generated, with those of a stop text or an
                        end of text
  prompt_tokens         how many the prompt has
  cropped_tokens        how many of both were dropped where the context was full
  seconds               for the prompt and the text
  tokens_per_second     after the first token; null where there are less than two
  stop_reason           "length", "stop text", "end of text" or "interrupted"
  seed                  of this sample

Exit status
  0 done, 2 wrong usage, 3 a prompt that cannot be read, 4 a checkpoint that cannot be read, 5 logits that are not finite, 7 out of memory, 8 output that cannot be written; 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP. The first of these ends the text and keeps what was written (there is nothing else to save); a second Ctrl-C, at least a second later, leaves at once.
)";

// What flags give that GenerateOptions has in another form.
struct Given {
  std::string prompt;
  std::optional<int64_t> seed;
};

std::vector<config::Section> sections(GenerateOptions& o, Given& given) {
  using config::switch_row;
  std::vector<config::Option> sampling = options(o.sampling);
  sampling.push_back(
      {.name = "seed",
       .target = &given.seed,
       .help = "the same seed gives the same text, and each further sample adds 1 to it; auto = another one each time",
       .min = 0,
       .aliases = {{"s"}}});
  sampling.push_back({.name = "num-samples", .target = &o.num_samples, .help = "how many texts to write", .min = 1});
  return {
      {"Prompt: the text to continue, in quotes; - reads standard input, and so does a pipe without a prompt",
       {{.name = "prompt", .target = &given.prompt, .help = "the same, given as a flag", .aliases = {{"p"}}},
        {.name = "prompt-file",
         .target = &o.prompt_file,
         .help = "a file that holds the text to continue",
         .is_path = true},
        switch_row("interactive", o.interactive, "continue each line that you type; Ctrl-C stops a text, Ctrl-D leaves",
                   {{"i"}})}},
      {"Chat, with a model that was made for it",
       {switch_row("chat", o.chat,
                   "answer the prompt, or each line that you type, as the model's chat template has it; see below"),
        {.name = "system", .target = &o.system, .help = "with --chat: what the model is told before anything is said"},
        {.name = "chat-template",
         .target = &o.chat_template,
         .help =
             "with --chat: chatml, llama2, llama3, zephyr, alpaca, plain or a file of Jinja, instead of the model's own template",
         .is_path = true},
        switch_row(
            "trust-markup", o.trust_markup,
            "with --chat: special tokens that are spelled out in a message are those tokens; otherwise they are text")}},
      {"Sampling", sampling},
      {"Model", rows_with_adapter(o.model, kThreadsAreTried)},
      {"Output",
       {switch_row("no-display-prompt", o.hide_prompt, "leave the prompt out"),
        {.name = "output",
         .target = &o.output,
         .help = "write into a file instead, all at once at the end; an existing one is replaced",
         .aliases = {{"o"}},
         .is_path = true},
        switch_row("json", o.json, "write one JSON object per text, each in a line of its own; see below"),
        switch_row("verbose", o.verbose, "with --interactive and --chat: seed, time and speed after each text too"),
        switch_row("raw", o.raw, "send control characters to a terminal as they are, not spelled out")}},
  };
}

// The command as it was probably meant: the words of the prompt in quotes, which make them one argument.
std::string with_quotes(int argc, const char* const* argv, const std::vector<std::string>& words) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string prompt = shell_quoted(fmt::format("{}", fmt::join(words, " ")));
  const auto first = std::search(arguments.begin(), arguments.end(), words.begin(), words.end());
  if (first == arguments.end()) {
    arguments = {prompt};  // words here and there: the flags between them do not matter
  } else {
    for (std::string& argument : arguments) argument = shell_word(argument);
    *first = prompt;
    arguments.erase(first + 1, first + words.size());
  }
  std::string command = fmt::format("gpt-generate {}", fmt::join(arguments, " "));
  std::replace(command.begin(), command.end(), '\n', ' ');  // a message is one line
  return command;
}

bool is_checkpoint(const std::string& word) {
  std::error_code unimportant;
  const std::string file = checkpoint::checkpoint_file(word);
  return file.ends_with(".pt") && std::filesystem::is_regular_file(file, unimportant);
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

// A file and standard input lose one final newline: editors and `echo` put it there.
std::string prompt_in(std::string_view bytes, const std::string& origin) {
  std::string text = prepare::as_plain_text(bytes);
  if (const std::string why = prepare::why_no_text(bytes); !text.empty() && !why.empty())
    throw Error(ExitCode::data, fmt::format("{}: {}", origin, why));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

// Throws gpt::Error(config) where what was given contradicts itself; `words` are arguments that belong to no flag.
void check_combination(const GenerateOptions& options, const config::Origins& given,
                       const std::vector<std::string>& words) {
  const auto refuse = [](const std::string& message) { throw Error(ExitCode::config, message); };
  for (const std::string& word : words) {
    if (is_checkpoint(word)) refuse(fmt::format("'{}' is a checkpoint: write --checkpoint {}", word, shell_word(word)));
  }
  if (given.count("prompt") + !words.empty() + !options.prompt_file.empty() + options.interactive > 1) {
    refuse("choose one: the prompt as an argument, --prompt, --prompt-file or --interactive");
  }
  if (options.interactive && options.num_samples > 1) refuse("--num-samples and --interactive exclude each other");
  if (options.verbose && !options.interactive && !options.chat)
    refuse("--verbose is for --interactive and --chat: otherwise seed, time and speed are said without it");
  if (options.interactive && options.chat) refuse("choose one: --chat answers, --interactive continues what you type");
  if (!options.chat && given.count("system")) refuse("--system is for --chat");
  if (!options.chat && given.count("chat-template")) refuse("--chat-template is for --chat");
  if (!options.chat && options.trust_markup) refuse("--trust-markup is for --chat");
  if (options.chat && options.num_samples > 1) refuse("--num-samples and --chat exclude each other");
  if (options.chat && options.hide_prompt) refuse("--no-display-prompt is not for --chat, which writes answers alone");
  const bool asks_once = given.count("prompt") + !words.empty() + !options.prompt_file.empty() > 0;
  if (options.chat && !asks_once && (options.json || given.count("output")))
    refuse("with --chat, --json and --output need a prompt: they are for one answer");
  if (options.interactive && options.json) refuse("--json and --interactive exclude each other");
  if (options.interactive && given.count("output")) refuse("--output and --interactive exclude each other");
  if (given.count("output") && options.output.empty()) refuse("--output needs the name of a file");
}

// What to do instead of giving a flag of that name, which is another program's.
std::optional<std::string> advice_for(const std::string& name) {
  struct Advice {
    std::vector<std::string_view> names;
    const char* text;
  };
  static const Advice kAdvices[] = {
      {{"length", "tokens", "num_tokens", "n_tokens", "max_length", "max_len", "n_predict"},
       "-n or --max-new-tokens sets how many tokens it writes at most"},
      {{"num_beams", "beams", "beam_size", "beam_width"},
       "there is no beam search; --temperature 0 takes the likeliest token"},
      {{"no_repeat_ngram_size", "presence_penalty", "frequency_penalty"}, "there is --repetition-penalty"},
      {{"conversation", "cnv", "system_prompt", "sys", "jinja", "chat_template_file"},
       "--chat talks with the model, --system and --chat-template say how"},
      {{"model", "model_path", "ckpt", "load", "model_name_or_path"}, "--checkpoint names the model"},
      {{"input", "text", "file", "f"}, "the prompt is the argument without a flag, or --prompt-file names its file"},
  };
  const std::string typed = config::normalised(name);
  for (const Advice& advice : kAdvices) {
    if (std::find(advice.names.begin(), advice.names.end(), typed) != advice.names.end()) return advice.text;
  }
  return std::nullopt;
}

}  // namespace

std::optional<GenerateOptions> parse_generate_options(int argc, const char* const* argv) {
  GenerateOptions options;
  Given values;
  const std::vector<config::Section> rows = sections(options, values);
  const auto arguments = config::parse_arguments(
      {.name = "gpt-generate",
       .description =
           "Continues a text with a trained model. The text goes to standard output, all else to standard error.",
       .usage = "[prompt] [--FLAG VALUE ...]",
       .sections = rows,
       .guide = {.examples = kExamples, .ending = kEnding},
       .takes_words = true,
       .advice = advice_for},
      argc, argv);
  if (!arguments) return std::nullopt;
  const config::Origins given = config::apply_settings(arguments->settings, config::rows_of(rows));
  const std::vector<std::string>& words = arguments->words;
  check_combination(options, given, words);
  if (words.size() > 1) throw Error(ExitCode::config, "put the prompt in quotes: " + with_quotes(argc, argv, words));
  if (!words.empty()) options.prompt = words[0];
  if (given.count("prompt")) options.prompt = values.prompt;
  // An answer ends by itself; where it does not, the context does.
  if (options.chat && !given.count("max-new-tokens"))
    options.sampling.max_new_tokens = std::numeric_limits<int64_t>::max();
  options.sampling.seed = values.seed ? static_cast<uint64_t>(*values.seed) : std::random_device()();
  validate(options.sampling);
  options.model.checkpoint = find_model(options.model.checkpoint);
  return options;
}

std::string read_prompt(const GenerateOptions& options) {
  if (!options.prompt_file.empty())
    return prompt_in(read_file(options.prompt_file, ExitCode::data, kPromptSize), options.prompt_file);
  if (options.prompt && *options.prompt != "-") return prepare::as_plain_text(*options.prompt);
  if (!options.prompt && isatty(STDIN_FILENO)) return "";
  return prompt_in(read_standard_input(), "standard input");
}

}  // namespace gpt::generate
