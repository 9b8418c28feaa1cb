// Memory that the nodes of a user share: their sum, what the machine has free, and what the dead of
// one node hold when another needs it.
#include <cmi.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "core/base/cause.hpp"
#include "core/node/lock_file.hpp"
#include "core/node/machine_memory.hpp"
#include "node/node_support.hpp"
#include "support/skip.hpp"
#include "system/small_tmpfs.hpp"

namespace cmi::test::other_nodes_test {
namespace {

namespace fs = std::filesystem;
using node::MachineMemory;
using node::Node;

constexpr uint64_t kMiB = 1 << 20;
MachineMemory g_machine;  // what the nodes of this file are told; set by each case

node::Config on_machine(const NodeFolder& folder, const std::string& name, MachineMemory memory) {
  g_machine = memory;
  node::Config config = folder.config(name);
  config.machine = [] { return g_machine; };
  return config;
}

std::unique_ptr<Node> join(const node::Config& config) {
  auto node = Node::join(config, random_context_id());
  REQUIRE(node);
  return node.take();
}

Result<int32_t> make(Node& node, uint64_t bytes) {
  return node.segments().create_home(bytes, 0, true);
}
Result<int32_t> import(Node& node, uint64_t size, uint64_t cache = UINT64_MAX) {
  return node.segments().create_proxy(size, 0, bytes("handle"), false, cache);
}

TEST_CASE("all nodes of a user together leave an eighth of the machine") {
  NodeFolder folder;
  const MachineMemory memory{32 * kMiB, UINT64_MAX};
  auto one = join(on_machine(folder, "one", memory));
  auto two = join(on_machine(folder, "two", memory));
  CHECK(two->segments().room_on_machine(0) == 28 * kMiB);
  REQUIRE(make(*one, 12 * kMiB));
  REQUIRE(import(*one, 8 * kMiB));
  CHECK(two->segments().room_on_machine(0) == 8 * kMiB);
  CHECK(make(*two, 8 * kMiB + 4096).status() == Status::kNoMem);
  CHECK(std::string(t_cause.words).find("machine") != std::string::npos);
  CHECK(import(*two, 8 * kMiB + 4096).status() == Status::kNoMem);
  CHECK(two->reservations().make(8 * kMiB + 4096).status() == Status::kNoMem);
  CHECK(two->breaks().has_room(8 * kMiB + 4096, 0) == Status::kNoMem);
  REQUIRE(make(*two, 8 * kMiB));
  CHECK(make(*one, 4096).status() == Status::kNoMem);
}

TEST_CASE("what is found or not when it is touched is no promise of the machines memory") {
  NodeFolder folder;
  auto one = join(on_machine(folder, "one", {32 * kMiB, 4 * kMiB}));
  CHECK(one->segments().create_proxy(48 * kMiB, CMI_SEG_NORESERVE, bytes("handle")));
  CHECK(one->breaks().has_room(8 * kMiB, CMI_SEG_NORESERVE) == Status::kOk);
  CHECK(one->segments().room_on_machine(0) == 3 * kMiB);
  CHECK(make(*one, 4 * kMiB).status() == Status::kNoMem);
}

TEST_CASE("a segment that would use up what the machine has free is refused") {
  NodeFolder folder;
  auto one = join(on_machine(folder, "one", {64 * kMiB, 10 * kMiB}));
  CHECK(one->segments().room_on_machine(0) == 8 * kMiB);  // a part of it is left to others
  CHECK(make(*one, 8 * kMiB + 4096).status() == Status::kNoMem);
  CHECK(make(*one, 8 * kMiB));
  g_machine.free = kMiB;
  CHECK(make(*one, 4096).status() == Status::kNoMem);
}

// A node of this name, one of whose processes was killed with so much memory.
void leave(const node::Config& config, uint64_t bytes) {
  Child dies([&](Child& self) {
    auto node = Node::join(config, random_context_id());
    CHILD_CHECK(node);
    CHILD_CHECK((*node)->segments().create_home(bytes, 0, true));
    self.say(0);
    self.hear();
  });
  dies.hear();
  dies.kill();
}

TEST_CASE("who runs out reaps the dead of the users other nodes") {
  NodeFolder folder;
  const MachineMemory memory{64 * kMiB, UINT64_MAX};
  auto two = join(on_machine(folder, "two", memory));
  const node::Config dead = on_machine(folder, "one", memory);
  const auto gets = [&](const std::function<bool()>& what) {
    leave(dead, 40 * kMiB);
    CHECK(fs::exists(folder.node_dir("one")));
    CHECK(what());
    CHECK_FALSE(fs::exists(folder.node_dir("one")));
  };
  gets([&] {
    auto id = make(*two, 20 * kMiB);
    return id && ok(two->segments().remove(*id));
  });
  gets([&] {
    auto id = import(*two, 20 * kMiB);
    return id && ok(two->segments().remove(*id));
  });
  gets([&] {
    // Who has enough looks no further.
    CHECK(two->segments().room_on_machine(16 * kMiB) == 16 * kMiB);
    CHECK(fs::exists(folder.node_dir("one")));
    return two->segments().room_on_machine(17 * kMiB) == 56 * kMiB;
  });
  gets([&] { return ok(two->breaks().has_room(20 * kMiB, 0)); });
  gets([&] {
    two->late_reaper().want();
    two->late_reaper().begin_if_wanted();
    two->late_reaper().stop();
    return true;
  });
  gets([&] {
    auto key = two->reservations().make(20 * kMiB);
    return key && ok(two->reservations().resize(*key, 24 * kMiB)) &&
           ok(two->reservations().remove(*key));
  });
}

std::string g_registry;         // of the node that asks
int g_asked = 0, g_locked = 0;  // how often, and how often under its lock

TEST_CASE("the machine and other nodes are looked at before the nodes lock is taken") {
  NodeFolder folder;
  node::Config config = folder.config();
  g_registry = folder.registry_path();
  config.machine = [] {
    const Fd fd(open(g_registry.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(fd);
    ++g_asked;
    g_locked += node::byte_locked_elsewhere(fd.get(), node::kExclusiveByte);
    return MachineMemory{64 * kMiB, UINT64_MAX};
  };
  auto node = join(config);
  const auto asks = [&](const std::function<bool()>& what) {
    g_asked = 0;
    CHECK(what());
    CHECK(g_asked == 1);
  };
  asks([&] { return static_cast<bool>(make(*node, kMiB)); });
  const auto proxy = import(*node, 2 * kMiB, kMiB);
  REQUIRE(proxy);
  asks([&] { return ok(node->breaks().charge_cache(*proxy, 2 * kMiB)); });
  asks([&] { return ok(node->breaks().has_room(kMiB, 0)); });
  const auto grows = node->segments().create_home(2 * kMiB, 0, true, true);
  REQUIRE(grows);
  auto file = node->segments().open_file(*grows);
  REQUIRE(file);
  asks([&] { return ok(node->breaks().raise(*grows, file->get(), kMiB, true)); });
  const auto key = node->reservations().make(kMiB);
  REQUIRE(key);
  asks([&] { return ok(node->reservations().resize(*key, 2 * kMiB)); });
  CHECK(g_locked == 0);
}

TEST_CASE("nothing of the living is reaped for one who runs out") {
  NodeFolder folder;
  const MachineMemory memory{64 * kMiB, UINT64_MAX};
  auto one = join(on_machine(folder, "one", memory));
  auto two = join(on_machine(folder, "two", memory));
  const auto id = make(*one, 40 * kMiB);
  REQUIRE(id);
  CHECK(make(*two, 20 * kMiB).status() == Status::kNoMem);
  CHECK_FALSE(one->segments().find(*id)->removed);
  CHECK(walk_registry(folder, true, "one") == "");
}

TEST_CASE("on a full file system the dead of other nodes make room, for a join too") {
  NodeFolder folder;
  Child c([&](Child& self) {
    const std::string top = folder.runtime_dir() + "-small";
    const SmallTmpfs small(top, 16 * kMiB);
    self.say(small.mounted());
    if (!small.mounted()) return;
    node::Config dead = folder.config("one"), config = folder.config("two");
    dead.runtime_dir = config.runtime_dir = top;
    leave(dead, 14 * kMiB);
    {
      auto two = Node::join(config, random_context_id());
      CHILD_CHECK(two);
      CHILD_CHECK((*two)->segments().create_home(4 * kMiB, 0, true));
      auto cache = (*two)->segments().anonymous_file(4 * kMiB, true);
      CHILD_CHECK(cache);
      cache->reset();
      leave(dead, 8 * kMiB);
      CHILD_CHECK((*two)->segments().anonymous_file(4 * kMiB, true));
    }
    leave(dead, 15 * kMiB);
    // Not a byte is left for another registry.
    const std::string rest = top + "/rest";
    Fd fd(open(rest.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    off_t at = 0;
    while (fallocate(fd.get(), 0, at, 4096) == 0) at += 4096;
    CHILD_CHECK(Node::join(config, random_context_id()));
  });
  if (c.hear() == 0) return skip("no mounts of our own here");
  CHECK(c.succeeded());
}

TEST_CASE("a proxy counts what its cache may take") {
  NodeFolder folder;
  node::Config config = folder.config();
  config.mem_max = 8 * kMiB;
  auto node = join(config);
  CHECK(import(*node, 16 * kMiB).status() == Status::kNoMem);
  const auto id = import(*node, 16 * kMiB, 4 * kMiB);
  REQUIRE(id);
  CHECK(node->segments().memory_in_use() == 4 * kMiB);
  CHECK(node->breaks().charge_cache(*id, 16 * kMiB) == Status::kNoMem);
  CHECK(node->segments().memory_in_use() == 4 * kMiB);
  CHECK(ok(node->breaks().charge_cache(*id, 8 * kMiB)));
  CHECK(node->segments().memory_in_use() == 8 * kMiB);
  CHECK(ok(node->breaks().charge_cache(*id, 2 * kMiB)));
  CHECK(node->segments().memory_in_use() == 2 * kMiB);
  // An extensible one counts no more than its break.
  const auto grows = node->segments().create_proxy(16 * kMiB, 0, bytes("handle"), true, 4 * kMiB);
  REQUIRE(grows);
  REQUIRE(ok(node->breaks().store(*grows, kMiB, 4 * kMiB)));
  CHECK(node->segments().memory_in_use() == 3 * kMiB);
  REQUIRE(ok(node->breaks().store(*grows, 9 * kMiB, 4 * kMiB)));
  CHECK(node->segments().memory_in_use() == 6 * kMiB);
  CHECK(ok(node->breaks().charge_cache(*grows, 2 * kMiB)));
  CHECK(node->segments().memory_in_use() == 4 * kMiB);
}

// Files in the place of those of /proc and /sys.
struct Files {
  std::string root;
  Files() {
    char name[] = "/tmp/cmi-machine-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    root = name;
  }
  ~Files() {
    std::error_code ignored;
    fs::remove_all(root, ignored);
  }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
};

TEST_CASE("what the machine has is what the control group leaves of it") {
  const Files files;
  CHECK(node::machine_memory_below(files.root).total == UINT64_MAX);
  files.write("/proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   600 kB\n");
  MachineMemory m = node::machine_memory_below(files.root);
  CHECK(m.total == 1000 << 10);
  CHECK(m.free == 600 << 10);
  files.write("/proc/self/cgroup", "0::/pod/one\n");
  files.write("/sys/fs/cgroup/pod/one/memory.max", "max\n");
  files.write("/sys/fs/cgroup/pod/one/memory.current", "81920\n");
  m = node::machine_memory_below(files.root);
  CHECK(m.total == 1000 << 10);
  CHECK(m.free == 600 << 10);
  files.write("/sys/fs/cgroup/pod/memory.max", "409600\n");
  files.write("/sys/fs/cgroup/pod/memory.current", "204800\n");
  files.write("/sys/fs/cgroup/pod/memory.stat",
              "anon 1\nfile 9\nshmem 3\ninactive_file 20480\nactive_file 40960\n");
  m = node::machine_memory_below(files.root);
  CHECK(m.total == 409600);
  CHECK(m.free == 409600 - (204800 - 61440));
  CHECK(node::most_of_all_nodes(m) == 409600 - 51200);
}

}  // namespace
}  // namespace cmi::test::other_nodes_test
