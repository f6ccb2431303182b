// The values that a run remembers besides tensors: what an older checkpoint without them means, and what the document says of them.
#include "gpt/checkpoint/remembered.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/parts.h"
#include "checkpoint/sample_checkpoint.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"

namespace gpt::checkpoint {
namespace {

using checkpoint::Json;

TEST(Remembered, WhatAnOlderProgramDidNotSaveIsAsInARunThatBegins) {
  const Json values = Json::parse(checkpoint::values_of(test::sample_checkpoint()).dump());  // as a file has them
  Json older;
  for (const char* place : {"/step", "/best_val_loss", "/evaluated_step", "/skipped_steps",
                            "/consecutive_skipped_steps", "/data", "/environment"})
    older[Json::json_pointer(place)] = values.at(Json::json_pointer(place));
  Checkpoint read;
  checkpoint::place_values(read, older);
  EXPECT_EQ(static_cast<const Remembered&>(read), (Remembered{.step = 42, .evaluated_step = 40}));
  EXPECT_FALSE(read.spikes);
  EXPECT_FALSE(read.chosen_products);
  EXPECT_FALSE(read.text_format);
  const Json flat = older.flatten();
  for (const auto& [place, value] : flat.items()) {
    if (place.starts_with("/environment/")) continue;
    Json lacking = flat;
    lacking.erase(place);
    EXPECT_ANY_THROW(checkpoint::place_values(read, lacking.unflatten())) << place;
  }
}

TEST(Remembered, WhatIsNotSoIsNotSaved) {
  const Json values = checkpoint::values_of(Checkpoint());
  for (const char* place : {"/rollback", "/plateau", "/schedule", "/recording_failed", "/teacher", "/spike_count"})
    EXPECT_FALSE(values.contains(Json::json_pointer(place))) << place;
}

TEST(Remembered, TheDocumentHasTheTable) {
  const std::string path = std::string(GPT_SOURCE_DIR) + "/src/run/README.md";
  EXPECT_NE(read_file(path, ExitCode::data).find("\n" + checkpoint::describe_values()), std::string::npos)
      << path << " must have this table:\n"
      << checkpoint::describe_values();
}

}  // namespace
}  // namespace gpt::checkpoint
