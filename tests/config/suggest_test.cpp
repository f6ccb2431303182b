#include "gpt/config/suggest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "config/faults.h"
#include "core/scratch_folder.h"
#include "gpt/config/option.h"

namespace gpt::config {
namespace {

// Every deletion, insertion and swap of neighbours.
std::set<std::string> one_character_edits(const std::string& word) {
  std::set<std::string> edits;
  for (size_t i = 0; i < word.size(); ++i) {
    edits.insert(word.substr(0, i) + word.substr(i + 1));
    if (i + 1 < word.size()) edits.insert(word.substr(0, i) + word[i + 1] + word[i] + word.substr(i + 2));
  }
  for (size_t i = 0; i <= word.size(); ++i) {
    for (const char c : std::string("abcdefghijklmnopqrstuvwxyz_"))
      edits.insert(word.substr(0, i) + c + word.substr(i));
  }
  return edits;
}

TEST(DidYouMean, KnowsWhenNothingIsNear) {
  const std::vector<std::string> names = {"n_head", "n_layer", "eps"};
  EXPECT_EQ(did_you_mean("n_haed", names), "n_head");
  EXPECT_EQ(did_you_mean("N-Head", names), "n_head");
  EXPECT_EQ(did_you_mean("banana", names), std::nullopt);
  EXPECT_EQ(did_you_mean("", names), std::nullopt);
  EXPECT_EQ(did_you_mean(std::string(1 << 20, 'n'), names), std::nullopt);
}

TEST(DidYouMean, KnowsFilesByTheirNamesWithAndWithoutEndings) {
  const ScratchFolder folder;
  const std::string diary = folder.file("diary.txt", "");
  folder.file("diary.zip", "");
  folder.file("runs/mine/ckpt.pt", "");
  for (const char* typed : {"diary", "diray.txt", "Diary.txt", "diary.tx"})
    EXPECT_EQ(did_you_mean_path(folder / typed), "; did you mean " + diary + "?") << typed;
  EXPECT_EQ(did_you_mean_path(folder / "runs/mien/"), "; did you mean " + (folder / "runs/mine") + "?");
  EXPECT_EQ(did_you_mean_path(folder / "letters.txt"), "");
  EXPECT_EQ(did_you_mean_path(folder / "nowhere/diary.txt"), "");
}

TEST(DidYouMean, DigitsDecideBetweenNamesThatAreEquallyNear) {
  const std::vector<std::string> names = {"beta1", "beta2", "eps"};
  for (const char* typo : {"beta_1", "beat1", "be1ta_", "BETA-1"})
    EXPECT_EQ(did_you_mean(typo, names), "beta1") << typo;
  for (const char* typo : {"beta_2", "beat2", "be2ta_", "beat_2"})
    EXPECT_EQ(did_you_mean(typo, names), "beta2") << typo;
  EXPECT_EQ(did_you_mean("val_bin", {"wal_bin", "val_bid"}), "val_bid");  // then the longer common beginning
  EXPECT_EQ(did_you_mean("lokk", {"look", "lock"}), "look");              // then their order
}

TEST(DidYouMean, FindsTheKeyBehindEveryTypo) {
  Config defaults;
  const std::vector<Option> rows = options(defaults);
  std::set<std::string> known;
  std::vector<std::string> candidates;
  for (const Option& row : rows) {
    known.insert(row.name);
    candidates.push_back(row.name);
    for (const Alias& alias : row.aliases) known.insert(alias.name);
  }
  int edits = 0, typos = 0, right = 0;
  for (const Option& row : rows) {
    for (const std::string& typo : one_character_edits(row.name)) {
      if (known.count(typo) || edits++ % 45 != 0) continue;  // all would take 15 seconds
      ++typos;
      right += did_you_mean(typo, candidates) == row.name;
      if (typos % 10 == 0) {  // reading a whole file is slower: a sample
        const std::string yaml = (row.section.empty() ? "" : row.section + ":\n  ") + typo + ": 1\n";
        EXPECT_NE(yaml_fault(yaml).find("unknown key"), std::string::npos) << yaml;
      }
    }
  }
  EXPECT_GT(typos, 1000);
  EXPECT_GE(right, 0.99 * typos);
}

}  // namespace
}  // namespace gpt::config
