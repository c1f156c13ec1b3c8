# Finds nvcc (on the PATH, in /usr/local/cuda, or from PyPI in .venv) and sets SPARSEREEL_HAS_CUDA. Without nvcc the build is for CPUs only.
set(SPARSEREEL_HAS_CUDA OFF)
if(SPARSEREEL_CUDA OR SPARSEREEL_CUDA STREQUAL "AUTO")
  if(NOT CMAKE_CUDA_COMPILER)
    file(GLOB wheel ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13)
    find_program(SPARSEREEL_NVCC nvcc PATHS /usr/local/cuda/bin ${wheel}/bin)
    if(SPARSEREEL_NVCC)
      set(CMAKE_CUDA_COMPILER ${SPARSEREEL_NVCC})
      if(SPARSEREEL_NVCC STREQUAL "${wheel}/bin/nvcc")
        # nvcc looks for its libraries in lib64, but the wheels have lib. Without this flag nvcc's first test program does not link.
        set(CMAKE_CUDA_FLAGS_INIT -L${wheel}/lib)
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

# sparsereel_kernel_library(name source...): adds a static library of kernels. SPARSEREEL_HOPPER says that it has code for H100 and H200.
function(sparsereel_kernel_library name)
  add_library(${name} STATIC ${ARGN})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${name} PUBLIC sparsereel_options)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
  if(CMAKE_CUDA_ARCHITECTURES MATCHES "90a")
    target_compile_definitions(${name} PRIVATE SPARSEREEL_HOPPER)
  endif()
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
