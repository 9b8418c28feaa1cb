/* Large runs by one-sided writes, and fences. One page of two bytes, all of it stored to by importer X.

   `x` stores 1 to both bytes and writes back: the page cannot be stored to until that is acknowledged, the
   writes read from the page itself. `x_other` is another thread of X, which stores 2 and 1 again to byte 0.
   `y` is the home's application, which overwrites byte 0 as soon as it sees X's 1. `z` is an importer that
   reads. Beside that goes on what `scenario` says: nothing, the link breaks once, X dies, or X's token is
   revoked.

   A write is posted, begun (part of it lies in the home's socket), done. It begins only while the session key
   is open and is done only while the serving endpoint is; a fence closes both. */

/* Mutations */
#define ANNOUNCED_BEFORE_DONE 1
#define STORED_WHILE_WRITING 2
#define WRITE_REPEATED 3
#define NEW_BYTES_BLINDLY 4
#define NO_FENCE_ON_REBUILD 5
#define NO_FENCE_ON_VERDICT 6
#define NO_FENCE_ON_REVOCATION 7
#define FENCE_IN_MID_PAYLOAD 8
#define DEATH_NOT_PUBLISHED 9
#define REVOCATION_ANSWERED_EARLY 10
#define REVOCATION_NOT_PUBLISHED 11
#define GONE_BEFORE_DROPPED 12

#define NOTHING 0
#define BREAK 1
#define DEATH 2
#define REVOCATION 3

#define kAbsent 0
#define kFetching 1
#define kStale 2
#define kClean 3
#define kDirty 4
#define kWriting 5

#define NONE 0
#define POSTED 1
#define BEGUN 2
#define DONE 3

typedef Write { byte status; byte session };

local byte mutation; local byte scenario;
c_code {
\#include "choice.h"
}
#define MUTANT(m) (mutation == m)

byte memory[2];
/* X */
byte state; byte data[2];
Write write[2];
byte session; bool broken; bool dead; bool revoking; bool lost; bool barrier_returned; bool using_key;
bool key_open[2]; bool endpoint_open[2];
/* Z */
byte z_state; byte z[2];
bool notification; bool ack;
byte requested; byte answered;
bool y_stored; byte over;
bool gone; /* what the home says of X to those who ask */

inline fence(s) {
  key_open[s] = false;
  endpoint_open[s] = MUTANT(FENCE_IN_MID_PAYLOAD)
}

/* Has the home tell Z, and waits. */
#define FOR_X 1
#define FOR_Y 2
#define FOR_HOME 4
inline publish(who) {
  requested = requested | who;
  (answered & who) != 0
}

#define take(who) atomic { (requested & who) != 0 -> requested = requested & ~who; taken = who; notification = true }

active proctype publisher() {
  byte taken;
end:
  do
  :: if
     :: take(FOR_X) :: take(FOR_Y) :: take(FOR_HOME)
     fi;
     atomic { ack -> ack = false; answered = answered | taken; taken = 0 }
  od
}

inline on_wire(b) {
  if
  :: atomic { write[b].status == POSTED && key_open[write[b].session] -> write[b].status = BEGUN }
  :: atomic { write[b].status == BEGUN && endpoint_open[write[b].session] ->
       memory[b] = data[b]; write[b].status = DONE }
  fi
}

active proctype wire() {
end:
  do
  :: on_wire(0)
  :: on_wire(1)
  :: atomic { scenario == BREAK && !broken && session == 0 && !barrier_returned -> broken = true }
  od
}

#define post() d_step { \
  write[0].status = POSTED; write[0].session = session; write[1].status = POSTED; write[1].session = session; \
  using_key = true }

proctype x() {
  atomic { data[0] = 1; data[1] = 1; state = kDirty };
  {
    /* write_back */
    atomic {
      if
      :: revoking -> lost = true; goto stopped
      :: else -> state = kWriting; post()
      fi };
again:
    if
    :: atomic { !broken && ((write[0].status == DONE && write[1].status == DONE) || MUTANT(ANNOUNCED_BEFORE_DONE)) ->
         using_key = false };
       publish(FOR_X)
    /* The closed key has refused a write; another may have been done, which the home publishes. */
    :: atomic { !broken && !key_open[session] -> lost = true; using_key = false; goto stopped }
    :: atomic { broken -> /* hello: the home fences the old session before it welcomes the new one */
         if
         :: !MUTANT(NO_FENCE_ON_REBUILD) -> fence(0)
         :: else
         fi;
         session = 1; broken = false;
         key_open[1] = true; endpoint_open[1] = true;
         if
         :: MUTANT(WRITE_REPEATED) ->
            post();
            goto again
         :: else
         fi };
       /* old and new bytes, as a message */
       atomic {
         if
         :: memory[0] == 0 || MUTANT(NEW_BYTES_BLINDLY) -> memory[0] = data[0]
         :: else
         fi };
       atomic {
         if
         :: memory[1] == 0 || MUTANT(NEW_BYTES_BLINDLY) -> memory[1] = data[1]
         :: else
         fi;
         using_key = false };
       publish(FOR_X)
    fi;
    atomic { state = kClean; barrier_returned = true }
  } unless { dead };
stopped:
  atomic { over++ }
}

