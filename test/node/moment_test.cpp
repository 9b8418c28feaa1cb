// What is right at one moment between two steps: a process is stopped, or waits, at a fault point.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/fault_point.hpp"
#include "node/folder_machine.hpp"
#include "node/node_support.hpp"
#include "support/skip.hpp"

namespace cmi::test::moment_test {
namespace {

namespace fs = std::filesystem;
using Machine = FolderMachine;
using node::Node;

bool is_stopped(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  stat >> number >> name >> state;
  return state == "T";
}

// Makes the default folder without waiting for the lock, and is stopped before its Nth mkdir; says
// then whether what it got is this folder.
struct StoppedMaker {
  Child child;
  StoppedMaker(const Machine& machine, int nth, const std::string& expected)
      : child([&, nth](Child& self) {
          const std::string where = "node.folder.making#" + std::to_string(nth) + "=stop";
          setenv("CMI_FAULT_POINT", where.c_str(), 1);
          arm_fault_points();
          auto made = machine.folder(0).make();
          CHILD_CHECK(made);
          self.say(*made == expected);
        }) {
    CHECK(eventually([&] { return is_stopped(child.pid()); }));
  }
  void go_on() const { ::kill(child.pid(), SIGCONT); }
};

TEST_CASE("who has not got the lock takes the folder that was made meanwhile") {
  const Machine machine;
  StoppedMaker late(machine, 1, machine.usual());
  REQUIRE(machine.folder(0).make());
  late.go_on();
  CHECK(late.child.hear() == 1);
  CHECK(late.child.succeeded());
}

TEST_CASE("two that make a folder with a number in one moment keep one") {
  if (geteuid() != 0) return skip("only root can give a folder away");
  const Machine machine;
  machine.take(machine.usual());
  StoppedMaker one(machine, 2, ""), two(machine, 2, "");  // both have seen that there is none
  one.go_on();
  two.go_on();
  CHECK(one.child.succeeded());
  CHECK(two.child.succeeded());
  size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(machine.shared)) {
    folders += entry.path() != machine.usual();
  }
  CHECK(folders == 1);
}

// The kernel frees the memory of a file inside unlink: seconds, where a node has left much.
TEST_CASE("the service thread does not wait while the dead of other nodes are cleaned up after") {
  NodeFolder folder;
  const std::string go_on = folder.runtime_dir() + "-go-on";
  const node::Config dead = folder.config("one");
  Child c([&](Child& self) {
    auto two = Node::join(folder.config("two"), random_context_id());
    CHILD_CHECK(two);
    self.hear();
    setenv("CMI_FAULT_POINT", ("node.delete.before_unlink=hold:" + go_on).c_str(), 1);
    arm_fault_points();
    (*two)->late_reaper().want();
    (*two)->late_reaper().begin_if_wanted();
    self.say(0);
    (*two)->late_reaper().stop();
  });
  Child dies([&](Child& self) {
    auto one = Node::join(dead, random_context_id());
    CHILD_CHECK(one);
    CHILD_CHECK((*one)->segments().create_home(4096, 0, true));
    self.say(0);
    self.hear();
  });
  dies.hear();
  dies.kill();
  c.say(0);
  c.hear();
  CHECK(fs::exists(folder.node_dir("one")));
  REQUIRE(std::ofstream(go_on).put('x').good());
  CHECK(c.succeeded());
  CHECK_FALSE(fs::exists(folder.node_dir("one")));
}

}  // namespace
}  // namespace cmi::test::moment_test
