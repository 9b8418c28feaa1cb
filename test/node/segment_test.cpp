// Segments in the registry: life, ids, files, proxies, limits.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>

#include "core/base/fd.hpp"
#include "core/base/log.hpp"
#include "node_support.hpp"
#include "support/skip.hpp"

namespace cmi::test::segment_test {
namespace {

using node::Attachment;
using node::Node;
using node::SegmentKind;

std::unique_ptr<Node> join(const node::Config& c) {
  auto n = Node::join(c, random_context_id());
  REQUIRE(n);
  return n.take();
}

TEST_CASE("a home segment is one file for all processes of the node") {
  NodeFolder folder;
  auto a = join(folder.config());
  auto id = a->segments().create_home(3 * 4096, 5, true);
  REQUIRE(id);
  CHECK(*id > 0);
  Child c([&](Child&) {
    auto n = Node::join(folder.config(), random_context_id());
    CHILD_CHECK(n && (*n)->attachments().attach(*id));
    auto fd = (*n)->segments().open_file(*id);
    CHILD_CHECK(fd && pwrite(fd->get(), "seen", 4, 4096) == 4);
    _exit(0);  // without leaving
  });
  CHECK(c.succeeded());
  auto fd = a->segments().open_file(*id);
  REQUIRE(fd);
  CHECK((fcntl(fd->get(), F_GETFD) & FD_CLOEXEC) != 0);
  struct stat st;
  REQUIRE(fstat(fd->get(), &st) == 0);
  CHECK(st.st_size == 3 * 4096);
  CHECK(st.st_blocks * 512 >= 3 * 4096);
  char buf[4];
  REQUIRE(pread(fd->get(), buf, 4, 4096) == 4);
  CHECK(std::string(buf, 4) == "seen");
  auto info = a->segments().find(*id);
  REQUIRE(info);
  CHECK(info->kind == SegmentKind::kHome);
  CHECK(info->size == 3 * 4096);
  CHECK(info->flags == 5);
  CHECK(info->owner == a->slot());
  CHECK(info->owner_alive);
  CHECK(info->owner_pid == getpid());
  CHECK_FALSE(info->removed);
  CHECK(info->attachments == 0);  // the dead process's does not count
  CHECK(a->segments().memory_in_use() == 3 * 4096);
}

TEST_CASE("without reservation a segment takes no memory until it is used") {
  NodeFolder folder;
  auto a = join(folder.config());
  auto id = a->segments().create_home(uint64_t{1} << 40, 0, false);
  REQUIRE(id);
  auto fd = a->segments().open_file(*id);
  REQUIRE(fd);
  struct stat st;
  REQUIRE(fstat(fd->get(), &st) == 0);
  CHECK(st.st_size == off_t{1} << 40);
  CHECK(st.st_blocks == 0);
  CHECK(a->segments().memory_in_use() == 0);
}

TEST_CASE("a removed segment refuses new attachments and goes with the last detach") {
  NodeFolder folder;
  auto a = join(folder.config()), b = join(folder.config());
  auto id = a->segments().create_home(4096, 0, true);
  REQUIRE(id);
  auto first = b->attachments().attach(*id), second = b->attachments().attach(*id);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(a->segments().find(*id)->attachments == 2);
  CHECK(b->segments().remove(*id) == Status::kPerm);
  CHECK(a->segments().remove(*id) == Status::kOk);
  CHECK(a->segments().remove(*id) == Status::kOk);
  CHECK(b->attachments().attach(*id).status() == Status::kInval);
  CHECK(a->segments().find(*id)->removed);
  b->attachments().detach(*first);
  CHECK(a->segments().find(*id)->attachments == 1);
  a->attachments().detach(*second);  // not ours: nothing happens
  CHECK(a->segments().find(*id)->attachments == 1);
  b->attachments().detach(*second);
  CHECK(a->segments().find(*id).status() == Status::kInval);
  CHECK(a->segments().remove(*id) == Status::kOk);  // was ours
  CHECK(b->segments().remove(*id) == Status::kInval);
  CHECK(a->segments().memory_in_use() == 0);
  CHECK(walk_registry(folder, true) == "");
  CHECK(folder.files() == std::vector<std::string>{"bus-0", "bus-1", "registry"});
}

TEST_CASE("removing what nobody has attached deletes it at once") {
  NodeFolder folder;
  auto a = join(folder.config());
  auto id = a->segments().create_home(4096, 0, true);
  CHECK(a->segments().remove(*id) == Status::kOk);
  CHECK(folder.files() == std::vector<std::string>{"bus-0", "registry"});
  CHECK(a->attachments().attach(*id).status() == Status::kInval);
  CHECK(a->segments().open_file(*id).status() == Status::kInval);
}

TEST_CASE("a dead owner's segment counts as removed at once and stays usable for who has it") {
  NodeFolder folder;
  auto me = join(folder.config());
  Child owner([&](Child& self) {
    auto n = Node::join(folder.config(), random_context_id());
    CHILD_CHECK(n);
    self.say(*(*n)->segments().create_home(4096, 0, true));
    self.say(*(*n)->segments().create_proxy(8192, 0, bytes("handle")));
    self.hear();
  });
  int32_t home = static_cast<int32_t>(owner.hear()), proxy = static_cast<int32_t>(owner.hear());
  auto at_home = me->attachments().attach(home), at_proxy = me->attachments().attach(proxy);
  REQUIRE(at_home);
  REQUIRE(at_proxy);
  auto fd = me->segments().open_file(home);
  REQUIRE(fd);
  void* view = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  REQUIRE(view != MAP_FAILED);
  Mapping mapping(view, 4096);
  owner.kill();

  for (int32_t id : {home, proxy}) {  // nobody has reaped yet
    auto info = me->segments().find(id);
    REQUIRE(info);
    CHECK(info->removed);
    CHECK_FALSE(info->owner_alive);
    CHECK(info->attachments == 1);
    CHECK(me->attachments().attach(id).status() == Status::kInval);
    CHECK(me->segments().remove(id) == Status::kPerm);
  }
  *static_cast<volatile char*>(view) = 7;
  CHECK(*static_cast<volatile char*>(view) == 7);
  CHECK(me->segments().open_file(home));
  CHECK(text(*me->proxies().blob(proxy)) == "handle");

  CHECK(*me->members().reap() == 1);
  CHECK(walk_registry(folder, true) == "");
  CHECK(me->segments().find(home)->removed);
  me->attachments().detach(*at_home);
  CHECK(me->segments().find(home).status() == Status::kInval);
  me->attachments().detach(*at_proxy);
  CHECK(me->segments().find(proxy).status() == Status::kInval);
  CHECK(me->segments().memory_in_use() == 0);
  CHECK(folder.files() == std::vector<std::string>{"bus-0", "registry"});
}

TEST_CASE("the last detach of a dead owner's segment deletes it without a reaper") {
  NodeFolder folder;
  auto me = join(folder.config());
  Child owner([&](Child& self) {
    auto n = Node::join(folder.config(), random_context_id());
    CHILD_CHECK(n);
    self.say(*(*n)->segments().create_home(4096, 0, true));
    self.hear();
  });
  int32_t id = static_cast<int32_t>(owner.hear());
  auto at = me->attachments().attach(id);
  REQUIRE(at);
  owner.kill();
  me->attachments().detach(*at);
  CHECK(me->segments().find(id).status() == Status::kInval);
  CHECK(walk_registry(folder, true) == "");
}

TEST_CASE("an id is not used again while the segment is attached, nor soon after") {
  NodeFolder folder;
  auto a = join(folder.config()), b = join(folder.config());
  auto kept = a->segments().create_home(4096, 0, true);
  auto at = b->attachments().attach(*kept);
  REQUIRE(at);
  REQUIRE(a->segments().remove(*kept) == Status::kOk);
  std::set<int32_t> seen{*kept};
  for (int i = 0; i < 10000; ++i) {
    auto id = a->segments().create_home(4096, 0, false);
    REQUIRE(id);
    REQUIRE(*id > 0);
    REQUIRE(seen.insert(*id).second);
    if (i == 5000) b->attachments().detach(*at);
    REQUIRE(a->segments().remove(*id) == Status::kOk);
  }
}

TEST_CASE("ids stay positive when the generations of a slot wrap around") {
  NodeFolder folder;
  auto a = join(folder.config());
  Fd fd(open(folder.registry_path().c_str(), O_RDWR | O_CLOEXEC));
  constexpr off_t kGeneration = 128 + 256 * 32 + 8;  // of slot 0
  for (uint32_t start : {(1u << 19) - 2, (1u << 19) - 1, 0u, UINT32_MAX}) {
    REQUIRE(pwrite(fd.get(), &start, 4, kGeneration) == 4);
    for (int i = 0; i < 4; ++i) {
      auto id = a->segments().create_home(4096, 0, false);
      REQUIRE(id);
      CHECK(*id > 0);
      CHECK((*id & 4095) == 0);
      CHECK((*id >> 12) != 0);
      CHECK(a->segments().find(*id));
      CHECK(walk_registry(folder, true) == "");
      REQUIRE(a->segments().remove(*id) == Status::kOk);
    }
  }
}

TEST_CASE("a proxy keeps its handle and the newest token for the other processes") {
  NodeFolder folder;
  auto a = join(folder.config()), b = join(folder.config());
  std::string handle(node::kMaxBlob, 'h');
  auto id = a->segments().create_proxy(1 << 20, 3, bytes(handle));
  REQUIRE(id);
  CHECK(b->segments().find(*id)->kind == SegmentKind::kProxy);
  CHECK(b->segments().find(*id)->flags == 3);
  CHECK(text(*b->proxies().blob(*id)) == handle);
  CHECK(b->segments().open_file(*id).status() == Status::kInval);
  uint64_t version = 99;
  CHECK(b->proxies().token(*id, &version)->empty());
  CHECK(version == 0);
  CHECK(a->proxies().store_token(*id, bytes("first")) == Status::kOk);
  CHECK(text(*b->proxies().token(*id, &version)) == "first");
  CHECK(version == 1);
  CHECK(a->proxies().store_token(*id, bytes(handle)) == Status::kOk);
  CHECK(text(*b->proxies().token(*id, &version)) == handle);
  CHECK(version == 2);
  CHECK(b->proxies().store_token(*id, bytes("mine")) == Status::kPerm);
  CHECK(a->proxies().store_token(*id, bytes(handle + "x")) == Status::kInval);
  CHECK(a->segments().create_proxy(4096, 0, bytes(handle + "x")).status() == Status::kInval);
  auto home = a->segments().create_home(4096, 0, true);
  CHECK(a->proxies().blob(*home).status() == Status::kInval);
  CHECK(a->proxies().store_token(*home, bytes("x")) == Status::kInval);
  CHECK(a->proxies().token(*home, &version).status() == Status::kInval);
}

TEST_CASE("a damaged proxy file is an error") {
  NodeFolder folder;
  auto a = join(folder.config());
  auto id = a->segments().create_proxy(4096, 0, bytes("handle"));
  std::string path = folder.node_dir() + "/seg-" + std::to_string(*id);
  Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  uint32_t huge = UINT32_MAX;
  uint64_t version;
  REQUIRE(pwrite(fd.get(), &huge, 4, 16) == 4);  // the blob's length
  CHECK(a->proxies().blob(*id).status() == Status::kInval);
  REQUIRE(ftruncate(fd.get(), 100) == 0);
  CHECK(a->proxies().token(*id, &version).status() == Status::kInval);
  CHECK(a->proxies().store_token(*id, bytes("t")) == Status::kInval);
  REQUIRE(unlink(path.c_str()) == 0);
  CHECK(a->proxies().blob(*id).status() == Status::kInval);
}

TEST_CASE("a truncated segment file is refused instead of mapped") {
  NodeFolder folder;
  auto a = join(folder.config());
  auto id = a->segments().create_home(8192, 0, true);
  REQUIRE(truncate((folder.node_dir() + "/seg-" + std::to_string(*id)).c_str(), 4096) == 0);
  CHECK(a->segments().open_file(*id).status() == Status::kInval);
}

TEST_CASE("marks are seen by the other processes") {
  NodeFolder folder;
  auto a = join(folder.config()), b = join(folder.config());
  auto id = a->segments().create_home(4096, 0, true);
  CHECK(a->marks().set(*id, node::kMarkExported | node::kMarkTokenSet, 0) == Status::kOk);
  uint32_t both = node::kMarkExported | node::kMarkTokenSet;
  CHECK(b->segments().find(*id)->marks == both);
  CHECK(a->marks().set(*id, 0, node::kMarkExported) == Status::kOk);
  CHECK(b->segments().find(*id)->marks == node::kMarkTokenSet);
  CHECK(b->segments().find(*id)->size == 4096);
  CHECK(a->marks().set(*id, 64, 0) == Status::kInval);
  CHECK(a->marks().set(*id + 1, 1, 0) == Status::kInval);
}

TEST_CASE("marks noted while another process holds the registry are made later and in order") {
  NodeFolder folder;
  auto a = join(folder.config());
  auto id = a->segments().create_home(4096, 0, true);
  CHECK(a->marks().settle(0));
  {
    const Fd other(open(folder.registry_path().c_str(), O_RDWR | O_CLOEXEC));
    struct flock l {};
    l.l_type = F_WRLCK;
    l.l_start = off_t{1} << 40;
    l.l_len = 1;
    REQUIRE(fcntl(other.get(), F_OFD_SETLK, &l) == 0);
    a->marks().note(*id, node::kMarkQuiesced | node::kMarkExported, 0);
    a->marks().note(*id + 1, node::kMarkExported, 0);  // of a segment that has gone
    a->marks().note(*id, 0, node::kMarkQuiesced);
    CHECK_FALSE(a->marks().settle(0));
    CHECK_FALSE(a->marks().settle(kMilli));
    CHECK(a->segments().find(*id, 0).status() == Status::kReconfig);
  }
  CHECK(a->marks().settle(0));
  CHECK(a->segments().find(*id, 0)->marks == node::kMarkExported);
}

TEST_CASE("sizes that cannot be are refused") {
  NodeFolder folder;
  auto a = join(folder.config());
  CHECK(a->segments().create_home(0, 0, true).status() == Status::kInval);
  CHECK(a->segments().create_proxy(0, 0, {}).status() == Status::kInval);
  CHECK(a->segments().create_home(UINT64_MAX, 0, true).status() == Status::kNoMem);
  CHECK(a->segments().create_home(UINT64_MAX, 0, false).status() == Status::kNoMem);
  CHECK(a->segments().create_proxy(UINT64_MAX, 0, {}).status() == Status::kNoMem);
  CHECK(a->segments().anonymous_file(UINT64_MAX, false).status() == Status::kNoMem);
  CHECK(walk_registry(folder, true) == "");
  CHECK(a->segments().memory_in_use() == 0);
}

TEST_CASE("all segments of the node together stay below mem_max") {
  NodeFolder folder;
  node::Config c = folder.config();
  c.mem_max = 1 << 20;
  auto a = join(c), b = join(c);
  auto half = a->segments().create_home(512 << 10, 0, true);
  REQUIRE(half);
  auto proxy = b->segments().create_proxy(512 << 10, 0, bytes("h"));
  REQUIRE(proxy);
  CHECK(a->segments().memory_in_use() == 1 << 20);
  CHECK(a->segments().create_home(1, 0, true).status() == Status::kNoMem);
  CHECK(a->segments().create_proxy(1, 0, {}).status() == Status::kNoMem);
  CHECK(a->segments().create_home(1 << 30, 0, false));
  REQUIRE(b->segments().remove(*proxy) == Status::kOk);
  CHECK(a->segments().create_home(512 << 10, 0, true));
  CHECK(walk_registry(folder, true) == "");
}

TEST_CASE("memory of the dead is there for the living") {
  NodeFolder folder;
  node::Config c = folder.config();
  c.mem_max = 1 << 20;
  auto me = join(c);
  Child other([&](Child& self) {
    auto n = Node::join(c, random_context_id());
    CHILD_CHECK(n && (*n)->segments().create_home(1 << 20, 0, true));
    self.say(0);
    self.hear();
  });
  other.hear();
  CHECK(me->segments().create_home(4096, 0, true).status() == Status::kNoMem);
  other.kill();
  CHECK(me->segments().create_home(1 << 20, 0, true));
}

TEST_CASE("threads of one process share a node, beside another member of the process") {
  NodeFolder folder;
  auto a = join(folder.config()), b = join(folder.config());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      Node& n = t % 2 == 0 ? *a : *b;
      Node& other = t % 2 == 0 ? *b : *a;
      for (int i = 0; i < 100; ++i) {
        auto id = n.segments().create_home(4096, t, true);
        auto mine = id ? n.attachments().attach(*id) : Status::kInval;
        auto theirs = id ? other.attachments().attach(*id) : Status::kInval;
        if (!mine || !theirs || !ok(n.segments().remove(*id))) {
          ++wrong;
          continue;
        }
        n.attachments().detach(*mine);
        auto info = n.segments().find(*id);
        if (!info || info->attachments != 1 || info->flags != t) ++wrong;
        other.attachments().detach(*theirs);
        if (n.segments().find(*id)) ++wrong;
        if (!n.members().alive(other.slot(), ContextId{}) && n.members().living().size() != 2)
          ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(a->segments().memory_in_use() == 0);
  CHECK(walk_registry(folder, true) == "");
}

TEST_CASE("a trace callback may call the node again") {
  NodeFolder folder;
  auto a = join(folder.config());
  auto id = a->segments().create_home(4096, 0, true);
  struct Seen {
    Node* node;
    int32_t id;
    int lines = 0, answers = 0;
  } seen{a.get(), *id};
  TraceSink sink;
  sink.arg = &seen;
  sink.log = sink.alert = [](void* arg, const char*) {
    auto* s = static_cast<Seen*>(arg);
    ++s->lines;
    if (s->node->segments().find(s->id)) ++s->answers;
  };
  Trace::get().configure(kFacAll, kHighest, sink);
  CHECK(a->segments().create_home(1 << 30, 0, true).status() == Status::kNoMem);
  REQUIRE(truncate((folder.node_dir() + "/seg-" + std::to_string(*id)).c_str(), 1) == 0);
  CHECK(a->segments().open_file(*id).status() == Status::kInval);
  Trace::get().configure(0, 0, {});
  CHECK(seen.lines == 2);
  CHECK(seen.answers == 2);
}

TEST_CASE("an anonymous file has no name and is really there") {
  NodeFolder folder;
  auto a = join(folder.config());
  auto fd = a->segments().anonymous_file(1 << 20, true),
       sparse = a->segments().anonymous_file(1 << 20, false);
  REQUIRE(fd);
  REQUIRE(sparse);
  struct stat st;
  REQUIRE(fstat(fd->get(), &st) == 0);
  CHECK(st.st_size == 1 << 20);
  CHECK(st.st_blocks * 512 >= 1 << 20);
  REQUIRE(fstat(sparse->get(), &st) == 0);
  CHECK(st.st_size == 1 << 20);
  CHECK(st.st_blocks == 0);
  CHECK(folder.files() == std::vector<std::string>{"bus-0", "registry"});
}

TEST_CASE("full tables are out of memory, and free slots are used again") {
  NodeFolder folder;
  SUBCASE("contexts") {
    std::vector<std::unique_ptr<Node>> all;
    for (uint32_t i = 0; i < node::kMaxContexts; ++i) all.push_back(join(folder.config()));
    CHECK(Node::join(folder.config(), random_context_id()).status() == Status::kNoMem);
    CHECK(all[0]->members().living().size() == node::kMaxContexts);
    CHECK(walk_registry(folder, true) == "");
    all[17].reset();
    auto again = join(folder.config());
    CHECK(static_cast<uint32_t>(again->slot()) == 17);
  }
  SUBCASE("segments") {
    auto a = join(folder.config());
    std::vector<int32_t> ids;
    for (uint32_t i = 0; i < node::kMaxSegments; ++i) {
      auto id = a->segments().create_home(4096, 0, false);
      REQUIRE(id);
      ids.push_back(*id);
    }
    CHECK(a->segments().create_home(4096, 0, false).status() == Status::kNoMem);
    CHECK(a->segments().create_proxy(4096, 0, {}).status() == Status::kNoMem);
    CHECK(walk_registry(folder, true) == "");
    REQUIRE(a->segments().remove(ids[99]) == Status::kOk);
    CHECK(a->segments().create_home(4096, 0, false));
  }
  SUBCASE("attachments") {
    auto a = join(folder.config());
    auto id = a->segments().create_home(4096, 0, true);
    std::vector<Attachment> all;
    for (uint32_t i = 0; i < node::kMaxAttachments; ++i) {
      auto at = a->attachments().attach(*id);
      REQUIRE(at);
      all.push_back(*at);
    }
    CHECK(a->attachments().attach(*id).status() == Status::kNoMem);
    CHECK(a->segments().find(*id)->attachments == node::kMaxAttachments);
    a->attachments().detach(all[1234]);
    CHECK(a->attachments().attach(*id));
  }
  CHECK(folder.empty());
}

TEST_CASE("a full file system is out of memory and leaves no litter") {
  NodeFolder folder;
  Child c([&](Child& self) {
    std::string top = folder.runtime_dir() + "-small";
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mkdir(top.c_str(), 0700) != 0 ||
        mount("none", top.c_str(), "tmpfs", 0, "size=1m,mode=700") != 0) {
      self.say(0);
      return;
    }
    self.say(1);
    node::Config config = folder.config();
    config.runtime_dir = top;
    std::string dir = top + folder.node_dir().substr(folder.runtime_dir().size());
    {
      auto n = Node::join(config, random_context_id());
      CHILD_CHECK(n);
      CHILD_CHECK((*n)->segments().create_home(2 << 20, 0, true).status() == Status::kNoMem);
      CHILD_CHECK((*n)->segments().anonymous_file(2 << 20, true).status() == Status::kNoMem);
      CHILD_CHECK((*n)->segments().memory_in_use() == 0);
      CHILD_CHECK(access((dir + "/seg-0").c_str(), F_OK) != 0);
      // Fill it to the last page: proxies need one each.
      std::vector<int32_t> made;
      for (;;) {
        auto id = (*n)->segments().create_proxy(4096, 0, bytes("h"));
        if (!id) {
          CHILD_CHECK(id.status() == Status::kNoMem);
          break;
        }
        made.push_back(*id);
      }
      CHILD_CHECK(made.size() > 10);
      CHILD_CHECK((*n)->segments().create_home(4096, 0, true).status() == Status::kNoMem);
      // No room is needed to go on with what there is.
      CHILD_CHECK((*n)->attachments().attach(made[0]));
      CHILD_CHECK((*n)->proxies().store_token(made[0], bytes("token")) == Status::kOk);
      CHILD_CHECK((*n)->marks().set(made[0], 1, 0) == Status::kOk);
      for (int32_t id : made) CHILD_CHECK((*n)->segments().remove(id) == Status::kOk);
      CHILD_CHECK((*n)->segments().create_home(128 << 10, 0, true));
    }
    CHILD_CHECK(access(dir.c_str(), F_OK) != 0);
    // No room for the registry either.
    int fd = open((top + "/full").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHILD_CHECK(fd >= 0 && fallocate(fd, 0, 0, 900 << 10) == 0);
    CHILD_CHECK(Node::join(config, random_context_id()).status() == Status::kNoMem);
    CHILD_CHECK(access(dir.c_str(), F_OK) != 0);
  });
  bool mounted = c.hear() == 1;
  CHECK(c.succeeded());
  if (!mounted) skip("no right to mount a small tmpfs");
}

}  // namespace
}  // namespace cmi::test::segment_test
