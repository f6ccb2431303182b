# generated/report_page.h: the pages that show runs, each in one piece. That of a run, src/report/html_report.html, is in three: its data
# belong between kReportHead, or kLiveHead where a server shows it, and kReportTail. That of many runs, src/board/board.html, is kBoardPage.
# Styles, scripts and dygraphs (MIT licence) are put in.
#
# dygraphs draws the charts: Debian's libjs-dygraphs, or any folder with dygraph.min.js and dygraph.min.css in GPT_DYGRAPHS_DIR.

if(CMAKE_SCRIPT_MODE_FILE)
  # A browser's developer tools would look for the source maps that dygraphs names.
  macro(put name file)
    file(READ "${file}" _text)
    string(REGEX REPLACE "/[/*]# sourceMappingURL=[^\n]*" "" _text "${_text}")
    string(REPLACE "@${name}@" "${_text}" PAGE "${PAGE}")
  endmacro()
  macro(put_shared)
    put(DYGRAPHS_STYLE "${DYGRAPHS_DIR}/dygraph.min.css")
    put(DYGRAPHS "${DYGRAPHS_DIR}/dygraph.min.js")
    put(STYLE "${SOURCE_DIR}/report/html_report.css")
    put(PARTS "${SOURCE_DIR}/report/run_pages.js")
  endmacro()
  # Only a page that a server shows asks for anything.
  set(_asks "connect-src 'self'; ")
  file(READ "${SOURCE_DIR}/report/html_report.html" PAGE)
  put_shared()
  put(SCRIPT "${SOURCE_DIR}/report/html_report.js")
  set(_tag [[<script type="application/json" id="run">]])
  string(FIND "${PAGE}" "${_tag}@RUN@" _at)
  string(LENGTH "${_tag}" _length)
  math(EXPR _at "${_at} + ${_length}")
  string(SUBSTRING "${PAGE}" 0 ${_at} _head)
  math(EXPR _at "${_at} + 5")
  string(SUBSTRING "${PAGE}" ${_at} -1 _tail)
  string(REPLACE "@CONNECT@" "${_asks}" _live_head "${_head}")
  string(REPLACE "@CONNECT@" "" _head "${_head}")
  file(READ "${SOURCE_DIR}/board/board.html" PAGE)
  put_shared()
  put(BOARD_STYLE "${SOURCE_DIR}/board/board.css")
  put(SCRIPT "${SOURCE_DIR}/board/board.js")
  string(REPLACE "@CONNECT@" "${_asks}" PAGE "${PAGE}")
  file(WRITE "${OUTPUT}" "// Written by cmake/ReportPage.cmake.\n#pragma once\n\n#include <string_view>\n\nnamespace gpt {\n\n"
    "inline constexpr std::string_view kReportDataTag = R\"page(${_tag})page\";\n"
    "inline constexpr std::string_view kReportHead = R\"page(${_head})page\";\n"
    "inline constexpr std::string_view kLiveHead = R\"page(${_live_head})page\";\n"
    "inline constexpr std::string_view kReportTail = R\"page(${_tail})page\";\n"
    "inline constexpr std::string_view kBoardPage = R\"page(${PAGE})page\";\n\n}  // namespace gpt\n")
  return()
endif()

find_path(GPT_DYGRAPHS_DIR dygraph.min.js PATHS /usr/share/javascript/dygraphs /usr/share/nodejs/dygraphs/dist
  DOC "folder with dygraph.min.js and dygraph.min.css (Debian: libjs-dygraphs)" REQUIRED NO_DEFAULT_PATH)
set(_output ${CMAKE_BINARY_DIR}/generated/report_page.h)
set(_source ${CMAKE_SOURCE_DIR}/src)
set(_parts report/html_report.html report/html_report.css report/html_report.js report/run_pages.js board/board.html board/board.css
  board/board.js)
list(TRANSFORM _parts PREPEND ${_source}/)
add_custom_command(OUTPUT ${_output}
  COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${_source} -DDYGRAPHS_DIR=${GPT_DYGRAPHS_DIR} -DOUTPUT=${_output} -P ${CMAKE_CURRENT_LIST_FILE}
  DEPENDS ${_parts} ${CMAKE_CURRENT_LIST_FILE} ${GPT_DYGRAPHS_DIR}/dygraph.min.js ${GPT_DYGRAPHS_DIR}/dygraph.min.css
  COMMENT "Putting the pages of runs together" VERBATIM)
add_custom_target(gpt_report_page DEPENDS ${_output})
