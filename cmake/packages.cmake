# Debian packages, made by `./run package`: libcmi0, libcmi-dev, cmi-tools, libcmi-doc, with CMI_PYTHON=1
# python3-cmi, and the symbols of those with programs for debuggers. The version is that of project() in CMakeLists.txt.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME libcmi)
set(CPACK_PACKAGE_VENDOR "the libcmi authors")
set(CPACK_PACKAGE_CONTACT "the libcmi authors <maintainers@libcmi.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_BINARY_DIR}/packages)
set(CPACK_COMPONENTS_ALL runtime dev tools doc)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(version "${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}")
set(shared "Processes on one or several nodes load from and store to the same
memory, kept coherent in user space, over whatever fabric libfabric
reaches: TCP, shared memory, RDMA devices.")

# cmi_package(component name section architecture text): what is said of one package.
function(cmi_package component name section text)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${text}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${text}" PARENT_SCOPE)
endfunction()
cmi_package(runtime libcmi${CMI_SOVERSION} libs "Coherent Memory Interface, library
${shared}
.
This is the library that programs are linked with.")
cmi_package(dev libcmi-dev libdevel "Coherent Memory Interface, for development
${shared}
.
Headers for C and C++, the CMake package and the file for pkg-config.")
cmi_package(tools cmi-tools admin "Coherent Memory Interface, tools of the administrator
${shared}
.
cmiadm shows which processes share what and what that costs, cleans up
after dead ones, and finds out what a machine lacks.")
cmi_package(doc libcmi-doc doc "Coherent Memory Interface, manual and examples
${shared}
.
The pages of the manual, what each promise rests on, the design, and examples.")

if(TARGET cmi_python)
  list(APPEND CPACK_COMPONENTS_ALL python)
  cmi_package(python python3-cmi python "Coherent Memory Interface, package cmi of Python
${shared}
.
Segments as memoryviews and arrays of NumPy, atomic words, locks, events.")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "libcmi${CMI_SOVERSION} (= ${version}), python3 (>= 3.${CMI_PYTHON_MINOR}), \
python3 (<< 3.${CMI_PYTHON_NEXT})")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS python3-numpy)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
    ${PROJECT_SOURCE_DIR}/cmake/debian/python/postinst ${PROJECT_SOURCE_DIR}/cmake/debian/python/prerm)
  # The module is linked with the library, which is in no package that is installed where packages are made.
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
  set(CPACK_DEBIAN_PYTHON_DEBUGINFO_PACKAGE ON)
endif()

# libfabric is loaded, not linked, so no list of libraries names it.
foreach(upper RUNTIME TOOLS)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "libfabric1 (>= 1.17)")
  set(CPACK_DEBIAN_${upper}_DEBUGINFO_PACKAGE ON)
endforeach()
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
# As Debian wants it; CPack writes scripts that call ldconfig besides.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libcmi${CMI_SOVERSION} (= ${version})")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS libcmi-doc)
set(CPACK_DEBIAN_DOC_PACKAGE_ARCHITECTURE all)

# What Debian wants of each package besides: packed pages of the manual, a changelog, the licence.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_files.cmake)
set(CPACK_CMI_SOURCE ${PROJECT_SOURCE_DIR})
set(CPACK_CMI_VERSION ${version})
set(CPACK_CMI_PACKAGES "runtime=libcmi${CMI_SOVERSION};dev=libcmi-dev;tools=cmi-tools;doc=libcmi-doc")
if(TARGET cmi_python)
  list(APPEND CPACK_CMI_PACKAGES python=python3-cmi)
endif()
include(CPack)
