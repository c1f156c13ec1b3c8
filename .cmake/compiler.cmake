# Sets compiler warnings, sanitizers and ccache. Every target of ours links sparsereel_options, directly or through a library.
# Warnings are errors only with -DCMAKE_COMPILE_WARNING_AS_ERROR=ON, an option of CMake that .ci/run sets. A newer compiler or library must not break a user's
# build.
# Only the first configuration searches for ccache. If a later one found it, all compile commands would change and everything would be compiled again.
if(NOT DEFINED SPARSEREEL_CCACHE)
  find_program(SPARSEREEL_CCACHE ccache)
endif()
if(SPARSEREEL_CCACHE)
  # Without this sloppiness ccache caches nothing that uses a precompiled header (ccache manual, "Precompiled headers"). Depend mode avoids a separate run of
  # the preprocessor.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${SPARSEREEL_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

add_library(sparsereel_options INTERFACE)
target_include_directories(sparsereel_options INTERFACE ${CMAKE_SOURCE_DIR})
set(warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A unity build includes the sources. GCC then treats them as headers and warns about members whose type is in an anonymous namespace.
  list(APPEND warnings -Wno-subobject-linkage)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  # GCC 12 and 13 raise false alarms about std::string's operator+ (GCC bugs 105329, 105651) and, in unity builds, about vectors.
  list(APPEND warnings -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  list(APPEND warnings -Wno-dangling-reference)  # GCC assumes that a returned reference refers to an argument
endif()
target_compile_options(sparsereel_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${warnings}>)
if(SPARSEREEL_SANITIZE)
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(sparsereel_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${sanitizers}>)
  target_link_options(sparsereel_options INTERFACE ${sanitizers})
endif()
find_package(Threads REQUIRED)
target_link_libraries(sparsereel_options INTERFACE Threads::Threads)

# sparsereel_pch(target): adds the precompiled headers of torch.cmake to a target whose sources include torch. If the target also needs
# sparsereel_no_hot_loops(target), call that first.
function(sparsereel_pch target)
  get_target_property(no_hot_loops ${target} SPARSEREEL_NO_HOT_LOOPS)
  set(host sparsereel_pch_host)
  if(no_hot_loops)
    set(host sparsereel_pch_host_no_hot_loops)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${host})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)  # by default CMake compiles programs with -fPIE, but GCC accepts the headers only with -fPIC, as they were compiled
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# sparsereel_no_hot_loops(target): compiles a target with -O1, in two thirds of the time that -O3 takes. Use it for code without loops over pixels or weights:
# options, tables, reports and tests. GCC and Clang obey the last -O, and this one comes after CMake's -O3.
function(sparsereel_no_hot_loops target)
  set_target_properties(${target} PROPERTIES SPARSEREEL_NO_HOT_LOOPS ON)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
endfunction()
