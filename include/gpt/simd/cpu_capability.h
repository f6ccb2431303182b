// Which version of a kernel that cmake/CpuKernels.cmake compiled several times runs here.
#pragma once

#include <string_view>

namespace gpt::ops::cpu {

// What ATen uses itself: the best that the processor has, or what the environment variable ATEN_CPU_CAPABILITY allows. In place of
// AVX512 it is AVX512_AMX, where a matrix unit multiplies bfloat16 values and the system lets this process use it, or AVX512_BF16, where
// dot products of such values gain something: there are other kernels for some operators.
enum class Capability { DEFAULT, AVX2, AVX512, AVX512_BF16, AVX512_AMX };
Capability capability();
// How it is chosen: from LibTorch's own choice, from how many times as fast dot products of bfloat16 are as float32 (0: there are none), and
// from whether tiles can be used, which is asked only where LibTorch uses AVX512: the system is asked for permission then.
Capability best_capability(std::string_view of_libtorch, double dot_product_gain, bool (*has_tiles)());

// For tests: within its life capability() is another one, which the processor must have.
class WithCapability {
 public:
  explicit WithCapability(Capability of_scope);
  ~WithCapability();
  WithCapability(const WithCapability&) = delete;
  WithCapability& operator=(const WithCapability&) = delete;
};

}  // namespace gpt::ops::cpu

// Declares a constant of the given type that every version defines in its `inline namespace CPU_CAPABILITY`, and the
// function `best_NAME()` that returns the one for this processor. Used in namespace gpt::ops::cpu.
#define GPT_CPU_KERNEL(Type, name) GPT_CPU_KERNEL_VERSIONS(Type, name, AVX512, AVX512)

// The same for a kernel that has versions for AVX512_BF16 and AVX512_AMX.
#define GPT_BFLOAT16_KERNEL(Type, name) \
  namespace AVX512_BF16 {               \
  extern const Type name;               \
  }                                     \
  namespace AVX512_AMX {                \
  extern const Type name;               \
  }                                     \
  GPT_CPU_KERNEL_VERSIONS(Type, name, AVX512_BF16, AVX512_AMX)

#define GPT_CPU_KERNEL_VERSIONS(Type, name, OfPairs, OfTiles) \
  namespace DEFAULT {                                         \
  extern const Type name;                                     \
  }                                                           \
  namespace AVX2 {                                            \
  extern const Type name;                                     \
  }                                                           \
  namespace AVX512 {                                          \
  extern const Type name;                                     \
  }                                                           \
  inline const Type& best_##name() {                          \
    switch (capability()) {                                   \
      case Capability::AVX512_AMX: return OfTiles::name;      \
      case Capability::AVX512_BF16: return OfPairs::name;     \
      case Capability::AVX512: return AVX512::name;           \
      case Capability::AVX2: return AVX2::name;               \
      case Capability::DEFAULT: break;                        \
    }                                                         \
    return DEFAULT::name;                                     \
  }
