// The default runtime folder: nobody keeps a user out, and all processes of the user find the same.
// Other users are played by folders that are given away, which takes root.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "core/base/fd.hpp"
#include "node/folder_machine.hpp"
#include "node/node_support.hpp"
#include "support/skip.hpp"
#include "system/small_tmpfs.hpp"

namespace cmi::test::default_folder_test {
namespace {

namespace fs = std::filesystem;
using Machine = FolderMachine;

TEST_CASE("the usual name is the default where nobody has taken it") {
  const Machine machine;
  CHECK(machine.folder().find() == machine.usual());
  CHECK_FALSE(fs::exists(machine.usual()));
  CHECK(machine.make() == machine.usual());
  struct stat st {};
  REQUIRE(stat(machine.usual().c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0700);
  CHECK(machine.make() == machine.usual());
  CHECK(machine.folder().named(machine.usual()));
  CHECK(machine.folder().named(machine.usual() + "-17"));
  for (const char* end : {"-x", "-", "-0", "-01", "x", "-17x"}) {
    CHECK_FALSE(machine.folder().named(machine.usual() + end));
  }
}

TEST_CASE("names that others have taken keep nobody out, and all processes find one folder") {
  if (geteuid() != 0) return skip("only root can give a folder away");
  const Machine machine;
  machine.take(machine.usual());
  for (int i = 1; i < 200; ++i) machine.take(machine.usual() + "-" + std::to_string(i));
  const std::string made = machine.make();
  CHECK(made.starts_with(machine.usual() + "-"));
  CHECK(machine.folder().named(made));
  CHECK(machine.folder().find() == made);
  CHECK(machine.make() == made);
  // The one who took the usual name leaves: the user's processes stay together.
  REQUIRE(rmdir(machine.usual().c_str()) == 0);
  CHECK(machine.folder().find() == made);
  CHECK(machine.make() == made);
}

TEST_CASE("a name behind a taken one cannot be guessed") {
  if (geteuid() != 0) return skip("only root can give a folder away");
  std::set<std::string> names;
  const Machine machine;
  machine.take(machine.usual());
  for (int i = 0; i < 8; ++i) {
    const std::string made = machine.make();
    names.insert(made);
    REQUIRE(rmdir(made.c_str()) == 0);
  }
  CHECK(names.size() == 8);
}

TEST_CASE("of two folders of the user the one with a living node is the default") {
  const Machine machine;
  const std::string second = machine.usual() + "-2";
  node::Config config;
  config.name = "one";
  config.runtime_dir = second;
  auto living = node::Node::join(config, random_context_id());
  REQUIRE(living);
  REQUIRE(mkdir(machine.usual().c_str(), 0700) == 0);
  CHECK(machine.folder().find() == second);
  CHECK(machine.make() == second);
  (*living)->forget_in_child();  // as if it had died: what it made stays
  living->reset();
  CHECK(machine.folder().find() == machine.usual());
}

TEST_CASE("the users own tmpfs is the default if it is large enough and closed to others") {
  const Machine machine;
  REQUIRE(mkdir(machine.own.c_str(), 0755) == 0);
  CHECK(machine.folder().find() == machine.usual());
  REQUIRE(chmod(machine.own.c_str(), 0700) == 0);
  CHECK(machine.folder().find() == machine.own + "/cmi");
  CHECK(machine.make() == machine.own + "/cmi");
  CHECK(machine.folder().named(machine.own + "/cmi"));
  // Who does not see it for what it is finds the nodes that are there all the same.
  REQUIRE(chmod(machine.own.c_str(), 0755) == 0);
  CHECK(machine.make() == machine.own + "/cmi");
}

TEST_CASE("a small tmpfs of the users own is not the default: segments would not fit") {
  const Machine machine;
  Child c([&](Child& self) {
    const SmallTmpfs small(machine.own, 16 << 20);
    self.say(small.mounted());
    if (small.mounted()) CHILD_CHECK(machine.folder().find() == machine.usual());
  });
  if (c.hear() == 0) return skip("no mounts of our own here");
  CHECK(c.succeeded());
}

// Whether the process has the folder open: it waits for its lock.
bool waits_at(pid_t process, const std::string& folder) {
  std::error_code error;
  for (const auto& fd : fs::directory_iterator("/proc/" + std::to_string(process) + "/fd", error)) {
    if (fs::read_symlink(fd.path(), error) == folder) return true;
  }
  return false;
}

// All of them have seen that there is none before the first may make one.
TEST_CASE("processes that start at once make one folder") {
  if (geteuid() != 0) return skip("only root can give a folder away");
  const Machine machine;
  machine.take(machine.usual());
  Fd lock(open(machine.shared.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(flock(lock.get(), LOCK_EX | LOCK_NB) == 0);
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(std::make_unique<Child>([&](Child& self) {
      close(lock.release());  // the parent's, which goes with its last descriptor
      self.say(0);
      auto made = machine.folder(60 * kSecond).make();
      CHILD_CHECK(made);
      const std::string number = made->substr(machine.usual().size() + 1);
      self.say(std::stoll(number));
      self.hear();
    }));
  }
  for (auto& c : children) {
    c->hear();
    CHECK(eventually([&] { return waits_at(c->pid(), machine.shared); }));
  }
  lock.reset();
  std::set<int64_t> numbers;
  for (auto& c : children) numbers.insert(c->hear());
  CHECK(numbers.size() == 1);
  for (auto& c : children) c->say(0);
}

TEST_CASE("what no node can be in is not the default folder, whoever put it there") {
  const Machine machine;
  REQUIRE(std::ofstream(machine.usual()).put('x').good());
  REQUIRE(std::ofstream(machine.usual() + "-1").put('x').good());
  REQUIRE(mkdir((machine.usual() + "-2").c_str(), 0700) == 0);
  REQUIRE(chmod((machine.usual() + "-2").c_str(), 0755) == 0);
  const std::string made = machine.make();
  CHECK(fs::is_directory(made));
  CHECK(made != machine.usual() + "-2");
  CHECK(machine.folder().find() == made);
  CHECK(machine.make() == made);
  REQUIRE(fs::remove(machine.usual()));
  CHECK(machine.make() == made);
}

TEST_CASE("somebody who keeps the lock of the shared folder keeps nobody out") {
  const Machine machine;
  const Fd taken(open(machine.shared.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(flock(taken.get(), LOCK_EX | LOCK_NB) == 0);
  CHECK(machine.make() == machine.usual());
}

}  // namespace
}  // namespace cmi::test::default_folder_test
