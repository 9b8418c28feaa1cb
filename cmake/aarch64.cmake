# Toolchain of a build for aarch64 on another machine, by Debian's g++-aarch64-linux-gnu:
#   test/arm64/prepare FOLDER
#   cmake --preset debug -B build/aarch64 --toolchain cmake/aarch64.cmake -DCMI_SYSROOT=FOLDER/libraries
# test/arm64/run does both, and runs what was built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CMI_SYSROOT)
if(NOT CMI_SYSROOT)
  message(FATAL_ERROR "CMI_SYSROOT: a folder with the libraries of aarch64, as test/arm64/prepare makes it")
endif()
set(CMAKE_SYSROOT ${CMI_SYSROOT})
set(CMAKE_FIND_ROOT_PATH ${CMI_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMI_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMI_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMI_SYSROOT}/usr/share/pkgconfig)
