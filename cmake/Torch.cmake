# LibTorch from the torch wheel, as imported targets of our own: find_package(Torch) refuses a CUDA wheel on a machine
# without a CUDA toolkit, and we want CPU-only programs from that same wheel.
#
#   torch::cpu   libc10 + libtorch_cpu: all that a CPU program needs
#   torch::cuda  the above + libc10_cuda + libtorch_cuda (only in a CUDA build)
#
# GPT_TORCH_DIR is the wheel's unpacked `torch` folder; the nvidia wheels are beside it.

set(GPT_TORCH_DIR "" CACHE PATH "the `torch` folder of the unpacked torch wheel (holds include/ and lib/)")
if(NOT GPT_TORCH_DIR)
  file(GLOB _found "${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch")
  list(POP_FRONT _found _first)
  set(GPT_TORCH_DIR "${_first}" CACHE PATH "" FORCE)
endif()
if(NOT EXISTS "${GPT_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch not found in '${GPT_TORCH_DIR}'. Run ./scripts/setup.sh, or set -DGPT_TORCH_DIR=.../site-packages/torch")
endif()
file(READ "${GPT_TORCH_DIR}/version.py" _version_py)
string(REGEX MATCH "__version__ = '([^'+]+)" _ "${_version_py}")
set(GPT_TORCH_VERSION "${CMAKE_MATCH_1}")
cmake_path(GET GPT_TORCH_DIR PARENT_PATH _site_packages)
set(GPT_NVIDIA_DIR "${_site_packages}/nvidia")

# Build and installed programs look in the same places, so that `cmake --install` is a plain copy. --disable-new-dtags makes that an
# RPATH, which the loader follows before LD_LIBRARY_PATH: an environment of conda or CUDA may name other libraries of these names there.
add_link_options(LINKER:--disable-new-dtags)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${GPT_PRIVATE_LIB_DIR}")
option(GPT_RELOCATABLE "LibTorch beside the programs, or in the Python that they are installed in (scripts/package.sh)" OFF)
if(GPT_RELOCATABLE)
  foreach(_python 3.10 3.11 3.12 3.13 3.14)
    foreach(_packages lib/python${_python}/site-packages lib64/python${_python}/site-packages lib/python${_python}/dist-packages)
      list(APPEND CMAKE_INSTALL_RPATH "$ORIGIN/../${_packages}/torch/lib")
    endforeach()
  endforeach()
  foreach(_name libtorch_cpu.so libc10.so)
    gpt_bring_library("${GPT_TORCH_DIR}/lib/${_name}" ${_name})
  endforeach()
  if(NOT GPT_OPENMP)
    gpt_bring_library("${GPT_TORCH_DIR}/lib/libgomp.so.1" libgomp.so.1)
  endif()
  # The wheel's libtorch_cpu.so is not loaded without these two, although nothing that runs on a CPU calls them.
  file(GLOB _asked_for "${GPT_NVIDIA_DIR}/*/lib/libcudart.so.*" "${GPT_NVIDIA_DIR}/*/lib/libcupti.so.*")
  foreach(_library ${_asked_for})
    get_filename_component(_name "${_library}" NAME)
    gpt_bring_library("${_library}" ${_name})
  endforeach()
else()
  list(APPEND CMAKE_INSTALL_RPATH "${GPT_TORCH_DIR}/lib" "${GPT_NVIDIA_DIR}/cu13/lib" "${GPT_NVIDIA_DIR}/cudnn/lib")
endif()

find_package(Threads REQUIRED)
add_library(torch::cpu INTERFACE IMPORTED)
target_include_directories(torch::cpu SYSTEM INTERFACE "${GPT_TORCH_DIR}/include" "${GPT_TORCH_DIR}/include/torch/csrc/api/include")
# --no-as-needed: our code uses no symbol of OpenMP, but it must be loaded before LibTorch asks for it (OpenMP.cmake).
target_link_libraries(torch::cpu INTERFACE "-Wl,--no-as-needed,${GPT_TORCH_DIR}/lib/libgomp.so.1,--as-needed"
  "${GPT_TORCH_DIR}/lib/libtorch_cpu.so" "${GPT_TORCH_DIR}/lib/libc10.so" Threads::Threads)
# The wheel's libraries find libcudart and libcupti by their own RPATH, which the linker does not read.
file(GLOB _nvidia_lib_dirs "${GPT_NVIDIA_DIR}/*/lib")
foreach(_dir ${_nvidia_lib_dirs})
  target_link_options(torch::cpu INTERFACE "LINKER:-rpath-link,${_dir}")
endforeach()

if(GPT_CUDA)
  file(GLOB _nvidia_include_dirs "${GPT_NVIDIA_DIR}/cudnn/include" "${GPT_NVIDIA_DIR}/nccl/include")
  # The cuBLASLt that libtorch_cuda loads anyway. A toolkit need not have its header, but the wheel has.
  find_path(GPT_CUBLASLT_INCLUDE_DIR cublasLt.h PATHS ${CUDAToolkit_INCLUDE_DIRS} "${GPT_NVIDIA_DIR}/cu13/include"
    NO_DEFAULT_PATH REQUIRED)
  mark_as_advanced(GPT_CUBLASLT_INCLUDE_DIR)
  add_library(torch::cublaslt INTERFACE IMPORTED)
  target_include_directories(torch::cublaslt SYSTEM INTERFACE "${GPT_CUBLASLT_INCLUDE_DIR}")
  target_link_libraries(torch::cublaslt INTERFACE "${GPT_NVIDIA_DIR}/cu13/lib/libcublasLt.so.13")
  # The cuDNN that libtorch_cuda loads anyway, for src/ops/cudnn_attention.cpp. Its headers contain more than we use, which needs NVRTC.
  find_path(GPT_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h PATHS "${_site_packages}/include" NO_DEFAULT_PATH REQUIRED)
  mark_as_advanced(GPT_CUDNN_FRONTEND_INCLUDE_DIR)
  add_library(torch::cuda INTERFACE IMPORTED)
  target_compile_definitions(torch::cuda INTERFACE GPT_CUDA=1)
  target_include_directories(torch::cuda SYSTEM INTERFACE ${_nvidia_include_dirs})
  # --no-as-needed: libtorch_cuda registers its kernels from static initialisers, and our code uses no symbol of it.
  target_link_libraries(torch::cuda INTERFACE torch::cpu
    "-Wl,--no-as-needed,${GPT_TORCH_DIR}/lib/libtorch_cuda.so,${GPT_TORCH_DIR}/lib/libc10_cuda.so,--as-needed" CUDA::cudart torch::cublaslt
    "${GPT_NVIDIA_DIR}/cudnn/lib/libcudnn.so.9" "${GPT_NVIDIA_DIR}/cu13/lib/libnvrtc.so.13")
  set(GPT_TORCH_TARGET torch::cuda)
else()
  set(GPT_TORCH_TARGET torch::cpu)
endif()
