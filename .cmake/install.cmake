# Sets what cmake --install installs: the program and its data, libsparsereel, and the attention library. Component "attention" is the attention library alone.
# One CMake package, sparsereel, offers both libraries. The run path of the program and libsparsereel is the folder of the libtorch that this build uses;
# -DCMAKE_INSTALL_RPATH=/path/to/torch/lib sets another.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/sparsereel)

# sparsereel_build_missing(component targets...): if one of the targets is missing when the component is installed, builds them. app/quickstart builds only the
# program.
function(sparsereel_build_missing component)
  list(TRANSFORM ARGN REPLACE "(.+)" "NOT EXISTS \"$<TARGET_FILE:\\1>\"" OUTPUT_VARIABLE missing)
  list(JOIN missing " OR " missing)
  list(JOIN ARGN " " targets)
  install(CODE "if(${missing})
  execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${CMAKE_BINARY_DIR}\" --target ${targets} COMMAND_ERROR_IS_FATAL ANY)
endif()" COMPONENT ${component})
endfunction()

sparsereel_build_missing(attention sparsereel_attention_library sparsereel_attention_archive)
install(TARGETS sparsereel_attention_library EXPORT sparsereel_attention LIBRARY COMPONENT attention)
install(TARGETS sparsereel_attention_archive EXPORT sparsereel_attention_static ARCHIVE COMPONENT attention)
install(FILES attention/include/sparsereel/attention.h attention/include/sparsereel/attention.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sparsereel
  COMPONENT attention)
foreach(library attention attention_static)
  install(EXPORT sparsereel_${library} FILE sparsereel_${library}.cmake NAMESPACE sparsereel:: DESTINATION ${package} COMPONENT attention)
endforeach()
configure_package_config_file(.cmake/sparsereelConfig.cmake.in ${CMAKE_BINARY_DIR}/sparsereelConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/sparsereelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/sparsereelConfig.cmake ${CMAKE_BINARY_DIR}/sparsereelConfigVersion.cmake DESTINATION ${package} COMPONENT attention)
if(NOT SPARSEREEL_TORCH)
  return()
endif()

if(NOT CMAKE_INSTALL_RPATH)
  set_target_properties(sparsereel sparsereel_library PROPERTIES INSTALL_RPATH ${SPARSEREEL_TORCH_DIR}/lib)
endif()
sparsereel_build_missing(Unspecified sparsereel sparsereel_library)
install(TARGETS sparsereel RUNTIME)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsereel)
install(DIRECTORY assets/tiny DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsereel/assets)
# The program itself prints the manual and the shells' completions.
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

install(TARGETS sparsereel_library EXPORT sparsereel_video LIBRARY)
install(FILES models/sparsereel.h TYPE INCLUDE)
install(EXPORT sparsereel_video FILE sparsereel_video.cmake NAMESPACE sparsereel:: DESTINATION ${package})
