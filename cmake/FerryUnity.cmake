# Source files are compiled several at a time, each batch as one text: half of a build's time is headers that all of them
# include. So names of unnamed namespaces differ within a target. FERRY_UNITY=OFF compiles each file by itself, which is
# quicker after a change of one file, and gives editors and clang-tidy a command for each.
option(FERRY_UNITY "Compile the source files of a target in batches" ${PROJECT_IS_TOP_LEVEL})

# ferry_in_batches(<target> [<file>...]): of all source files but those: the longest, which run beside the batches, and
# those that have the names of others.
function(ferry_in_batches target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${FERRY_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# ferry_including_source(<source> <file>): a source that includes the file, by its path from there: ccache takes it for the
# same in a clone in another folder.
function(ferry_including_source source file)
  get_filename_component(folder ${source} DIRECTORY)
  file(RELATIVE_PATH included ${folder} ${file})
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"@included@\"\n" @ONLY)
endfunction()

# ferry_tests_in_batches(<target>): under sanitizers, where a test's headers take longest, where tests for GPUs are not run,
# and where CI is set, which compiles all of them; its files lie in its own folder. tools/together.py says which have no
# names of each other. Elsewhere each file of tests is compiled by itself: one is changed at a time.
function(ferry_tests_in_batches target)
  if(NOT FERRY_UNITY OR NOT (FERRY_SANITIZE OR FERRY_CUDA_QUICK_COMPILE OR DEFINED ENV{CI}))
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  get_target_property(files ${target} SOURCES)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/together.py ${files})
  execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/together.py ${files} OUTPUT_VARIABLE batches
                          WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_STRIP_TRAILING_WHITESPACE
                          COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" batches "${batches}")
  foreach(batch IN LISTS batches)
    string(REPLACE "\t" ";" batch "${batch}")
    list(POP_FRONT batch first)
    if(batch)
      file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${first}) # with its folder: two may have a file of one name
      string(MAKE_C_IDENTIFIER ${name} name)
      set_source_files_properties(${first} ${batch} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${name})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
