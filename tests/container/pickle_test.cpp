// What PickleWriter writes is read by Python in tests/e2e.
#include "gpt/container/pickle.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace gpt::container {
namespace {

std::string everything() {
  PickleWriter pickle;
  pickle.begin_dict();
  pickle.text("tensor"), pickle.tensor("BFloat16Storage", "model/w", {2, 3});
  pickle.text("numbers"), pickle.begin_dict();
  pickle.text("small"), pickle.integer(-5);
  pickle.text("large"), pickle.integer(std::numeric_limits<int64_t>::min());
  pickle.text("real"), pickle.real(0.5);
  pickle.text("yes"), pickle.boolean(true);
  pickle.text("no"), pickle.boolean(false);
  pickle.text("none"), pickle.none();
  pickle.end_dict(), pickle.end_dict();
  return pickle.finish();
}

TEST(PlainPickle, IsWhatTheWriterWrites) { EXPECT_TRUE(is_plain_pickle(everything())); }

TEST(PlainPickle, IsNothingThatEndsEarlierOrLater) {
  const std::string pickle = everything();
  for (size_t bytes = 0; bytes < pickle.size(); ++bytes)
    EXPECT_FALSE(is_plain_pickle(pickle.substr(0, bytes))) << bytes;
  EXPECT_FALSE(is_plain_pickle(pickle + "."));
}

TEST(PlainPickle, CallsNoOtherFunction) {
  const std::string pickle = everything();
  const auto with = [&pickle](const std::string& from, const std::string& to) {
    std::string changed = pickle;
    return changed.replace(changed.find(from), from.size(), to);
  };
  EXPECT_FALSE(is_plain_pickle(with("collections\nOrderedDict", "os\nsystem")));
  EXPECT_FALSE(is_plain_pickle(with("torch\nBFloat16Storage", "torch\nload")));
  EXPECT_FALSE(is_plain_pickle(with("torch\nBFloat16Storage", "torch\nhub.loadStorage")));
  EXPECT_FALSE(is_plain_pickle("\x80\x02i__builtin__\neval\n.")) << "INST";
  EXPECT_FALSE(is_plain_pickle("cos\nsystem\n(S'true'\ntR."));
  const std::string long_of_many_bytes = std::string("\x80\x02\x8a\xff", 4) + std::string(8, '\0') + ".";
  EXPECT_FALSE(is_plain_pickle(long_of_many_bytes));
}

}  // namespace
}  // namespace gpt::container
