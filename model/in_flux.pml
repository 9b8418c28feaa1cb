/* The map of pages in flux of a client-inconsistent segment, with the writer's death at each point. One page
   of two bytes, which are consistent when they are equal.

   `x` stores twice to both bytes, each time: set the in-flux byte, with delivery; store; write back; publish;
   clear the byte. What it sends is a bit on the wire, taken in any order while the session key is open; its
   link breaks at most once. `home` finds X dead or silent, at any time. `z` imports the segment at any time, and loads. */

/* Mutations */
#define SET_NOT_AWAITED 1
#define CLEARED_EARLY 2
#define CLEAR_NOT_AWAITED 3
#define MAP_READ_BEFORE_FENCE 4
#define NO_FENCE_ON_VERDICT 5
#define NO_FENCE_ON_REBUILD 6
#define EVENT_BEFORE_LIST 7
#define FETCHING_NOT_LISTED 8
#define ABSENT_NOT_LISTED 9
#define NEW_IMPORTER_NOT_TOLD 10

/* What X sends. */
#define SET 1
#define BYTE_0 2
#define BYTE_1 4
#define BYTES 6
#define CLEAR 8

#define kAbsent 0
#define kFetching 1
#define kStale 2
#define kClean 3

local byte mutation;
c_code {
\#include "choice.h"
}
#define MUTANT(m) (mutation == m)

byte memory[2]; bool in_flux;
/* X and its link */
byte on_wire[2]; byte value[2]; bool key_open[2];
byte posted; byte done; byte session; bool broken; bool break_over; bool dead;
/* Z */
byte z_state; byte z[2]; bool inconsistent; bool joined;
bool notice; bool ack; bool list_sent; bool list_acked;
bool publish; bool published;
bool fenced; bool listed; bool event;

inline apply(s, what) {
  atomic {
    (on_wire[s] & what) && key_open[s] ->
    on_wire[s] = on_wire[s] & ~what;
    if
    :: what == SET -> in_flux = true
    :: what == CLEAR -> in_flux = false
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
  :: apply(0, SET) :: apply(0, BYTE_0) :: apply(0, BYTE_1) :: apply(0, CLEAR)
  :: apply(1, SET) :: apply(1, BYTE_0) :: apply(1, BYTE_1) :: apply(1, CLEAR)
  :: atomic { !break_over && !dead && posted != 0 -> break_over = true; broken = true }
  od
}

inline post(what) {
  d_step { posted = posted | what; done = done & ~(what); on_wire[session] = on_wire[session] | what; value[session] = r }
}

inline rebuild() {
  d_step {
    if
    :: !MUTANT(NO_FENCE_ON_REBUILD) -> key_open[0] = false; on_wire[0] = 0
    :: else
    fi;
    session = 1; key_open[1] = true; broken = false;
    on_wire[1] = posted & ~done; value[1] = r
  }
}

inline await(what) {
  do
  :: atomic { (done & what) == what -> posted = posted & ~(what); break }
  :: broken -> rebuild()
  od
}

/* At the home, for X: has Z drop the page. */
active proctype publisher() {
end:
  do
  :: atomic { publish -> publish = false; notice = true };
     atomic { ack -> ack = false; published = !fenced }
  od
}

proctype x() {
  byte r = 1;
  {
    do
    :: r <= 2 ->
       post(SET);
       if
       :: !MUTANT(SET_NOT_AWAITED) -> await(SET)
       :: else
       fi;
       post(BYTES);
       if
       :: MUTANT(CLEARED_EARLY) -> post(CLEAR)
       :: else
       fi;
       await(BYTES);
       publish = true;
       atomic { published -> published = false };
       if
       :: MUTANT(CLEARED_EARLY)
       :: else -> post(CLEAR)
       fi;
       if
       :: !MUTANT(CLEAR_NOT_AWAITED) -> await(CLEAR)
       :: else
       fi;
       r++
    :: else -> break
    od
  } unless { dead || fenced }
}

proctype home() {
  if
  :: dead = true
  :: skip /* it has only been silent for too long */
  fi;
  if
  :: MUTANT(MAP_READ_BEFORE_FENCE) -> listed = in_flux
  :: else
  fi;
  if
  :: !MUTANT(NO_FENCE_ON_VERDICT) ->
     d_step {
       fenced = true; publish = false; published = false;
       key_open[0] = false; key_open[1] = false; on_wire[0] = 0; on_wire[1] = 0
     }
  :: else
  fi;
  if
  :: MUTANT(MAP_READ_BEFORE_FENCE)
  :: else -> listed = in_flux
  fi;
  /* What was delivered and not published is on the list: its byte is cleared only after that. */
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

active proctype z_service() {
end:
  do
  :: atomic { notice ->
       notice = false; ack = true;
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

proctype z_application() {
  byte loads;
  bool after;
  atomic { /* import: new importers get the list */
    joined = true;
    inconsistent = listed && !MUTANT(NEW_IMPORTER_NOT_TOLD)
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
    run x(); run home(); run z_application()
  }
}
