#include "gpt/config/quantized_config.h"

#include "gpt/config/option.h"

namespace gpt::config {

std::vector<Option> options(QuantizedConfig& c) {
  return {
      {.name = "quantized_forward",
       .target =
           choice(c.type,
                  {{"none", QuantizedForward::none}, {"int8", QuantizedForward::int8}, {"fp8", QuantizedForward::fp8}}),
       .help =
           "type of the products of the blocks in the forward pass of training, whose factors are rounded to it with a scale for "
           "each token and each output; none = dtype, as in the backward pass, validations and samples; fp8 needs a GPU; refused "
           "where it is not faster here, as a short measurement tells",
       .if_false = "none"},
      {.name = "quantized_products",
       .target = choice(c.products, {{"forward", QuantizedProducts::forward}, {"all", QuantizedProducts::all}}),
       .help = "which products quantized_forward rounds; all = those of the backward pass, too"},
      {.name = "quantized_forward_skip",
       .target = &c.skip,
       .help = "blocks at each end of the model that quantized_forward leaves as they are",
       .min = 0,
       .max = 1e6,
       .tried = {"1", "0"}},
      {.name = "quantized_forward_force",
       .target = &c.force,
       .help = "compute with quantized_forward even where it is not faster"},
  };
}

}  // namespace gpt::config
