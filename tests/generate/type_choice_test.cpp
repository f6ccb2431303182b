#include "gpt/generate/type_choice.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <string>

#include "core/scratch_folder.h"

namespace gpt::generate {
namespace {

TEST(TypeChoice, IsMeasuredOnceForAMachineAndASize) {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/caches/times.json";
  int measured = 0;
  const auto measure = [&](int64_t weights) {
    ++measured;
    const auto seconds = static_cast<double>(weights);
    return TypeTimes{{at::kBFloat16, seconds}, {at::kFloat, 2 * seconds}};
  };
  EXPECT_EQ(known_types(1000, path, measure).at(at::kFloat), 2000);
  EXPECT_EQ(known_types(1001, path, measure).at(at::kBFloat16), 1000) << "what was kept";
  EXPECT_EQ(measured, 1);
  EXPECT_EQ(known_types(5000, path, measure).at(at::kFloat), 10'000) << "of another size";
  EXPECT_EQ(known_types(1000, path, measure).at(at::kFloat), 2000) << "is still there";
  EXPECT_EQ(measured, 2);
  for (const char* damage : {"", "[1]", "{\"", "{\"a\": 1}"}) {
    std::ofstream(path) << damage;
    EXPECT_EQ(known_types(1000, path, measure).at(at::kFloat), 2000) << damage;
  }
  EXPECT_EQ(measured, 6);
  std::string text;
  std::getline(std::ifstream(path), text, '\0');
  std::ofstream(path) << std::regex_replace(text, std::regex(R"(\{[^{}]*\})"), "1");  // the entry itself is damaged
  EXPECT_EQ(known_types(1000, path, measure).at(at::kFloat), 2000);
  EXPECT_EQ(known_types(1000, path, measure).at(at::kFloat), 2000);
  EXPECT_EQ(measured, 7) << "and then there is a whole one again";
  (void)known_types(1000, "", measure);
  (void)known_types(1000, folder.path(), measure);  // which cannot be written
  EXPECT_EQ(measured, 9);
}

TEST(TypeChoice, MeasuresBothTypes) {
  const TypeTimes times = measure_types(300'000);
  EXPECT_EQ(times.size(), 2);
  for (const auto& [type, seconds] : times) EXPECT_GT(seconds, 0) << c10::toString(type);
}

}  // namespace
}  // namespace gpt::generate
