#include "core/memory/page/intent_map.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>

namespace cmi::test::intent_map_test {

using namespace cmi::memory;

namespace {

using Pages = std::map<uint32_t, uint8_t>;

Pages all(const IntentMap& intents) {
  Pages pages;
  intents.each([&](uint32_t page, uint8_t epoch) { pages.emplace(page, epoch); });
  return pages;
}

}  // namespace

TEST_CASE("a_dirty_intent_is_dropped_under_its_own_epoch_alone") {
  IntentMap intents;
  CHECK(intents.set(31, 4) == 0);
  CHECK(intents.set(32, 63) == 0);
  CHECK(intents.set(31, 5) == 4);
  CHECK_FALSE(intents.drop_intent(31, 4));
  CHECK_FALSE(intents.drop_intent(30, 5));
  CHECK_FALSE(intents.drop_intent(30, 0));
  CHECK(all(intents) == Pages{{31, 5}, {32, 63}});
  CHECK(intents.drop_intent(31, 5));
  CHECK(intents.epoch(31) == 0);
  CHECK(intents.set(32, 0) == 63);
  CHECK(intents.empty());
}

TEST_CASE("dirty_intents_are_kept_as_in_a_map_of_pages") {
  std::mt19937 random(5);
  IntentMap intents;
  Pages model;
  for (int step = 0; step < 20000; ++step) {
    const uint32_t page = random() % 300 + (random() % 2 == 0 ? 0 : UINT32_MAX - 299);
    const auto epoch = static_cast<uint8_t>(1 + random() % 3);
    switch (random() % 8) {
      case 0: {
        const bool had = model.contains(page) && model[page] == epoch;
        REQUIRE(intents.drop_intent(page, epoch) == had);
        if (had) model.erase(page);
        break;
      }
      case 1:
        if (random() % 20 != 0) break;
        intents.cut(page);
        model.erase(model.lower_bound(page), model.end());
        break;
      default:
        REQUIRE(intents.set(page, epoch) == (model.contains(page) ? model[page] : 0));
        model[page] = epoch;
    }
    REQUIRE(intents.empty() == model.empty());
    if (step % 100 == 0) REQUIRE(all(intents) == model);
  }
  intents.clear();
  CHECK(intents.empty());
}

}  // namespace cmi::test::intent_map_test
