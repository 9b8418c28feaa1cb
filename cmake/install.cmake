# Installation: headers, library, CMake package, pkg-config file, cmiadm, manual. Components are what
# packages are made of (cmake/packages.cmake): runtime, dev, tools, doc, and python (python/CMakeLists.txt).
# Files are copied whatever lies there: a stripped one may be as old as the one that it was made from.
install(CODE "set(ENV{CMAKE_INSTALL_ALWAYS} 1)")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT dev FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(TARGETS cmi cpp EXPORT cmiTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)

set(CMI_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/cmi)
install(EXPORT cmiTargets NAMESPACE cmi:: DESTINATION ${CMI_PACKAGE_DIR} COMPONENT dev)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/cmiConfig.cmake.in
  ${PROJECT_BINARY_DIR}/cmiConfig.cmake INSTALL_DESTINATION ${CMI_PACKAGE_DIR}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break programs.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmiConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmiConfig.cmake ${PROJECT_BINARY_DIR}/cmiConfigVersion.cmake
  DESTINATION ${CMI_PACKAGE_DIR} COMPONENT dev)

# Folders relative to the .pc file, so that an installation can be moved.
file(RELATIVE_PATH CMI_PC_TO_PREFIX
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/cmake/cmi.pc.in ${PROJECT_BINARY_DIR}/cmi.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# The administrator's program, its completion, and the manual. Where a part of the targets has been built, as by
# ./run demo, the library is installed without the program.
if(CMI_BUILD_TOOLS)
  install(TARGETS cmiadm RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools OPTIONAL)
  install(CODE "if(NOT EXISTS \"$<TARGET_FILE:cmiadm>\")
    message(STATUS \"Left out: cmiadm, which has not been built (target cmiadm)\")
  endif()")
  install(FILES ${PROJECT_SOURCE_DIR}/tools/cmiadm/cmiadm.bash
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME cmiadm COMPONENT tools)
endif()
set(component_of_man3 doc)
set(component_of_man7 doc)
set(component_of_man8 tools)
foreach(section 3 7 8)
  file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/doc/man/*.${section})
  install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section}
    COMPONENT ${component_of_man${section}})
endforeach()
# In packages alone.
set(CMI_DOC_DIR ${CMAKE_INSTALL_DATADIR}/doc/libcmi-doc)
install(FILES README.md SECURITY.md DESTINATION ${CMI_DOC_DIR} COMPONENT doc EXCLUDE_FROM_ALL)
install(FILES CHANGELOG.md DESTINATION ${CMI_DOC_DIR} RENAME changelog COMPONENT doc EXCLUDE_FROM_ALL)  # Debian's name
install(DIRECTORY doc examples DESTINATION ${CMI_DOC_DIR} COMPONENT doc EXCLUDE_FROM_ALL
  PATTERN "man" EXCLUDE PATTERN "CMakeLists.txt" EXCLUDE)
# What is lost by libraries under this one, for programs that are run with LeakSanitizer.
install(FILES ${PROJECT_SOURCE_DIR}/test/support/lsan.supp
  DESTINATION ${CMAKE_INSTALL_DATADIR}/cmi COMPONENT dev)

# What debuggers read lies beside what programs load: a fifteenth of the size is left.
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND CMAKE_OBJCOPY)
  install(CODE "set(CMI_OBJCOPY \"${CMAKE_OBJCOPY}\")
    set(CMI_BINARIES \"${CMAKE_INSTALL_LIBDIR}/$<TARGET_FILE_NAME:cmi>\"
      \"${CMAKE_INSTALL_BINDIR}/cmiadm\")")
  if(TARGET cmi_python)
    install(CODE "list(APPEND CMI_BINARIES \"${CMI_PYTHON_MODULE}\")")
  endif()
  install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/debug_symbols.cmake)
endif()
