# One interface target for the flags every target of ours is built with.
add_library(gpt_flags INTERFACE)
target_compile_features(gpt_flags INTERFACE cxx_std_20)
# -Wno-restrict: GCC 12 reports impossible overlaps in inlined std::string concatenation. -Wno-subobject-linkage: it takes the sources
# that CompileTogether.cmake puts together for headers.
set(_warnings -Wall -Wextra -Werror -Wno-sign-compare)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND _warnings -Wno-restrict -Wno-subobject-linkage)
endif()
list(JOIN _warnings "," _host_warnings)
target_compile_options(gpt_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${_warnings};-fno-math-errno>"
  # -lineinfo costs nothing at run time and lets a profiler name the line.
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${_host_warnings};--expt-relaxed-constexpr;--extended-lambda;-lineinfo>")
# Cheap bounds checks in the standard library, in release builds too.
target_compile_definitions(gpt_flags INTERFACE _GLIBCXX_ASSERTIONS SPDLOG_FMT_EXTERNAL)
