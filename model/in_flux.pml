/* The map of pages in flux of a client-inconsistent segment, with the writer's death at each point. One page
   of two bytes, which are consistent when they are equal. core/memory/importer/dirty_intents.cpp, collector.cpp, flux_tracker.cpp, rounds.cpp.

   `writer` stores twice to both bytes, each time: the intent, by a message that is awaited; the bytes, one-sided; the
   announcement, which is published; then a message that clears the intent and that nobody awaits. A message is a bit that
   the home takes once, any time later, unless the writer is fenced: it is sent again under its number when a link has
   been rebuilt (numbers.pml). What is written one-sided is a bit on the wire, taken in any order while the session key is open;
   the link breaks at most once. `forget` finds the writer dead or silent, at any time. `application` imports the
   segment at any time, and loads; `service` takes the notifications for it. */

/* Mutations */
#define INTENT_NOT_AWAITED 1
#define CLEARED_EARLY 2
#define EPOCH_NOT_LOOKED_AT 3
#define INTENTS_READ_BEFORE_FENCE 4
#define NO_FENCE_ON_VERDICT 5
#define NO_FENCE_ON_REBUILD 6
#define EVENT_BEFORE_LIST 7
#define FETCHING_NOT_LISTED 8
#define ABSENT_NOT_LISTED 9
#define NEW_IMPORTER_NOT_NOTIFIED 10

/* What is written. */
#define BYTE_0 1
#define BYTE_1 2
#define BYTES 3

#define kAbsent 0
#define kFetching 1
#define kStale 2
#define kClean 3

local byte mutation;
c_code {
\#include "choice.h"
}
#define MUTANT(m) (mutation == m)
#define contains(set, bit) (((set) >> (bit)) & 1)

/* the home */
byte memory[2]; byte intent; /* the writer's, by epoch; 0: none */
bool fenced; bool listed; bool event;
/* the writer's run and its link */
byte on_wire[2]; byte value[2]; bool key_open[2];
byte posted; byte done; byte session; bool broken; bool break_over; bool dead;
/* the writer's messages and their answers, sets of epochs */
byte ask; byte granted; byte clear_intent;
bool announce; bool answer;
/* the other importer */
byte z_state; byte z[2]; bool inconsistent; bool joined;
bool notification; bool ack; bool list_sent; bool list_acked;

inline arrive(s, what) {
  atomic {
    (on_wire[s] & what) && key_open[s] ->
    on_wire[s] = on_wire[s] & ~what;
    if
    :: what == BYTE_0 -> memory[0] = value[s]
    :: what == BYTE_1 -> memory[1] = value[s]
    fi;
    if
    :: s == session && !broken -> done = done | what
    :: else /* the completion is lost */
    fi
  }
}

active proctype wire() {
end:
  do
  :: arrive(0, BYTE_0) :: arrive(0, BYTE_1) :: arrive(1, BYTE_0) :: arrive(1, BYTE_1)
  :: atomic { !break_over && !dead && posted != 0 -> break_over = true; broken = true }
  od
}

inline start_write() {
  d_step { posted = BYTES; done = 0; on_wire[session] = on_wire[session] | BYTES; value[session] = r }
}

/* A new session; what has no completion is written again. (Nobody else stores here: repairs are large_runs.pml's.) */
inline on_new_session() {
  d_step {
    if
    :: !MUTANT(NO_FENCE_ON_REBUILD) -> key_open[0] = false; on_wire[0] = 0
    :: else
    fi;
    session = 1; key_open[1] = true; broken = false;
    on_wire[1] = posted & ~done; value[1] = r
  }
}

inline on_dirty_intent(e) {
  atomic { contains(ask, e) && !fenced -> ask = ask & ~(1 << e); intent = e; granted = granted | (1 << e) }
}

inline drop_intent(e) {
  atomic { contains(clear_intent, e) && !fenced ->
    clear_intent = clear_intent & ~(1 << e);
    if
    :: intent == e || MUTANT(EPOCH_NOT_LOOKED_AT) -> intent = 0
    :: else
    fi }
}

