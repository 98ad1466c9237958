# ferry_shmem: ranks as processes over OpenSHMEM, where its header and library are found (Debian: libopenmpi-dev).
if(FERRY_SHMEM STREQUAL "OFF")
  message(STATUS "OpenSHMEM: left out (FERRY_SHMEM=OFF)")
  return()
endif()
if(FERRY_SANITIZE) # its heap lies where the sanitizers keep their shadow
  message(STATUS "OpenSHMEM: left out (FERRY_SANITIZE=${FERRY_SANITIZE})")
  return()
endif()
find_path(FERRY_SHMEM_INCLUDE shmem.h PATH_SUFFIXES openmpi openmpi/include
          HINTS ENV SHMEM_HOME PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi)
find_library(FERRY_SHMEM_LIBRARY NAMES oshmem PATH_SUFFIXES openmpi/lib HINTS ENV SHMEM_HOME)
find_library(FERRY_SHMEM_MPI_LIBRARY NAMES mpi PATH_SUFFIXES openmpi/lib HINTS ENV SHMEM_HOME)
find_program(FERRY_OSHRUN oshrun HINTS ENV SHMEM_HOME PATH_SUFFIXES bin)
mark_as_advanced(FERRY_SHMEM_INCLUDE FERRY_SHMEM_LIBRARY FERRY_SHMEM_MPI_LIBRARY FERRY_OSHRUN)
if(NOT FERRY_SHMEM_INCLUDE OR NOT FERRY_SHMEM_LIBRARY OR NOT FERRY_SHMEM_MPI_LIBRARY)
  if(FERRY_SHMEM STREQUAL "ON")
    message(FATAL_ERROR "FERRY_SHMEM=ON, but OpenSHMEM was not found: install libopenmpi-dev, or set SHMEM_HOME")
  endif()
  message(STATUS "OpenSHMEM: left out (no shmem.h and liboshmem found)")
  return()
endif()
message(STATUS "OpenSHMEM: ${FERRY_SHMEM_LIBRARY}, target ferry_shmem")

file(GLOB_RECURSE FERRY_SHMEM_SOURCES CONFIGURE_DEPENDS src/shmem/*.cpp)
add_library(ferry_shmem STATIC ${FERRY_SHMEM_SOURCES})
add_library(ferry::shmem ALIAS ferry_shmem)
target_include_directories(ferry_shmem SYSTEM PRIVATE ${FERRY_SHMEM_INCLUDE})
target_include_directories(ferry_shmem PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
target_link_libraries(ferry_shmem PUBLIC ferry PRIVATE fmt::fmt $<BUILD_INTERFACE:ferry_warnings>
                                                       ${FERRY_SHMEM_LIBRARY} ${FERRY_SHMEM_MPI_LIBRARY})
set_target_properties(ferry_shmem PROPERTIES EXPORT_NAME shmem)
ferry_for_shared_libraries(ferry_shmem)

# Functions of UCX that src/shmem/process/shmem_lost_peer.cpp replaces: programs show theirs to the libraries they load.
foreach(replaced ucs_socket_send_nb ucs_socket_sendv_nb ucs_socket_recv_nb)
  target_link_options(ferry_shmem INTERFACE "LINKER:--export-dynamic-symbol=${replaced}")
endforeach()
target_link_libraries(ferry_shmem PRIVATE ${CMAKE_DL_LIBS})
