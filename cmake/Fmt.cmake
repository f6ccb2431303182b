# fmt as the compiled library: as headers alone it doubles the time that most of our sources take to compile.
#
# LibTorch's headers come with a fmt of their own, of another version. A folder that holds nothing but the right one goes before
# theirs.

find_package(fmt REQUIRED)
find_path(_fmt_headers fmt/format.h REQUIRED NO_CACHE)
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/include")
file(CREATE_LINK "${_fmt_headers}/fmt" "${CMAKE_BINARY_DIR}/include/fmt" SYMBOLIC)
target_include_directories(gpt_flags SYSTEM BEFORE INTERFACE "${CMAKE_BINARY_DIR}/include")

get_target_property(_library fmt::fmt LOCATION)
gpt_bring_if_shared("${_library}")
