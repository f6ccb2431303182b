#include "gpt/device/cards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>
#include <vector>

#include "gpt/config/suggest.h"
#include "gpt/core/error.h"

namespace gpt::device {
namespace {

// From the data sheets of the data-centre and workstation cards and the Turing, GA102, Ada and Blackwell architecture papers
// of the GeForce cards, whose tensor cores run at half speed when they accumulate in float32. The GTX 1650 Ti has none. CUDA 13
// runs on nothing older than these.
constexpr std::array kCards{
    // name, GB, GB/s, compute capability, and TFLOP/s in bfloat16, float16, TF32, float32
    Card{"GTX 1650 Ti", 4, 192, 75, 0, 3, 0, 3},
    Card{"RTX 3060", 12, 360, 86, 25.5, 25.5, 12.7, 12.7},
    Card{"RTX 3060 Ti", 8, 448, 86, 32.4, 32.4, 16.2, 16.2},
    Card{"RTX 3070", 8, 448, 86, 40.6, 40.6, 20.3, 20.3},
    Card{"RTX 3070 Ti", 8, 608, 86, 43.5, 43.5, 21.7, 21.7},
    Card{"RTX 3080", 10, 760, 86, 59.5, 59.5, 29.8, 29.8},
    Card{"RTX 3080 Ti", 12, 912, 86, 68.2, 68.2, 34.1, 34.1},
    Card{"RTX 3090", 24, 936, 86, 71.2, 71.2, 35.6, 35.6},
    Card{"RTX 3090 Ti", 24, 1008, 86, 80, 80, 40, 40},
    Card{"RTX 4060", 8, 272, 89, 30.2, 30.2, 15.1, 15.1},
    Card{"RTX 4060 Ti", 8, 288, 89, 44.1, 44.1, 22.1, 22.1},
    Card{"RTX 4060 Ti 16GB", 16, 288, 89, 44.1, 44.1, 22.1, 22.1},
    Card{"RTX 4070", 12, 504, 89, 58.3, 58.3, 29.1, 29.1},
    Card{"RTX 4070 SUPER", 12, 504, 89, 71, 71, 35.5, 35.5},
    Card{"RTX 4070 Ti", 12, 504, 89, 80.2, 80.2, 40.1, 40.1},
    Card{"RTX 4070 Ti SUPER", 16, 672, 89, 88.2, 88.2, 44.1, 44.1},
    Card{"RTX 4080", 16, 717, 89, 97.5, 97.5, 48.7, 48.7},
    Card{"RTX 4080 SUPER", 16, 736, 89, 104.4, 104.4, 52.2, 52.2},
    Card{"RTX 4090", 24, 1008, 89, 165.2, 165.2, 82.6, 82.6},
    Card{"RTX 5070", 12, 672, 120, 61.7, 61.7, 30.9, 30.9},
    Card{"RTX 5070 Ti", 16, 896, 120, 87.9, 87.9, 43.9, 43.9},
    Card{"RTX 5080", 16, 960, 120, 112.6, 112.6, 56.3, 56.3},
    Card{"RTX 5090", 32, 1792, 120, 209.5, 209.5, 104.8, 104.8},
    Card{"RTX A6000", 48, 768, 86, 154.8, 154.8, 77.4, 38.7},
    Card{"RTX 6000 Ada", 48, 960, 89, 364.2, 364.2, 182.1, 91.1},
    Card{"T4", 16, 320, 75, 0, 65, 0, 8.1},
    Card{"A10", 24, 600, 86, 125, 125, 62.5, 31.2},
    Card{"A30", 24, 933, 80, 165, 165, 82, 10.3},
    Card{"A40", 48, 696, 86, 149.7, 149.7, 74.8, 37.4},
    Card{"A100 40GB", 40, 1555, 80, 312, 312, 156, 19.5},
    Card{"A100 80GB", 80, 1935, 80, 312, 312, 156, 19.5},  // 2,039 GB/s as SXM
    Card{"L4", 24, 300, 89, 121, 121, 60, 30.3},
    Card{"L40", 48, 864, 89, 181, 181, 90.5, 90.5},
    Card{"L40S", 48, 864, 89, 362, 362, 183, 91.6},
    Card{"H100 SXM", 80, 3350, 90, 989.4, 989.4, 494.7, 66.9},
    Card{"H100 PCIe", 80, 2000, 90, 756, 756, 378, 51.2},
    Card{"H100 NVL", 94, 3900, 90, 835.5, 835.5, 417.5, 60},
    Card{"H200", 141, 4800, 90, 989.4, 989.4, 494.7, 66.9},
    Card{"H200 NVL", 141, 4800, 90, 835.5, 835.5, 417.5, 60},
    Card{"GH200 480GB", 96, 4000, 90, 989.4, 989.4, 494.7, 66.9},  // 480 GB are its CPU's
    Card{"B200", 180, 7700, 100, 2250, 2250, 1100, 75},
};

// The parts of a name by which cards are told apart.
struct CardName {
  std::string model;  // "4080super"
  std::string form;   // "sxm", "pcie", "nvl"; empty where it is not named
  int gigabytes = 0;  // 0: not named
};

// The letters and digits of a name in words, as small letters.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte)) {
      words.back() += static_cast<char>(std::tolower(byte));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

int gigabytes_of(const std::string& word) {
  int value = 0;
  const char* end = word.data() + word.size();
  const auto [rest, fault] = std::from_chars(word.data(), end, value);
  return fault == std::errc() && std::string_view(rest, end) == "gb" ? value : 0;
}

CardName parse(std::string_view name) {
  constexpr std::string_view kNoise[] = {"nvidia", "geforce", "tesla",      "quadro", "rtx",  "gtx",
                                         "gpu",    "hbm2",    "generation", "hbm2e",  "hbm3", "hbm3e"};
  CardName result;
  for (std::string word : words_of(name)) {
    for (const std::string_view maker : {"rtx", "gtx"}) {  // "rtx4080"
      if (word.size() > maker.size() && word.starts_with(maker)) word.erase(0, maker.size());
    }
    if (std::find(std::begin(kNoise), std::end(kNoise), word) != std::end(kNoise)) continue;
    const bool is_sxm = word.starts_with("sxm") && word.size() <= 4;
    if (is_sxm || word == "pcie" || word == "nvl") {
      result.form = is_sxm ? "sxm" : word;
    } else if (const int gigabytes = gigabytes_of(word)) {
      result.gigabytes = gigabytes;
    } else {
      result.model += word;
    }
  }
  return result;
}

bool matches(const CardName& asked, const Card& card) {
  const CardName own = parse(card.name);
  const bool same_form = asked.form.empty() || own.form.empty() || asked.form == own.form;
  const bool same_memory =
      asked.gigabytes == 0 || asked.gigabytes == card.gigabytes || asked.gigabytes == own.gigabytes;
  return asked.model == own.model && same_form && same_memory;
}

std::vector<std::string_view> nearest_names(const std::string& name) {
  constexpr size_t kHowMany = 3;
  const std::string model = parse(name).model;
  std::vector<std::pair<size_t, std::string_view>> names;
  for (const Card& card : kCards) names.emplace_back(config::edit_distance(model, parse(card.name).model), card.name);
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> nearest;
  for (size_t i = 0; i < kHowMany; ++i) nearest.push_back(names[i].second);
  return nearest;
}

}  // namespace

std::span<const Card> all_cards() { return kCards; }

std::optional<double> Card::peak_flops(Dtype dtype) const {
  const double tflops = dtype == Dtype::bfloat16  ? bfloat16
                        : dtype == Dtype::float16 ? float16
                        : dtype == Dtype::tf32    ? tf32
                        : dtype == Dtype::float32 ? float32
                                                  : 0;
  return tflops > 0 ? std::optional(tflops * 1e12) : std::nullopt;
}

DeviceInfo Card::describe() const {
  constexpr double kUsable = 15.0 / 16, kGigabyte = 1 << 30;
  return describe_gpu(at::Device(at::kCUDA, 0), std::string(name),
                      static_cast<int64_t>(kUsable * kGigabyte * gigabytes), capability / 10, capability % 10);
}

CardLink link_of(const DeviceInfo& gpu) {
  // Half of what data sheets give for both directions. Bridges, which join two or four cards, do not count.
  constexpr CardLink kThird{"NVLink 3", 300}, kFourth{"NVLink 4", 450}, kFifth{"NVLink 5", 900};
  constexpr std::pair<std::string_view, CardLink> kNvlink[] = {{"A100 40GB", kThird},    {"A100 80GB", kThird},
                                                               {"H100 SXM", kFourth},    {"H200", kFourth},
                                                               {"GH200 480GB", kFourth}, {"B200", kFifth}};
  constexpr CardLink kPcie3{"PCIe 3 x16", 15.75}, kPcie4{"PCIe 4 x16", 31.5}, kHalfPcie4{"PCIe 4 x8", 15.75},
      kPcie5{"PCIe 5 x16", 63};
  const Card* const card = find_card(gpu.name);
  for (const auto& [name, link] : kNvlink)
    if (card && card->name == name) return link;
  if (card && card->name.starts_with("RTX 4060")) return kHalfPcie4;
  return gpu.compute_major < 8 ? kPcie3 : gpu.compute_major < 9 ? kPcie4 : kPcie5;
}

const Card* find_card(std::string_view name) {
  const CardName asked = parse(name);
  const Card* found = nullptr;
  for (const Card& card : kCards) {
    if (!matches(asked, card)) continue;
    if (parse(card.name).form == asked.form) return &card;
    if (!found) found = &card;
  }
  return found;
}

const Card& require_card(const std::string& flag, const std::string& name) {
  if (const Card* card = find_card(name)) return *card;
  std::vector<std::string_view> all;
  for (const Card& card : kCards) all.push_back(card.name);
  throw Error(ExitCode::config, fmt::format("{}: unknown card '{}'; the nearest are {}; all: {}", flag, name,
                                            fmt::join(nearest_names(name), ", "), fmt::join(all, ", ")));
}

std::optional<double> DeviceInfo::peak_flops(Dtype dtype) const {
  const Card* card = find_card(name);
  return card ? card->peak_flops(dtype) : std::nullopt;
}

}  // namespace gpt::device
