# Finds libtorch in the torch wheel (or any unpacked libtorch) without torch's own CMake package. That package refuses
# to configure a CUDA build of torch on a machine without the CUDA toolkit.
#   SPARSEREEL_TORCH_DIR   folder that holds include/ and lib/ (default: the torch in this tree's .venv or, if there is none, the one that python3 imports)
set(SPARSEREEL_TORCH_DIR "" CACHE PATH "Folder of libtorch (include/ and lib/)")
if(NOT SPARSEREEL_TORCH_DIR)
  file(GLOB candidates ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  if(NOT candidates)
    execute_process(COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                    OUTPUT_VARIABLE candidates OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(candidates)
    list(GET candidates 0 found)
    set(SPARSEREEL_TORCH_DIR ${found} CACHE PATH "Folder of libtorch (include/ and lib/)" FORCE)
  endif()
endif()
if(NOT EXISTS ${SPARSEREEL_TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No libtorch in '${SPARSEREEL_TORCH_DIR}'. Run ./app/quickstart, or set -DSPARSEREEL_TORCH_DIR=/path/to/torch.")
endif()
file(STRINGS ${SPARSEREEL_TORCH_DIR}/include/torch/headeronly/version.h version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX MATCHALL "[0-9]+" version_numbers "${version_lines}")
list(JOIN version_numbers . SPARSEREEL_TORCH_VERSION)
message(STATUS "libtorch ${SPARSEREEL_TORCH_VERSION} in ${SPARSEREEL_TORCH_DIR}")

# libtorch_cuda.so is not linked. The program loads it only when a GPU is asked for (models/store/weights/device.cpp). One build
# therefore serves machines with and without CUDA's libraries, and a CPU run does not spend time on loading them.
add_library(libtorch INTERFACE)
target_include_directories(libtorch SYSTEM INTERFACE ${SPARSEREEL_TORCH_DIR}/include
                                                     ${SPARSEREEL_TORCH_DIR}/include/torch/csrc/api/include)
# at::parallel_for is defined in a header: without -fopenmp it runs on one thread. Our code and libtorch must share one OpenMP runtime, because two would fight
# for the cores. Code that GCC compiled uses the runtime that comes with libtorch. Code that Clang compiled needs LLVM's runtime; libtorch then uses that one too,
# because it is linked first.
file(GLOB libtorch_openmp ${SPARSEREEL_TORCH_DIR}/lib/libgomp*.so*)
if(libtorch_openmp AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(libtorch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
else()
  find_package(OpenMP)
  if(NOT OpenMP_CXX_FOUND)
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no OpenMP. Install its runtime: for Debian's clang-16 the package libomp-16-dev.")
  endif()
  set(libtorch_openmp OpenMP::OpenMP_CXX)
  target_link_libraries(libtorch INTERFACE ${libtorch_openmp})
endif()
target_link_libraries(libtorch INTERFACE ${SPARSEREEL_TORCH_DIR}/lib/libtorch_cpu.so ${SPARSEREEL_TORCH_DIR}/lib/libc10.so ${libtorch_openmp})
target_link_options(libtorch INTERFACE -Wl,-rpath,${SPARSEREEL_TORCH_DIR}/lib)

# ATen's header takes 6 to 8 s to compile in each source. It is precompiled with JSON's header, once for each optimization level, and all sources of ours that
# include torch reuse it. GCC 13 and later refuse a precompiled header of another optimization level.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/pch_host.cpp CONTENT "// Carries the precompiled headers that the torch targets reuse.\n")
foreach(host sparsereel_pch_host sparsereel_pch_host_no_hot_loops)
  add_library(${host} OBJECT ${CMAKE_BINARY_DIR}/pch_host.cpp)
  target_link_libraries(${host} PUBLIC libtorch sparsereel_options)
  target_precompile_headers(${host} PUBLIC <ATen/ATen.h> <nlohmann/json.hpp>)
endforeach()
sparsereel_no_hot_loops(sparsereel_pch_host_no_hot_loops)
