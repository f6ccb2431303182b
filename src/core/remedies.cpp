#include "gpt/core/remedies.h"

#include <fstream>
#include <string>

#include "gpt/core/installed_data.h"

namespace gpt {
namespace {

constexpr Remedies kCheckout = {
    .data = "run ./scripts/get_data.sh in the checkout",
    .cuda = "run ./scripts/setup.sh --cuda in the checkout",
    .libtorch = "unset LD_PRELOAD, or run ./scripts/setup.sh in the checkout, which builds again",
};
constexpr const char* kCudaOfPackages =
    "packages are for CPUs, so build it from source: ./scripts/setup.sh --cuda in a checkout";
constexpr Remedies kArchive = {
    .data = "unpack the archive of gpt-train again",
    .cuda = kCudaOfPackages,
    .libtorch = "unset LD_PRELOAD, or unpack the archive of gpt-train again",
};
constexpr Remedies kWheel = {
    .data = "run pip install --force-reinstall --no-deps with gpt-train's wheel",
    .cuda = kCudaOfPackages,
    .libtorch = "install that version of torch with pip where gpt-train is installed",
};

const Remedies& find_remedies() {
  const std::string path = installed_file("package");
  if (path.empty()) return kCheckout;
  std::string kind;
  std::ifstream(path) >> kind;
  return kind == "wheel" ? kWheel : kArchive;
}

}  // namespace

const Remedies& remedies() {
  static const Remedies& found = find_remedies();
  return found;
}

}  // namespace gpt
