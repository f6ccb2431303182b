#include <array>
#include <cctype>
#include <string_view>

#include "gpt/device/device.h"

namespace gpt {
namespace {

// Dense TFLOP/s (half of the figures that NVIDIA gives "with sparsity") with float32 accumulation, from the data sheets
// of the data-centre and workstation cards and the GA102, Ada and Blackwell architecture papers of the GeForce cards.
// float32 is the rate outside the tensor cores. 0: the card does not have the format.
struct Peak {
  std::string_view name;
  double bfloat16, float16, tf32, float32;
};

// A variant precedes the card whose name is a prefix of its own.
constexpr std::array kPeaks{
    Peak{"B200", 2250, 2250, 1100, 75},
    Peak{"GH200", 989.4, 989.4, 494.7, 66.9},
    Peak{"H200 NVL", 835.5, 835.5, 417.5, 60},
    Peak{"H200", 989.4, 989.4, 494.7, 66.9},
    Peak{"H100 PCIe", 756, 756, 378, 51.2},
    Peak{"H100 NVL", 835.5, 835.5, 417.5, 60},
    Peak{"H100", 989.4, 989.4, 494.7, 66.9},
    Peak{"A100", 312, 312, 156, 19.5},
    Peak{"A40", 149.7, 149.7, 74.8, 37.4},
    Peak{"A30", 165, 165, 82, 10.3},
    Peak{"A10", 125, 125, 62.5, 31.2},
    Peak{"L40S", 362, 362, 183, 91.6},
    Peak{"L40", 181, 181, 90.5, 90.5},
    Peak{"L4", 121, 121, 60, 30.3},
    Peak{"T4", 0, 65, 0, 8.1},
    Peak{"V100-PCIE", 0, 112, 0, 14},
    Peak{"V100-SXM2", 0, 125, 0, 15.7},
    Peak{"RTX 6000 Ada Generation", 364.2, 364.2, 182.1, 91.1},
    Peak{"RTX A6000", 154.8, 154.8, 77.4, 38.7},
    Peak{"GeForce RTX 5090", 209.5, 209.5, 104.8, 104.8},
    Peak{"GeForce RTX 5080", 112.6, 112.6, 56.3, 56.3},
    Peak{"GeForce RTX 4090", 165.2, 165.2, 82.6, 82.6},
    Peak{"GeForce RTX 4080", 97.5, 97.5, 48.7, 48.7},
    Peak{"GeForce RTX 4070 Ti", 80.2, 80.2, 40.1, 40.1},
    Peak{"GeForce RTX 4070", 58.3, 58.3, 29.1, 29.1},
    Peak{"GeForce RTX 3090", 71.2, 71.2, 35.6, 35.6},
    Peak{"GeForce RTX 3080", 59.5, 59.5, 29.8, 29.8},
    Peak{"GeForce RTX 3070", 40.6, 40.6, 20.3, 20.3},
};

void remove_prefix(std::string_view& text, std::string_view prefix) {
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
}

// "A100" is "A100-SXM4-80GB" too, but "A10" is not "A10G"; a "GeForce RTX 4080" is not its SUPER or its laptop version.
bool matches(std::string_view device, std::string_view name) {
  if (!device.starts_with(name)) return false;
  if (device.size() == name.size()) return true;
  const bool exact = name.find("RTX") != std::string_view::npos;
  return !exact && !std::isalnum(static_cast<unsigned char>(device[name.size()]));
}

const Peak* find_peak(std::string_view device) {
  remove_prefix(device, "NVIDIA ");
  remove_prefix(device, "Tesla ");
  if (device.find("MIG") != std::string_view::npos) return nullptr;  // a slice of a card
  for (const Peak& peak : kPeaks) {
    if (matches(device, peak.name)) return &peak;
  }
  return nullptr;
}

}  // namespace

std::optional<double> DeviceInfo::peak_flops(Dtype dtype) const {
  const Peak* peak = device.is_cuda() ? find_peak(name) : nullptr;
  if (!peak) return std::nullopt;
  const double tflops = dtype == Dtype::bfloat16  ? peak->bfloat16
                        : dtype == Dtype::float16 ? peak->float16
                        : dtype == Dtype::tf32    ? peak->tf32
                        : dtype == Dtype::float32 ? peak->float32
                                                  : 0;
  return tflops > 0 ? std::optional(tflops * 1e12) : std::nullopt;
}

}  // namespace gpt
