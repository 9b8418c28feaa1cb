// Stacks of the fault handler: each belongs to one fault, and the way onto one and back.
#include "core/memory/vm/fault_stacks.hpp"

#include <doctest/doctest.h>

#include <set>

#include "core/base/arch/arch.hpp"

namespace cmi::test::fault_stacks_test {
using namespace cmi::memory;

TEST_CASE("no_stack_is_taken_twice_and_what_was_given_back_is_taken_again") {
  FaultStacks stacks;
  std::set<std::byte*> taken;
  for (size_t i = 0; i < FaultStacks::kKept + 4; ++i) {
    std::byte* const stack = stacks.take();
    REQUIRE(stack != nullptr);
    stack[0] = stack[FaultStacks::kSize - 1] = std::byte{1};
    CHECK(taken.insert(stack).second);
  }
  std::byte* const first = *taken.begin();
  stacks.give(first);
  CHECK(stacks.take() == first);
  for (std::byte* stack : taken) stacks.give(stack);
  for (size_t i = 0; i < FaultStacks::kKept; ++i) CHECK(taken.erase(stacks.take()) == 1);
  stacks.release();
}

TEST_CASE("a_function_is_called_on_the_stack_that_is_given_and_returns_to_the_old_one") {
  FaultStacks stacks;
  std::byte* const stack = stacks.take();
  REQUIRE(stack != nullptr);
  struct Call {
    std::byte* frame = nullptr;
    int sum = 0;
  } call;
  int here = 5;
  arch::call_on_stack(
      stack + FaultStacks::kSize,
      [](void* argument) {
        auto& c = *static_cast<Call*>(argument);
        volatile std::byte local{7};
        c.frame = const_cast<std::byte*>(&local);
        c.sum += static_cast<int>(local);
      },
      &call);
  CHECK(call.frame > stack);
  CHECK(call.frame < stack + FaultStacks::kSize);
  CHECK(call.sum == 7);
  CHECK(here == 5);
  stacks.give(stack);
  stacks.release();
}

}  // namespace cmi::test::fault_stacks_test
