# Finds NVSHMEM, for this tree and for an installed Ferry: in NVSHMEM_HOME or in the Python package nvidia-nvshmem-cu13.
# Sets FERRY_NVSHMEM_FOUND and FERRY_NVSHMEM_VERSION; defines ferry::nvshmem_headers and ferry::nvshmem_runtime.
function(ferry_find_nvshmem)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_Interpreter_FOUND)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c
              "import importlib.util as u; s = u.find_spec('nvidia.nvshmem'); print(list(s.submodule_search_locations)[0])"
      OUTPUT_VARIABLE of_python
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  # The first folder that has all three: headers and libraries of two versions do not go together. Looked for again
  # each time, so that another NVSHMEM_HOME counts.
  foreach(home ${NVSHMEM_HOME} $ENV{NVSHMEM_HOME} $ENV{NVSHMEM_PREFIX} ${FERRY_NVSHMEM_BUILT_WITH} ${of_python}
               /usr/local/nvshmem ${CMAKE_PREFIX_PATH} /usr)
    unset(FERRY_NVSHMEM_INCLUDE CACHE)
    unset(FERRY_NVSHMEM_DEVICE CACHE)
    unset(FERRY_NVSHMEM_HOST CACHE)
    find_path(FERRY_NVSHMEM_INCLUDE nvshmemx.h PATHS ${home} PATH_SUFFIXES include NO_DEFAULT_PATH)
    find_library(FERRY_NVSHMEM_DEVICE NAMES nvshmem_device PATHS ${home} PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
    find_library(FERRY_NVSHMEM_HOST NAMES nvshmem_host libnvshmem_host.so.3 PATHS ${home} PATH_SUFFIXES lib lib64
                 NO_DEFAULT_PATH)
    mark_as_advanced(FERRY_NVSHMEM_INCLUDE FERRY_NVSHMEM_DEVICE FERRY_NVSHMEM_HOST)
    if(FERRY_NVSHMEM_INCLUDE AND FERRY_NVSHMEM_DEVICE AND FERRY_NVSHMEM_HOST)
      break()
    endif()
  endforeach()
  set(FERRY_NVSHMEM_FOUND FALSE PARENT_SCOPE)
  if(NOT FERRY_NVSHMEM_INCLUDE OR NOT FERRY_NVSHMEM_DEVICE OR NOT FERRY_NVSHMEM_HOST)
    return()
  endif()

  set(version "")
  set(lines "")
  set(header ${FERRY_NVSHMEM_INCLUDE}/non_abi/nvshmem_version.h)
  if(EXISTS ${header})
    file(STRINGS ${header} lines REGEX "define NVSHMEM_VENDOR_(MAJOR|MINOR|PATCH)_VERSION")
  endif()
  foreach(line ${lines})
    string(REGEX REPLACE ".*VERSION +" "" number ${line})
    list(APPEND version ${number})
  endforeach()
  list(JOIN version "." version)
  set(FERRY_NVSHMEM_VERSION "${version}" PARENT_SCOPE)

  if(NOT TARGET ferry::nvshmem_runtime)
    get_filename_component(folder ${FERRY_NVSHMEM_HOST} DIRECTORY)
    add_library(ferry::nvshmem_headers INTERFACE IMPORTED)
    target_include_directories(ferry::nvshmem_headers INTERFACE ${FERRY_NVSHMEM_INCLUDE})
    add_library(ferry::nvshmem_runtime INTERFACE IMPORTED)
    target_link_libraries(ferry::nvshmem_runtime INTERFACE ${FERRY_NVSHMEM_DEVICE} ${FERRY_NVSHMEM_HOST})
    target_link_options(ferry::nvshmem_runtime INTERFACE LINKER:-rpath,${folder}) # its plugins lie beside it
  endif()
  set(FERRY_NVSHMEM_FOUND TRUE PARENT_SCOPE)
endfunction()
ferry_find_nvshmem()
