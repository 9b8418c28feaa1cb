#include "core/locks/ticket_lock.hpp"

namespace cmi::locks {

namespace {

// What one look has seen. `turn` is older than `tail`.
struct Seen {
  uint64_t raw_tail = 0, raw_turn = 0;
  Word tail, turn;
  uint32_t first() const {
    return (turn.count + 1) % Word::kCounts;
  }  // the ticket whose turn it is
  uint32_t pending() const { return Word::distance(turn.count, tail.count); }
};

Outcome look(Words& words, TicketLockMemory* at, Seen* seen) {
  seen->raw_turn = words.load(&at->turn);
  seen->raw_tail = words.load(&at->tail);
  const bool parsed = Word::parse(seen->raw_tail, Kind::kTail, &seen->tail) &&
                      Word::parse(seen->raw_turn, Kind::kTurn, &seen->turn);
  return parsed && !seen->turn.held && seen->turn.holder == 0 ? Outcome::kDone : Outcome::kBad;
}

uint64_t* place_of(TicketLockMemory* at, uint32_t ticket) {
  return &at->places[ticket % kTicketPlaces];
}

// Places keep what was written last. Before a ticket is drawn its place has an entry that is not
// older than this, so that no entry is taken for one of a round of tickets later.
constexpr uint32_t kStale = Word::kCounts / 4;

// Before the ticket is drawn. kTimedOut: look again.
Outcome freshen_place(Words& words, TicketLockMemory* at, const Seen& seen) {
  const uint32_t ticket = (seen.tail.count + 1) % Word::kCounts;
  uint64_t* const place = place_of(at, ticket);
  const uint64_t raw = words.load(place);
  Word there;
  if (!Word::parse(raw, Kind::kPlace, &there)) return Outcome::kBad;
  const uint32_t age = Word::distance(there.count, ticket);
  if (age != 0 && age < kStale) return Outcome::kDone;
  // As long as it is not drawn, nobody writes it there.
  if (words.load(&at->tail) != seen.raw_tail) return Outcome::kTimedOut;
  const Word fresh{0, ticket - kTicketPlaces, false, false};
  return replace(words, place, raw, fresh.raw(Kind::kPlace));
}

// Writes the ticket that was drawn last into its place. kTimedOut: look again.
Outcome write_last(Words& words, TicketLockMemory* at, const Seen& seen) {
  uint64_t* const place = place_of(at, seen.tail.count);
  const uint64_t raw = words.load(place);
  Word there;
  if (!Word::parse(raw, Kind::kPlace, &there)) return Outcome::kBad;
  if (there.holder != 0 && there.count == seen.tail.count) return Outcome::kDone;
  // As long as it is the last one, nobody writes a later one there.
  if (words.load(&at->tail) != seen.raw_tail) return Outcome::kTimedOut;
  const Word last{seen.tail.holder, seen.tail.count, false, true};
  return replace(words, place, raw, last.raw(Kind::kPlace));
}

// Writes into a pending ticket's place that it was given up. kTimedOut: another one has written the
// place, or the ticket is not pending.
Outcome write_given_up(Words& words, TicketLockMemory* at, uint32_t ticket, Seen* seen) {
  uint64_t* const place = place_of(at, ticket);
  const uint64_t raw = words.load(place);
  if (const Outcome o = look(words, at, seen); o != Outcome::kDone) return o;
  if (Word::distance(seen->first(), ticket) >= kTicketPlaces) return Outcome::kNotOwner;
  const Word word{words.self(), ticket, true, false};
  return replace(words, place, raw, word.raw(Kind::kPlace));
}

// Who has drawn a ticket that is not done. False: not known yet, look again.
bool drawn_by(Words& words, TicketLockMemory* at, const Seen& seen, uint32_t ticket, Word* word,
              bool* bad) {
  *bad = !Word::parse(words.load(place_of(at, ticket)), Kind::kPlace, word);
  if (*bad) return false;
  if (word->holder != 0 && word->count == ticket) return true;
  *word = {seen.tail.holder, ticket, false, true};
  return seen.tail.count == ticket && seen.tail.holder != 0;
}

Outcome next_turn(Words& words, TicketLockMemory* at, const Seen& seen, bool flag) {
  const Word next{0, seen.turn.count + 1, flag, false};
  return replace_and_wake(words, &at->turn, seen.raw_turn, next.raw(Kind::kTurn));
}

// Passes over the ticket whose turn it is, where it was given up or its drawer is gone. kDone: it
// was; kTimedOut: there is nothing to pass over.
Outcome pass_over(Words& words, TicketLockMemory* at, const Seen& seen, bool ask) {
  if (seen.pending() == 0) return Outcome::kTimedOut;
  Word word;
  bool bad = false;
  if (!drawn_by(words, at, seen, seen.first(), &word, &bad)) {
    return bad ? Outcome::kBad : Outcome::kTimedOut;
  }
  if (word.flag) return next_turn(words, at, seen, seen.turn.flag);
  if (!ask || words.gone(word.holder) <= 0) return Outcome::kTimedOut;
  return next_turn(words, at, seen, true);
}

// A ticket. kTimedOut: none was drawn.
Outcome draw(Words& words, TicketLockMemory* at, Wait& wait, uint32_t* ticket) {
  do {
    Seen seen;
    if (const Outcome o = look(words, at, &seen); o != Outcome::kDone) return o;
    if (seen.pending() != 0 && (wait.over() || seen.pending() >= kTicketPlaces)) {
      const Outcome passed = pass_over(words, at, seen, wait.due());
      if (passed == Outcome::kFailed || passed == Outcome::kBad) return passed;
      continue;
    }
    Outcome ready = freshen_place(words, at, seen);
    if (ready == Outcome::kDone && seen.pending() != 0) ready = write_last(words, at, seen);
    if (ready == Outcome::kTimedOut) continue;
    if (ready != Outcome::kDone) return ready;
    const Word mine{words.self(), seen.tail.count + 1, false, true};
    const Outcome drawn = replace(words, &at->tail, seen.raw_tail, mine.raw(Kind::kTail));
    *ticket = mine.count % Word::kCounts;
    if (drawn != Outcome::kTimedOut) return drawn;
  } while (wait.again());
  return Outcome::kTimedOut;
}

// Gives a drawn ticket up. kDone: those behind it do not wait for it.
Outcome give_up(Words& words, TicketLockMemory* at, uint32_t ticket) {
  Seen seen;
  Outcome o = write_given_up(words, at, ticket, &seen);
  // The place may be written once by the one who draws the next ticket.
  if (o == Outcome::kTimedOut) o = write_given_up(words, at, ticket, &seen);
  if (o != Outcome::kDone) return o == Outcome::kTimedOut ? Outcome::kBad : o;
  o = look(words, at, &seen);
  if (o == Outcome::kDone && seen.first() == ticket) o = next_turn(words, at, seen, seen.turn.flag);
  return o == Outcome::kTimedOut ? Outcome::kDone : o;
}

// Whether the caller's ticket has the lock.
Outcome owned(Words& words, TicketLockMemory* at, uint32_t ticket, Seen* seen) {
  const Outcome o = look(words, at, seen);
  if (o != Outcome::kDone) return o;
  if (seen->pending() == 0 || seen->first() != ticket) return Outcome::kNotOwner;
  Word word;
  bool bad = false;
  const bool known = drawn_by(words, at, *seen, ticket, &word, &bad);
  if (bad) return Outcome::kBad;
  return known && !word.flag && word.holder == words.self() ? Outcome::kDone : Outcome::kNotOwner;
}

}  // namespace

Outcome lock_ticket(Words& words, TicketLockMemory* at, Nanos span, uint32_t* ticket) {
  Wait wait(words, span);
  const Outcome drawn = draw(words, at, wait, ticket);
  if (drawn != Outcome::kDone) return drawn;
  Seen seen;
  do {
    if (const Outcome o = look(words, at, &seen); o != Outcome::kDone) return o;
    if (seen.first() == *ticket) return seen.turn.flag ? Outcome::kOwnerDead : Outcome::kDone;
    // Passed over: the library has declared this process dead.
    if (Word::distance(*ticket, seen.first()) < Word::kCounts / 2) return Outcome::kNotOwner;
    const Outcome passed = pass_over(words, at, seen, wait.due());
    if (passed == Outcome::kFailed || passed == Outcome::kBad) return passed;
  } while (wait.again({&at->turn, seen.raw_turn}));
  const Outcome given_up = give_up(words, at, *ticket);
  return given_up == Outcome::kDone ? Outcome::kTimedOut : given_up;
}

Outcome unlock_ticket(Words& words, TicketLockMemory* at, uint32_t ticket) {
  Seen seen;
  if (const Outcome o = owned(words, at, ticket, &seen); o != Outcome::kDone) return o;
  Outcome o = next_turn(words, at, seen, seen.turn.flag);
  if (o != Outcome::kDone) return o == Outcome::kTimedOut ? Outcome::kNotOwner : o;
  // Tickets that were given up, so that no waiter has to find them.
  for (uint32_t i = 0; i < kTicketPlaces && o == Outcome::kDone; ++i) {
    o = look(words, at, &seen);
    if (o == Outcome::kDone) o = pass_over(words, at, seen, false);
  }
  return o == Outcome::kTimedOut ? Outcome::kDone : o;
}

Outcome repaired_ticket(Words& words, TicketLockMemory* at, uint32_t ticket) {
  Seen seen;
  if (const Outcome o = owned(words, at, ticket, &seen); o != Outcome::kDone) return o;
  const Word next{0, seen.turn.count, false, false};
  const Outcome o = replace(words, &at->turn, seen.raw_turn, next.raw(Kind::kTurn));
  return o == Outcome::kTimedOut ? Outcome::kNotOwner : o;
}

}  // namespace cmi::locks
