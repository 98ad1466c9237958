# Installs the build in `build` under `work`, then configures, builds and runs the project in `source` against it. The
# project gets `settings` besides; without `prints` it is not run.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what}: exit ${status}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${work})
run("install" ${CMAKE_COMMAND} --install ${build} --prefix ${work}/prefix --component library)
run("configure" ${CMAKE_COMMAND} -S ${source} -B ${work}/build -G ${generator} -D CMAKE_CXX_COMPILER=${compiler} -D
    CMAKE_PREFIX_PATH=${work}/prefix -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF ${settings})
run("build" ${CMAKE_COMMAND} --build ${work}/build)
if(NOT prints)
  return()
endif()
run("run" ${work}/build/uses_ferry)
if(NOT output MATCHES "${prints}")
  message(FATAL_ERROR "the program printed, instead of '${prints}':\n${output}")
endif()
