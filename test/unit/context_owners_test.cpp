// What a context keeps for its client: views, imports, handles and tokens, threads.
#include <doctest/doctest.h>

#include <cstring>
#include <set>

#include "core/context/attached_views.hpp"
#include "core/context/imported_segments.hpp"
#include "core/context/issued_objects.hpp"
#include "core/context/threads.hpp"
#include "core/memory/importer/import.hpp"

namespace cmi::test::context_owners_test {
using namespace cmi::context;

namespace {

void* at(uintptr_t n) { return reinterpret_cast<void*>(n); }

std::shared_ptr<memory::Import> new_import() { return std::make_shared<memory::Import>(); }

// An allocator of the client's that knows what is out, and may be out of memory.
struct Client {
  std::set<void*> out;
  bool empty = false;
  Allocator allocator() {
    return {[](size_t bytes, void* arg) -> void* {
              auto* self = static_cast<Client*>(arg);
              if (self->empty) return nullptr;
              void* p = std::malloc(bytes);
              std::memset(p, 0xee, bytes);
              self->out.insert(p);
              return p;
            },
            [](void* p, void* arg) {
              CHECK(static_cast<Client*>(arg)->out.erase(p) == 1);
              std::free(p);
            },
            this};
  }
};

constexpr auto kHandle = IssuedObjects::Kind::kHandle;
constexpr auto kToken = IssuedObjects::Kind::kToken;

}  // namespace

TEST_SUITE("attached_views") {
  TEST_CASE("a_view_ends_once_and_by_its_own_address_and_segment") {
    AttachedViews views;
    views.add(at(0x1000), {7, node::Attachment{1}, nullptr});
    CHECK(!views.take(at(0x1000), 8));
    CHECK(!views.take(at(0x2000), 7));
    const auto taken = views.take(at(0x1000), 7);
    REQUIRE(taken);
    CHECK(taken->attachment == node::Attachment{1});
    CHECK(!views.take(at(0x1000), 7));
  }
  TEST_CASE("the_lowest_view_is_that_of_the_segment") {
    AttachedViews views;
    CHECK(views.lowest(7) == nullptr);
    views.add(at(0x3000), {7, {}, nullptr});
    views.add(at(0x1000), {8, {}, nullptr});
    views.add(at(0x2000), {7, {}, nullptr});
    CHECK(views.lowest(7) == at(0x2000));
    REQUIRE(views.take(at(0x2000), 7));
    CHECK(views.lowest(7) == at(0x3000));
    CHECK(views.take_all().size() == 2);
    CHECK(views.lowest(8) == nullptr);
  }
}

TEST_SUITE("imported_segments") {
  TEST_CASE("an_import_of_ours_stays_without_views_until_it_is_removed") {
    ImportedSegments imports;
    const auto import = new_import();
    imports.add_ours(1, import);
    CHECK(imports.ours(1) == import);
    CHECK(imports.count_ours() == 1);
    CHECK(imports.take_unused(1) == nullptr);
    REQUIRE(imports.begin_view(1) == import);
    imports.mark_removed(1);
    CHECK(import->events.marked.load());
    CHECK(imports.take_unused(1) == nullptr);
    imports.end_view(1);
    CHECK(imports.take_unused(1) == import);
    CHECK(imports.take_unused(1) == nullptr);
    CHECK(imports.count_ours() == 0);
  }
  TEST_CASE("an_import_that_another_process_made_goes_with_its_last_view") {
    ImportedSegments imports;
    CHECK(imports.begin_view(1) == nullptr);
    const auto import = new_import();
    CHECK(imports.begin_view(1, import) == import);
    CHECK(imports.begin_view(1) == import);
    CHECK(imports.views(1) == 2);
    CHECK(imports.ours(1) == nullptr);
    CHECK(imports.all_ours().empty());
    imports.end_view(1);
    CHECK(imports.take_unused(1) == nullptr);
    imports.end_view(1);
    CHECK(imports.take_unused(1) == import);
  }
  TEST_CASE("of_two_that_are_made_for_one_segment_the_first_stays_and_both_views_count") {
    ImportedSegments imports;
    const auto first = new_import(), second = new_import();
    CHECK(imports.begin_view(1, first) == first);
    CHECK(imports.begin_view(1, second) == first);
    CHECK(imports.views(1) == 2);
    CHECK(second.use_count() == 1);
  }
  TEST_CASE("all_that_are_taken_are_gone") {
    ImportedSegments imports;
    imports.add_ours(1, new_import());
    REQUIRE(imports.begin_view(2, new_import()) != nullptr);
    CHECK(imports.all().size() == 2);
    CHECK(imports.take_all().size() == 2);
    CHECK(imports.all().empty());
    CHECK(!imports.brk(1));
  }
}

TEST_SUITE("issued_objects") {
  TEST_CASE("a_deleted_object_is_given_back_to_the_client_once") {
    Client client;
    const Allocator allocator = client.allocator();
    IssuedObjects issued(allocator);
    std::byte* object = issued.issue(kHandle, 8);
    REQUIRE(object != nullptr);
    const std::byte zeros[8] = {};
    CHECK(std::memcmp(object, zeros, 8) == 0);
    CHECK(!issued.take_back(kToken, object, zeros));
    CHECK(issued.take_back(kHandle, object, zeros));
    CHECK(client.out.empty());
    CHECK(!issued.take_back(kHandle, object, zeros));
  }
  TEST_CASE("a_copy_deletes_one_of_the_same_content_and_the_object_itself_only_itself") {
    Client client;
    const Allocator allocator = client.allocator();
    IssuedObjects issued(allocator);
    std::byte* first = issued.issue(kToken, 8);
    std::byte* second = issued.issue(kToken, 8);
    std::byte* other = issued.issue(kToken, 8);
    const std::byte same[8] = {std::byte{1}}, another[8] = {std::byte{2}};
    std::memcpy(first, same, 8);
    std::memcpy(second, same, 8);
    std::memcpy(other, another, 8);
    CHECK(issued.take_back(kToken, second, same));
    CHECK(client.out == std::set<void*>{first, other});
    CHECK(issued.take_back(kToken, same, same));
    CHECK(client.out == std::set<void*>{other});
    CHECK(!issued.take_back(kToken, same, same));
  }
  TEST_CASE("what_the_client_keeps_is_freed_with_the_context_and_no_memory_is_no_object") {
    Client client;
    const Allocator allocator = client.allocator();
    {
      IssuedObjects issued(allocator);
      CHECK(issued.issue(kHandle, 8) != nullptr);
      CHECK(issued.issue(kToken, 8) != nullptr);
      client.empty = true;
      CHECK(issued.issue(kToken, 8) == nullptr);
      CHECK(client.out.size() == 2);
    }
    CHECK(client.out.empty());
  }
}

TEST_SUITE("thread_list") {
  TEST_CASE("the_last_thread_that_leaves_is_the_last_in_any_order") {
    Thread a, b, c;
    ThreadList threads;
    for (Thread* t : {&a, &b, &c}) threads.add(*t);
    CHECK(threads.count() == 3);
    CHECK(!threads.remove(b));
    CHECK(!threads.remove(c));
    CHECK(threads.remove(a));
    CHECK(threads.count() == 0);
    threads.add(b);
    CHECK(threads.remove(b));
  }
}

}  // namespace cmi::test::context_owners_test
