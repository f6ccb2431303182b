#include "gpt/generate/talk.h"

#include <fmt/format.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/chat/chat_layout.h"
#include "gpt/chat/chat_template.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/generate/conversation.h"
#include "gpt/generate/line_reader.h"
#include "gpt/generate/report.h"
#include "gpt/prepare/plain_text.h"

namespace gpt::generate {
namespace {

constexpr const char* kCommands = "/reset, /system TEXT, /save FILE and /quit";

chat::ChatTemplate template_for(const LoadedModel& loaded, const GenerateOptions& options) {
  const auto markup = options.trust_markup ? chat::Markup::trusted : chat::Markup::text;
  const std::string& named = options.chat_template;
  if (!named.empty()) return {chat::template_source(named), loaded.text_format, *loaded.tokenizer, markup};
  chat::ChosenTemplate chosen = chat::choose_template(loaded.text_format, *loaded.tokenizer, markup);
  if (chosen.is_fallback)
    log::info(
        "This model has no chat template: it is talked to in ChatML, since its tokenizer has <|im_start|> and <|im_end|>");
  return std::move(chosen.chat);
}

class Talk {
 public:
  Talk(Session& session, const GenerateOptions& options, TextOutput& output)
      : options_(options),
        output_(output),
        conversation_(session, template_for(session.loaded, options), options.sampling),
        report_(session.loaded.model->config().block_size, /*is_brief=*/!options.verbose) {
    conversation_.set_system(options.system);
  }

  GenerationResult answer(const std::string& words, bool is_streamed) {
    GenerationResult result = conversation_.answer(words, [&](std::string_view text) {
      return (!is_streamed || output_.write(text)) && process::stop_signal() == 0;
    });
    if (is_streamed) output_.end_line();
    if (const int64_t dropped = conversation_.dropped_turns(); dropped > 0)
      log::info(fmt::format("The dialogue has outgrown the model's context: its oldest {} dropped",
                            dropped == 1 ? "turn was" : plural(dropped, "turn") + " were"));
    report_(result, conversation_.seed() - 1);
    return result;
  }

  // False where it is to end.
  bool take_line(const std::string& line) {
    try {
      if (line.starts_with('/')) return command(line);
      if (!line.empty()) answer(line, /*is_streamed=*/true);
    } catch (const Error& error) {
      if (error.code() != ExitCode::data && error.code() != ExitCode::disk) throw;
      log::error(error.what());  // the next line may do better
    }
    return true;
  }

 private:
  bool command(const std::string& line) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, space), given = line.substr(std::min(space + 1, line.size()));
    if (name == "/quit" || name == "/exit" || name == "/bye") return false;
    if (name == "/reset") {
      conversation_.reset();
      log::info("The dialogue begins anew");
    } else if (name == "/system") {
      conversation_.set_system(given);
      conversation_.reset();
      log::info(given.empty() ? "The dialogue begins anew, without a system prompt"
                              : "The dialogue begins anew, with this system prompt");
    } else if (name == "/save" && !given.empty()) {
      save(given);
    } else {
      log::warn(fmt::format(
          "there is no command like that: there are {}; a message that begins with / needs a space before it",
          kCommands));
    }
    return true;
  }

  // As a further line of the file, so that a collection of dialogues is one that can be learned from.
  void save(const std::string& path) const {
    const std::string line =
        chat::as_json(conversation_.dialogue()).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    std::ofstream file(path, std::ios::app);
    file << line << '\n' << std::flush;
    if (!file) throw Error(ExitCode::disk, fmt::format("cannot write {}", path));
    log::success(fmt::format("{} has this dialogue as its last line", path));
  }

  const GenerateOptions& options_;
  TextOutput& output_;
  Conversation conversation_;
  GenerationReport report_;
};

int status() {
  const int signal = process::stop_signal();
  return signal ? 128 + signal : static_cast<int>(ExitCode::ok);
}

}  // namespace

int talk(Session& session, const GenerateOptions& options, const std::optional<std::string>& words,
         TextOutput& output) {
  Talk talking(session, options, output);
  if (words) {
    const GenerationResult result = talking.answer(*words, /*is_streamed=*/!options.json);
    if (options.json) output.write(json_line(*words, result, options.sampling.seed, output.escapes()));
    output.finish();
    return status();
  }
  LineReader lines;
  if (lines.at_terminal())
    log::info(fmt::format("Say something. Ctrl-C stops an answer, Ctrl-D leaves; commands are {}", kCommands));
  while (output.open()) {
    const std::optional<std::string> line = lines.next();
    if (!line || !talking.take_line(prepare::as_plain_text(*line))) break;
    if (process::stop_signal() == SIGINT) process::forget_stop_signal();  // it has stopped the answer
    if (process::stop_signal() != 0) break;
  }
  return status();
}

}  // namespace gpt::generate
