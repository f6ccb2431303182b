# What every program writes about itself, its manual page and its completions for bash and zsh, goes where man and these shells look for
# it below PREFIX/share. So do the pages that --manual shows.

# gpt_install_help(program)
function(gpt_install_help program)
  set(_folder "${CMAKE_BINARY_DIR}/help")
  install(CODE "
    macro(write_help file)
      execute_process(COMMAND \"$<TARGET_FILE:${program}>\" \${ARGN} OUTPUT_VARIABLE _text COMMAND_ERROR_IS_FATAL ANY)
      file(WRITE \"${_folder}/\${file}\" \"\${_text}\")
    endmacro()
    write_help(bash/${program} --print-completions bash)
    write_help(zsh/_${program} --print-completions zsh)
    write_help(${program}.1 --print-man-page)
    set(_share \"\${CMAKE_INSTALL_PREFIX}/share\")
    file(INSTALL \"${_folder}/bash/${program}\" DESTINATION \"\${_share}/bash-completion/completions\")
    file(INSTALL \"${_folder}/zsh/_${program}\" DESTINATION \"\${_share}/zsh/site-functions\")
    file(INSTALL \"${_folder}/${program}.1\" DESTINATION \"\${_share}/man/man1\")")
endfunction()

file(GLOB _pages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*/README.md ${CMAKE_SOURCE_DIR}/configs/README.md
  ${CMAKE_SOURCE_DIR}/configs/recipes/README.md)
foreach(_page ${_pages})
  get_filename_component(_topic ${_page} DIRECTORY)
  get_filename_component(_topic ${_topic} NAME)
  install(FILES ${_page} DESTINATION share/gpt-train/manual RENAME ${_topic}.md)
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/README.md DESTINATION share/gpt-train/manual RENAME gpt-train.md)
