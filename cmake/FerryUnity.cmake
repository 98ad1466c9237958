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
