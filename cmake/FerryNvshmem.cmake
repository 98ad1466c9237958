# The NVSHMEM world, in targets of its own, since NVSHMEM's device library wants relocatable device code: ferry_nvshmem
# for C++ programs, ferry_nvshmem_kernels for those that compile kernels with hooks inside.
# Found in an install (NVSHMEM_HOME) or in the Python package nvidia-nvshmem-cu13; without it the rest builds.
set(FERRY_NVSHMEM AUTO CACHE STRING "AUTO: can be built where NVSHMEM is found; ON: built by default; OFF: left out")
if(NOT TARGET ferry_cuda OR FERRY_NVSHMEM STREQUAL "OFF")
  return()
endif()
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c
            "import importlib.util as u; s = u.find_spec('nvidia.nvshmem'); print(list(s.submodule_search_locations)[0])"
    OUTPUT_VARIABLE FERRY_NVSHMEM_PYTHON
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(hints ${NVSHMEM_HOME} $ENV{NVSHMEM_HOME} $ENV{NVSHMEM_PREFIX} ${FERRY_NVSHMEM_PYTHON} /usr/local/nvshmem)
find_path(FERRY_NVSHMEM_INCLUDE nvshmemx.h HINTS ${hints} PATH_SUFFIXES include)
find_library(FERRY_NVSHMEM_DEVICE NAMES nvshmem_device HINTS ${hints} PATH_SUFFIXES lib lib64)
find_library(FERRY_NVSHMEM_HOST NAMES nvshmem_host libnvshmem_host.so.3 HINTS ${hints} PATH_SUFFIXES lib lib64)
if(NOT FERRY_NVSHMEM_INCLUDE OR NOT FERRY_NVSHMEM_DEVICE OR NOT FERRY_NVSHMEM_HOST)
  if(FERRY_NVSHMEM STREQUAL "ON")
    message(FATAL_ERROR "FERRY_NVSHMEM=ON, but NVSHMEM was found neither in NVSHMEM_HOME nor as nvidia-nvshmem-cu13")
  endif()
  message(STATUS "NVSHMEM: left out (not found)")
  return()
endif()
message(STATUS "NVSHMEM: ${FERRY_NVSHMEM_HOST}, target ferry_nvshmem")
get_filename_component(FERRY_NVSHMEM_LIB ${FERRY_NVSHMEM_HOST} DIRECTORY)

# Two blocks of dispatch share a multiprocessor, so it calls functions of at most 64 registers; one block's of combine may
# have more, but their functions are the same. Kernels say for themselves how many they take.
set(FERRY_NVSHMEM_REGISTERS $<$<COMPILE_LANGUAGE:CUDA>:--maxrregcount=64>)
function(ferry_nvshmem_objects target)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${ARGN})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_include_directories(${target} SYSTEM PRIVATE ${FERRY_NVSHMEM_INCLUDE})
  target_compile_options(${target} PRIVATE ${FERRY_NVSHMEM_REGISTERS})
  set_target_properties(${target} PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
  target_link_libraries(${target} PUBLIC ferry_cuda PRIVATE fmt::fmt ferry_cuda_flags ferry_warnings CUDA::cudart)
endfunction()

file(GLOB sources CONFIGURE_DEPENDS src/cuda/nvshmem/*.cpp src/cuda/nvshmem/*.cu src/cuda/nvshmem/instances/*.cu)
list(FILTER sources EXCLUDE REGEX "_compile\\.cu$")
ferry_nvshmem_objects(ferry_nvshmem_objects ${sources})

# The same objects twice, since the device code of a program may be linked with NVSHMEM's once only: ferry_nvshmem has
# been, for programs without device code of their own; who links ferry_nvshmem_kernels does it, theirs included. CMake
# refuses a program that links both.
function(ferry_nvshmem_library target linked_by)
  add_library(${target} STATIC $<TARGET_OBJECTS:ferry_nvshmem_objects>)
  target_link_libraries(${target} PUBLIC ferry_cuda PRIVATE fmt::fmt CUDA::cudart ${FERRY_NVSHMEM_DEVICE}
                                                            ${FERRY_NVSHMEM_HOST})
  target_link_options(${target} INTERFACE LINKER:-rpath,${FERRY_NVSHMEM_LIB}) # its plugins lie beside it
  set_target_properties(
    ${target} PROPERTIES CUDA_SEPARABLE_COMPILATION ON COMPATIBLE_INTERFACE_STRING FERRY_DEVICE_LINK_BY
                         INTERFACE_FERRY_DEVICE_LINK_BY ${linked_by})
  if(NOT FERRY_NVSHMEM STREQUAL "ON")
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

ferry_nvshmem_library(ferry_nvshmem library)
add_library(ferry::nvshmem ALIAS ferry_nvshmem)
set_target_properties(ferry_nvshmem PROPERTIES CUDA_RESOLVE_DEVICE_SYMBOLS ON)

ferry_nvshmem_library(ferry_nvshmem_kernels program)
add_library(ferry::nvshmem_kernels ALIAS ferry_nvshmem_kernels)
target_link_libraries(ferry_nvshmem_kernels PUBLIC ferry_cuda_kernels)
target_include_directories(ferry_nvshmem_kernels SYSTEM INTERFACE ${FERRY_NVSHMEM_INCLUDE})
target_compile_options(ferry_nvshmem_kernels INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-rdc=true> ${FERRY_NVSHMEM_REGISTERS})

# `./dev check nvshmem`: the kernels of one format stand for all, which differ in the encoder alone, and those with hooks.
list(FILTER sources EXCLUDE REGEX "/instances/")
ferry_nvshmem_objects(ferry_nvshmem_compile ${sources} src/cuda/nvshmem/instances/fp8_block128.cu
                      src/cuda/nvshmem/hooks_compile.cu)
