# One interface target for the flags every target of ours is built with.
add_library(gpt_flags INTERFACE)
target_compile_features(gpt_flags INTERFACE cxx_std_20)
target_compile_options(gpt_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-Wno-sign-compare;-fno-math-errno>)
# Cheap bounds checks in the standard library, in release builds too.
target_compile_definitions(gpt_flags INTERFACE _GLIBCXX_ASSERTIONS FMT_HEADER_ONLY SPDLOG_FMT_EXTERNAL)
