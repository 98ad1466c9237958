# FERRY_NCCL_INCLUDE and FERRY_NCCL_LIBRARY: NCCL of the system, of the CUDA toolkit, of FERRY_NCCL_ROOT, or of the Python
# package nvidia-nccl-cu13. All optional.
set(FERRY_NCCL_ROOT "" CACHE PATH "A folder with NCCL's include/ and lib/")
set(hints ${FERRY_NCCL_ROOT} ${CUDAToolkit_LIBRARY_ROOT})
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_EXECUTABLE)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])"
                  OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND hints ${package})
endif()
find_path(FERRY_NCCL_INCLUDE nccl.h HINTS ${hints} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(FERRY_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${hints} PATH_SUFFIXES lib lib64)
mark_as_advanced(FERRY_NCCL_INCLUDE FERRY_NCCL_LIBRARY)
if(FERRY_NCCL_INCLUDE AND FERRY_NCCL_LIBRARY)
  message(STATUS "NCCL: ${FERRY_NCCL_LIBRARY}")
else()
  message(STATUS "NCCL: not found, so ferry bench has no baseline on GPUs")
endif()
