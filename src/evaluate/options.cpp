#include "gpt/evaluate/options.h"

#include <fmt/format.h>

#include "gpt/config/arguments.h"
#include "gpt/core/error.h"

namespace gpt::evaluate {
namespace {

constexpr const char* kEvalExamples = R"(  gpt-eval --checkpoint models/mine --data held_out.txt
  gpt-eval --checkpoint models/mine --data 'texts/*.jsonl' --stride 128 --json
  gpt-eval --checkpoint models/chats --data chats.jsonl
  gpt-eval --checkpoint downloads/gpt2 --tasks hellaswag:hellaswag_val.jsonl lambada:lambada_test.jsonl
  gpt-eval --checkpoint models/mine --tasks arc_easy:ARC-Easy-Test.jsonl --output results.jsonl
)";

constexpr const char* kEvalEnding = R"(Tasks
  A file has one JSON object a line, as the task's authors publish it or Hugging Face's datasets writes it. Prompts and metrics are those of lm-evaluation-harness 0.4.13 without examples in the prompt.

  hellaswag             ctx_a and ctx_b, or ctx; activity_label, endings, label
  arc, arc_easy,        question, choices {text, label}, answerKey
    arc_challenge
  piqa                  goal, sol1, sol2, label
  lambada,              text, whose last word is to be found
    lambada_openai
  wikitext              page

Metrics
  acc                   share of the examples whose right answer is the most
                        probable one
  acc_norm, acc_bytes   the same, per character and per byte of the answer
  loss                  of a token, in nats
  perplexity            of a text per token, of lambada per last word
  bits_per_byte, byte_perplexity, word_perplexity

Exit status
  0 done, 2 wrong usage, 3 input that cannot be read, 4 a checkpoint that cannot be read, 5 logits that are not finite, 7 out of memory, 8 output that cannot be written; 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP. What has been computed until then is in --output, and the same command goes on from there.
)";

std::vector<config::Section> eval_sections(EvalOptions& o, std::vector<std::string>& tasks) {
  using config::switch_row;
  return {
      {"What to evaluate",
       {{.name = "data",
         .target = &o.data,
         .help =
             "a text or conversations for loss, perplexity and bits per byte: files, folders, patterns in quotes, or -; "
             "JSON lines are a document or a conversation each",
         .is_path = true},
        {.name = "text-field", .target = &o.text_field, .help = "field of .jsonl that holds the text"},
        {.name = "learn",
         .target = config::choice(o.learn, {{config::name_of(Learn::answers), Learn::answers},
                                            {config::name_of(Learn::last), Learn::last},
                                            {config::name_of(Learn::all), Learn::all}}),
         .help =
             "what counts of conversations, as data.learn of gpt-train: answers = all that the assistant says, last = its last "
             "answer, all = every word"},
        {.name = "tasks", .target = &tasks, .help = "NAME:FILE ...; see below"},
        {.name = "limit",
         .target = &o.limit,
         .help = "only the first so many examples of each task, and documents of the text; 0 = all",
         .min = 0}}},
      {"How",
       {{.name = "window",
         .target = &o.window,
         .help = "tokens that the model sees at once; 0 = its block_size",
         .min = 0},
        {.name = "stride",
         .target = &o.stride,
         .help =
             "tokens from one window of a text to the next: fewer give each token more context and take longer; 0 = "
             "the window",
         .min = 0},
        {.name = "batch-size",
         .target = &o.batch_size,
         .help = "sequences at once; 0 = as many as have 4,096 tokens on a CPU, or 32,768 on a GPU",
         .min = 0,
         .max = 1 << 20}}},
      {"Model", generate::rows_with_adapter(o.model, "CPU threads; 0 = all cores")},
      {"Output",
       {{.name = "output",
         .target = &o.output,
         .help =
             "a file for the result of each example, as JSON lines; the same command goes on with one that is there",
         .aliases = {{"o"}},
         .is_path = true},
        switch_row("json", o.json, "write one JSON object instead of the table")}},
  };
}

}  // namespace

std::optional<EvalOptions> parse_eval_options(int argc, const char* const* argv) {
  EvalOptions options;
  std::vector<std::string> tasks;
  const std::vector<config::Section> rows = eval_sections(options, tasks);
  const auto arguments = config::parse_arguments(
      {.name = "gpt-eval",
       .description =
           "Measures how well a trained model does, on texts and on tasks. The results go to standard output.",
       .usage = "[--checkpoint CHECKPOINT] --data TEXT ... --tasks NAME:FILE ... [--FLAG VALUE ...]",
       .sections = rows,
       .guide = {.first = {"checkpoint", "data", "tasks"}, .examples = kEvalExamples, .ending = kEvalEnding},
       .flag_for = [](const std::string& path) { return path.ends_with(".pt") ? "--checkpoint" : "--data"; }},
      argc, argv);
  if (!arguments) return std::nullopt;
  config::apply_settings(arguments->settings, config::rows_of(rows));
  options.tasks = parse_tasks(tasks);
  if (options.data.empty() && options.tasks.empty())
    throw Error(ExitCode::config, "name what to evaluate on: --data TEXT or --tasks NAME:FILE; see gpt-eval --help");
  options.model.checkpoint = generate::find_model(options.model.checkpoint);
  return options;
}

}  // namespace gpt::evaluate
