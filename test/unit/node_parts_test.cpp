// The parts of a Node, each alone over a registry: no other process, and no Node.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/stat.h>

#include <memory>
#include <optional>

#include "core/node/attachments.hpp"
#include "core/node/bus.hpp"
#include "core/node/members.hpp"
#include "core/node/proxies.hpp"
#include "core/node/reservations.hpp"
#include "core/node/segment_breaks.hpp"
#include "core/node/segment_marks.hpp"
#include "core/node/segment_slots.hpp"
#include "node/node_support.hpp"

namespace cmi::test::node_parts_test {
namespace {

using node::ContextSlot;

// The seat of a context in the node of a folder, without a slot of its own until join() takes one.
struct Place {
  node::Seat seat;
  node::Members members{seat};
  node::SegmentSlots segments{seat};

  Place(const NodeFolder& folder, uint64_t mem_max) {
    seat.config = folder.config();
    seat.config.mem_max = mem_max;
    seat.self = random_context_id();
    locked([](const node::Exclusive&) {});
  }
  // Opens the registry, or takes its lock, and calls `use`.
  template <class Use>
  void locked(Use use) {
    if (!seat.registry) {
      std::optional<node::Exclusive> lock;
      REQUIRE(ok(node::Registry::open_locked(seat.config, node::Registry::Open::kCreate,
                                             Deadline::in(node::kLockWait), seat.registry, lock)));
      return use(*lock);
    }
    node::Exclusive lock(seat.registry->lock(), Deadline::in(node::kLockWait));
    REQUIRE(lock);
    use(lock);
  }
  void join() {
    locked([&](const node::Exclusive& lock) {
      REQUIRE(ok(members.take_slot_locked(lock)));
      members.publish_locked(lock);
    });
  }
  int32_t segment(uint64_t size = 4096, bool extensible = false) {
    auto id = segments.create_home(size, 0, true, extensible);
    REQUIRE(id);
    return *id;
  }
  ContextSlot slot() const { return ContextSlot{seat.slot}; }
};

// A member of a node whose segments may take 64 KiB.
struct Member : Place {
  explicit Member(const NodeFolder& folder) : Place(folder, 64 << 10) { join(); }
  ~Member() { members.leave(); }
};
}  // namespace

TEST_CASE("Members: a slot is a member's from publish to leave") {
  NodeFolder folder;
  Place a(folder, 0);
  Member b(folder);
  a.locked([&](const node::Exclusive& lock) {
    REQUIRE(ok(a.members.take_slot_locked(lock)));
    CHECK(a.slot() != b.slot());
    CHECK_FALSE(b.members.alive(a.slot(), a.seat.self));
    CHECK(b.members.living().size() == 1);
    a.members.publish_locked(lock);
  });
  CHECK(b.members.alive(a.slot(), a.seat.self));
  CHECK_FALSE(b.members.alive(a.slot(), b.seat.self));
  CHECK(*b.members.find(a.seat.self) == a.slot());
  CHECK(b.members.any([&](const ContextId& id) { return id == a.seat.self; }));
  CHECK(b.members.living().size() == 2);
  a.members.leave();
  CHECK_FALSE(b.members.member(a.slot(), a.seat.self));
  CHECK(b.members.find(a.seat.self).status() == Status::kInval);
  a.members.leave();  // twice is once
  CHECK(b.members.living().size() == 1);
}

TEST_CASE("Members: a life lock that is gone is a death, which reap() finds once") {
  NodeFolder folder;
  Place a(folder, 0);
  Member b(folder);
  a.join();
  a.members.forget_in_child();  // closes the life descriptor and leaves the slot as it is
  CHECK_FALSE(b.members.alive(a.slot(), a.seat.self));
  CHECK(b.members.member(a.slot(), a.seat.self));
  CHECK(*b.members.reap() == 1);
  CHECK_FALSE(b.members.member(a.slot(), a.seat.self));
  CHECK(*b.members.reap() == 0);
}

TEST_CASE(
    "Bus: a datagram carries its sender, and none reaches or leaves a context without a slot") {
  NodeFolder folder;
  Member a(folder), b(folder);
  node::Bus from(a.seat), to(b.seat);
  REQUIRE(ok(from.open()));
  REQUIRE(ok(to.open()));
  REQUIRE(ok(from.send(b.slot(), bytes("hello"))));
  pollfd p{to.fd(), POLLIN, 0};
  CHECK(poll(&p, 1, 0) == 1);
  auto d = to.receive();
  REQUIRE(d);
  CHECK(text(d->bytes) == "hello");
  CHECK(d->from == a.slot());
  CHECK(d->sender == a.seat.self);
  CHECK(from.send(ContextSlot{77}, bytes("x")) == Status::kInval);
  CHECK(from.address().slot == a.seat.slot);
  // What a context has sent is dropped once it is no member any more.
  REQUIRE(ok(from.send(b.slot(), bytes("late"))));
  a.members.leave();
  CHECK(to.receive().status() == Status::kReconfig);
}

TEST_CASE("SegmentMarks: what is noted while the lock is held is made later, in order") {
  NodeFolder folder;
  Member a(folder);
  node::SegmentMarks marks(a.seat);
  const int32_t id = a.segment();
  CHECK(marks.settle(0));  // nothing to do
  a.locked([&](const node::Exclusive&) {
    marks.note(id, node::kMarkExported | node::kMarkQuiesced, 0);
    marks.note(id + 1, node::kMarkExported, 0);  // of a segment that there is not
    marks.note(id, 0, node::kMarkQuiesced);
  });
  CHECK(a.segments.find(id)->marks == 0);
  CHECK(marks.settle(kMilli));
  CHECK(a.segments.find(id)->marks == node::kMarkExported);
  CHECK(marks.set(id, 0, node::kMarkExported) == Status::kOk);
  CHECK(marks.set(id, 64, 0) == Status::kInval);
  CHECK(marks.settle(0));  // each once
  CHECK(a.segments.find(id)->marks == 0);
}

TEST_CASE("SegmentMarks: a noted break is an import's own, and counts against the limit") {
  NodeFolder folder;
  Member a(folder), b(folder);
  node::SegmentMarks mine(a.seat), foreign(b.seat);
  auto id = a.segments.create_proxy(32 << 10, 0, bytes("handle"), true);
  REQUIRE(id);
  foreign.note_break(*id, 8192);
  CHECK(foreign.settle(kMilli));
  CHECK(a.segments.find(*id)->brk == 0);
  mine.note_break(*id, 8192);
  CHECK(mine.settle(kMilli));
  CHECK(a.segments.find(*id)->brk == 8192);
  CHECK(a.segments.memory_in_use() == 8192);
}

TEST_CASE("SegmentBreaks: up as far as the limit lets it, down in two steps") {
  NodeFolder folder;
  Member a(folder), b(folder);
  node::SegmentMarks marks(a.seat), others(b.seat);
  node::SegmentBreaks breaks(a.seat, marks), foreign(b.seat, others);
  const int32_t id = a.segment(1 << 20, true);
  auto file = a.segments.open_file(id);
  REQUIRE(file);
  const auto size = [&] {
    struct stat st {};
    REQUIRE(fstat(file->get(), &st) == 0);
    return st.st_size;
  };
  CHECK(breaks.raise(id, file->get(), 128 << 10, true) == Status::kNoMem);
  CHECK(size() == 0);
  CHECK(a.segments.memory_in_use() == 0);
  CHECK(breaks.raise(id, file->get(), 48 << 10, true) == Status::kOk);
  CHECK(size() == 48 << 10);
  CHECK(breaks.has_room(16 << 10) == Status::kOk);
  CHECK(breaks.has_room((16 << 10) + 1) == Status::kNoMem);
  CHECK(foreign.lower(id, 4096) == Status::kPerm);
  CHECK(breaks.lower(id, 4096) == Status::kOk);
  CHECK(a.segments.memory_in_use() == 48 << 10);  // nothing is freed before cut()
  uint64_t seen = 0;
  CHECK(foreign.while_steady(id, [&](uint64_t brk) { seen = brk; }) == Status::kOk);
  CHECK(seen == 4096);
  CHECK(breaks.cut(id, file->get(), 4096) == Status::kOk);
  CHECK(size() == 4096);
  CHECK(a.segments.memory_in_use() == 4096);
}

TEST_CASE("Attachments: each context once, and the last one of a removed segment deletes it") {
  NodeFolder folder;
  Member a(folder), b(folder);
  node::Attachments mine(a.seat), theirs(b.seat);
  const int32_t id = a.segment();
  auto first = mine.attach(id), second = mine.attach(id), other = theirs.attach(id);
  REQUIRE((first && second && other));
  CHECK(mine.of(id) == std::vector{a.slot(), b.slot()});
  CHECK(a.segments.find(id)->attachments == 3);
  CHECK(a.segments.remove(id) == Status::kOk);
  CHECK(mine.attach(id).status() == Status::kInval);
  mine.detach(*other);  // another context's: stays
  mine.detach(*first);
  mine.detach(*second);
  CHECK(a.segments.find(id)->attachments == 1);
  theirs.detach(*other);
  CHECK(a.segments.find(id).status() == Status::kInval);
  CHECK(a.segments.memory_in_use() == 0);
}

TEST_CASE("Proxies: the handle and the latest token, stored by the importer alone") {
  NodeFolder folder;
  Member a(folder), b(folder);
  node::Proxies mine(a.seat), theirs(b.seat);
  auto id = a.segments.create_proxy(4096, 0, bytes("handle"));
  REQUIRE(id);
  CHECK(text(*theirs.blob(*id)) == "handle");
  uint64_t version = 7;
  CHECK(theirs.token(*id, &version)->empty());
  CHECK(version == 0);
  CHECK(theirs.store_token(*id, bytes("theirs")) == Status::kPerm);
  CHECK(mine.store_token(*id, bytes("one")) == Status::kOk);
  CHECK(mine.store_token(*id, bytes("another")) == Status::kOk);
  CHECK(text(*theirs.token(*id, &version)) == "another");
  CHECK(version == 2);
  CHECK(mine.blob(a.segment()).status() == Status::kInval);  // no proxy
}

TEST_CASE("Reservations: what is held counts, and a segment made within it takes nothing more") {
  NodeFolder folder;
  Member a(folder);
  node::Reservations reservations(a.seat);
  CHECK(reservations.make((64 << 10) + 1).status() == Status::kNoMem);
  auto key = reservations.make(60 << 10);
  REQUIRE(key);
  CHECK(a.segments.memory_in_use() == 60 << 10);
  CHECK(a.segments.create_home(8192, 0, true).status() == Status::kNoMem);
  auto id = a.segments.create_home(8192, 0, true, false, *key);
  REQUIRE(id);
  CHECK(reservations.find(*key)->used == 8192);
  CHECK(a.segments.memory_in_use() == 60 << 10);
  CHECK(reservations.resize(*key, 4096) == Status::kInval);  // less than is in use
  CHECK(reservations.resize(*key, 16 << 10) == Status::kOk);
  CHECK(a.segments.memory_in_use() == 16 << 10);
  CHECK(reservations.all().size() == 1);
  CHECK(reservations.remove(*key) == Status::kOk);
  CHECK(reservations.find(*key).status() == Status::kInval);
  CHECK(a.segments.memory_in_use() == 8192);
}

}  // namespace cmi::test::node_parts_test
