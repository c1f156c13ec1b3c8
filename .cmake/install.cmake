# cmake --install: the program and its data, libsparsereel with its one header and its CMake package. Both find libtorch where this build found it
# (their run path); -DCMAKE_INSTALL_RPATH=/path/to/torch/lib names another place.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
if(NOT CMAKE_INSTALL_RPATH)
  set_target_properties(sparsereel sparsereel_library PROPERTIES INSTALL_RPATH ${SPARSEREEL_TORCH_DIR}/lib)
endif()

install(TARGETS sparsereel RUNTIME)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsereel)
install(DIRECTORY assets/tiny DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsereel/assets)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/sparsereel)
install(TARGETS sparsereel_library EXPORT sparsereelTargets LIBRARY)
install(FILES models/sparsereel.h TYPE INCLUDE)
install(EXPORT sparsereelTargets NAMESPACE sparsereel:: DESTINATION ${package})
configure_package_config_file(.cmake/sparsereelConfig.cmake.in ${CMAKE_BINARY_DIR}/sparsereelConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/sparsereelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/sparsereelConfig.cmake ${CMAKE_BINARY_DIR}/sparsereelConfigVersion.cmake DESTINATION ${package})
