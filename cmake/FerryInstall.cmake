# Install rules and the package that find_package(ferry) reads.
include(CMakePackageConfigHelpers)
set(FERRY_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)

install(TARGETS ferry EXPORT ferry-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY include/ferry DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library FILES_MATCHING PATTERN "*.h"
        PATTERN "*.cuh")
if(TARGET ferry_shmem)
  install(TARGETS ferry_shmem EXPORT ferry-shmem-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
  install(EXPORT ferry-shmem-targets NAMESPACE ferry:: DESTINATION ${FERRY_CONFIG_DIR} COMPONENT library)
endif()
# The GPU library, where it was asked for or the tool has it. The text of its kernels lies in include/ferry/detail.
if(TARGET ferry_cuda AND (FERRY_CUDA STREQUAL "ON" OR (FERRY_APPS AND FERRY_CUDA_IN_TOOL)
                          OR (TARGET ferry_nvshmem AND FERRY_NVSHMEM STREQUAL "ON")))
  install(TARGETS ferry_cuda ferry_cuda_kernels EXPORT ferry-cuda-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          COMPONENT library)
  install(EXPORT ferry-cuda-targets NAMESPACE ferry:: DESTINATION ${FERRY_CONFIG_DIR} COMPONENT library)
endif()
# The same for GPUs of several nodes.
if(TARGET ferry_nvshmem AND (FERRY_NVSHMEM STREQUAL "ON" OR (FERRY_APPS AND FERRY_CUDA_IN_TOOL)))
  install(TARGETS ferry_nvshmem ferry_nvshmem_kernels EXPORT ferry-nvshmem-targets ARCHIVE DESTINATION
          ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
  install(EXPORT ferry-nvshmem-targets NAMESPACE ferry:: DESTINATION ${FERRY_CONFIG_DIR} COMPONENT library)
  install(FILES cmake/ferry-find-nvshmem.cmake DESTINATION ${FERRY_CONFIG_DIR} COMPONENT library)
  get_filename_component(FERRY_NVSHMEM_BUILT_WITH ${FERRY_NVSHMEM_INCLUDE} DIRECTORY)
endif()
install(EXPORT ferry-targets NAMESPACE ferry:: DESTINATION ${FERRY_CONFIG_DIR} COMPONENT library)
configure_package_config_file(cmake/ferry-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/ferry-config.cmake
                              INSTALL_DESTINATION ${FERRY_CONFIG_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ferry-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ferry-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/ferry-config-version.cmake
        DESTINATION ${FERRY_CONFIG_DIR} COMPONENT library)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
