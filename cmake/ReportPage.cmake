# generated/report_page.h: the page of report.html in one piece, but for the run's data, which belong between kReportHead and
# kReportTail. It is src/report/html_report.html with html_report.css, html_report.js and dygraphs (MIT licence) put in.
#
# dygraphs draws the charts: Debian's libjs-dygraphs, or any folder with dygraph.min.js and dygraph.min.css in GPT_DYGRAPHS_DIR.

if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${SOURCE_DIR}/html_report.html" PAGE)
  # A browser's developer tools would look for the source maps that dygraphs names.
  macro(put name file)
    file(READ "${file}" _text)
    string(REGEX REPLACE "/[/*]# sourceMappingURL=[^\n]*" "" _text "${_text}")
    string(REPLACE "@${name}@" "${_text}" PAGE "${PAGE}")
  endmacro()
  put(DYGRAPHS_STYLE "${DYGRAPHS_DIR}/dygraph.min.css")
  put(DYGRAPHS "${DYGRAPHS_DIR}/dygraph.min.js")
  put(STYLE "${SOURCE_DIR}/html_report.css")
  put(SCRIPT "${SOURCE_DIR}/html_report.js")
  set(_tag [[<script type="application/json" id="run">]])
  string(FIND "${PAGE}" "${_tag}@RUN@" _at)
  string(LENGTH "${_tag}" _length)
  math(EXPR _at "${_at} + ${_length}")
  string(SUBSTRING "${PAGE}" 0 ${_at} _head)
  math(EXPR _at "${_at} + 5")
  string(SUBSTRING "${PAGE}" ${_at} -1 _tail)
  file(WRITE "${OUTPUT}" "// Written by cmake/ReportPage.cmake.\n#pragma once\n\n#include <string_view>\n\nnamespace gpt {\n\n"
    "inline constexpr std::string_view kReportDataTag = R\"page(${_tag})page\";\n"
    "inline constexpr std::string_view kReportHead = R\"page(${_head})page\";\n"
    "inline constexpr std::string_view kReportTail = R\"page(${_tail})page\";\n\n}  // namespace gpt\n")
  return()
endif()

find_path(GPT_DYGRAPHS_DIR dygraph.min.js PATHS /usr/share/javascript/dygraphs /usr/share/nodejs/dygraphs/dist
  DOC "folder with dygraph.min.js and dygraph.min.css (Debian: libjs-dygraphs)" REQUIRED NO_DEFAULT_PATH)
set(_output ${CMAKE_BINARY_DIR}/generated/report_page.h)
set(_source ${CMAKE_SOURCE_DIR}/src/report)
add_custom_command(OUTPUT ${_output}
  COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${_source} -DDYGRAPHS_DIR=${GPT_DYGRAPHS_DIR} -DOUTPUT=${_output} -P ${CMAKE_CURRENT_LIST_FILE}
  DEPENDS ${_source}/html_report.html ${_source}/html_report.css ${_source}/html_report.js ${CMAKE_CURRENT_LIST_FILE}
    ${GPT_DYGRAPHS_DIR}/dygraph.min.js ${GPT_DYGRAPHS_DIR}/dygraph.min.css
  COMMENT "Putting the page of report.html together" VERBATIM)
add_custom_target(gpt_report_page DEPENDS ${_output})