/* What the home takes in: intents, the announcement, the acknowledgement of its publication. */
active proctype home() {
end:
  do
  :: on_dirty_intent(1) :: on_dirty_intent(2)
  :: drop_intent(1) :: drop_intent(2)
  :: atomic { announce && !fenced -> announce = false; notification = true }
  :: atomic { ack -> ack = false; answer = !fenced }
  od
}

proctype writer() {
  byte r = 1;
  {
    do
    :: r <= 2 ->
       ask = ask | (1 << r);
       if
       :: !MUTANT(INTENT_NOT_AWAITED) -> contains(granted, r)
       :: else
       fi;
       start_write();
       if
       :: MUTANT(CLEARED_EARLY) -> clear_intent = clear_intent | (1 << r)
       :: else
       fi;
       do
       :: atomic { done == BYTES -> posted = 0; break }
       :: broken -> on_new_session()
       od;
       announce = true;
       atomic { answer -> answer = false };
       if
       :: MUTANT(CLEARED_EARLY)
       :: else -> clear_intent = clear_intent | (1 << r)
       fi;
       r++
    :: else -> break
    od
  } unless { dead || fenced }
}

inline lose_intents() { listed = (intent != 0) }

proctype forget() {
  if
  :: dead = true
  :: skip /* it has only been silent for too long */
  fi;
  if
  :: MUTANT(INTENTS_READ_BEFORE_FENCE) -> lose_intents()
  :: else
  fi;
  if
  :: !MUTANT(NO_FENCE_ON_VERDICT) ->
     d_step {
       fenced = true; announce = false; answer = false;
       key_open[0] = false; key_open[1] = false; on_wire[0] = 0; on_wire[1] = 0
     }
  :: else
  fi;
  if
  :: MUTANT(INTENTS_READ_BEFORE_FENCE)
  :: else -> lose_intents()
  fi;
  /* What was delivered and not published is on the list: its intent is cleared only after that. */
  if
  :: MUTANT(EVENT_BEFORE_LIST) -> event = true
  :: else
  fi;
  if
  :: atomic { listed && joined -> list_sent = true }; list_acked
  :: !listed || !joined
  fi;
  event = true;
  timeout;
  assert(listed || memory[0] == memory[1]);
  assert(z_state != kClean || inconsistent || (z[0] == memory[0] && z[1] == memory[1]))
}

active proctype service() {
end:
  do
  :: atomic { notification ->
       notification = false; ack = true;
       if
       :: z_state == kClean -> z_state = kAbsent; z[0] = 0; z[1] = 0
       :: z_state == kFetching -> z_state = kStale
       :: else
       fi }
  :: atomic { list_sent ->
       list_sent = false; list_acked = true;
       if
       :: MUTANT(ABSENT_NOT_LISTED) && z_state == kAbsent
       :: else -> inconsistent = true
       fi;
       if
       :: z_state == kClean -> z_state = kAbsent
       :: z_state == kFetching && !MUTANT(FETCHING_NOT_LISTED) -> z_state = kStale
       :: else
       fi }
  od
}

proctype application() {
  byte loads;
  bool after;
  atomic { /* import: new importers get the list */
    joined = true;
    inconsistent = listed && !MUTANT(NEW_IMPORTER_NOT_NOTIFIED)
  };
  do
  :: loads < 2 ->
     after = event;
     do
     :: atomic { z_state == kClean -> assert(!after || z[0] == z[1]); break }
     :: atomic { z_state != kClean && inconsistent -> break } /* CONSIST is raised */
     :: atomic { z_state == kAbsent && !inconsistent -> z_state = kFetching };
        z[0] = memory[0];
        z[1] = memory[1];
        atomic {
          if
          :: z_state == kStale -> z_state = kAbsent; z[0] = 0; z[1] = 0
          :: else -> z_state = kClean
          fi }
     od;
     loads++
  :: else -> break
  od
}

init {
  atomic {
    c_code { now.mutation = chosen_mutation(); };
    key_open[0] = true;
    run writer(); run forget(); run application()
  }
}
