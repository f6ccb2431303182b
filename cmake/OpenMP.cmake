# LLVM's OpenMP runtime, in place of the libgomp that the torch wheel brings: its threads spin for as long as we say before
# they sleep, where libgomp's either spin for milliseconds or sleep at once (OPT-7).
#
# It also has libgomp's interface. LibTorch asks for "libgomp.so.1", so a copy under that name is put into lib/gpt-train
# beside bin/, the programs look there before LibTorch's own folder, and the loader gives LibTorch the one already loaded.
# Without the copy LibTorch's own is found, and everything still works.

file(GLOB _runtimes /usr/lib/llvm-*/lib/libomp.so.5)
list(SORT _runtimes COMPARE NATURAL ORDER DESCENDING)
list(APPEND _runtimes "")
list(GET _runtimes 0 _runtime)
set(GPT_OPENMP "${_runtime}" CACHE FILEPATH "LLVM's libomp.so.5; empty = LibTorch's libgomp")

if(GPT_OPENMP)
  gpt_bring_library("${GPT_OPENMP}" libgomp.so.1)
else()
  message(WARNING "LLVM's OpenMP (libomp.so.5) was not found; with LibTorch's libgomp, small models train more slowly on a CPU. "
    "Install libomp-dev, or set -DGPT_OPENMP=.../libomp.so.5")
endif()
