// Questions to a context by who has joined nothing.
#include "core/node/inquiry.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>

#include <memory>

#include "core/node/bus.hpp"
#include "node_support.hpp"

namespace cmi::test::inquiry_test {
namespace {

using node::Node;

node::Folder folder_of(const NodeFolder& folder) {
  auto f = node::open_folder(folder.config(), false, Deadline::in(kSecond));
  REQUIRE(f);
  return f.take();
}

TEST_CASE("a question of a process that is no member is answered into its file") {
  NodeFolder folder;
  auto me = Node::join(folder.config(), random_context_id());
  REQUIRE(me);
  const node::Folder at = folder_of(folder);
  Child c([&](Child& parent) {
    auto asked = node::Inquiry::send(at, 0);
    CHILD_CHECK(asked);
    CHILD_CHECK(asked->look().status() == Status::kReconfig);
    parent.say(1);
    CHILD_CHECK(parent.hear() == 2);
    auto report = asked->look();
    CHILD_CHECK(report && report->counters[3] == 33);
  });
  REQUIRE(c.hear() == 1);
  auto d = (*me)->bus().receive();
  REQUIRE(d);
  CHECK(d->question);
  CHECK(d->bytes.empty());
  node::ContextReport report;
  report.counters[3] = 33;
  node::answer(d->fd.get(), report);
  c.say(2);
  CHECK(c.succeeded());
  CHECK((*me)->members().living().size() == 1);
}

TEST_CASE("a question may ask for the map of a segment") {
  NodeFolder folder;
  auto me = Node::join(folder.config(), random_context_id());
  REQUIRE(me);
  const node::Folder at = folder_of(folder);
  const node::MapQuestion map{{1, 2}, 4711, true};
  const auto with = node::Inquiry::send(at, 0, &map), without = node::Inquiry::send(at, 0);
  REQUIRE((with && without));
  const auto first = (*me)->bus().receive(), second = (*me)->bus().receive();
  REQUIRE((first && second));
  const auto asked = node::map_asked(first->fd.get());
  REQUIRE(asked);
  CHECK(asked->home == ContextId{1, 2});
  CHECK(asked->segment == 4711);
  CHECK(asked->at_home);
  CHECK_FALSE(node::map_asked(second->fd.get()));
  CHECK_FALSE(node::map_asked(-1));
  // The answer takes the question's place.
  node::answer(first->fd.get(), {});
  CHECK(with->look());
}

TEST_CASE("a question without a file is dropped and one to nobody is refused") {
  NodeFolder folder;
  auto me = Node::join(folder.config(), random_context_id());
  REQUIRE(me);
  const node::Folder at = folder_of(folder);
  CHECK(ok(node::send_question(at, 0, -1)));
  CHECK((*me)->bus().receive().status() == Status::kReconfig);
  CHECK(node::send_question(at, 1, -1) == Status::kInval);
  CHECK(node::Inquiry::send(at, 255).status() == Status::kInval);
}

TEST_CASE("an answer goes into shared memory only") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  Fd out(ends[0]), in(ends[1]);
  node::answer(in.get(), {});
  pollfd p{out.get(), POLLIN, 0};
  CHECK(poll(&p, 1, 0) == 0);
  char name[] = "/var/tmp/cmi-test-XXXXXX";
  const Fd plain(mkostemp(name, O_CLOEXEC));
  REQUIRE(plain);
  unlink(name);
  node::answer(plain.get(), {});
  // Where the folder is a tmpfs, its files are shared memory.
  if (fcntl(plain.get(), F_GET_SEALS) < 0) CHECK(lseek(plain.get(), 0, SEEK_END) == 0);
}

TEST_CASE("a flood of questions fills the queue and blocks nobody") {
  NodeFolder folder;
  auto me = Node::join(folder.config(), random_context_id());
  REQUIRE(me);
  const node::Folder at = folder_of(folder);
  std::vector<node::Inquiry> asked;
  Status last = Status::kOk;
  while (ok(last) && asked.size() < 100000) {
    auto one = node::Inquiry::send(at, 0);
    last = one.status();
    if (one) asked.push_back(one.take());
  }
  CHECK(last == Status::kReconfig);
  size_t answered = 0;
  for (auto d = (*me)->bus().receive(); d; d = (*me)->bus().receive()) {
    node::answer(d->fd.get(), {});
    ++answered;
  }
  CHECK(answered == asked.size());
  for (const auto& a : asked) CHECK(a.look());
}

}  // namespace
}  // namespace cmi::test::inquiry_test
