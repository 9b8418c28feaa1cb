// What a process of this machine may write into the file of marks that it shares with a home or an
// importer, and into the socket that passes descriptors. CMI_TEST_SEED plays one seed again.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "core/memory/home/local_importer.hpp"
#include "core/memory/vm/local_control.hpp"
#include "core/memory/wire/local_messages.hpp"
#include "fuzz/choices.hpp"
#include "fuzz/contexts.hpp"

namespace cmi::test {

namespace {
using namespace cmi::memory;

constexpr uint32_t kPages = 100;

// The other side's mapping of the file, where anything may be written.
struct Liar {
  size_t size = 0;
  Mapping map;
  explicit Liar(const LocalControl& of)
      : size(static_cast<size_t>(::lseek(of.file(), 0, SEEK_END))),
        map(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, of.file(), 0), size) {}
  void write(Choices& choices) {
    for (size_t i = 0; i < 64; ++i) {
      map.data()[choices.below(size)] = static_cast<std::byte>(choices.any());
    }
  }
};
}  // namespace

TEST_CASE("a_liar_in_the_file_of_marks_names_pages_of_its_segment_alone") {
  Choices choices(number_from("CMI_TEST_SEED", 7));
  auto control = LocalControl::make(kPages);
  REQUIRE(control);
  Liar liar(*control);
  auto other = LocalControl::open(Fd(::dup(control->file())), kPages);
  REQUIRE(other);
  LocalImporter importer({});
  importer.take(control.take(), Userfault(), {}, kPages * kPageSize);
  for (int round = 0; round < 500; ++round) {
    liar.write(choices);
    const PageSet marked = importer.marked();
    for (const PageRange& r : marked.all()) CHECK(uint64_t{r.first} + r.count <= kPages);
    (void)other->alone();
    (void)other->is_cut_off();
    other->mark(static_cast<uint32_t>(choices.below(kPages)), choices.one_in(2));
  }
  // Neither can take the file's pages from the other.
  CHECK(::ftruncate(other->file(), 0) != 0);
  CHECK(::ftruncate(other->file(), 1 << 20) != 0);
  importer.cut_off();
  CHECK(other->is_cut_off());
}

TEST_CASE("an_importer_takes_no_file_of_marks_of_another_size_or_without_seals") {
  for (const uint32_t pages : {1U, 4095U, 4096U, 4097U, 9000U}) {
    auto right = LocalControl::make(pages);
    REQUIRE(right);
    CHECK(LocalControl::open(Fd(::dup(right->file())), pages));
    CHECK_FALSE(LocalControl::open(Fd(::dup(right->file())), pages + 8192));
    const auto size = ::lseek(right->file(), 0, SEEK_END);
    Fd open(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(open.get(), size) == 0);
    CHECK_FALSE(LocalControl::open(std::move(open), pages));
  }
  CHECK_FALSE(LocalControl::open(Fd(), 1));
  CHECK_FALSE(LocalControl::open(Fd(::open("/dev/zero", O_RDWR | O_CLOEXEC)), 1));
}

TEST_CASE("what_comes_over_the_socket_is_a_message_or_nothing") {
  Choices choices(number_from("CMI_TEST_SEED", 8));
  size_t taken = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::byte> bytes(choices.below(round % 2 == 0 ? 64 : 4096));
    for (std::byte& b : bytes) b = static_cast<std::byte>(choices.any());
    LocalAsk asked;
    if (decode(Bytes(bytes), &asked)) {
      ++taken;
      CHECK(asked.body.size() % sizeof(uint64_t) == 0);
      CHECK(asked.body.size() / sizeof(uint64_t) <= LocalAsk::kMostViews);
    }
    LocalGranted granted;
    if (decode(Bytes(bytes), &granted)) CHECK(granted.writable <= 1);
    RingAsk rings;
    CHECK(decode(Bytes(bytes), &rings) == (bytes.size() == kWireSize<RingAsk>));
  }
  CHECK(taken > 0);
}

}  // namespace cmi::test
