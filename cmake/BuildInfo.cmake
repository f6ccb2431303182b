# generated/build_info.h: what --version prints. It is updated at every build, so that the commit is the one that was
# compiled, not the one that was configured; only src/core/version.cpp includes it.
#
#   GPT_VERSION "0.1.812" (the number of commits comes last, so that pip takes a later wheel for a newer one; 0.1.0 where it is not known)
#   GPT_COMMIT "abc1234" (followed by "-dirty", or "unknown")  GPT_TORCH_VERSION "2.11.0"  GPT_CUDA_VERSION "13.0" or ""

if(CMAKE_SCRIPT_MODE_FILE)
  execute_process(COMMAND git describe --always --dirty --abbrev=7 --exclude=* WORKING_DIRECTORY "${SOURCE_DIR}"
    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT COMMIT)
    set(COMMIT unknown)
  endif()
  execute_process(COMMAND git rev-list --count HEAD WORKING_DIRECTORY "${SOURCE_DIR}"
    OUTPUT_VARIABLE COUNT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND git rev-parse --is-shallow-repository WORKING_DIRECTORY "${SOURCE_DIR}"
    OUTPUT_VARIABLE IS_SHALLOW OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(COUNT AND IS_SHALLOW STREQUAL "false")
    string(REGEX REPLACE "[0-9]+$" "${COUNT}" VERSION "${VERSION}")
  endif()
  file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT [[
#pragma once
#define GPT_VERSION "@VERSION@"
#define GPT_COMMIT "@COMMIT@"
#define GPT_TORCH_VERSION "@TORCH_VERSION@"
#define GPT_CUDA_VERSION "@CUDA_VERSION@"
]] @ONLY)
  return()
endif()

if(GPT_CUDA)
  set(_cuda_version "${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR}")
endif()
add_custom_target(gpt_build_info
  COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DOUTPUT=${CMAKE_BINARY_DIR}/generated/build_info.h
    -DVERSION=${PROJECT_VERSION} -DTORCH_VERSION=${GPT_TORCH_VERSION} -DCUDA_VERSION=${_cuda_version} -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/build_info.h
  COMMENT "Looking up the commit" VERBATIM)
