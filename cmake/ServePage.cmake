# generated/serve_page.h: the page that gpt-serve shows at /, which is src/serve/page.html.
set(_page ${CMAKE_SOURCE_DIR}/src/serve/page.html)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_page})
file(READ ${_page} GPT_SERVE_PAGE)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/serve_page.h @ONLY CONTENT [[
// Written by cmake/ServePage.cmake.
#pragma once

#include <string_view>

namespace gpt::serve {

inline constexpr std::string_view kServePage = R"page(@GPT_SERVE_PAGE@)page";

}  // namespace gpt::serve
]])
