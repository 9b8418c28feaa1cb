// Questions to other processes of a node, and views whose end their owners have not heard of.
#include <doctest/doctest.h>
#include <unistd.h>

#include "core/memory/home/pending_detaches.hpp"
#include "core/memory/node_bus/questions.hpp"

namespace cmi::test::bus_questions_test {
using namespace cmi::memory;

TEST_CASE("a_question_is_answered_once") {
  BusQuestions questions;
  const uint64_t number = questions.new_number();
  int answers = 0;
  const auto question = questions.add(number, [&] { ++answers; });
  CHECK(!question->done.done());
  CHECK(!questions.answer(number + 1, {}));
  CHECK(answers == 0);
  CHECK(questions.answer(number, {}));
  CHECK(question->done.done());
  CHECK(!questions.answer(number, {}));
  CHECK(answers == 1);
  CHECK(questions.pending() == 0);
}

TEST_CASE("the_file_of_an_answer_is_the_askers") {
  BusQuestions questions;
  const uint64_t number = questions.new_number();
  const auto question = questions.add(number);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  Fd other(ends[1]);
  CHECK(questions.answer(number, Fd(ends[0])));
  CHECK(questions.close(number, *question).get() == ends[0]);
}

TEST_CASE("an_answer_to_a_question_that_was_given_up_changes_nothing") {
  BusQuestions questions;
  const uint64_t first = questions.new_number(), second = questions.new_number();
  CHECK(first != second);
  const auto question = questions.add(first);
  questions.add(second);
  CHECK(!questions.close(first, *question));
  CHECK(!questions.answer(first, {}));
  CHECK(!question->done.done());
  CHECK(questions.pending() == 1);
}

TEST_CASE("the_owner_of_a_view_that_has_ended_is_asked_ever_more_rarely_until_it_answers") {
  PendingDetaches detaches;
  constexpr Nanos kStart = kSecond, kAgain = PendingDetaches::kNotifyAgain;
  PendingDetach detach;
  detach.segment = 3;
  detach.born = detach.sent = kStart;
  detaches.add(17, detach);
  const auto asked = [&](Nanos t) {
    int n = 0;
    detaches.each_due(t, [&](uint64_t question, const PendingDetach& d) {
      CHECK(question == 17);
      CHECK(d.segment == 3);
      ++n;
    });
    return n;
  };
  CHECK(asked(kStart + kAgain) == 0);
  CHECK(asked(kStart + kAgain + 1) == 1);
  CHECK(asked(kStart + 10 * kAgain) == 1);
  CHECK(asked(kStart + 19 * kAgain) == 0);
  CHECK(!detaches.take(16));
  CHECK(!detaches.empty());
  CHECK(detaches.take(17)->segment == 3);
  CHECK(!detaches.take(17));
  CHECK(detaches.empty());
}

}  // namespace cmi::test::bus_questions_test
