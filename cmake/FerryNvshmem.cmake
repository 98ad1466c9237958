# The NVSHMEM world: ferry_nvshmem, a target of its own, since NVSHMEM's device library wants relocatable device code.
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

# Two blocks of dispatch share a multiprocessor, so it calls functions of at most 64 registers; one block's of combine may
# have more, but their functions are the same. Kernels say for themselves how many they take.
function(ferry_nvshmem_library target kind)
  add_library(${target} ${kind} ${ARGN})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_include_directories(${target} SYSTEM PRIVATE ${FERRY_NVSHMEM_INCLUDE})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--maxrregcount=64>)
  set_target_properties(${target} PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
  target_link_libraries(${target} PUBLIC ferry_cuda PRIVATE fmt::fmt ferry_cuda_flags ferry_warnings CUDA::cudart)
endfunction()

file(GLOB sources CONFIGURE_DEPENDS src/cuda/nvshmem/*.cpp src/cuda/nvshmem/*.cu src/cuda/nvshmem/instances/*.cu)
ferry_nvshmem_library(ferry_nvshmem STATIC ${sources})
add_library(ferry::nvshmem ALIAS ferry_nvshmem)
set_target_properties(ferry_nvshmem PROPERTIES CUDA_RESOLVE_DEVICE_SYMBOLS ON)
target_link_libraries(ferry_nvshmem PRIVATE ${FERRY_NVSHMEM_DEVICE} ${FERRY_NVSHMEM_HOST})
# `./dev check nvshmem`: the kernels of one format stand for all, which differ in the encoder alone.
list(FILTER sources EXCLUDE REGEX "/instances/")
ferry_nvshmem_library(ferry_nvshmem_compile OBJECT EXCLUDE_FROM_ALL ${sources}
                      src/cuda/nvshmem/instances/fp8_block128.cu)
get_filename_component(FERRY_NVSHMEM_LIB ${FERRY_NVSHMEM_HOST} DIRECTORY)
target_link_options(ferry_nvshmem INTERFACE LINKER:-rpath,${FERRY_NVSHMEM_LIB}) # its plugins lie beside it
if(NOT FERRY_NVSHMEM STREQUAL "ON")
  set_target_properties(ferry_nvshmem PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
