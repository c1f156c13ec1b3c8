# Finds nvcc (on the PATH, in /usr/local/cuda, or from PyPI in .venv) and sets SPARSEREEL_HAS_CUDA. Without nvcc the build is for CPUs only.
set(SPARSEREEL_HAS_CUDA OFF)
if(SPARSEREEL_CUDA OR SPARSEREEL_CUDA STREQUAL "AUTO")
  if(NOT CMAKE_CUDA_COMPILER)
    file(GLOB toolkit_of_pypi ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13)
    find_program(SPARSEREEL_NVCC nvcc PATHS /usr/local/cuda/bin ${toolkit_of_pypi}/bin)
    if(SPARSEREEL_NVCC)
      set(CMAKE_CUDA_COMPILER ${SPARSEREEL_NVCC})
      if(SPARSEREEL_NVCC STREQUAL "${toolkit_of_pypi}/bin/nvcc")
        # nvcc looks for its libraries in lib64, but the wheels have lib. Without this flag nvcc's first test program does not link.
        set(CMAKE_CUDA_FLAGS_INIT -L${toolkit_of_pypi}/lib)
      endif()
    endif()
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND CMAKE_CUDA_COMPILER)
    # GeForce RTX 30 series (86), 40 series (89) and 50 series (120), A100 (80), H100 and H200 (90a). For other GPUs from 8.9 on, the driver compiles 89's PTX.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89 90a-real)
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc_says ERROR_QUIET)
    string(REGEX MATCH "release ([0-9.]+)" nvcc_release "${nvcc_says}")
    if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.8)  # older releases do not know 120
      list(APPEND CMAKE_CUDA_ARCHITECTURES 120-real)
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 does not know CUDA 13's C++20
    set(SPARSEREEL_HAS_CUDA ON)
  elseif(NOT SPARSEREEL_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "SPARSEREEL_CUDA=ON, but no nvcc was found. Run ./app/quickstart --gpu --build-only, which installs it, or set CMAKE_CUDA_COMPILER.")
  endif()
endif()
message(STATUS "CUDA kernels: ${SPARSEREEL_HAS_CUDA}")

