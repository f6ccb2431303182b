# Sources in vector instructions: each is compiled once for every kind of processor, with ATen's own macros and flags, so that
# one program runs on every x86-64 and uses what it finds there. include/gpt/simd/cpu_capability.h chooses at run time.
#
# Such a source includes <ATen/cpu/vec/vec.h>, unless its vectors are the compiler's own, and keeps all it defines inside `inline namespace
# CPU_CAPABILITY`. What it includes besides is small: an inline function that the compiler leaves out of line here may be the one that the
# linker keeps for the whole program.

set(GPT_CPU_FLAGS_DEFAULT "")
set(GPT_CPU_FLAGS_AVX2 -mavx2 -mfma -mf16c)
set(GPT_CPU_FLAGS_AVX512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
set(GPT_CPU_FLAGS_AVX512_BF16 ${GPT_CPU_FLAGS_AVX512} -mavx512bf16)
set(GPT_CPU_FLAGS_AVX512_AMX ${GPT_CPU_FLAGS_AVX512_BF16} -mamx-tile -mamx-bf16)
set(GPT_CPU_FLAGS_AVX512_EMULATED ${GPT_CPU_FLAGS_AVX512_BF16} -DGPT_EMULATED_TILES) # of AVX512_AMX, for tests
set(GPT_CPU_FLAGS_AVX512_VNNI ${GPT_CPU_FLAGS_AVX512} -mavx512vnni)

# gpt_cpu_kernels(target CAPABILITIES capability... SOURCES source...): adds the sources, compiled for each of the kinds of
# processors, to the target, which uses LibTorch.
function(gpt_cpu_kernels target)
  cmake_parse_arguments(_kernels "" "" "CAPABILITIES;SOURCES" ${ARGN})
  foreach(_capability ${_kernels_CAPABILITIES})
    set(_objects ${target}_cpu_${_capability})
    string(REGEX REPLACE "_.*" "" _vectors ${_capability}) # ATen's name of its vectors
    add_library(${_objects} OBJECT ${_kernels_SOURCES})
    target_link_libraries(${_objects} PRIVATE gpt_flags ${GPT_TORCH_TARGET})
    target_include_directories(${_objects} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
    target_compile_definitions(${_objects} PRIVATE CPU_CAPABILITY=${_capability}
      CPU_CAPABILITY_${_vectors})
    # -fno-trapping-math: a choice between two floats may compute both, without which loops that choose are not vectorized.
    # GCC 12 reports the undefined operands of its own AVX-512 intrinsics, and an ABI of before its version 4.6.
    target_compile_options(${_objects} PRIVATE ${GPT_CPU_FLAGS_${_capability}} -fno-trapping-math
      "$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized;-Wno-psabi>")
    # Reading ATen's vectors takes as long as compiling most of the sources.
    list(LENGTH _kernels_SOURCES _count)
    if(_count GREATER 3)
      target_precompile_headers(${_objects} PRIVATE <ATen/cpu/vec/vec.h>)
    endif()
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${_objects}>)
  endforeach()
endfunction()
