// Which processes of a node know the list of pages in flux, and what waits for those that do not.
#include "core/memory/home/flux_watchers.hpp"

#include <doctest/doctest.h>

namespace cmi::test::flux_watchers_test {
using namespace cmi::memory;

namespace {
using Sent = FluxWatchers::Sent;
constexpr Nanos kStart = kSecond;
constexpr node::ContextSlot kOne{1}, kTwo{2};

PageSet pages(std::initializer_list<PageRange> ranges) {
  PageSet set;
  for (const PageRange& r : ranges) set.add(r);
  return set;
}
// Receivers that take what they are sent, or do not.
struct Receivers {
  Sent answer = Sent::kYes;
  int sent = 0;
  FluxWatchers::Send send() {
    return [this](node::ContextSlot) {
      ++sent;
      return answer;
    };
  }
};
}  // namespace

TEST_CASE("a_change_waits_until_each_watcher_has_seen_the_last_version") {
  FluxWatchers watchers;
  Receivers receivers;
  CHECK(watchers.add(kOne, {}, kStart, receivers.send()));
  CHECK(watchers.add(kTwo, {}, kStart, receivers.send()));
  CHECK(watchers.add(kTwo, {}, kStart, receivers.send()));  // the same again
  CHECK(receivers.sent == 0);                               // nothing is in flux
  const RoundPtr first = begin_round(), second = begin_round();
  const PageSet in_flux = pages({{4, 2}});
  watchers.changed(in_flux, first, kStart, receivers.send());
  watchers.changed(in_flux, second, kStart, receivers.send());
  CHECK(watchers.version() == 2);
  CHECK(receivers.sent == 4);
  CHECK(first->waiting == 3);
  std::vector<RoundPtr> over;
  watchers.seen(kOne, 1, in_flux, &over);  // an older version
  CHECK(over.empty());
  watchers.seen(kOne, 2, in_flux, &over);
  CHECK(over == std::vector<RoundPtr>{first, second});
  watchers.seen(kOne, 2, in_flux, &over);
  CHECK(over.empty());
}

TEST_CASE("pages_stay_covered_until_the_watcher_has_seen_that_they_are_back") {
  FluxWatchers watchers;
  Receivers receivers;
  watchers.add(kOne, {}, kStart, receivers.send());
  REQUIRE(watchers.covered(kOne) != nullptr);
  CHECK(watchers.covered(kOne)->empty());
  CHECK(watchers.covered(kTwo) == nullptr);
  watchers.changed(pages({{4, 2}}), begin_round(), kStart, receivers.send());
  CHECK(watchers.covered(kOne)->contains(5));
  watchers.changed({}, begin_round(), kStart, receivers.send());
  CHECK(watchers.covered(kOne)->contains(5));
  watchers.also_covered(kOne, pages({{9, 1}}));
  std::vector<RoundPtr> over;
  const auto back = watchers.seen(kOne, 2, {}, &over);
  REQUIRE(back.size() == 2);
  CHECK(back[0].first == 4);
  CHECK(back[0].count == 2);
  CHECK(back[1].first == 9);
  CHECK(watchers.covered(kOne)->empty());
}

TEST_CASE("a_list_is_sent_again_until_it_is_seen_and_not_to_a_process_that_has_ended") {
  FluxWatchers watchers;
  Receivers receivers;
  watchers.add(kOne, {}, kStart, receivers.send());
  receivers.answer = Sent::kNo;
  const RoundPtr round = begin_round();
  const PageSet in_flux = pages({{1, 1}});
  watchers.changed(in_flux, round, kStart, receivers.send());
  CHECK(receivers.sent == 1);
  std::vector<RoundPtr> over;
  CHECK(watchers.remind(kStart + FluxWatchers::kRemind, receivers.send(), &over));
  CHECK(receivers.sent == 1);  // not late yet
  CHECK(watchers.remind(kStart + FluxWatchers::kRemind + 1, receivers.send(), &over));
  CHECK(receivers.sent == 2);
  CHECK(over.empty());
  receivers.answer = Sent::kEnded;
  CHECK(!watchers.remind(kStart + kSecond, receivers.send(), &over));
  CHECK(over == std::vector<RoundPtr>{round});
  CHECK(watchers.empty());
}

TEST_CASE("a_new_watcher_is_sent_what_is_in_flux_or_is_not_answered") {
  FluxWatchers watchers;
  Receivers receivers;
  CHECK(watchers.add(kOne, pages({{1, 1}}), kStart, receivers.send()));
  CHECK(receivers.sent == 1);
  CHECK(watchers.covered(kOne)->contains(1));
  receivers.answer = Sent::kNo;
  CHECK(!watchers.add(kOne, pages({{1, 1}}), kStart, receivers.send()));
}

}  // namespace cmi::test::flux_watchers_test
