# Adds to an installation what a package (SPARSEREEL_PACKAGE) needs: a file that says how it was made, and the licenses of everything inside. No package
# contains libtorch. The packages are:
#   wheel      app/wheel/build; looks for libtorch and for the library of kernels beside itself, in site-packages
#   tarball    cpack; runs from any folder
#   deb        cpack; depends on the libraries of the Debian that it is built on
if(NOT SPARSEREEL_PACKAGE MATCHES "^(wheel|tarball|deb)$")
  message(FATAL_ERROR "SPARSEREEL_PACKAGE=${SPARSEREEL_PACKAGE} is not wheel, tarball or deb.")
endif()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/package.json CONTENT
  "{\"kind\": \"${SPARSEREEL_PACKAGE}\", \"version\": \"${PROJECT_VERSION}\", \"torch\": \"${SPARSEREEL_TORCH_VERSION}\", \"kernels\": \"${SPARSEREEL_KERNEL_LIBRARY}\"}\n")
install(FILES ${CMAKE_BINARY_DIR}/package.json DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsereel)
set(licenses ${CMAKE_INSTALL_DATADIR}/sparsereel/licenses)
install(FILES LICENSE DESTINATION ${licenses} RENAME sparsereel.txt)
set(library_of_serve)
if(SPARSEREEL_HAS_SERVE AND SPARSEREEL_HTTPLIB)
  install(FILES ${SPARSEREEL_HTTPLIB}/LICENSE DESTINATION ${licenses} RENAME cpp-httplib.txt)
elseif(SPARSEREEL_HAS_SERVE)
  set(library_of_serve cpp-httplib=libcpp-httplib-dev)
endif()
# The licenses of libraries that are compiled into the program or copied beside it. The texts come from Debian's packages.
foreach(name CLI11=libcli11-dev nlohmann-json=nlohmann-json3-dev utf8proc=libutf8proc-dev SentencePiece=libsentencepiece-dev yaml-cpp=libyaml-cpp-dev
             ${library_of_serve})
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
  if(NOT SPARSEREEL_PACKAGE STREQUAL "wheel")
    install(TARGETS sparsereel_kernels LIBRARY DESTINATION lib/sparsereel)
    install(FILES ${SPARSEREEL_CUDA_LICENSE} DESTINATION ${licenses} RENAME cudart.txt)
  endif()
endif()

if(SPARSEREEL_PACKAGE STREQUAL "wheel")
  set_target_properties(sparsereel sparsereel_library PROPERTIES INSTALL_RPATH "\$ORIGIN/../../torch/lib;\$ORIGIN/../../sparsereel/lib")
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
if(SPARSEREEL_PACKAGE STREQUAL "tarball")
  install(TARGETS sparsereel RUNTIME_DEPENDENCIES PRE_INCLUDE_REGEXES "^lib(sentencepiece|yaml-cpp)\\." PRE_EXCLUDE_REGEXES .
    RUNTIME DESTINATION lib/sparsereel LIBRARY DESTINATION lib/sparsereel)
  set(CPACK_GENERATOR TGZ)
  set(CPACK_PACKAGE_FILE_NAME sparsereel-${PROJECT_VERSION}-linux-x86_64-${cuda})
else()
  install(TARGETS sparsereel RUNTIME DESTINATION lib/sparsereel)
  # CPack finds the libraries of Debian with these two programs. Without dpkg-shlibdeps it would make a package that depends on no library, and say so only in
  # passing.
  foreach(tool file=file dpkg-shlibdeps=dpkg-dev)
    string(REGEX MATCH "^[^=]+" program ${tool})
    string(REGEX REPLACE "^.*=" "" debian ${tool})
    find_program(SPARSEREEL_FOUND_${program} ${program})
    if(NOT SPARSEREEL_FOUND_${program})
      message(FATAL_ERROR "A .deb needs the program ${program}, which was not found. Run: apt-get install ${debian}")
    endif()
  endforeach()
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${SPARSEREEL_TORCH_DIR}/lib ${CMAKE_BINARY_DIR})
  set(CPACK_DEBIAN_PACKAGE_DEPENDS python3-venv)  # for sparsereel-install-torch
endif()
include(CPack)
