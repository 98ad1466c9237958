# Compiler settings and switches that every target of the tree shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

option(FERRY_APPS "Build the command-line tool" ${PROJECT_IS_TOP_LEVEL})
option(FERRY_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FERRY_BENCHMARKS "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(FERRY_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(FERRY_PYTHON "Build the compiled module of the Python package; needs nanobind" OFF)
option(FERRY_INSTALL "Install the library and the tool, where the project that Ferry is part of is installed" ${PROJECT_IS_TOP_LEVEL})
option(FERRY_WERROR "Warnings are errors" ${PROJECT_IS_TOP_LEVEL})
include(FerryChoices)
set(suites unit protocol conformance emulated shmem gpu cli faults compile_fail example package tools)
set(FERRY_TEST_SUITES ${suites} CACHE STRING "Which tests to build and run")
ferry_choices(FERRY_TEST_SUITES ${suites})
set(FERRY_CUDA AUTO CACHE STRING
    "AUTO: can be built where nvcc is found, and the tool has GPU ranks where a GPU is found; NVCC: it has them where nvcc 13 is found; ON: built by default; OFF: left out")
ferry_choice(FERRY_CUDA AUTO NVCC ON OFF)
# Transports of GPUs: src/<name>, include/ferry/detail/<name> and public headers with _<name>_ need more than CUDA.
set(FERRY_TRANSPORTS nvshmem)
set(FERRY_SHMEM AUTO CACHE STRING "Ranks as processes over OpenSHMEM: AUTO: where it is found; ON: required; OFF: left out")
ferry_choice(FERRY_SHMEM AUTO ON OFF)
set(FERRY_SANITIZE "" CACHE STRING "Sanitizers for every target, as -fsanitize takes them: address,undefined or thread")
set(FERRY_SANITIZE_LIBRARY_ALONE "" CACHE STRING "Checks of these sanitizers that targets other than the library leave out")

find_program(FERRY_CCACHE ccache)
if(FERRY_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FERRY_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${FERRY_CCACHE})
endif()

add_library(ferry_warnings INTERFACE)
# No contraction and no reassociation: sums and codecs must give the same bytes on every machine.
target_compile_options(
  ferry_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-ffp-contract=off>
                           $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-sign-conversion> # as g++ counts it
                           $<$<AND:$<BOOL:${FERRY_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>)

# A static library that may become part of a shared one, such as a Python module: position-independent, and its symbols
# stay inside, so that calls within it need no indirection.
function(ferry_for_shared_libraries)
  set_target_properties(${ARGN} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                           CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
  endforeach()
endfunction()

if(FERRY_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${FERRY_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${FERRY_SANITIZE})
endif()
if(FERRY_SANITIZE_LIBRARY_ALONE) # a later option of the library takes this one back
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=${FERRY_SANITIZE_LIBRARY_ALONE}>")
endif()

# ferry_with_all_checks(<target>): the library's, whose loads and stores are through pointers that it computes.
function(ferry_with_all_checks target)
  if(FERRY_SANITIZE_LIBRARY_ALONE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${FERRY_SANITIZE_LIBRARY_ALONE}>)
  endif()
endfunction()
