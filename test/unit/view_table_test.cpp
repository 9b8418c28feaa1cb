// Lookup at the edges of views, beside and after changes.
#include "core/memory/vm/view_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>

#include "core/base/ids.hpp"

namespace cmi::test::view_table_test {
using namespace cmi::memory;

namespace {

// Addresses are only compared, so they need not be mapped.
std::byte* at(size_t page) {
  return reinterpret_cast<std::byte*>(uintptr_t{0x7000'0000'0000} + page * kPageSize);
}

std::shared_ptr<const View> view(size_t first, size_t pages) {
  auto v = std::make_shared<View>();
  v->addr = at(first);
  v->len = pages * kPageSize;
  return v;
}

}  // namespace

TEST_CASE("an_empty_table_finds_nothing") {
  ViewTable table;
  CHECK(table.find(nullptr) == nullptr);
  CHECK(table.find(at(0)) == nullptr);
  CHECK(table.find(reinterpret_cast<void*>(UINTPTR_MAX)) == nullptr);
}

TEST_CASE("a_view_is_found_from_its_first_byte_to_its_last") {
  ViewTable table;
  const auto v = view(10, 2);
  table.insert(v);
  CHECK(table.find(at(10) - 1) == nullptr);
  CHECK(table.find(at(10)) == v);
  CHECK(table.find(at(11) + 17) == v);
  CHECK(table.find(at(12) - 1) == v);
  CHECK(table.find(at(12)) == nullptr);
}

TEST_CASE("adjacent_views_are_kept_apart") {
  ViewTable table;
  const auto a = view(1, 1), b = view(2, 1), c = view(3, 1);
  table.insert(c);
  table.insert(a);
  table.insert(b);
  CHECK(table.find(at(2) - 1) == a);
  CHECK(table.find(at(2)) == b);
  CHECK(table.find(at(3) - 1) == b);
  CHECK(table.find(at(3)) == c);
}

TEST_CASE("an_erased_view_is_not_found_and_its_neighbours_are") {
  ViewTable table;
  const auto a = view(1, 1), b = view(2, 1), c = view(3, 1);
  for (auto& v : {a, b, c}) table.insert(v);
  table.erase(b);
  CHECK(table.find(at(2)) == nullptr);
  CHECK(table.find(at(1)) == a);
  CHECK(table.find(at(3)) == c);
  table.erase(b);           // again: nothing happens
  table.erase(view(1, 1));  // equal, but another
  CHECK(table.find(at(1)) == a);
}

TEST_CASE("a_view_in_use_outlives_its_erasure_and_no_longer") {
  ViewTable table;
  std::weak_ptr<const View> watch;
  {
    auto v = view(5, 1);
    watch = v;
    table.insert(v);
  }
  auto used = table.find(at(5));
  REQUIRE(used != nullptr);
  table.erase(used);
  CHECK(used->addr == at(5));
  used.reset();
  CHECK(watch.expired());
}

TEST_CASE("the_table_agrees_with_a_map_of_pages_under_random_changes") {
  constexpr size_t kPages = 64;
  std::mt19937 rng(3);
  ViewTable table;
  std::array<std::shared_ptr<const View>, kPages> reference;  // by page
  for (int step = 0; step < 2000; ++step) {
    const size_t first = rng() % kPages;
    const size_t pages = std::min<size_t>(1 + rng() % 6, kPages - first);
    if (reference[first] != nullptr) {
      const auto gone = reference[first];
      table.erase(gone);
      std::replace(reference.begin(), reference.end(), gone, {});
    } else if (std::all_of(&reference[first], &reference[first] + pages,
                           [](auto& v) { return v == nullptr; })) {
      const auto v = view(first, pages);
      table.insert(v);
      std::fill(&reference[first], &reference[first] + pages, v);
    }
    if (step % 10 == 0) {
      for (size_t p = 0; p < kPages; ++p) REQUIRE(table.find(at(p) + 100) == reference[p]);
    }
  }
}

}  // namespace cmi::test::view_table_test
