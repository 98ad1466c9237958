# The NVSHMEM world, in targets of its own, since NVSHMEM's device library wants relocatable device code: ferry_nvshmem
# for C++ programs, ferry_nvshmem_kernels for those that compile kernels with hooks inside. Without NVSHMEM the rest builds.
set(FERRY_NVSHMEM AUTO CACHE STRING "AUTO: can be built where NVSHMEM is found; ON: built by default; OFF: left out")
ferry_choice(FERRY_NVSHMEM AUTO ON OFF)
# As FERRY_WHY_NO_GPUS.
set(FERRY_WHY_NO_NVSHMEM "")
if(FERRY_NVSHMEM STREQUAL "OFF")
  set(FERRY_WHY_NO_NVSHMEM "it was configured with FERRY_NVSHMEM=OFF")
elseif(FERRY_WHY_NO_GPUS)
  set(FERRY_WHY_NO_NVSHMEM "it has no GPU ranks at all: docs/multi-host-gpus.md says what to install and what to build")
endif()
if(FERRY_NVSHMEM STREQUAL "ON" AND NOT TARGET ferry_cuda)
  message(FATAL_ERROR "FERRY_NVSHMEM=ON, but it has no GPU ranks, which NVSHMEM needs: ${FERRY_WHY_NO_GPUS}")
endif()
if(NOT TARGET ferry_cuda OR FERRY_NVSHMEM STREQUAL "OFF")
  return()
endif()
include(ferry-find-nvshmem)
if(NOT FERRY_NVSHMEM_FOUND)
  if(FERRY_NVSHMEM STREQUAL "ON")
    message(FATAL_ERROR "FERRY_NVSHMEM=ON, but NVSHMEM was found neither in NVSHMEM_HOME nor as nvidia-nvshmem-cu13")
  endif()
  set(FERRY_WHY_NO_NVSHMEM "CMake found no NVSHMEM: docs/multi-host-gpus.md says how to install it and what to build")
  message(STATUS "NVSHMEM: left out (not found)")
  return()
endif()
message(STATUS "NVSHMEM: ${FERRY_NVSHMEM_HOST}, target ferry_nvshmem")

# Two blocks of dispatch share a multiprocessor, so it calls functions of at most 64 registers; one block's of combine may
# have more, but their functions are the same. Kernels say for themselves how many they take.
set(FERRY_NVSHMEM_REGISTERS $<$<COMPILE_LANGUAGE:CUDA>:--maxrregcount=64>)
function(ferry_nvshmem_objects target)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${ARGN})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_compile_options(${target} PRIVATE ${FERRY_NVSHMEM_REGISTERS} ${FERRY_CUDA_HARDLY_OPTIMISED})
  set_target_properties(${target} PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
  ferry_for_shared_libraries(${target})
  target_link_libraries(${target} PUBLIC ferry_cuda PRIVATE fmt::fmt ferry::nvshmem_headers ferry_cuda_flags ferry_warnings
                                                            ${FERRY_CUDART})
endfunction()

file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/nvshmem/*.cpp src/nvshmem/*.cu)
list(FILTER sources EXCLUDE REGEX "_compile\\.cu$")
ferry_fabric_sources(kernel_sources nvshmem NvshmemFabric ferry/detail/nvshmem/nvshmem_puts.cuh
                     nvshmem/kernels/nvshmem_launch.h)
ferry_nvshmem_objects(ferry_nvshmem_objects ${sources} ${kernel_sources})

# The same objects twice, since the device code of a program may be linked with NVSHMEM's once only: ferry_nvshmem has
# been, for programs without device code of their own; who links ferry_nvshmem_kernels does it, theirs included. CMake
# refuses a program that links both.
function(ferry_nvshmem_library name linked_by resolved)
  set(target ferry_${name})
  add_library(${target} STATIC $<TARGET_OBJECTS:ferry_nvshmem_objects>)
  add_library(ferry::${name} ALIAS ${target})
  target_link_libraries(${target} PUBLIC ferry_cuda ferry::nvshmem_runtime PRIVATE fmt::fmt ${FERRY_CUDART})
  set_target_properties(
    ${target}
    PROPERTIES EXPORT_NAME ${name}
               CUDA_SEPARABLE_COMPILATION ON
               CUDA_RESOLVE_DEVICE_SYMBOLS ${resolved}
               EXPORT_PROPERTIES "CUDA_SEPARABLE_COMPILATION;CUDA_RESOLVE_DEVICE_SYMBOLS" # who links device code: CMake asks
               COMPATIBLE_INTERFACE_STRING FERRY_DEVICE_LINK_BY
               INTERFACE_FERRY_DEVICE_LINK_BY ${linked_by})
  ferry_for_shared_libraries(${target}) # its code of device links, too
  if(NOT FERRY_NVSHMEM STREQUAL "ON")
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

ferry_nvshmem_library(nvshmem library ON)
ferry_nvshmem_library(nvshmem_kernels program OFF)
target_link_libraries(ferry_nvshmem_kernels PUBLIC ferry_cuda_kernels INTERFACE ferry::nvshmem_headers)
target_compile_options(ferry_nvshmem_kernels INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-rdc=true> ${FERRY_NVSHMEM_REGISTERS})
add_dependencies(ferry_nvshmem ferry_nvshmem_kernels) # who builds the first has both, to install them

# `./dev check nvshmem`: ferry_nvshmem has the library's kernels; these have a user's hooks.
ferry_nvshmem_objects(ferry_nvshmem_compile src/nvshmem/kernels/hooks_compile.cu)
add_dependencies(ferry_nvshmem_compile ferry_nvshmem)