# Sources that only a build for GPUs compiles: the kernels, and the C++ that passes libtorch's tensors to them. The folders' CMakeLists.txt use these lists.
file(GLOB SPARSEREEL_ATTENTION_KERNELS CONFIGURE_DEPENDS attention/cuda/*.cu attention/cuda/*/*.cu attention/cuda/*.cpp)
file(GLOB SPARSEREEL_MODEL_KERNELS CONFIGURE_DEPENDS models/layers/cuda/*.cu models/parallel/cuda/*.cu models/vae/cuda/*.cu)
file(GLOB SPARSEREEL_KERNEL_TESTS CONFIGURE_DEPENDS tests/gpu/*.cu)
file(GLOB SPARSEREEL_KERNEL_CALLS CONFIGURE_DEPENDS attention/cuda_call.cpp attention/prologue_call.cpp models/layers/copy_call.cpp models/layers/cuda_call.cpp models/layers/int8_call.cpp models/layers/unpack_call.cpp models/parallel/peer_windows.cpp models/vae/cuda_call.cpp)

# sparsereel_kernel_options(target): sets the options of a target with kernels. SPARSEREEL_HOPPER says that it has code for H100 and H200.
function(sparsereel_kernel_options target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${target} PUBLIC sparsereel_options)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
  if(CMAKE_CUDA_ARCHITECTURES MATCHES "90a")
    target_compile_definitions(${target} PRIVATE SPARSEREEL_HOPPER)
  endif()
endfunction()

# sparsereel_hash(variable source...): sets the variable to a hash of the sources and of all headers that they include.
function(sparsereel_hash variable)
  set(files ${ARGN})
  set(unread ${files})
  while(unread)
    list(POP_FRONT unread file)
    file(STRINGS ${file} includes REGEX "^#include \"")
    foreach(include ${includes})
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "${CMAKE_SOURCE_DIR}/\\1" header "${include}")
      if(NOT header IN_LIST files)
        list(APPEND files ${header})
        list(APPEND unread ${header})
      endif()
    endforeach()
  endwhile()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  list(SORT files)
  foreach(file ${files})
    file(SHA256 ${file} hash)
    string(APPEND hashes ${hash})
  endforeach()
  string(SHA256 hash "${hashes}")
  string(SUBSTRING ${hash} 0 12 hash)
  set(${variable} ${hash} PARENT_SCOPE)
endfunction()

# A package holds all kernels once, in a shared library that the program, libsparsereel and the attention library load. The wheel of the attention library
# contains it, and the wheel of the program depends on that wheel. The library's name contains a hash of its sources. A program therefore never loads kernels
# with other functions or structs.
set(kernel_library "")
if(SPARSEREEL_HAS_CUDA AND SPARSEREEL_PACKAGE)
  sparsereel_hash(kernel_hash ${SPARSEREEL_ATTENTION_KERNELS} ${SPARSEREEL_MODEL_KERNELS})
  add_library(sparsereel_kernels SHARED ${SPARSEREEL_ATTENTION_KERNELS} ${SPARSEREEL_MODEL_KERNELS})
  sparsereel_kernel_options(sparsereel_kernels)
  set_target_properties(sparsereel_kernels PROPERTIES OUTPUT_NAME sparsereel_kernels-${kernel_hash} LINKER_LANGUAGE CXX
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} LINK_DEPENDS ${CMAKE_SOURCE_DIR}/.cmake/kernels.map)
  target_link_options(sparsereel_kernels PRIVATE LINKER:--version-script=${CMAKE_SOURCE_DIR}/.cmake/kernels.map,--no-undefined)
  set(kernel_library libsparsereel_kernels-${kernel_hash}.so)
  # The library contains CUDA's runtime. Its license is in the toolkit, or beside the runtime that quickstart installs from PyPI.
  cmake_path(GET CMAKE_CUDA_COMPILER PARENT_PATH toolkit_programs)
  file(GLOB cuda_licenses ${toolkit_programs}/../EULA.txt
       ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia_cuda_runtime-*.dist-info/licenses/License.txt)
  if(NOT cuda_licenses)
    message(FATAL_ERROR "The license of CUDA's runtime was not found, and a package must contain it. "
      "Copy EULA.txt from NVIDIA's toolkit to ${toolkit_programs}/../EULA.txt.")
  endif()
  list(GET cuda_licenses 0 SPARSEREEL_CUDA_LICENSE)
endif()
# app/wheel/build reads this from the cache.
set(SPARSEREEL_KERNEL_LIBRARY "${kernel_library}" CACHE INTERNAL "File name of the shared library of kernels; empty if there is none")

# sparsereel_kernel_library(name source...): adds a static library of kernels. In a package it adds an alias of the shared library of all kernels instead.
function(sparsereel_kernel_library name)
  if(TARGET sparsereel_kernels)
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE sparsereel_kernels)
    return()
  endif()
  add_library(${name} STATIC ${ARGN})
  sparsereel_kernel_options(${name})
endfunction()

# sparsereel_sources_with_gpu(variable): sets the variable to a list of C++ sources: those that a build for GPUs compiles differently, and those that only such
# a build compiles.
function(sparsereel_sources_with_gpu variable)
  file(GLOB_RECURSE candidates CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/attention/*.cpp ${CMAKE_SOURCE_DIR}/models/*.cpp ${CMAKE_SOURCE_DIR}/app/*.cpp)
  foreach(source ${candidates})
    file(STRINGS ${source} with_cuda REGEX "SPARSEREEL_CUDA" LIMIT_COUNT 1)
    if(with_cuda OR source IN_LIST SPARSEREEL_KERNEL_CALLS)
      list(APPEND sources ${source})
    endif()
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()
