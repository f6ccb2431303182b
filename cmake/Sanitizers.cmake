# -DGPT_SANITIZE=address (with undefined behaviour) or thread, for every target of ours.
# LibTorch itself is not instrumented: under `thread` only gpt_io and its tests, which use none of it, give clean reports.
set(GPT_SANITIZE "" CACHE STRING "empty, address or thread")
option(GPT_FUZZ "the fuzz targets as libFuzzer programs, under both sanitizers; needs clang" OFF)
set_property(CACHE GPT_SANITIZE PROPERTY STRINGS "" address thread)

if(GPT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "GPT_FUZZ needs clang, which has libFuzzer; CMAKE_CXX_COMPILER is ${CMAKE_CXX_COMPILER}")
  endif()
  set(GPT_SANITIZE address)
  target_compile_options(gpt_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(GPT_SANITIZE STREQUAL "address")
  set(_sanitizers address,undefined)
elseif(GPT_SANITIZE STREQUAL "thread")
  set(_sanitizers thread)
elseif(GPT_SANITIZE)
  message(FATAL_ERROR "GPT_SANITIZE is '${GPT_SANITIZE}'; it must be empty, address or thread")
endif()
if(GPT_SANITIZE)
  # In instrumented templates GCC reports uninitialized variables (std::regex) and indices out of bounds (ATen's vectors) where
  # there are none.
  target_compile_options(gpt_flags INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized;-Wno-array-bounds>"
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${_sanitizers};-fno-omit-frame-pointer;-fno-sanitize-recover=all;-g1>")
  target_link_options(gpt_flags INTERFACE -fsanitize=${_sanitizers})
endif()
