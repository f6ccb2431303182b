# The CUDA language, for -DGPT_CUDA=ON.
#
# nvcc is the one named by CMAKE_CUDA_COMPILER or CUDACXX, else the one scripts/setup.sh assembled from the nvidia
# wheels (it does so only if the system has no CUDA 13 toolkit), else the system's.
# LibTorch 2.11 is built with CUDA 13, and programs share its CUDA runtime, so the major version must be the same.

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  file(GLOB _wheel_toolkit "${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/nvidia/cu13")
  if(EXISTS "${_wheel_toolkit}/lib64" AND EXISTS "${_wheel_toolkit}/bin/nvcc")
    set(CMAKE_CUDA_COMPILER "${_wheel_toolkit}/bin/nvcc")
  else()
    find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
  endif()
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "75-real;80-real;86-real;89-real;90" CACHE STRING "CUDA architectures" FORCE)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13 OR CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 14)
  message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} is CUDA ${CMAKE_CUDA_COMPILER_VERSION}, but LibTorch 2.11 needs CUDA 13. "
    "Run ./scripts/setup.sh --cuda, or set -DCMAKE_CUDA_COMPILER=.../nvcc")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit REQUIRED)
