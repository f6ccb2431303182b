#include "src/plan/terms/terms.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "support/source_folder.h"

namespace gpt::plan {
namespace {

// One that is not in the list would be left out of every estimate without a word.
TEST(Terms, OfEachFileAreInTheList) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_folder() + "/src/plan/terms"))
    if (entry.path().extension() == ".cpp") files.insert(entry.path().stem());
  files.erase("terms");
  EXPECT_EQ(terms::all().size(), files.size()) << testing::PrintToString(files);
}

TEST(Terms, OfATechniqueThatIsOffAreNothing) {
  ModelConfig model;
  model.vocab_size = 64;
  const TrainingConfig training;
  const ActivationForm form;
  const ModelPart whole;
  const terms::RunPart run(model, training, form, whole);
  int of_every_run = 0;
  for (const terms::Term& term : terms::all()) {
    if (!term.memory) continue;
    terms::MemoryTerms sum;
    term.memory(run, sum);
    if (sum.use.total() + sum.use.host + sum.head + sum.block + sum.product + sum.passes + sum.apart != 0)
      ++of_every_run;
  }
  EXPECT_EQ(of_every_run, 4) << "weights and gradients, the optimizer's state, the blocks and what lies around them";
}

}  // namespace
}  // namespace gpt::plan
