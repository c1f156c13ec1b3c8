# What SPARSEREEL_PACKAGE adds to an installation: how it was made, and the licenses of all that is inside. No package contains libtorch.
#   wheel      app/wheel/build; looks for libtorch beside itself, in site-packages
#   tarball    cpack; runs from any folder
#   deb        cpack; depends on the libraries of the Debian that it is built on
if(NOT SPARSEREEL_PACKAGE MATCHES "^(wheel|tarball|deb)$")
  message(FATAL_ERROR "SPARSEREEL_PACKAGE=${SPARSEREEL_PACKAGE} is not wheel, tarball or deb.")
endif()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/package.json CONTENT "{\"kind\": \"${SPARSEREEL_PACKAGE}\", \"torch\": \"${SPARSEREEL_TORCH_VERSION}\"}\n")
install(FILES ${CMAKE_BINARY_DIR}/package.json DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsereel)
set(licenses ${CMAKE_INSTALL_DATADIR}/sparsereel/licenses)
install(FILES LICENSE DESTINATION ${licenses} RENAME sparsereel.txt)
# Compiled in, or copied beside the program: the texts of Debian's packages.
foreach(name CLI11=libcli11-dev nlohmann-json=nlohmann-json3-dev utf8proc=libutf8proc-dev SentencePiece=libsentencepiece-dev yaml-cpp=libyaml-cpp-dev
             cpp-httplib=libcpp-httplib-dev)
  string(REGEX MATCH "^[^=]+" title ${name})
  string(REGEX REPLACE "^.*=" "" debian ${name})
  install(FILES /usr/share/doc/${debian}/copyright DESTINATION ${licenses} RENAME ${title}.txt OPTIONAL)
endforeach()
file(GLOB torch_license ${SPARSEREEL_TORCH_DIR}/../torch-*.dist-info/licenses/LICENSE)
install(FILES ${torch_license} DESTINATION ${licenses} RENAME libtorch-headers.txt)
set(cuda cpu)
if(SPARSEREEL_HAS_CUDA)
  string(REGEX MATCH "^[0-9]+" cuda_major ${CMAKE_CUDA_COMPILER_VERSION})
  set(cuda cuda${cuda_major})
  cmake_path(GET CMAKE_CUDA_COMPILER PARENT_PATH toolkit)
  install(FILES ${toolkit}/../EULA.txt DESTINATION ${licenses} RENAME cudart.txt OPTIONAL)
endif()

if(SPARSEREEL_PACKAGE STREQUAL wheel)
  set_target_properties(sparsereel sparsereel_library PROPERTIES INSTALL_RPATH \$ORIGIN/../../torch/lib)
  foreach(property VERSION SOVERSION)  # unset: a wheel would hold a copy of the file in place of each link
    set_property(TARGET sparsereel_library PROPERTY ${property})
  endforeach()
  install(TARGETS sparsereel RUNTIME)
  return()
endif()

# bin/sparsereel is a script that finds libtorch and starts lib/sparsereel/sparsereel.
set_target_properties(sparsereel PROPERTIES INSTALL_RPATH \$ORIGIN)
set_target_properties(sparsereel_library PROPERTIES INSTALL_RPATH \$ORIGIN/sparsereel)
install(PROGRAMS app/package/sparsereel app/package/sparsereel-install-torch TYPE BIN)
set(CPACK_PACKAGE_VENDOR "the sparsereel developers")
set(CPACK_PACKAGE_CONTACT ${CPACK_PACKAGE_VENDOR})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Text to video with block-sparse attention")
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};sparsereel;program;/;${CMAKE_BINARY_DIR};sparsereel;library;/")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_SOURCE_DIR}/dist)
if(SPARSEREEL_PACKAGE STREQUAL tarball)
  install(TARGETS sparsereel RUNTIME_DEPENDENCIES PRE_INCLUDE_REGEXES "^lib(sentencepiece|yaml-cpp)\\." PRE_EXCLUDE_REGEXES .
    RUNTIME DESTINATION lib/sparsereel LIBRARY DESTINATION lib/sparsereel)
  set(CPACK_GENERATOR TGZ)
  set(CPACK_PACKAGE_FILE_NAME sparsereel-${PROJECT_VERSION}-linux-x86_64-${cuda})
else()
  install(TARGETS sparsereel RUNTIME DESTINATION lib/sparsereel)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${SPARSEREEL_TORCH_DIR}/lib)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS python3-venv)  # for sparsereel-install-torch
endif()
include(CPack)
