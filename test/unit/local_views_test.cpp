// Views that map the pages of a home on the same machine, and what both sides share of them: marks,
// the word that cuts the importer off, the word that nobody caches pages. Both sides are in this
// process. What may be loaded and stored is found by system calls, which fail where an access would
// fault.
#include "core/memory/importer/local_views.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "core/memory/home/local_importer.hpp"

namespace cmi::test::local_views_test {
using namespace cmi::memory;

namespace {

constexpr uint32_t kPages = 64;
constexpr size_t kSize = kPages * kPageSize;
constexpr LocalImporter::Ticket kTicket{1, 2};
using Taker = LocalViews::Taker;
using Page = LocalViews::Page;

bool possible() {
  Userfault::probe(UINT32_MAX);
  if (Userfault::features().continue_protected) return true;
  MESSAGE("skipped: needs Linux 6.4");
  return false;
}

uint32_t count(const std::vector<PageRange>& ranges) {
  uint32_t pages = 0;
  for (const PageRange& r : ranges) pages += r.count;
  return pages;
}

struct Machine {
  DirtyCount dirty{false};
  FluxPages flux;
  Streams reads;
  StoreStreams streams;
  Fd segment{::memfd_create("segment", MFD_CLOEXEC)};
  Fd in, out;
  LocalImporter at_home{kTicket};
  LocalViews views;
  std::byte* view = nullptr;

  Machine() {
    REQUIRE(::ftruncate(segment.get(), kSize) == 0);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    out = Fd(ends[0]);
    in = Fd(ends[1]);
    REQUIRE(views.begin(kPages, dirty));
    view = views.add(nullptr, false);
    REQUIRE(view != nullptr);
  }
  ~Machine() { ::munmap(view, kSize); }

  bool grant() {
    auto control = LocalControl::make(kPages);
    REQUIRE(control);
    auto theirs = LocalControl::open(Fd(::dup(control->file())), kPages);
    REQUIRE(theirs);
    REQUIRE(at_home.may_take(kTicket));
    at_home.take(control.take(), Userfault(), {}, kSize);
    return views.open(theirs.take(), views.addresses());
  }
  void map() {
    REQUIRE(views.map_file(Fd(::dup(segment.get())), true));
    REQUIRE(grant());
  }

