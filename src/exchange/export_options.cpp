#include <string>
#include <vector>

#include "gpt/checkpoint/file_names.h"
#include "gpt/config/arguments.h"
#include "gpt/core/error.h"
#include "gpt/exchange/export.h"

namespace gpt::exchange {
namespace {

enum class Format { hugging_face };

constexpr const char* kExportExamples = R"(  gpt-export --checkpoint models/mine --output exported/mine
  gpt-export --checkpoint models/mine/ckpt_best.pt --output exported/mine --dtype bfloat16
)";

constexpr const char* kExportEnding = R"(What can be exported
  GPT-2's form (layernorm, gelu, learned positions) and Llama's (rmsnorm, swiglu, rope), with any tokenizer. gpt-train --init_from FOLDER begins a run with an exported model.

Exit status
  0 done, 2 wrong usage, 4 a checkpoint that cannot be read or has another form, 5 weights that are not finite in the type, 7 out of memory, 8 output that cannot be written
)";

std::vector<config::Section> export_sections(ExportOptions& o, Format& format) {
  return {{"What to write, and where",
           {{.name = "checkpoint",
             .target = &o.checkpoint,
             .help = "a checkpoint file, or the folder of a run: its last one",
             .is_path = true},
            {.name = "format",
             .target = config::choice(format, {{"huggingface", Format::hugging_face}}),
             .help = "a folder as Hugging Face's transformers reads and writes it"},
            {.name = "output",
             .target = &o.output,
             .help = "the folder to write; an export that it holds is replaced",
             .aliases = {{"o"}},
             .is_path = true},
            {.name = "dtype",
             .target = config::choice(
                 o.dtype, {{"float32", Dtype::float32}, {"bfloat16", Dtype::bfloat16}, {"float16", Dtype::float16}}),
             .help = "type of the weights in the file"}}}};
}

}  // namespace

std::optional<ExportOptions> parse_export_options(int argc, const char* const* argv) {
  ExportOptions options;
  Format format = Format::hugging_face;
  const std::vector<config::Section> rows = export_sections(options, format);
  const auto arguments = config::parse_arguments(
      {.name = "gpt-export",
       .description = "Writes a trained model, with its tokenizer, as other programs read it.",
       .usage = "--checkpoint CHECKPOINT --output FOLDER [--FLAG VALUE ...]",
       .sections = rows,
       .guide = {.first = {"checkpoint", "output"}, .examples = kExportExamples, .ending = kExportEnding}},
      argc, argv);
  if (!arguments) return std::nullopt;
  config::apply_settings(arguments->settings, config::rows_of(rows));
  if (options.checkpoint.empty())
    throw Error(ExitCode::config, "name what to export: --checkpoint FILE, or the folder of a run");
  if (options.output.empty()) throw Error(ExitCode::config, "name the folder to write: --output FOLDER");
  options.checkpoint = checkpoint_file(options.checkpoint);
  return options;
}

}  // namespace gpt::exchange
