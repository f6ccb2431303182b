#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "gpt/checkpoint/file_names.h"
#include "gpt/config/arguments.h"
#include "gpt/core/error.h"
#include "gpt/core/printable.h"
#include "gpt/exchange/export.h"
#include "gpt/exchange/families_reference.h"

namespace gpt::exchange {
namespace {

constexpr const char* kExportExamples = R"(  gpt-export --checkpoint models/mine --output exported/mine
  gpt-export --checkpoint models/mine/ckpt_best.pt --output exported/mine --dtype bfloat16
  gpt-export --checkpoint models/mine --format gguf --output mine.gguf --dtype q8_0
  gpt-export --checkpoint models/mine --format quantized --output mine_int8.pt --dtype int8
  gpt-export --checkpoint models/tuned --adapter --output exported/adapter
)";

constexpr const char* kExportEnding = R"(What can be exported
  GPT-2's form (layernorm, gelu, learned positions), Llama's (rmsnorm, swiglu, rope), and Llama's with what Qwen2 (qkv_bias), Qwen3 (qk_norm), Mistral and Ministral (attention_window), SmolLM3 (rope_pattern), Gemma (geglu), Gemma 3 and OLMo (norm_place), Arcee (relu2) have, with any tokenizer; for llama.cpp the tokenizer must split text as one of its own does. A quantized model, of whatever form, is for gpt-generate, gpt-eval and gpt-serve: --checkpoint FILE. gpt-train --init_from FOLDER begins a run with an exported folder.

Exit status
  0 done, 2 wrong usage, 4 a checkpoint that cannot be read or has another form, 5 weights that are not finite in the type, 7 out of memory, 8 output that cannot be written
)";

std::vector<config::Section> export_sections(ExportOptions& o, bool& print_families) {
  return {
      {"What to write, and where",
       {{.name = "checkpoint",
         .target = &o.checkpoint,
         .help = "a checkpoint file, or the folder of a run: its last one",
         .is_path = true},
        {.name = "format",
         .target = config::choice(o.format, {{"huggingface", ExportFormat::hugging_face},
                                             {"gguf", ExportFormat::gguf},
                                             {"quantized", ExportFormat::quantized}}),
         .help =
             "huggingface: a folder as Hugging Face's transformers reads and writes it; gguf: a file for llama.cpp; "
             "quantized: a file for gpt-generate, gpt-eval and gpt-serve, with weights of 8 or 4 bits"},
        {.name = "output",
         .target = &o.output,
         .help = "the folder to write, or for gguf and quantized the file; an export that is there is replaced",
         .aliases = {{"o"}},
         .is_path = true},
        {.name = "dtype",
         .target = config::choice(o.dtype, {{"float32", ExportDtype::float32},
                                            {"bfloat16", ExportDtype::bfloat16},
                                            {"float16", ExportDtype::float16},
                                            {"q8_0", ExportDtype::q8_0},
                                            {"int8", ExportDtype::int8},
                                            {"int4", ExportDtype::int4}}),
         .help =
             "type of the weights in the file; q8_0, for gguf, is 8 bits with a scale for every 32 weights; int8 and "
             "int4 are for quantized, a quarter and a seventh of float32's size"},
        config::switch_row(
            "adapter", o.adapter,
            "only the adapters of a run that has trained such (training.lora_rank), for peft or, with --format gguf, for "
            "llama.cpp's --lora; without it they are merged with the model"),
        config::switch_row("averages", o.averages,
                           "the averages of the weights in their place, of a run with training.ema_decay"),
        config::switch_row("json", o.json, "print what was written as JSON on standard output"),
        config::switch_row("print-families", print_families,
                           "show which forms there are, and which programs compute each of them, in Markdown"),
        {.name = "max-shard-size",
         .target = &o.max_shard_size,
         .help =
             "GB of weights (1e9 bytes) in a file of a folder, 50 if it is left out; more make several files with an index, as transformers has them",
         .min = 1e-6,
         .max = 1e6}}}};
}

void require_fitting(const ExportOptions& options) {
  const bool is_quantized = options.dtype == ExportDtype::int8 || options.dtype == ExportDtype::int4;
  if (options.format == ExportFormat::quantized && !is_quantized)
    throw Error(ExitCode::config, "--format quantized needs --dtype int8 or int4");
  if (options.format != ExportFormat::quantized && is_quantized)
    throw Error(ExitCode::config, fmt::format("--dtype {} is a type of quantized models: add --format quantized",
                                              name_of(options.dtype)));
  if (options.adapter && options.format == ExportFormat::quantized)
    throw Error(ExitCode::config, "--adapter is for peft's or llama.cpp's form: use --format huggingface or gguf");
  if (options.adapter && options.dtype == ExportDtype::q8_0)
    throw Error(ExitCode::config, "--dtype q8_0 is for whole models: use float32, bfloat16 or float16 for an adapter");
  if (options.adapter && options.max_shard_size)
    throw Error(ExitCode::config, "--max-shard-size divides whole models, and an adapter is one file: leave it out");
  if (options.format != ExportFormat::hugging_face && options.max_shard_size)
    throw Error(ExitCode::config,
                "--max-shard-size divides a folder for transformers: leave it out, as this is one file");
  if (options.format != ExportFormat::hugging_face) return;
  if (options.dtype == ExportDtype::q8_0)
    throw Error(ExitCode::config, "--dtype q8_0 is a type of GGUF's: add --format gguf, or use bfloat16 or float16");
  if (options.output.ends_with(".gguf"))
    throw Error(ExitCode::config, "--output " + options.output +
                                      ": this would be a folder for transformers; add --format gguf for a file");
}

}  // namespace

std::string_view name_of(ExportDtype dtype) {
  switch (dtype) {
    case ExportDtype::float32: return "float32";
    case ExportDtype::bfloat16: return "bfloat16";
    case ExportDtype::float16: return "float16";
    case ExportDtype::q8_0: return "q8_0";
    case ExportDtype::int8: return "int8";
    case ExportDtype::int4: return "int4";
  }
  throw std::logic_error("no such type");
}

std::optional<ExportOptions> parse_export_options(int argc, const char* const* argv) {
  ExportOptions options;
  bool print_families = false;
  const std::vector<config::Section> rows = export_sections(options, print_families);
  const auto arguments = config::parse_arguments(
      {.name = "gpt-export",
       .description =
           "Writes a trained model, with its tokenizer, as other programs read it, or with weights of 8 or 4 bits.",
       .usage = "--checkpoint CHECKPOINT --output FOLDER|FILE [--FLAG VALUE ...]",
       .sections = rows,
       .guide = {.first = {"checkpoint", "output"}, .examples = kExportExamples, .ending = kExportEnding}},
      argc, argv);
  if (!arguments) return std::nullopt;
  config::apply_settings(arguments->settings, config::rows_of(rows));
  if (print_families) {
    print(families_markdown());
    return std::nullopt;
  }
  if (options.checkpoint.empty())
    throw Error(ExitCode::config, "name what to export: --checkpoint FILE, or the folder of a run");
  if (options.output.empty())
    throw Error(ExitCode::config,
                "name the folder to write: --output FOLDER, or with --format gguf or quantized the file");
  require_fitting(options);
  options.checkpoint = checkpoint::checkpoint_file(options.checkpoint);
  return options;
}

}  // namespace gpt::exchange
