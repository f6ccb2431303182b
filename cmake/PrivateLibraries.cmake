# Shared libraries that the programs bring with them, because Debian has no static ones: copies in lib/gpt-train beside bin/.
set(GPT_PRIVATE_LIB_DIR lib/gpt-train)

# gpt_bring_library(file name): copies the file, or what it is a link to, under the name that the loader will ask for.
function(gpt_bring_library file name)
  file(REAL_PATH "${file}" _library)
  set(_copy "${CMAKE_BINARY_DIR}/${GPT_PRIVATE_LIB_DIR}/${name}")
  configure_file("${_library}" "${_copy}" COPYONLY)
  install(FILES "${_copy}" DESTINATION ${GPT_PRIVATE_LIB_DIR})
endfunction()

# gpt_bring_if_shared(file): the same of a library that may be static, under its own name: libfmt.so.9.1.0 is asked for as libfmt.so.9.
function(gpt_bring_if_shared file)
  file(REAL_PATH "${file}" _library)
  if(NOT _library MATCHES "\\.so")
    return()
  endif()
  get_filename_component(_name "${_library}" NAME)
  string(REGEX REPLACE "(\\.so\\.[0-9]+).*" "\\1" _name "${_name}")
  gpt_bring_library("${_library}" ${_name})
endfunction()
