// The log of stores at home, where the kernel keeps none: a page is in what take() returns, or its
// next store faults again.
#include "core/memory/vm/store_log.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>
#include <vector>

namespace cmi::test::store_log_test {
using namespace cmi::memory;

namespace {

constexpr uint32_t kPages = 16;
constexpr size_t kSize = kPages * kPageSize;
using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;

struct Watched {
  Fd file{::memfd_create("segment", MFD_CLOEXEC)};
  Fd in, out;
  Mapping view;
  Userfault tracker;

  Watched() {
    Userfault::probe(UINT32_MAX);
    REQUIRE(::ftruncate(file.get(), kSize) == 0);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    out = Fd(ends[0]);
    in = Fd(ends[1]);
    void* const at =
        ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
    REQUIRE(at != MAP_FAILED);
    view = Mapping(at, kSize);
    const char* why = nullptr;
    auto opened = Userfault::open(Userfault::Kind::kGuarded, &why);
    REQUIRE_MESSAGE(opened, (why != nullptr ? why : ""));
    tracker = opened.take();
    REQUIRE(tracker.add(view.data(), kSize) == Status::kOk);
    REQUIRE(tracker.protect(view.data(), kSize));
  }
  std::byte* at(uint32_t page) { return view.data() + page * kPageSize; }
  // By a system call, which fails where a store would fault.
  bool stores(uint32_t page) {
    char byte = 1;
    REQUIRE(::write(in.get(), &byte, 1) == 1);
    if (::read(out.get(), at(page) + 7, 1) == 1) return true;
    REQUIRE(::read(out.get(), &byte, 1) == 1);
    return false;
  }
};

Ranges taken(StoreLog& log) {
  Ranges pages;
  for (const PageRange& r : log.take()) pages.emplace_back(r.first, r.count);
  return pages;
}

}  // namespace

TEST_SUITE("store_log") {
  TEST_CASE("a_page_that_is_noted_may_be_stored_to_until_it_is_taken") {
    Watched w;
    StoreLog log(w.tracker, w.view.data(), kSize, kPageSize);
    CHECK_FALSE(w.stores(3));
    for (uint32_t page : {9, 3, 4}) CHECK(log.note(w.at(page) + 100));
    CHECK(log.note(w.at(3)));  // another thread, at once
    CHECK(w.stores(3));
    CHECK(w.stores(9));
    CHECK_FALSE(w.stores(5));
    CHECK(taken(log) == Ranges{{3, 2}, {9, 1}});
    CHECK_FALSE(w.stores(3));
    CHECK_FALSE(w.stores(9));
    CHECK(taken(log).empty());
  }

  TEST_CASE("what_could_not_be_published_is_taken_once_more") {
    Watched w;
    StoreLog log(w.tracker, w.view.data(), kSize, kPageSize);
    for (uint32_t page : {3, 4}) CHECK(log.note(w.at(page)));
    const auto first = log.take();
    log.put_back(first);
    CHECK(log.note(w.at(6)));
    CHECK(taken(log) == Ranges{{3, 2}, {6, 1}});
  }

  TEST_CASE("pages_that_are_covered_are_forgotten") {
    Watched w;
    StoreLog log(w.tracker, w.view.data(), kSize, kPageSize);
    for (uint32_t page : {3, 4, 5}) CHECK(log.note(w.at(page)));
    log.forget({4, 8});
    CHECK(taken(log) == Ranges{{3, 1}});
  }

  TEST_CASE("a_store_that_protection_does_not_keep_from_its_page_is_given_up") {
    Watched w;
    StoreLog log(w.tracker, w.view.data(), kSize, kPageSize);
    int notes = 0;
    while (notes < 5000 && log.note(w.at(3))) ++notes;
    CHECK(notes > 100);  // threads that race for a page note it once each
    CHECK(notes < 5000);
    CHECK(log.note(w.at(4)));
  }
}

}  // namespace cmi::test::store_log_test
