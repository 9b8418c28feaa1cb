// Membership: who is a node, who is a member, what is left when members go, and what lies in the
// folder that is not ours.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "core/base/cause.hpp"
#include "core/base/fd.hpp"
#include "node_support.hpp"
#include "support/skip.hpp"

namespace cmi::test::join_test {
namespace {

namespace fs = std::filesystem;
using node::ContextSlot;
using node::Node;

std::unique_ptr<Node> join(const node::Config& c, ContextId id = random_context_id()) {
  auto n = Node::join(c, id);
  REQUIRE(n);
  return n.take();
}

Status join_status(const node::Config& c) { return Node::join(c, random_context_id()).status(); }

TEST_CASE("a joined context is found by its id, and no more after it left") {
  NodeFolder folder;
  ContextId ia = random_context_id(), ib = random_context_id();
  auto a = join(folder.config(), ia), b = join(folder.config(), ib);
  CHECK(a->id() == b->id());
  CHECK(a->slot() != b->slot());
  REQUIRE(a->members().find(ib));
  CHECK(*a->members().find(ib) == b->slot());
  CHECK(a->members().alive(a->slot(), ia));
  CHECK(a->members().alive(b->slot(), ib));
  CHECK_FALSE(a->members().alive(b->slot(), ia));
  CHECK_FALSE(a->members().alive(ContextSlot{node::kMaxContexts}, ia));
  CHECK(a->members().living().size() == 2);
  ContextSlot slot = b->slot();
  b.reset();
  CHECK_FALSE(a->members().alive(slot, ib));
  CHECK(a->members().find(ib).status() == Status::kInval);
  CHECK(a->members().living().size() == 1);
  CHECK(walk_registry(folder, true) == "");
}

TEST_CASE("folders and files of the node are closed to others") {
  NodeFolder folder;
  auto a = join(folder.config());
  REQUIRE(a->segments().create_home(4096, 0, true));
  struct stat st;
  for (auto& dir : {folder.runtime_dir(), folder.node_dir()}) {
    REQUIRE(lstat(dir.c_str(), &st) == 0);
    CHECK((st.st_mode & 07777) == 0700);
  }
  CHECK(folder.files().size() == 3);
  for (auto& f : folder.files()) {
    REQUIRE(lstat((folder.node_dir() + "/" + f).c_str(), &st) == 0);
    CHECK((st.st_mode & 0777) == 0600);
  }
}

TEST_CASE("the last member takes the node's folder away") {
  NodeFolder folder;
  auto a = join(folder.config()), b = join(folder.config());
  REQUIRE(a->segments().create_home(4096, 0, true));
  REQUIRE(b->segments().create_proxy(4096, 0, bytes("handle")));
  a.reset();
  CHECK(walk_registry(folder, true) == "");
  b.reset();
  CHECK(folder.empty());
  CHECK(fs::exists(folder.runtime_dir()));  // chosen by the user: stays
}

TEST_CASE("two names on one machine are two nodes") {
  NodeFolder folder;
  auto a = join(folder.config("one")), b = join(folder.config("two"));
  CHECK(a->id() != b->id());
  auto id = a->segments().create_home(4096, 0, true);
  REQUIRE(id);
  CHECK(b->segments().find(*id).status() == Status::kInval);
  CHECK(b->members().living().size() == 1);
  CHECK(node::node_id_of("one") == a->id());
  CHECK(node::node_id_of(node::default_node_name()) != a->id());
}

TEST_CASE("sixteen processes that join at once get sixteen slots, many times over") {
  NodeFolder folder;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<Child>> children;
    for (int i = 0; i < 16; ++i) {
      children.push_back(std::make_unique<Child>([&](Child& c) {
        c.hear();
        for (int again = 0; again < 5; ++again) {  // the folder comes and goes meanwhile
          CHILD_CHECK(Node::join(folder.config(), random_context_id()));
        }
        auto n = Node::join(folder.config(), random_context_id());
        CHILD_CHECK(n);
        c.say(static_cast<int64_t>((*n)->slot()));
        c.hear();
        CHILD_CHECK((*n)->members().living().size() == 16);
        c.say(0);
        c.hear();
      }));
    }
    for (auto& c : children) c->say(0);
    std::set<int64_t> slots;
    for (auto& c : children) slots.insert(c->hear());
    CHECK(slots.size() == 16);
    CHECK(walk_registry(folder, true) == "");
    for (auto& c : children) c->say(0);
    for (auto& c : children) c->hear();
    for (auto& c : children) c->say(0);
    for (auto& c : children) CHECK(c->succeeded());
    CHECK(folder.empty());
  }
}

TEST_CASE("a killed process is no member at once, and its slot is free after reaping") {
  NodeFolder folder;
  auto me = join(folder.config());
  ContextId id = random_context_id();
  Child c([&](Child& self) {
    auto n = Node::join(folder.config(), id);
    CHILD_CHECK(n);
    self.say(static_cast<int64_t>((*n)->slot()));
    self.hear();
  });
  ContextSlot slot{static_cast<uint32_t>(c.hear())};
  CHECK(me->members().alive(slot, id));
  c.kill();
  CHECK_FALSE(me->members().alive(slot, id));
  CHECK(me->members().living().size() == 1);
  auto reaped = me->members().reap();
  REQUIRE(reaped);
  CHECK(*reaped == 1);
  CHECK(*me->members().reap() == 0);
  CHECK(walk_registry(folder, true) == "");
}

TEST_CASE("reap_folder removes what the last process left when it was killed") {
  NodeFolder folder;
  Child c([&](Child& self) {
    auto n = Node::join(folder.config(), random_context_id());
    CHILD_CHECK(n && (*n)->segments().create_home(1 << 20, 0, true));
    self.say(0);
    self.hear();
  });
  c.hear();
  CHECK(*node::reap_folder(folder.config()) == 0);  // alive: nothing happens
  CHECK(folder.files().size() == 3);
  c.kill();
  auto dead = node::reap_folder(folder.config());
  REQUIRE(dead);
  CHECK(*dead == 1);
  CHECK(folder.empty());
  CHECK(*node::reap_folder(folder.config()) == 0);  // no folder at all
}

TEST_CASE("a forked child that forgets the node does not keep its parent alive") {
  NodeFolder folder;
  auto me = join(folder.config());
  ContextId id = random_context_id();
  Child parent([&](Child& self) {
    auto n = Node::join(folder.config(), id);
    CHILD_CHECK(n);
    auto seg = (*n)->segments().create_home(4096, 0, true);
    CHILD_CHECK(seg);
    std::array<int, 2> ready;
    CHILD_CHECK(pipe(ready.data()) == 0);
    pid_t grandchild = fork();
    if (grandchild == 0) {
      (*n)->forget_in_child();
      char b = 0;
      CHILD_CHECK(write(ready[1], &b, 1) == 1);
      for (;;) pause();
    }
    char b;
    CHILD_CHECK(read(ready[0], &b, 1) == 1);
    self.say(grandchild);
    self.say(*seg);
    self.hear();
  });
  pid_t grandchild = static_cast<pid_t>(parent.hear());
  int32_t seg = static_cast<int32_t>(parent.hear());
  ContextSlot slot = *me->members().find(id);
  parent.kill();
  bool alive = me->members().alive(slot, id);
  auto info = me->segments().find(seg);
  bool grandchild_lives = ::kill(grandchild, 0) == 0;
  ::kill(grandchild, SIGKILL);
  CHECK(grandchild_lives);
  CHECK_FALSE(alive);
  REQUIRE(info);
  CHECK(info->removed);
}

void write_registry(const NodeFolder& folder, const std::string& content) {
  fs::create_directories(folder.node_dir());
  fs::permissions(folder.runtime_dir(), fs::perms::owner_all);
  fs::permissions(folder.node_dir(), fs::perms::owner_all);
  std::ofstream(folder.registry_path(), std::ios::binary) << content;
  fs::permissions(folder.registry_path(), fs::perms::owner_read | fs::perms::owner_write);
}

std::string read_registry(const NodeFolder& folder) {
  std::ifstream in(folder.registry_path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_CASE(
    "a damaged registry that nobody uses is left alone by the reaper and made anew by a join") {
  NodeFolder folder;
  std::string good;
  {
    auto a = join(folder.config());
    good = read_registry(folder);
  }
  const std::vector<std::string> damaged = {"x",
                                            "not a registry",
                                            std::string(good.size(), 'x'),
                                            good.substr(0, 4096),
                                            good.substr(0, good.size() - 1),
                                            good + "x"};
  for (const std::string& content : damaged) {
    CAPTURE(content.size());
    write_registry(folder, content);
    std::ofstream(folder.node_dir() + "/seg-4097") << "x";
    CHECK(node::reap_folder(folder.config()).status() == Status::kInval);
    CHECK(read_registry(folder) == content);
    auto a = join(folder.config());
    auto b = join(folder.config());
    CHECK(folder.files() == std::vector<std::string>{"bus-0", "bus-1", "registry"});
  }
}

TEST_CASE("a damaged registry that a process uses is refused and left alone") {
  NodeFolder folder;
  auto a = join(folder.config());
  const std::string good = read_registry(folder);
  {
    std::fstream file(folder.registry_path(), std::ios::in | std::ios::out | std::ios::binary);
    file << "x";  // the first byte of its magic
  }
  const std::string damaged = read_registry(folder);
  CHECK(join_status(folder.config()) == Status::kInval);
  CHECK(std::string(t_cause.words).find("damaged") != std::string::npos);
  CHECK(read_registry(folder) == damaged);
  std::fstream(folder.registry_path(), std::ios::in | std::ios::out | std::ios::binary) << good[0];
  CHECK(join_status(folder.config()) == Status::kOk);
}

TEST_CASE("a registry that is no plain file of ours alone is refused") {
  NodeFolder folder;
  write_registry(folder, "");
  fs::remove(folder.registry_path());
  REQUIRE(mkfifo(folder.registry_path().c_str(), 0600) == 0);
  CHECK(join_status(folder.config()) == Status::kPerm);
  fs::remove(folder.registry_path());
  write_registry(folder, "");
  fs::permissions(folder.registry_path(), fs::perms(0644));
  CHECK(join_status(folder.config()) == Status::kPerm);
}

TEST_CASE("a folder of another user is refused") {
  if (geteuid() != 0) return skip("only root can give a folder away");
  NodeFolder folder;
  REQUIRE(mkdir(folder.runtime_dir().c_str(), 0700) == 0);
  REQUIRE(chown(folder.runtime_dir().c_str(), 65534, 65534) == 0);
  CHECK(join_status(folder.config()) == Status::kPerm);
  CHECK(std::string(t_cause.words).find("another user") != std::string::npos);
}

TEST_CASE("a runtime folder that cannot be is an error, not a crash") {
  node::Config c;
  c.name = "one";
  CHECK(join_status(c) == Status::kInval);
  c.runtime_dir = "/nowhere/at/all";
  CHECK(join_status(c) == Status::kInval);
  c.runtime_dir = "/proc/cmi";
  CHECK(join_status(c) != Status::kOk);
  c.runtime_dir = std::string("a\0b", 3);
  CHECK(join_status(c) == Status::kInval);
  c.runtime_dir = "/dev/shm/" + std::string(300, 'x');
  CHECK(join_status(c) == Status::kInval);
}

TEST_CASE("files that no slot names are swept by the next join, foreign names stay") {
  NodeFolder folder;
  auto a = join(folder.config());
  for (auto name : {"seg-4097", "seg-99999", "bus-77", "tmp-0123", "README", "seg-x", "bus-1x"}) {
    std::ofstream(folder.node_dir() + "/" + name) << "x";
  }
  auto b = join(folder.config());
  std::vector<std::string> left{"README", "bus-0", "bus-1", "bus-1x", "registry", "seg-x"};
  CHECK(folder.files() == left);
}

TEST_CASE("the default runtime folder goes when it is empty") {
  std::string dir = node::default_runtime_dir();
  if (fs::exists(dir)) return skip("the default runtime folder is in use");
  node::Config c;
  c.default_dir = true;
  c.name = "a test of the default folder " + std::to_string(getpid());
  {
    auto a = join(c);
    CHECK(a->config().runtime_dir == dir);
    CHECK(fs::exists(dir));
  }
  c.default_dir = false;
  c.runtime_dir = dir;
  CHECK_FALSE(fs::exists(dir));
  REQUIRE(mkdir(dir.c_str(), 0700) == 0);
  REQUIRE(node::reap_folder(c));
  CHECK_FALSE(fs::exists(dir));
}

TEST_CASE("a lock that a stopped process holds ends as reconfig, not as a hang") {
  NodeFolder folder;
  auto a = join(folder.config());
  Child holder([&](Child& self) {
    int fd = open(folder.registry_path().c_str(), O_RDWR | O_CLOEXEC);
    struct flock l {};
    l.l_type = F_WRLCK;
    l.l_start = off_t{1} << 40;
    l.l_len = 1;
    CHILD_CHECK(fd >= 0 && fcntl(fd, F_OFD_SETLK, &l) == 0);
    self.say(0);
    self.hear();
  });
  holder.hear();
  CHECK(join_status(folder.config()) == Status::kReconfig);
  holder.kill();
  CHECK(join_status(folder.config()) == Status::kOk);
}

}  // namespace
}  // namespace cmi::test::join_test
