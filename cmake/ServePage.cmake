# generated/serve_page.h: the pages that gpt-serve shows at /, which are src/serve/page.html and chat_page.html with page.css and page.js
# put in.
set(_source ${CMAKE_SOURCE_DIR}/src/serve)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${_source}/page.html ${_source}/chat_page.html ${_source}/page.css ${_source}/page.js)
file(READ ${_source}/page.css _style)
file(READ ${_source}/page.js _script)
foreach(_page page chat_page)
  file(READ ${_source}/${_page}.html _text)
  string(REPLACE "@STYLE@\n" "${_style}" _text "${_text}")
  string(REPLACE "@SCRIPT@\n" "${_script}" GPT_SERVE_${_page} "${_text}")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/serve_page.h @ONLY CONTENT [[
// Written by cmake/ServePage.cmake.
#pragma once

#include <string_view>

namespace gpt::serve {

inline constexpr std::string_view kServePage = R"page(@GPT_SERVE_page@)page";
inline constexpr std::string_view kServeChatPage = R"page(@GPT_SERVE_chat_page@)page";

}  // namespace gpt::serve
]])
