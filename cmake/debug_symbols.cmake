# Run by `cmake --install`: moves the symbols of CMI_BINARIES, files below the prefix, to a .debug folder
# beside each, where debuggers look. Not into the folder of the library itself: ldconfig would take
# the file for a library.
if(CMAKE_INSTALL_DO_STRIP)
  return()  # they are gone already
endif()
foreach(binary IN LISTS CMI_BINARIES)
  set(path "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${binary}")
  if(NOT EXISTS "${path}")
    continue()
  endif()
  cmake_path(GET binary PARENT_PATH folder)
  cmake_path(GET binary FILENAME name)
  set(beside "${folder}/.debug/${name}.debug")
  set(symbols "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${beside}")
  message(STATUS "Symbols: ${symbols}")
  file(MAKE_DIRECTORY "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${folder}/.debug")
  execute_process(COMMAND "${CMI_OBJCOPY}" --only-keep-debug "${path}" "${symbols}"
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${CMI_OBJCOPY}" --strip-unneeded "--add-gnu-debuglink=${symbols}" "${path}"
    COMMAND_ERROR_IS_FATAL ANY)
  file(CHMOD "${symbols}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_PREFIX}/${beside}")
endforeach()
