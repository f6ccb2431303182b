// Text to token ids.
#include <functional>
#include <optional>
#include <utility>

#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/exchange/texts_of_model.h"
#include "gpt/prepare/input_list.h"
#include "gpt/prepare/prepare.h"
#include "gpt/prepare/prepare_command.h"
#include "gpt/prepare/prepare_report.h"

namespace {

int prepare_main(int argc, char** argv) {
  using namespace gpt;
  std::optional<prepare::PrepareCommand> command = prepare::parse_prepare_options(argc, argv);
  if (!command) return 0;
  if (auto model = exchange::texts_of_model(command->options.tokenizer)) {
    command->options.saved_tokenizer = std::move(model->tokenizer);
    command->options.document_prefix = model->format.prefix;
    command->options.chat_format = std::move(model->format);
  }
  if (command->list) {
    print(prepare::list_input(command->options, command->output_dir));
    return 0;
  }
  process::watch_signals();
  prepare::PrepareReport report;
  const data::Metadata metadata = prepare::prepare(command->options, command->output_dir, std::ref(report));
  prepare::report_prepared(command->options, command->output_dir, metadata);
  if (command->json) print(prepare::prepared_json(command->options, command->output_dir, metadata));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { gpt::process::run(argc, argv, prepare_main); }
