// Files and blocks against those of llama.cpp's own Python package, as scripts/make_gguf_fixture.py has written them.
#include "gpt/exchange/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/exchange/safetensors.h"
#include "support/source_folder.h"

namespace gpt::exchange {
namespace {

TEST(Gguf, Q8BlocksAreThoseOfThePackage) {
  const SafetensorsReader file(test::source_folder() + "/tests/fixtures/q8_0.safetensors");
  const StoredTensor &stored = *file.find("values"), &wanted = *file.find("blocks");
  ASSERT_GT(stored.shape[0], 200);
  std::vector<float> values(stored.bytes.size() / sizeof(float));
  std::memcpy(values.data(), stored.bytes.data(), stored.bytes.size());
  std::vector<std::byte> blocks(gguf_bytes(GgufType::q8_0, std::ssize(values)));
  ASSERT_EQ(blocks.size(), wanted.bytes.size());
  EXPECT_TRUE(quantize_q8_0(values, blocks));
  constexpr size_t kBlockBytes = 34;
  for (size_t i = 0; i < blocks.size(); ++i)
    ASSERT_EQ(blocks[i], wanted.bytes[i]) << "row " << i / kBlockBytes << ", byte " << i % kBlockBytes;
}

TEST(Gguf, AScaleBeyondFloat16IsNotFinite) {
  std::vector<float> values(2 * kQ8Block, 1);
  std::vector<std::byte> blocks(gguf_bytes(GgufType::q8_0, std::ssize(values)));
  constexpr float kLargest = 127 * 65519.0f;  // the scale is rounded to 65504
  values[40] = -kLargest;
  EXPECT_TRUE(quantize_q8_0(values, blocks));
  values[40] = std::nextafter(127 * 65520.0f, std::numeric_limits<float>::infinity());
  EXPECT_FALSE(quantize_q8_0(values, blocks));
}

TEST(Gguf, AFileIsKnownByItsFirstMetadata) {
  const ScratchFolder folder;
  GgufMetadata first, other;
  first.add("general.architecture", "llama");
  other.add("general.architecture", "gpt2");
  GgufMetadata all = first;
  all.add("general.type", "model");
  const std::vector<float> values(4);
  GgufWriter file(folder / "a.gguf", all, {{"x", GgufType::f32, {2, 2}}});
  file.add(std::as_bytes(std::span(values)));
  file.commit();
  EXPECT_TRUE(gguf_begins_with(folder / "a.gguf", first));
  EXPECT_FALSE(gguf_begins_with(folder / "a.gguf", other));
  EXPECT_FALSE(gguf_begins_with(folder.file("short", "GGUF"), first));
  EXPECT_FALSE(gguf_begins_with(folder.file("empty", ""), first));
  EXPECT_FALSE(gguf_begins_with(folder.path(), first));
  EXPECT_FALSE(gguf_begins_with(folder / "none", first));
}

}  // namespace
}  // namespace gpt::exchange
