// Which attention a device, its dropout and the documents of the data allow.
#include <fmt/format.h>

#include <cmath>

#include "rule.h"

namespace gpt::config {
namespace {

bool chooses_blocks(const Config& config) { return config.model.attention == AttentionForm::blocks; }

}  // namespace

std::vector<RefusalRule> attention_rules() {
  return {
      {.keys = {"model.attention", "data.document_mask"},
       .when = [](const Config& c, const Facts&) { return chooses_blocks(c) && c.data.document_mask; },
       .why =
           "model.attention blocks chooses by means over whole blocks, in which documents end and begin, and document_mask "
           "keeps documents apart",
       .cures = {set_to("data.document_mask", "false"), set_to("model.attention", "full")}},
      {.keys = {"model.attention", "data.packing"},
       .when = [](const Config& c, const Facts& facts) { return chooses_blocks(c) && packs_conversations(c, facts); },
       .why =
           "model.attention blocks chooses by means over whole blocks, in which conversations end and begin, and packing keeps "
           "them apart",
       .cures = {set_to("data.packing", "false"), set_to("model.attention", "full")}},
      {.keys = {"model.attention", "device"},
       .when = [](const Config& c, const Facts& facts) { return c.model.top_blocks() > 0 && facts.is_cpu == false; },
       .why = "model.attention blocks is computed on a CPU alone so far",
       .cures = {set_to("device", "cpu"), set_to("model.attention", "full")}},
      {.keys = {"training.attention", "device"},
       .when =
           [](const Config& c, const Facts& facts) {
             const AttentionKernel kernel = c.training.execution.attention;
             return facts.is_cpu == true && (kernel == AttentionKernel::cudnn || kernel == AttentionKernel::efficient);
           },
       .why =
           [](const Config& c) {
             return fmt::format("attention {} needs a GPU",
                                c.training.execution.attention == AttentionKernel::cudnn ? "cudnn" : "efficient");
           },
       .cures = {set_to("training.attention", "auto"), set_to("training.attention", "flash"),
                 set_to("training.attention", "math"), set_to("device", "cuda")}},
      {.keys = {"training.attention", "training.use_compile", "model.dropout"},
       .when =
           [](const Config& c, const Facts& facts) {
             const ExecutionConfig& execution = c.training.execution;
             return facts.is_cpu == true && execution.attention == AttentionKernel::flash && !execution.use_compile &&
                    c.model.dropout > 0;
           },
       .why = "attention flash without use_compile is LibTorch's, which has no dropout on a CPU",
       .cures = {set_to("training.attention", "auto"), set_to("training.use_compile", "true"),
                 set_to("model.dropout", "0")}},
      {.keys = {"training.attention", "model.dropout"},
       .when =
           [](const Config& c, const Facts&) {
             return c.training.execution.attention == AttentionKernel::cudnn && !cudnn_knows_dropout(c.model.dropout);
           },
       .why =
           [](const Config& c) {
             return fmt::format("attention cudnn would round dropout {} to a sixteenth", c.model.dropout);
           },
       .cures =
           [](const Config& c) {
             return std::vector<Cure>{set_to("training.attention", "auto"),
                                      set_to("model.dropout",
                                             fmt::format("{}", std::round(16 * c.model.dropout) / 16))};
           }},
  };
}

}  // namespace gpt::config
