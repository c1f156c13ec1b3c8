# For -DCMAKE_UNITY_BUILD=ON (app/quickstart): which sources are compiled as one, so that headers are parsed some twenty times and not 155 times. Kernels are
# compiled as always.
function(sparsereel_unity target groups)
  if(NOT TARGET ${target})
    return()
  endif()
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "(_kernels|/families/table|/models/loader_table)\\.cpp$")  # the latter two may be replaced at link time
  list(TRANSFORM sources PREPEND ${folder}/ REGEX "^[^/]")
  execute_process(COMMAND python3 ${CMAKE_SOURCE_DIR}/.cmake/unity_groups.py ${groups} ${sources} OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" lines "${lines}")
  foreach(line ${lines})
    string(REPLACE "\t" ";" line ${line})
    list(GET line 0 group)
    list(GET line 1 source)
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-w>)  # the other builds check warnings, and some are false of joined files
endfunction()

sparsereel_unity(sparsereel_checkpoint 1)
sparsereel_unity(sparsereel_text 1)
sparsereel_unity(sparsereel_attention 1)
sparsereel_unity(sparsereel_models 2)
sparsereel_unity(sparsereel_input 1)
sparsereel_unity(sparsereel_media 1)
sparsereel_unity(sparsereel_app 4)

# Options, tables and reports: no loop here runs over pixels or weights. Of two -O the last counts, and this one comes after CMake's -O3.
foreach(target sparsereel_input sparsereel_app sparsereel)
  if(TARGET ${target})
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
endforeach()
# Kernels stay by themselves, those of CUDA in newer CMakes too; and what runs before any library.
foreach(target sparsereel_attention_core sparsereel_attention_cuda sparsereel_models_cuda sparsereel)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  endif()
endforeach()
