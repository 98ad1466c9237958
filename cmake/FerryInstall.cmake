# Install rules and the package that find_package(ferry) reads.
include(CMakePackageConfigHelpers)
set(FERRY_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)

install(TARGETS ferry EXPORT ferry-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY include/ferry DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library FILES_MATCHING PATTERN "*.h"
        PATTERN "*.cuh")
install(EXPORT ferry-targets NAMESPACE ferry:: DESTINATION ${FERRY_CONFIG_DIR} COMPONENT library)
configure_package_config_file(cmake/ferry-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/ferry-config.cmake
                              INSTALL_DESTINATION ${FERRY_CONFIG_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ferry-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ferry-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/ferry-config-version.cmake
        DESTINATION ${FERRY_CONFIG_DIR} COMPONENT library)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
