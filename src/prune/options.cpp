#include "gpt/prune/options.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "gpt/checkpoint/file_names.h"
#include "gpt/config/arguments.h"
#include "gpt/core/error.h"
#include "gpt/exchange/import.h"

namespace gpt::prune {
namespace {

constexpr const char* kPruneExamples =
    R"(  gpt-prune --checkpoint models/mine --mlp 25% --data text.txt --output models/smaller
  gpt-prune --checkpoint models/mine --mlp 25% --heads 2 --layers 1 --data tokens.bin --output models/smaller
  gpt-train --init_from models/smaller --distill_from models/mine --data text.txt --output_dir models/recovered
)";

constexpr const char* kPruneEnding = R"(What it does
  The model reads sequences of the data. A neuron of the MLP or a head counts by what it adds to the residual stream (its mean absolute activation times the norm of its output weights), a layer by how much it turns the stream (1 - cosine). What counts least is left out, as many neurons and heads in each layer. The result is an ordinary checkpoint, which has lost some of what it knew: train it on, as the last example does and the last line of the output says.

Exit status
  0 done, 2 wrong usage, 3 data that cannot be read, are too short or have other tokens, 4 a checkpoint that cannot be read, 5 a loss that is not finite, 7 out of memory, 8 output that cannot be written
)";

struct WrittenAmounts {
  std::string mlp, heads, layers;
};

std::vector<config::Section> prune_sections(PruneOptions& o, WrittenAmounts& written) {
  return {
      {"What to remove",
       {{.name = "checkpoint",
         .target = &o.checkpoint,
         .help = "a checkpoint file, or the folder of a run: its last one",
         .is_path = true},
        {.name = "mlp",
         .target = &written.mlp,
         .help =
             "neurons of each layer's MLP: a share such as 25%, which is rounded so that a multiple of 32 is left where the model has "
             "one, or a number"},
        {.name = "heads",
         .target = &written.heads,
         .help =
             "attention heads of each layer: a number, or a share; of grouped ones whole groups, or equally many of each group"},
        {.name = "layers", .target = &written.layers, .help = "whole layers: a number, or a share"}}},
      {"How they are chosen",
       {{.name = "data",
         .target = &o.data,
         .help =
             "what the model reads to find out: a text or conversations (a file, a folder or a pattern in quotes), or a bin of token "
             "ids",
         .is_path = true},
        {.name = "text-field", .target = &o.text_field, .help = "field of .jsonl that holds the text"},
        {.name = "sequences",
         .target = &o.sequences,
         .help = "how many sequences of block_size tokens of it, evenly spread",
         .min = 1,
         .max = 1e6},
        {.name = "choice",
         .target = config::choice(o.choice, {{"importance", Choice::importance}, {"random", Choice::random}}),
         .help = "importance, or random, to compare with"},
        {.name = "seed", .target = &o.seed, .help = "of --choice random", .min = 0}}},
      {"Output",
       {{.name = "output",
         .target = &o.output,
         .help = "the folder to write ckpt.pt to, or a file ending in .pt; it must be new",
         .aliases = {{"o"}},
         .is_path = true},
        config::switch_row("json", o.json, "print the result as JSON, not as a table")}},
      {"Where it computes",
       {{.name = "device", .target = &o.device, .help = "auto, cpu, cuda or cuda:N"},
        {.name = "threads", .target = &o.threads, .help = "CPU threads; 0 = all cores", .min = 0, .max = 1024}}}};
}

void require_complete(const PruneOptions& options) {
  const Amounts& amounts = options.amounts;
  if (options.checkpoint.empty())
    throw Error(ExitCode::config, "name what to prune: --checkpoint FILE, or the folder of a run");
  if (exchange::is_hugging_face(options.checkpoint)) {
    throw Error(
        ExitCode::config,
        fmt::format(
            "--checkpoint {0}: this is a model of Hugging Face's, and a checkpoint is needed; gpt-train --init_from {0} "
            "makes one of it",
            options.checkpoint));
  }
  if (amounts.mlp.number + amounts.heads.number + amounts.layers.number == 0)
    throw Error(ExitCode::config, "say what to remove: --mlp 25%, --heads 2 or --layers 1, or several of them");
  if (options.data.empty())
    throw Error(ExitCode::config,
                "name what the model reads to find out what it needs least: --data TEXT or --data BIN");
  if (options.output.empty()) throw Error(ExitCode::config, "name the folder to write, or a file: --output FOLDER");
}

// A file that is not there yet: a checkpoint may be all that is left of a run.
std::string new_file(const std::string& output) {
  const std::string file = output.ends_with(".pt") ? output : fmt::format("{}/{}", output, checkpoint::kLastCheckpoint);
  std::error_code ignored;
  const std::string taken =
      file != output && !std::filesystem::is_directory(output, ignored) ? output : checkpoint::checkpoint_file(output);
  if (std::filesystem::exists(taken, ignored))
    throw Error(ExitCode::config,
                fmt::format("--output {}: {} is there already; name another folder or file", output, taken));
  return file;
}

}  // namespace

std::optional<PruneOptions> parse_prune_options(int argc, const char* const* argv) {
  PruneOptions options;
  WrittenAmounts written{"0", "0", "0"};
  const std::vector<config::Section> rows = prune_sections(options, written);
  const auto arguments = config::parse_arguments(
      {.name = "gpt-prune",
       .description =
           "Makes a smaller model of a trained one, by leaving out the neurons, heads and layers that do least on a text.",
       .usage =
           "--checkpoint CHECKPOINT --mlp SHARE --heads N --layers N --data DATA --output FOLDER|FILE [--FLAG VALUE ...]",
       .sections = rows,
       .guide = {.first = {"checkpoint", "mlp", "heads", "layers", "data", "output"},
                 .examples = kPruneExamples,
                 .ending = kPruneEnding},
       .flag_for = [](const std::string& path) { return path.ends_with(".pt") ? "--checkpoint" : "--data"; }},
      argc, argv);
  if (!arguments) return std::nullopt;
  config::apply_settings(arguments->settings, config::rows_of(rows));
  options.amounts = {parse_amount("mlp", written.mlp), parse_amount("heads", written.heads),
                     parse_amount("layers", written.layers)};
  require_complete(options);
  options.checkpoint = checkpoint::checkpoint_file(options.checkpoint);
  options.output = new_file(options.output);
  return options;
}

}  // namespace gpt::prune
