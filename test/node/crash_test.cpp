// kill -9 at every named point, and at random: what is left is right, and the next one cleans it
// up.
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <random>

#include "core/base/fault_point.hpp"
#include "core/node/fault_points.hpp"
#include "node_support.hpp"
#include "support/long_run.hpp"

TEST_SUITE_BEGIN("fault");

namespace cmi::test::crash_test {
namespace {

using node::Attachment;
using node::Node;

std::unique_ptr<Node> join(const node::Config& c) {
  auto n = Node::join(c, random_context_id());
  REQUIRE(n);
  return n.take();
}

void arm(const std::string& spec) {
  setenv("CMI_FAULT_POINT", spec.c_str(), 1);
  arm_fault_points();
}

// Everything a member can do to the registry, alone in the folder: passes every point.
void live_a_life(const node::Config& config) {
  auto n = Node::join(config, random_context_id());
  CHILD_CHECK(n);
  Node& node = **n;
  auto home = node.segments().create_home(8192, 0, true);
  auto proxy = node.segments().create_proxy(8192, 0, bytes("handle"));
  CHILD_CHECK(home && proxy);
  auto grows = node.segments().create_home(16384, 0, true, true);
  CHILD_CHECK(grows);
  auto file = node.segments().open_file(*grows);
  CHILD_CHECK(file && ok(node.breaks().raise(*grows, file->get(), 12288, true)));
  CHILD_CHECK(ok(node.breaks().lower(*grows, 4096)) &&
              ok(node.breaks().cut(*grows, file->get(), 4096)));
  CHILD_CHECK(ok(node.marks().set(*home, node::kMarkExported, 0)));
  CHILD_CHECK(ok(node.proxies().store_token(*proxy, bytes("token"))));
  CHILD_CHECK(ok(node.proxies().store_token(*proxy, bytes("another"))));
  auto first = node.attachments().attach(*home), second = node.attachments().attach(*proxy);
  CHILD_CHECK(first && second);
  CHILD_CHECK(ok(node.segments().remove(*home)));
  node.attachments().detach(*first);
  auto last = node.segments().create_home(4096, 0, true);
  CHILD_CHECK(last && node.attachments().attach(*last));
  auto key = node.reservations().make(16384);
  CHILD_CHECK(key && ok(node.reservations().resize(*key, 32768)));
  auto within = node.segments().create_home(8192, 0, true, false, *key);
  CHILD_CHECK(within && ok(node.segments().remove(*within)) &&
              ok(node.reservations().remove(*key)));
}

// A death may leave its reservation, which then holds what it promises, and is deleted.
void delete_reservations(Node& node) {
  for (const node::ReservationInfo& r : node.reservations().all()) {
    CHECK(r.used == 0);
    CHECK(node.segments().memory_in_use() >= r.size);
    CHECK(ok(node.reservations().remove(r.key)));
  }
}

TEST_CASE("a process killed at any point, alone, leaves what the next join repairs") {
  for (const char* point : node::kFaultPoints) {
    CAPTURE(point);
    NodeFolder folder;
    for (bool by_reaping : {false, true}) {
      Child victim([&](Child&) {
        arm(std::string(point) + "=kill");
        live_a_life(folder.config());
      });
      REQUIRE(victim.wait() == -SIGKILL);
      if (by_reaping) {
        REQUIRE(node::reap_folder(folder.config()));
        if (!folder.empty()) delete_reservations(*join(folder.config()));
      } else {
        auto next = join(folder.config());
        delete_reservations(*next);
        CHECK(walk_registry(folder, true) == "");
        CHECK(folder.files() == std::vector<std::string>{"bus-0", "registry"});
        CHECK(next->segments().memory_in_use() == 0);
        CHECK(next->members().living().size() == 1);
        CHECK(*next->members().reap() == 0);
      }
      CHECK(folder.empty());
    }
  }
}

TEST_CASE("a process killed at any point beside a living one leaves what that one repairs") {
  for (const char* point : node::kFaultPoints) {
    CAPTURE(point);
    NodeFolder folder;
    auto me = join(folder.config());
    auto mine = me->segments().create_home(4096, 0, true);
    auto at = me->attachments().attach(*mine);
    REQUIRE(at);
    Child victim([&](Child&) {
      arm(std::string(point) + "=kill");
      live_a_life(folder.config());
    });
    int status = victim.wait();
    bool never = std::strncmp(point, "node.init.", 10) == 0 ||
                 std::strncmp(point, "node.folder.", 12) == 0 ||
                 std::strcmp(point, "node.join.folder_made") == 0;
    CHECK(status == (never ? 0 : -SIGKILL));
    CHECK(walk_registry(folder, false) == "");
    CHECK(me->segments().find(*mine)->attachments == 1);
    REQUIRE(me->members().reap());
    delete_reservations(*me);
    CHECK(walk_registry(folder, true) == "");
    CHECK(folder.files() ==
          std::vector<std::string>{"bus-0", "registry", "seg-" + std::to_string(*mine)});
    CHECK(me->segments().memory_in_use() == 4096);
    me.reset();
    CHECK(folder.empty());
  }
}

TEST_CASE("a segment that a survivor has attached outlives its maker's death at any point") {
  for (const char* point : {"node.remove.before_store", "node.remove.marked", "node.retire.begin",
                            "node.retire.segment_marked", "node.retire.segments_done",
                            "node.retire.socket_unlinked", "node.retire.freed"}) {
    CAPTURE(point);
    NodeFolder folder;
    auto me = join(folder.config());
    Child victim([&](Child& self) {
      arm(std::string(point) + "=kill");
      auto n = Node::join(folder.config(), random_context_id());
      auto home = (*n)->segments().create_home(4096, 0, true),
           other = (*n)->segments().create_home(4096, 0, true);
      CHILD_CHECK(home && other);
      self.say(*home);
      self.say(*other);
      self.hear();
      CHILD_CHECK(ok((*n)->segments().remove(*home)));
    });
    int32_t home = static_cast<int32_t>(victim.hear()), other = static_cast<int32_t>(victim.hear());
    auto first = me->attachments().attach(home), second = me->attachments().attach(other);
    REQUIRE(first);
    REQUIRE(second);
    victim.say(0);
    REQUIRE(victim.wait() == -SIGKILL);
    for (int32_t id : {home, other}) {
      CHECK(me->segments().find(id)->removed);
      CHECK(me->attachments().attach(id).status() == Status::kInval);
      CHECK(me->segments().open_file(id));
    }
    REQUIRE(me->members().reap());
    CHECK(walk_registry(folder, true) == "");
    me->attachments().detach(*first);
    me->attachments().detach(*second);
    CHECK(me->segments().find(home).status() == Status::kInval);
    CHECK(folder.files() == std::vector<std::string>{"bus-0", "registry"});
  }
}

TEST_CASE("a reaper that is killed at any of its steps leaves its work to the next") {
  for (const char* point : node::kFaultPoints) {
    if (std::strncmp(point, "node.retire.", 12) != 0 &&
        std::strncmp(point, "node.delete.", 12) != 0) {
      continue;
    }
    for (int passage = 1; passage <= 3; ++passage) {
      CAPTURE(point);
      CAPTURE(passage);
      NodeFolder folder;
      auto me = join(folder.config());
      std::vector<std::unique_ptr<Child>> dead;
      for (int i = 0; i < 3; ++i) {
        dead.push_back(std::make_unique<Child>([&](Child& self) {
          auto n = Node::join(folder.config(), random_context_id());
          auto a = (*n)->segments().create_home(4096, 0, true),
               b = (*n)->segments().create_proxy(4096, 0, bytes("h"));
          CHILD_CHECK(a && b && (*n)->attachments().attach(*a) && (*n)->attachments().attach(*b));
          self.say(0);
          self.hear();
        }));
      }
      for (auto& c : dead) c->hear();
      for (auto& c : dead) c->kill();
      Child reaper([&](Child&) {
        arm(std::string(point) + "#" + std::to_string(passage) + "=kill");
        CHILD_CHECK(Node::join(folder.config(), random_context_id()));
      });
      CHECK(reaper.wait() == -SIGKILL);
      CHECK(walk_registry(folder, false) == "");
      REQUIRE(me->members().reap());
      CHECK(walk_registry(folder, true) == "");
      CHECK(folder.files() == std::vector<std::string>{"bus-0", "registry"});
    }
  }
}

const int kSteps = long_run() ? 1000 : 300;

Status status_of(Status s) { return s; }
template <class T>
Status status_of(const Result<T>& r) {
  return r.status();
}
// Sixty-four want one lock, on two processors perhaps: who has not had it in its time tries again.
template <class F>
auto patiently(F call) {
  const Deadline end = Deadline::in(120 * kSecond);
  for (;;) {
    auto result = call();
    if (status_of(result) != Status::kReconfig || end.passed()) return result;
  }
}

// One of the sixty-four: makes, attaches, checks, removes; may die anywhere.
void wander(const node::Config& config, uint32_t seed, int32_t* board, size_t board_size) {
  std::mt19937 rng(seed);
  auto pick = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  int death_at = pick(4) == 0 ? static_cast<int>(pick(kSteps)) : kSteps;
  if (pick(4) == 0) {
    size_t n = std::size(node::kFaultPoints);
    arm(std::string(node::kFaultPoints[pick(n)]) + "#" + std::to_string(1 + pick(8)) + "=kill");
  }
  auto n = patiently([&] { return Node::join(config, random_context_id()); });
  CHILD_CHECK(n);
  Node& node = **n;
  std::vector<std::pair<int32_t, Attachment>> attached;
  std::vector<int32_t> made;
  for (int step = 0; step < kSteps; ++step) {
    if (step == death_at) kill(getpid(), SIGKILL);
    switch (pick(6)) {
      case 0: {
        const bool home = pick(2) == 0;
        auto id = patiently([&] {
          return home ? node.segments().create_home(4096, 0, true)
                      : node.segments().create_proxy(4096, 0, bytes("h"));
        });
        CHILD_CHECK(id);
        made.push_back(*id);
        __atomic_store_n(&board[pick(board_size)], *id, __ATOMIC_RELAXED);
        break;
      }
      case 1:
      case 2: {
        int32_t id = __atomic_load_n(&board[pick(board_size)], __ATOMIC_RELAXED);
        auto at = patiently([&] { return node.attachments().attach(id); });
        CHILD_CHECK(at || at.status() == Status::kInval);
        if (at) attached.emplace_back(id, *at);
        break;
      }
      case 3:
        if (!attached.empty()) {
          node.attachments().detach(attached.back().second);
          attached.pop_back();
        }
        break;
      case 4:
        if (!made.empty()) {
          CHILD_CHECK(ok(patiently([&] { return node.segments().remove(made.back()); })));
          made.pop_back();
        }
        break;
      case 5:
        // What this process has attached is there, whoever died.
        for (auto& [id, at] : attached) {
          auto info = patiently([&] { return node.segments().find(id); });
          CHILD_CHECK(info && info->attachments > 0);
        }
        break;
    }
  }
}

TEST_CASE("sixty-four processes that come, go and die at random leave a sound registry") {
  NodeFolder folder;
  auto config = folder.config();
  constexpr size_t kBoard = 64;
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  Mapping mapping(shared, 4096);
  auto* board = static_cast<int32_t*>(shared);
  auto me = join(config);
  std::vector<std::unique_ptr<Child>> children;
  for (uint32_t i = 0; i < 64; ++i) {
    children.push_back(std::make_unique<Child>([&, i](Child& self) {
      self.hear();
      wander(config, 1000 + i, board, kBoard);
    }));
  }
  for (auto& c : children) c->say(0);
  // Half of those that would live are killed wherever they are just now.
  for (size_t i = 0; i < children.size(); i += 2) {
    CHECK(walk_registry(folder, false) == "");
    ::kill(children[i]->pid(), SIGKILL);
  }
  int killed = 0;
  for (auto& c : children) {
    int status = c->wait();
    bool as_planned = status == 0 || status == -SIGKILL;
    CHECK(as_planned);
    killed += status == -SIGKILL ? 1 : 0;
  }
  CHECK(killed > 0);
  CHECK(killed < 64);
  CHECK(walk_registry(folder, false) == "");
  REQUIRE(me->members().reap());
  CHECK(walk_registry(folder, true) == "");
  CHECK(folder.files() == std::vector<std::string>{"bus-0", "registry"});
  CHECK(me->segments().memory_in_use() == 0);
  me.reset();
  CHECK(folder.empty());
}

}  // namespace
}  // namespace cmi::test::crash_test

TEST_SUITE_END();
