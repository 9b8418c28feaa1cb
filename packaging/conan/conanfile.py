# Not run: there is no Conan here; packaging/check compiles it. For Conan 2: conan create packaging/conan
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.gnu import PkgConfigDeps


class Libcmi(ConanFile):
    name = "libcmi"
    license = "BSD-3-Clause"
    description = "Coherent Memory Interface in user space over libfabric"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"tools": [True, False]}
    default_options = {"tools": False}

    @property
    def _sources(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._sources, "CMakeLists.txt"))
        self.version = re.search(r"project\(cmi VERSION ([0-9.]+)", text).group(1)

    def export_sources(self):
        for what in ("CMakeLists.txt", "LICENSE", "include/*", "src/*", "cmake/*", "tools/*", "doc/*",
                     "test/support/lsan.supp"):
            copy(self, what, self._sources, self.export_sources_folder)

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("libcmi runs on Linux on x86-64 and aarch64")

    def requirements(self):
        # libfabric, libmd and zydis come from the system, where they are no packages of Conan.
        self.requires("fmt/[>=9]")
        self.requires("hwloc/[>=2.4]")
        if self.options.tools:
            self.requires("cli11/[>=2.1]")
            self.requires("nlohmann_json/[>=3.11]")

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.25]")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["CMI_BUILD_TOOLS"] = bool(self.options.tools)
        for part in ("TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables["CMI_BUILD_" + part] = False
        toolchain.generate()
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.libs = ["cmi"]
        self.cpp_info.set_property("cmake_file_name", "cmi")
        self.cpp_info.set_property("cmake_target_name", "cmi::cmi")
        self.cpp_info.set_property("pkg_config_name", "cmi")
