// What the machine is said to be, compared with what the system says elsewhere.
#include "core/segment/placement.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstring>

#include "core/base/fd.hpp"

using namespace cmi;

TEST_CASE("the_machine_has_the_memory_and_pages_that_the_kernel_reports") {
  const segment::Machine& m = segment::machine();
  struct sysinfo info;
  REQUIRE(sysinfo(&info) == 0);
  CHECK(m.ram_bytes == uint64_t{info.totalram} * info.mem_unit);
  CHECK(m.page_size == static_cast<uint64_t>(getpagesize()));
  CHECK(&segment::machine() == &m);
}

TEST_CASE("placed_memory_keeps_its_content_and_can_be_used") {
  constexpr size_t kSize = 64 << 10;
  Fd file(memfd_create("placed", MFD_CLOEXEC));
  REQUIRE(file);
  REQUIRE(ftruncate(file.get(), kSize) == 0);
  void* p = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  REQUIRE(p != MAP_FAILED);
  Mapping mapping(p, kSize);
  std::memset(mapping.data(), 1, kSize / 2);
  segment::place_memory(mapping.data(), kSize);
  std::memset(mapping.data() + kSize / 2, 2, kSize / 2);
  CHECK(mapping.data()[0] == std::byte{1});
  CHECK(mapping.data()[kSize - 1] == std::byte{2});
  segment::place_memory(mapping.data(), 0);
}
