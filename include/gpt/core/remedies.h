// What people can do about what is missing or wrong. It depends on how they came to have this program: they built it in a checkout
// (and may have installed it from there), or they have a package of scripts/package.sh, which the file
// PREFIX/share/gpt-train/package says.
#pragma once

#include <string_view>

namespace gpt {

struct Remedies {
  std::string_view data;      // for a missing corpus or vocabulary
  std::string_view cuda;      // for a program without CUDA
  std::string_view libtorch;  // for another LibTorch than the one that it was compiled for
};

const Remedies& remedies();

}  // namespace gpt
