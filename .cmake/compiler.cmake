# Warnings, sanitizers, ccache; every target of ours links sparsereel_options.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # ccache caches a build with precompiled headers only with these two (ccache manual, "Precompiled headers").
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(sparsereel_options INTERFACE)
target_include_directories(sparsereel_options INTERFACE ${CMAKE_SOURCE_DIR})
set(warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(SPARSEREEL_WERROR)
  list(APPEND warnings -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms of GCC 12 on std::string's operator+ (GCC bugs 105329, 105651).
  list(APPEND warnings -Wno-restrict -Wno-stringop-overflow)
endif()
if(CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND warnings -fpch-preprocess)
endif()
target_compile_options(sparsereel_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${warnings}>)
if(SPARSEREEL_SANITIZE)
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(sparsereel_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${sanitizers}>)
  target_link_options(sparsereel_options INTERFACE ${sanitizers})
endif()
find_package(Threads REQUIRED)
target_link_libraries(sparsereel_options INTERFACE Threads::Threads)

# sparsereel_pch(target): give a target that includes torch the precompiled ATen header, built once by sparsereel_pch_host.
function(sparsereel_pch target)
  target_precompile_headers(${target} REUSE_FROM sparsereel_pch_host)
endfunction()
