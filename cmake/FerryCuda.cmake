# The CUDA parts: ferry_cuda is the library of the GPU backend; ferry_cuda_compile builds it, every device header alone and
# the compile-only files. No GPU is needed for either; warnings are errors.
# FERRY_WHY_NO_GPUS: why the tool has no GPU ranks, and what gives them, without a semicolon; empty where it has them.
include(FerryAdvice)
set(FERRY_WHY_NO_GPUS "")
if(FERRY_CUDA STREQUAL "OFF")
  set(FERRY_WHY_NO_GPUS "it was configured with FERRY_CUDA=OFF: ${FERRY_BUILD_WITH_GPUS} ${FERRY_MAKES_WITH_GPUS}")
  message(STATUS "CUDA: left out (FERRY_CUDA=OFF)")
  return()
endif()
include(FerryNvcc)
if(NOT FERRY_NVCC)
  if(FERRY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FERRY_CUDA=ON, but nvcc was found neither on the PATH nor in /usr/local/cuda/bin, nor by CMAKE_CUDA_COMPILER or CUDACXX")
  endif()
  set(FERRY_WHY_NO_GPUS "CMake found no nvcc: install the CUDA toolkit (nvcc 13), then ${FERRY_BUILD_WITH_GPUS}")
  message(STATUS "CUDA: left out (no nvcc found; GPU ranks need that of CUDA 13)")
  return()
endif()
# An older nvcc does not know the C++ that the kernels are written in: left out, unless it was asked for.
if(FERRY_NVCC_RELEASE LESS 13)
  if(FERRY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FERRY_CUDA=ON, but ${FERRY_NVCC} is of CUDA ${FERRY_NVCC_RELEASE}: install the CUDA toolkit 13 and name its nvcc by CMAKE_CUDA_COMPILER, in a new build folder")
  endif()
  set(FERRY_WHY_NO_GPUS "CMake found an nvcc of CUDA ${FERRY_NVCC_RELEASE}: install the CUDA toolkit 13, then ${FERRY_BUILD_WITH_GPUS}")
  message(STATUS "CUDA: left out (${FERRY_NVCC} is of CUDA ${FERRY_NVCC_RELEASE}; GPU ranks need 13 or newer)")
  return()
endif()
file(GLOB_RECURSE FERRY_CUDA_SOURCES CONFIGURE_DEPENDS src/cuda/*.cu src/cuda/*.cpp)
list(FILTER FERRY_CUDA_SOURCES EXCLUDE REGEX "_compile\\.cu$")
file(GLOB_RECURSE FERRY_CUDA_COMPILE_SOURCES CONFIGURE_DEPENDS src/cuda/*_compile.cu)
# `./dev check` builds what it does not run: what only has to compile and link takes a third of the time then. Of dispatch,
# combine and SwiGLU one format is compiled as for users.
option(FERRY_CUDA_QUICK_COMPILE "GPU code is hardly optimised, but for one format: it is not run" OFF)
set(FERRY_CUDA_HARDLY_OPTIMISED $<$<AND:$<BOOL:${FERRY_CUDA_QUICK_COMPILE}>,$<COMPILE_LANGUAGE:CUDA>>:--Ofast-compile=max>)
set(hardly_optimised ${FERRY_CUDA_SOURCES})
list(FILTER hardly_optimised INCLUDE REGEX "\\.cu$")
set_property(SOURCE ${hardly_optimised} APPEND PROPERTY COMPILE_OPTIONS ${FERRY_CUDA_HARDLY_OPTIMISED})
include(FerryFormats)
ferry_fabric_sources(kernel_sources direct DirectFabric<> ferry/detail/cuda/fabric/direct_fabric.cuh
                     ferry/detail/cuda/launch/launch.h)
ferry_kernel_sources(swiglu_sources src/cuda/activation/swiglu_instance.cu.in)
list(APPEND FERRY_CUDA_SOURCES ${kernel_sources} ${swiglu_sources})

set(CMAKE_CUDA_COMPILER ${FERRY_NVCC})
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
endif()
enable_language(CUDA)
set(CMAKE_INCLUDE_SYSTEM_FLAG_CUDA "-isystem ")  # in CMake's form, with '=', ccache takes folders of other clones for others
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
# The tool has GPU ranks where they were asked for, or where there is a GPU: compiling kernels takes minutes. What else
# needs nvcc is built by name. The Python package asks for NVCC: images are built where no GPU is.
set(FERRY_CUDA_IN_TOOL OFF)
file(GLOB gpus /dev/nvidia[0-9]* /dev/dxg)
if(FERRY_CUDA MATCHES "^(ON|NVCC)$" OR FERRY_NVSHMEM STREQUAL "ON" OR gpus)
  set(FERRY_CUDA_IN_TOOL ON)
endif()
list(JOIN CMAKE_CUDA_ARCHITECTURES ", " architectures)
set(in_tool "GPU ranks for ${architectures} are built in, which takes minutes; ${FERRY_LEAVE_GPUS_OUT} leaves them out")
if(NOT FERRY_CUDA_IN_TOOL)
  set(FERRY_WHY_NO_GPUS
      "CMake found nvcc but no GPU on the machine that it was built on: ${FERRY_BUILD_WITH_GPUS} ${FERRY_MAKES_WITH_GPUS}")
  set(in_tool "no GPU was found, so the tool has no GPU ranks unless FERRY_CUDA=ON; targets ferry_cuda and ferry_cuda_compile")
endif()
message(STATUS "CUDA: nvcc ${CMAKE_CUDA_COMPILER_VERSION}: ${in_tool}")
# Each device header compiles alone, too: as far as PTX, for which nvcc reads all of its text once, in place of three times.
file(GLOB_RECURSE device_headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} src/*.cuh include/*.cuh)
list(JOIN FERRY_TRANSPORTS "|" transports)
list(FILTER device_headers EXCLUDE REGEX "/detail/(${transports})/|^include/ferry/cuda/.*_(${transports})_") # not their own
foreach(header ${device_headers})
  string(REGEX REPLACE "^(include|src)/" "" include_path ${header})
  string(REPLACE "/" "_" stem ${header})
  set(source ${PROJECT_BINARY_DIR}/header_check/${stem}.cu)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"@include_path@\"\n#include \"@include_path@\"\n" @ONLY)
  set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -ptx)
  list(APPEND FERRY_CUDA_COMPILE_SOURCES ${source})
endforeach()
# --fmad=false: the same bytes as the CPU, which never contracts. nvcc compresses no machine code unless it is told to: a
# library without would be seven times as large. The driver takes it apart when it loads a kernel.
add_library(ferry_cuda_flags INTERFACE)
target_compile_options(ferry_cuda_flags
                       INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;-Werror=all-warnings>
                                 $<$<COMPILE_LANGUAGE:CUDA>:-Xfatbin=-compress-all;--compress-mode=size>)
find_package(CUDAToolkit REQUIRED)
set(FERRY_CUDART CUDA::cudart CACHE STRING "CUDA's runtime: CUDA::cudart, or CUDA::cudart_static for what runs without the toolkit")
add_library(ferry_cuda STATIC ${FERRY_CUDA_SOURCES})
add_library(ferry::cuda ALIAS ferry_cuda)
target_include_directories(ferry_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
target_link_libraries(ferry_cuda PUBLIC ferry PRIVATE fmt::fmt $<BUILD_INTERFACE:ferry_cuda_flags>
                                                      $<BUILD_INTERFACE:ferry_warnings> ${FERRY_CUDART})
# For users who compile kernels with their own hooks inside (include/ferry/cuda/compiled_exchange.cuh): the kernels' text.
add_library(ferry_cuda_kernels INTERFACE)
add_library(ferry::cuda_kernels ALIAS ferry_cuda_kernels)
set_target_properties(ferry_cuda_kernels PROPERTIES EXPORT_NAME cuda_kernels)
set_target_properties(ferry_cuda PROPERTIES EXPORT_NAME cuda)
ferry_for_shared_libraries(ferry_cuda)
target_compile_options(
  ferry_cuda_kernels INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr>
                               $<INSTALL_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>>)
target_compile_options(ferry_cuda_kernels INTERFACE $<BUILD_INTERFACE:${FERRY_CUDA_HARDLY_OPTIMISED}>)
target_link_libraries(ferry_cuda_kernels INTERFACE ferry_cuda ${FERRY_CUDART})
add_library(ferry_cuda_compile OBJECT ${FERRY_CUDA_COMPILE_SOURCES})
target_include_directories(ferry_cuda_compile PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/src)
target_compile_options(ferry_cuda_compile PRIVATE ${FERRY_CUDA_HARDLY_OPTIMISED})
target_link_libraries(ferry_cuda_compile PRIVATE ferry_cuda_flags)
add_dependencies(ferry_cuda_compile ferry_cuda)
# The same text for GPUs before and after Hopper, one of each kind of kernel: combine, a dispatch, codecs, activations by
# 8 columns and by 16.
set(of_direct ${CMAKE_CURRENT_BINARY_DIR}/instances/direct)
ferry_format_sources(dispatch_sources ${of_direct}_dispatch_instance.cu.in Bf16)
ferry_format_sources(combine_sources ${of_direct}_combine_instance.cu.in Bf16 Nvfp4)
ferry_format_sources(f16_sources ${of_direct}_f16_combine_instance.cu.in Bf16 Nvfp4)
ferry_format_sources(swiglu_sources src/cuda/activation/swiglu_instance.cu.in Mxfp8 Nvfp4)
add_library(ferry_cuda_other_gpus OBJECT EXCLUDE_FROM_ALL src/cuda/kernels/launch.cu src/cuda/kernels/codec_compile.cu
                                                          ${dispatch_sources} ${combine_sources} ${f16_sources}
                                                          ${swiglu_sources})
set_target_properties(ferry_cuda_other_gpus PROPERTIES CUDA_ARCHITECTURES "80-real;100f-real")
target_include_directories(ferry_cuda_other_gpus PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/src)
# Their code for GPUs alone: the host's part is that of the objects above.
target_compile_options(ferry_cuda_other_gpus PRIVATE ${FERRY_CUDA_HARDLY_OPTIMISED} -fatbin)
target_link_libraries(ferry_cuda_other_gpus PRIVATE ferry_cuda_flags)
add_dependencies(ferry_cuda_compile ferry_cuda_other_gpus)

# What needs nvcc is built by default where it was asked for, else only by name: `./dev check cuda` does so. pip's build
# has what the package links.
function(ferry_cuda_by_name)
  if(SKBUILD OR NOT FERRY_CUDA STREQUAL "ON")
    set_target_properties(${ARGN} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()
ferry_cuda_by_name(ferry_cuda ferry_cuda_compile)