/* Faults of its stores wait while the page is kWriting; the second leaves nothing to write back. */
proctype x_other() {
  {
    atomic { (state == kClean || (state == kWriting && MUTANT(STORED_WHILE_WRITING))) -> data[0] = 2 };
    data[0] = 1
  } unless { dead || lost };
  over++
}

proctype y() {
  if
  :: atomic { memory[0] == 1 -> memory[0] = 9; y_stored = true };
     publish(FOR_Y)
  :: skip
  fi;
  over++
}

inline holder_gone() { asks = gone }

/* Z's three loads of both bytes. What it has loaded after it was told that X is gone changes no more, but by Y. */
proctype z_application() {
  byte loads; byte had[2];
  bool fresh; bool asks; bool knew;
  do
  :: loads < 3 ->
     atomic { fresh = barrier_returned; holder_gone() };
     do
     :: atomic { z_state == kClean ->
          assert(!fresh || (z[0] != 0 && z[1] != 0));
          assert(!knew || ((z[0] == had[0] || (had[0] == 1 && z[0] == 9)) && z[1] == had[1]));
          knew = asks; asks = false; had[0] = z[0]; had[1] = z[1];
          break }
     :: atomic { z_state == kAbsent -> z_state = kFetching };
        z[0] = memory[0];
        z[1] = memory[1];
        atomic {
          if
          :: z_state == kStale -> z_state = kAbsent
          :: else -> z_state = kClean
          fi }
     od;
     loads++
  :: else -> break
  od;
  over++
}

active proctype z_service() {
end:
  do
  :: atomic { notification ->
       notification = false; ack = true;
       if
       :: z_state == kClean -> z_state = kAbsent; z[0] = 0; z[1] = 0
       :: z_state == kFetching -> z_state = kStale
       :: else
       fi }
  od
}

/* The home's part in the death of X and in the revocation of its token. */
proctype home() {
  byte was[2];
  if
  :: scenario == DEATH ->
     dead = true;
     if
     :: !MUTANT(NO_FENCE_ON_VERDICT) -> atomic { fence(0) }
     :: else
     fi;
     gone = MUTANT(GONE_BEFORE_DROPPED);
     if
     :: !MUTANT(DEATH_NOT_PUBLISHED) -> publish(FOR_HOME)
     :: else
     fi;
     gone = true
  :: scenario == REVOCATION ->
     revoking = true;
     if
     :: atomic { !using_key || MUTANT(REVOCATION_ANSWERED_EARLY) -> key_open[0] = false } /* X has answered */
     :: atomic { using_key -> /* it has not, in time */
          if
          :: !MUTANT(NO_FENCE_ON_REVOCATION) -> fence(0)
          :: else -> key_open[0] = false
          fi };
        if
        :: !MUTANT(REVOCATION_NOT_PUBLISHED) -> publish(FOR_HOME)
        :: else
        fi
     fi;
     atomic { was[0] = memory[0]; was[1] = memory[1] };
     /* Whatever else goes on, nothing of X lands any more */
     atomic { timeout -> assert((memory[0] == was[0] || (was[0] == 1 && memory[0] == 9)) && memory[1] == was[1]) }
  :: else
  fi
}

proctype judge() {
  over == 4;
  timeout;
  assert(memory[0] == (y_stored -> 9 : 1) || dead || lost || scenario == REVOCATION);
  assert(memory[1] == 1 || dead || lost || scenario == REVOCATION);
  assert(z_state != kClean || (z[0] == memory[0] && z[1] == memory[1]))
}

init {
  atomic {
    c_code { now.mutation = chosen_mutation(); };
    if
    :: scenario = NOTHING
    :: scenario = BREAK
    :: scenario = DEATH
    :: scenario = REVOCATION
    fi;
    key_open[0] = true; endpoint_open[0] = true;
    run x(); run x_other(); run y(); run z_application(); run home(); run judge()
  }
}
