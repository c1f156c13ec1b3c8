# Warnings, sanitizers and ccache. Every target of ours links sparsereel_options.
# A warning is an error only with CMake's own -DCMAKE_COMPILE_WARNING_AS_ERROR=ON, which .ci/run sets. The next compiler or library must not break a user's
# build.
# ccache is searched only once. If a later configuration found it, every command would change and everything would be compiled again.
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
  list(APPEND warnings -Wno-subobject-linkage)  # GCC takes a joined source for a header, where a member of a private type would be a mistake
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  # False alarms of GCC 12 and 13 about std::string's operator+ (GCC bugs 105329, 105651) and about the vectors of a joined source.
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

# sparsereel_pch(target): gives a target that includes torch the precompiled headers of torch.cmake. Call it after sparsereel_no_hot_loops(target).
function(sparsereel_pch target)
  get_target_property(no_hot_loops ${target} SPARSEREEL_NO_HOT_LOOPS)
  set(host sparsereel_pch_host)
  if(no_hot_loops)
    set(host sparsereel_pch_host_no_hot_loops)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${host})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)  # CMake compiles programs with -fPIE, for which GCC would need another precompiled header
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# sparsereel_no_hot_loops(target): compiles a target with -O1, which takes two thirds of the time. It is for options, tables, reports and tests, where no loop
# runs over pixels or weights. GCC and Clang obey the last -O, and this one comes after CMake's -O3.
function(sparsereel_no_hot_loops target)
  set_target_properties(${target} PROPERTIES SPARSEREEL_NO_HOT_LOOPS ON)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
endfunction()
