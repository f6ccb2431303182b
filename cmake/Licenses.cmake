# What a package must say of the code in it that is not ours: LibTorch, NVIDIA's two libraries, LLVM's OpenMP, and all that is linked
# statically, as Debian's packages of them say it. An installation fails where one is missing.
set(_licenses share/gpt-train/licenses)

file(GLOB _wheels "${GPT_NVIDIA_DIR}/../torch-*.dist-info" "${GPT_NVIDIA_DIR}/../nvidia_cuda_runtime-*.dist-info"
  "${GPT_NVIDIA_DIR}/../nvidia_cuda_cupti-*.dist-info")
foreach(_wheel ${_wheels})
  get_filename_component(_name "${_wheel}" NAME)
  string(REGEX REPLACE "-.*" "" _name ${_name})
  file(GLOB _files "${_wheel}/licenses/*")
  install(FILES ${_files} DESTINATION ${_licenses}/${_name})
endforeach()

set(_packages libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libxxhash-dev zlib1g-dev libisal-dev libzstd-dev libedit-dev
  libncurses-dev libbsd-dev libprotozero-dev libjs-dygraphs)
if(GPT_OPENMP MATCHES "llvm-([0-9]+)")
  list(APPEND _packages libomp5-${CMAKE_MATCH_1})
endif()
foreach(_package ${_packages})
  install(FILES /usr/share/doc/${_package}/copyright DESTINATION ${_licenses} RENAME ${_package}.txt)
endforeach()
# What these texts refer to.
install(FILES /usr/share/common-licenses/Apache-2.0 DESTINATION ${_licenses})
