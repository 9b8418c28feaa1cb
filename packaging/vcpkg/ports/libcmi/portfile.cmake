# Not run: there is no vcpkg here; packaging/check reads vcpkg.json and compares its version. An overlay port, which
# builds the checkout that it lies in: vcpkg install libcmi --overlay-ports=packaging/vcpkg/ports
vcpkg_check_linkage(ONLY_DYNAMIC_LIBRARY)
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DCMI_BUILD_TOOLS=OFF -DCMI_BUILD_TESTS=OFF -DCMI_BUILD_EXAMPLES=OFF -DCMI_BUILD_BENCH=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME cmi CONFIG_PATH lib/cmake/cmi)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
