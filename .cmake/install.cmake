# cmake --install: the program and its data, libsparsereel with its one header and its CMake package. Both find libtorch where this build found it
# (their run path); -DCMAKE_INSTALL_RPATH=/path/to/torch/lib names another place.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
if(NOT CMAKE_INSTALL_RPATH)
  set_target_properties(sparsereel sparsereel_library PROPERTIES INSTALL_RPATH ${SPARSEREEL_TORCH_DIR}/lib)
endif()

# app/quickstart builds the program alone: the library is made when it is first asked for.
install(CODE "if(NOT EXISTS \"$<TARGET_FILE:sparsereel>\" OR NOT EXISTS \"$<TARGET_FILE:sparsereel_library>\")
  execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${CMAKE_BINARY_DIR}\" --target sparsereel sparsereel_library COMMAND_ERROR_IS_FATAL ANY)
endif()")
install(TARGETS sparsereel RUNTIME)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsereel)
install(DIRECTORY assets/tiny DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsereel/assets)
# The manual and the shells' completions are printed by the program itself.
install(CODE "set(program \"${CMAKE_BINARY_DIR}/sparsereel\")
set(share \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")")
install(CODE [=[
foreach(page "reference --format man|man/man1/sparsereel.1" "completion bash|bash-completion/completions/sparsereel"
             "completion zsh|zsh/site-functions/_sparsereel" "completion fish|fish/vendor_completions.d/sparsereel.fish")
  string(REPLACE "|" ";" page "${page}")
  list(GET page 0 arguments)
  list(GET page 1 path)
  separate_arguments(arguments)
  execute_process(COMMAND "${program}" ${arguments} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE "$ENV{DESTDIR}${share}/${path}" "${text}")
  message(STATUS "Installing: $ENV{DESTDIR}${share}/${path}")
endforeach()
]=])

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/sparsereel)
install(TARGETS sparsereel_library EXPORT sparsereelTargets LIBRARY)
install(FILES models/sparsereel.h TYPE INCLUDE)
install(EXPORT sparsereelTargets NAMESPACE sparsereel:: DESTINATION ${package})
configure_package_config_file(.cmake/sparsereelConfig.cmake.in ${CMAKE_BINARY_DIR}/sparsereelConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/sparsereelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/sparsereelConfig.cmake ${CMAKE_BINARY_DIR}/sparsereelConfigVersion.cmake DESTINATION ${package})