  std::byte* at(uint32_t page) const { return view + page * kPageSize; }
  bool loads(uint32_t page) const {
    uint64_t word = 0;
    return ::write(in.get(), at(page), sizeof word) == sizeof word &&
           ::read(out.get(), &word, sizeof word) == sizeof word;
  }
  bool stores(uint32_t page, uint64_t word = 7) const {
    REQUIRE(::write(in.get(), &word, sizeof word) == sizeof word);
    if (::read(out.get(), at(page), sizeof word) == sizeof word) return true;
    REQUIRE(::read(out.get(), &word, sizeof word) == sizeof word);
    return false;
  }
  // As a fault does: what there is to be seen of the page, and the page in the view.
  Page load_faults(uint32_t page) {
    return views.look(page, [&](LocalViews::Opened& opened) {
      if (opened.page() != Page::kNoGrant) CHECK(opened.map(reads, flux, kPages));
      return opened.page();
    });
  }
  Page store_faults(uint32_t page) {
    return views.look(page, [&](LocalViews::Opened& opened) {
      if (opened.page() != Page::kNoGrant) CHECK(opened.map_for_stores(streams, flux, kPages));
      return opened.page();
    });
  }
  uint32_t marked() const { return count(at_home.marked().all()); }
};

}  // namespace

TEST_SUITE("local_views") {
  // What a home and an importer of two versions of the library have to agree on.
  TEST_CASE("the_bytes_of_the_file_of_marks") {
    auto control = LocalControl::make(kPages);
    REQUIRE(control);
    const auto at = [&](off_t offset) {
      uint32_t word = 0;
      REQUIRE(::pread(control->file(), &word, sizeof word, offset) == sizeof word);
      return word;
    };
    CHECK(::lseek(control->file(), 0, SEEK_END) == 2 * kPageSize);
    CHECK(at(0) == 0);
    CHECK(at(4) == 0);
    control->cut_off();
    CHECK(at(0) == 1);
    CHECK(at(4) == 0);
    control->set_alone(true);
    CHECK(at(4) == 1);
    control->mark(5, true);
    CHECK(at(4096) == 0);
    CHECK(at(4100) == 0x100);
    control->mark(5, false);
    CHECK(at(4100) == 0);
  }

  TEST_CASE("nothing_is_mapped_without_a_grant_and_then_protected") {
    if (!possible()) return;
    Machine m;
    REQUIRE(m.views.map_file(Fd(::dup(m.segment.get())), true));
    CHECK(m.load_faults(3) == Page::kNoGrant);
    CHECK_FALSE(m.loads(3));
    REQUIRE(m.grant());
    CHECK_FALSE(m.loads(3));
    CHECK(m.load_faults(3) == Page::kProtected);
    CHECK(m.loads(3));
    CHECK(m.loads(15));  // of those around it
    CHECK_FALSE(m.loads(16));
    CHECK_FALSE(m.stores(3));
    CHECK(m.marked() == 0);
    CHECK_FALSE(m.dirty.any());
  }

  TEST_CASE("a_grant_is_for_the_views_that_it_was_asked_for") {
    if (!possible()) return;
    Machine m;
    m.map();
    CHECK(m.load_faults(0) == Page::kProtected);
    std::byte* const another = m.views.add(nullptr, true);
    REQUIRE(another != nullptr);
    CHECK_FALSE(m.loads(0));  // the home does not know of the new one
    CHECK(m.load_faults(0) == Page::kNoGrant);
    auto control = LocalControl::make(kPages);
    REQUIRE(control);
    CHECK_FALSE(m.views.open(control.take(), {m.view}));
    ::munmap(another, kSize);
    m.views.remove(another);
  }

  TEST_CASE("a_page_is_marked_from_before_it_can_be_stored_to_until_the_home_has_answered") {
    if (!possible()) return;
    Machine m;
    m.map();
    CHECK(m.store_faults(5) == Page::kProtected);
    CHECK(m.marked() == 1);
    CHECK(m.at_home.marked().contains(5));
    CHECK(m.dirty.count() == 1);
    CHECK(m.stores(5));
    CHECK_FALSE(m.views.settled({4, 2}));
    const auto taken = m.views.take(Taker::kOther);
    REQUIRE(count(taken) == 1);
    CHECK(taken[0].first == 5);
    CHECK_FALSE(m.stores(5));
    CHECK(m.loads(5));
    CHECK_FALSE(m.dirty.any());
    CHECK(m.marked() == 1);
    CHECK(m.views.any_in_flight());
    CHECK_FALSE(m.views.settled({4, 2}));
    m.views.answered(taken);
    CHECK(m.marked() == 0);
    CHECK_FALSE(m.views.any_in_flight());
    CHECK(m.views.settled({4, 2}));
  }

  TEST_CASE("a_page_that_is_stored_to_while_it_is_announced_stays_marked") {
    if (!possible()) return;
    Machine m;
    m.map();
    m.store_faults(5);
    const auto first = m.views.take(Taker::kBarrier);
    m.store_faults(5);
    m.views.answered(first);
    CHECK(m.at_home.marked().contains(5));
    CHECK(m.stores(5));
    const auto second = m.views.take(Taker::kBarrier);
    CHECK(count(second) == 1);
    m.views.answered(second);
    CHECK(m.marked() == 0);
  }

  TEST_CASE("a_new_grant_has_the_marks_of_what_is_stored_or_announced") {
    if (!possible()) return;
    Machine m;
    m.map();
    m.store_faults(5);
    const auto announced = m.views.take(Taker::kOther);
    m.store_faults(9);
    m.views.close();
    LocalImporter again{{3, 4}};
    auto control = LocalControl::make(kPages);
    REQUIRE(control);
    auto theirs = LocalControl::open(Fd(::dup(control->file())), kPages);
    REQUIRE(theirs);
    CHECK_FALSE(again.may_take(kTicket));
    again.take(control.take(), Userfault(), {}, kSize);
    CHECK_FALSE(again.may_take({3, 4}));  // once
    REQUIRE(m.views.open(theirs.take(), m.views.addresses()));
    CHECK(count(again.marked().all()) == 2);
    CHECK(again.marked().contains(5));
    CHECK(again.marked().contains(9));
    m.views.answered(announced);
  }

  TEST_CASE("who_is_cut_off_maps_nothing_any_more") {
    if (!possible()) return;
    Machine m;
    m.map();
    m.load_faults(5);
    m.store_faults(9);
    m.at_home.cut_off();
    CHECK(m.load_faults(5) == Page::kNoGrant);
    CHECK_FALSE(m.loads(5));
    CHECK_FALSE(m.stores(9));
    CHECK(m.at_home.marked().contains(9));  // what a fence puts in flux
  }

  TEST_CASE("while_nobody_caches_pages_a_barrier_announces_none_and_hot_ones_stay_writable") {
    if (!possible()) return;
    Machine m;
    m.map();
    m.at_home.set_alone(true);
    m.store_faults(5);
    CHECK_FALSE(m.views.published());
    CHECK(m.views.take(Taker::kBarrier).empty());
    CHECK(m.views.published());
    CHECK(m.views.all_published());
    CHECK(m.marked() == 0);
    CHECK_FALSE(m.stores(5));
    // Stored to again: it stays as it is until the timer comes.
    m.store_faults(5);
    CHECK(m.views.published());
    CHECK(m.views.take(Taker::kBarrier).empty());
    CHECK(m.stores(5));
    CHECK(m.at_home.marked().contains(5));
    CHECK(m.views.take(Taker::kTimer).empty());
    CHECK_FALSE(m.stores(5));
    CHECK(m.marked() == 0);
    // Somebody caches pages: all that may have been stored to is announced, hot or not.
    m.store_faults(5);
    m.store_faults(9);
    m.at_home.set_alone(false);
    CHECK_FALSE(m.views.published());
    CHECK(count(m.views.take(Taker::kBarrier)) == 2);
  }

  TEST_CASE("pages_in_flux_are_not_mapped_with_those_around_them") {
    if (!possible()) return;
    Machine m;
    m.map();
    const PageRange listed[] = {{4, 2}};
    m.flux.add(listed);
    m.load_faults(3);
    CHECK(m.loads(3));
    CHECK_FALSE(m.loads(4));
    CHECK_FALSE(m.loads(5));
    m.load_faults(4);
    CHECK_FALSE(m.loads(4));
  }

  TEST_CASE("what_lies_past_a_break_is_stored_to_no_more_and_has_no_mark") {
    if (!possible()) return;
    Machine m;
    m.map();
    m.store_faults(5);
    m.store_faults(20);
    m.views.drop_past(10);
    CHECK_FALSE(m.loads(20));
    CHECK(m.stores(5));
    CHECK(m.marked() == 1);
    CHECK(m.dirty.count() == 1);
    m.views.drop_past(0);
    CHECK_FALSE(m.views.any_stored());
  }

  TEST_CASE("a_swap_marks_its_page_where_it_is_made_and_only_there") {
    if (!possible()) return;
    Machine m;
    m.map();
    using Swapped = LocalViews::Opened::Swapped;
    uint64_t found = 0;
    const auto swap = [&](uint64_t expected, uint64_t desired) {
      return m.views.look(5, [&](LocalViews::Opened& opened) {
        return opened.swap(16, expected, desired, &found);
      });
    };
    CHECK(swap(1, 2) == Swapped::kLost);
    CHECK(found == 0);
    CHECK(m.marked() == 0);
    CHECK(swap(0, 3) == Swapped::kMade);
    CHECK(m.at_home.marked().contains(5));
    uint64_t word = 0;
    CHECK(::pread(m.segment.get(), &word, sizeof word, 5 * kPageSize + 16) == sizeof word);
    CHECK(word == 3);
    m.at_home.cut_off();
    CHECK(swap(3, 4) == Swapped::kNot);
  }

  TEST_CASE("views_end_each_with_what_is_mapped_in_its_place") {
    if (!possible()) return;
    Machine m;
    m.map();
    std::vector<std::byte*> ended;
    bool good = false;
    const auto end = [&] {
      return m.views.end(
          [&](std::byte* at) {
            ended.push_back(at);
            return good;
          },
          [&] {
            CHECK(m.views.local());  // nobody takes an access for one to the new views yet
            return good;
          });
    };
    CHECK_FALSE(end());
    CHECK(m.views.local());
    ended.clear();
    good = true;
    CHECK(end());
    CHECK(ended == std::vector<std::byte*>{m.view});
    CHECK_FALSE(m.views.local());
    CHECK(m.views.addresses().empty());
  }
}

}  // namespace cmi::test::local_views_test
