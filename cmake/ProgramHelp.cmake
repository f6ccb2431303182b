# The completions of bash and zsh, which every program writes itself, go where these shells look for them below PREFIX/share.

# gpt_install_completions(program)
function(gpt_install_completions program)
  set(_folder "${CMAKE_BINARY_DIR}/completions")
  install(CODE "
    foreach(_shell bash zsh)
      execute_process(COMMAND \"$<TARGET_FILE:${program}>\" --print-completions \${_shell}
        OUTPUT_VARIABLE _script COMMAND_ERROR_IS_FATAL ANY)
      file(WRITE \"${_folder}/\${_shell}/${program}\" \"\${_script}\")
    endforeach()
    file(INSTALL \"${_folder}/bash/${program}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/bash-completion/completions\")
    file(INSTALL \"${_folder}/zsh/${program}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/zsh/site-functions\" RENAME _${program})")
endfunction()
