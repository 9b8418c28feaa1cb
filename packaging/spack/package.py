# Not run: there is no Spack here; packaging/check compiles it and compares its version.
from spack.package import *


class Libcmi(CMakePackage):
    """Coherent Memory Interface: distributed shared memory in user space over libfabric."""

    license("BSD-3-Clause")
    # Its checksum is added with the release; until then, from a checkout: spack develop libcmi@main
    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("tools", default=True, description="cmiadm, for the administrator")
    variant("write_through", default=True, description="segments whose stores are executed at home")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("libfabric@1.17:")
    depends_on("hwloc@2.4:")
    depends_on("libmd@1.0:")
    depends_on("fmt@9:")
    depends_on("zydis@4:", when="+write_through")
    depends_on("cli11@2.1:", type="build", when="+tools")
    depends_on("nlohmann-json@3.11:", type="build", when="+tools")

    requires("target=x86_64:", "target=aarch64:", policy="one_of", msg="libcmi runs on x86-64 and aarch64")
    requires("platform=linux", msg="libcmi needs userfaultfd, which is Linux's")

    def cmake_args(self):
        return [
            self.define_from_variant("CMI_BUILD_TOOLS", "tools"),
            self.define("CMI_BUILD_TESTS", False),
            self.define("CMI_BUILD_EXAMPLES", False),
            self.define("CMI_BUILD_BENCH", False),
        ]
