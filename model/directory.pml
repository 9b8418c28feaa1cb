/* The directory by region: which importers have to be notified. One home, one importer, one region of two pages.

   The home keeps an epoch for the importer, 0 for "not held". The importer keeps one atomic word: held, its
   epoch, and how many of the region's pages are not absent. A fetch counts its page first and looks at
   `held` in the same step; unless held, it sends a acquire request with a new epoch and waits for the reply. The
   reply may bring the page, which the home has read when it had noted the region (acquire_and_fetch). A
   notification that leaves nothing cached and nothing being fetched turns `held` off, and its acknowledgement says
   so with the epoch; the home forgets only an epoch that still stands.

   The network keeps no order. What is on its way stays there: a notification or an acknowledgement may come any
   number of times, however late. A acquire request takes effect once (numbers.pml). */

#define PUBLICATIONS 2
#define EPOCHS 3 /* bound: who needs a further one stops there */

/* Mutations */
#define ACQUIRE_NOT_AWAITED 1
#define ACQUIRE_AFTER_READ 2
#define FETCHING_NOT_COUNTED 3
#define HELD_BEFORE_COUNT 4
#define EPOCH_IGNORED 5
#define EPOCH_REUSED 6
#define LOOKED_UP_BEFORE_DATA 7
#define READ_BEFORE_HELD 8

#define kAbsent 0
#define kFetching 1
#define kStale 2
#define kClean 3

typedef Page { byte state; byte data };

local byte mutation;
c_code {
\#include "choice.h"
}
#define MUTANT(m) (mutation == m)

#define contains(set, bit) (((set) >> (bit)) & 1)

/* importer */
Page page[2];
bool held; byte epoch; byte count; byte last_epoch;
byte evictions = 1;
/* on the wire */
byte acquire;                /* requests, a bit for each epoch */
byte reply;
byte asked[EPOCHS]; byte content[EPOCHS]; /* by epoch: the page that is asked for, and what it holds */
byte read;                   /* epochs of which it was read too early */
byte notification[PUBLICATIONS]; /* 1 + page */
byte ack[PUBLICATIONS];   /* what acknowledgements say is over, a bit for each epoch; bit 0: nothing */
/* home */
byte memory[2]; byte entry; byte published[2];
byte open_notifications;

inline release(said) {
  if
  :: held && (count == 0 ||
       (MUTANT(FETCHING_NOT_COUNTED) && page[0].state != kClean && page[1].state != kClean)) ->
     held = false; said = epoch
  :: else -> said = 0
  fi
}

/* One thread of the importer's application. */
proctype application(byte loads; bool any_page) {
  byte p, e, at_least;
  bool seen_held;
  do
  :: loads > 0 ->
     loads--;
     if
     :: any_page -> p = 0
     :: p = 1
     fi;
     at_least = published[p];
access:
     if
     :: atomic { page[p].state == kClean -> assert(page[p].data >= at_least); at_least = 0; p = 0 }
     :: atomic { page[p].state == kAbsent -> /* serve */
          page[p].state = kFetching;
          seen_held = held;
          if
          :: !MUTANT(HELD_BEFORE_COUNT) -> count++
          :: else
          fi };
        if
        :: MUTANT(HELD_BEFORE_COUNT) -> count++
        :: else
        fi;
        if
        :: !seen_held && !MUTANT(ACQUIRE_AFTER_READ) ->
           d_step {
             last_epoch < EPOCHS - 1;
             if
             :: !(MUTANT(EPOCH_REUSED) && last_epoch != 0) -> last_epoch++
             :: else
             fi;
             e = last_epoch; reply = reply & ~(1 << e); asked[e] = p; acquire = acquire | (1 << e)
           };
           atomic {
             contains(reply, e) || MUTANT(ACQUIRE_NOT_AWAITED) -> held = true; epoch = e
           }
        :: else
        fi;
        if
        :: page[p].data = memory[p]
        :: atomic { e != 0 && contains(reply, e) -> page[p].data = content[e] }
        fi;
        d_step { asked[e] = 0; content[e] = 0; e = 0 };
        if
        :: !seen_held && MUTANT(ACQUIRE_AFTER_READ) ->
           d_step { last_epoch < EPOCHS - 1; last_epoch++; e = last_epoch; acquire = acquire | (1 << e) };
           atomic { contains(reply, e) -> held = true; epoch = e; e = 0 }
        :: else
        fi;
        d_step { /* deliver */
          seen_held = false;
          if
          :: page[p].state == kStale -> page[p].state = kAbsent; page[p].data = 0; count--
          :: else -> page[p].state = kClean
          fi
        };
        goto access
     :: atomic { evictions > 0 && page[p].state == kClean ->
          evictions--; page[p].state = kAbsent; page[p].data = 0; count--; goto access }
     fi
  :: else -> break
  od
}

/* The importer's service thread: invalidate, then the acknowledgement. */
active proctype service() {
  byte n, said;
end:
  do
  :: atomic {
       if
       :: notification[0] != 0 -> n = 0
       :: notification[1] != 0 -> n = 1
       fi;
       if
       :: page[notification[n] - 1].state == kClean ->
          page[notification[n] - 1].state = kAbsent; page[notification[n] - 1].data = 0; count--
       :: page[notification[n] - 1].state == kFetching -> page[notification[n] - 1].state = kStale
       :: else
       fi };
     atomic {
       release(said);
       if
       :: contains(open_notifications, n) -> ack[n] = ack[n] | (1 << said)
       :: else /* the home takes no acknowledgement of this one any more */
       fi;
       n = 0; said = 0 }
  od
}

/* The home's application stores to a page and publishes it, as often as there are publications; `published` only once all that was
   to be notified has answered. */
active proctype home() {
  byte n, p;
  do
  :: n < PUBLICATIONS ->
     if
     :: p = 0
     :: p = 1
     fi;
     if
     :: MUTANT(LOOKED_UP_BEFORE_DATA) && entry == 0 -> memory[p] = n + 1
     :: else ->
        memory[p] = n + 1;
        atomic {
          if
          :: entry != 0 -> notification[n] = 1 + p; open_notifications = open_notifications | (1 << n)
          :: else
          fi };
        !contains(open_notifications, n)
     fi;
     published[p] = n + 1;
     n++
  :: else -> break
  od
}

#define on_acquire(e) atomic { contains(acquire, e) && (!MUTANT(READ_BEFORE_HELD) || contains(read, e)) -> \
  acquire = acquire & ~(1 << e); entry = e; reply = reply | (1 << e); \
  if \
  :: !MUTANT(READ_BEFORE_HELD) -> content[e] = memory[asked[e]] \
  :: else \
  fi } \
  :: atomic { contains(acquire, e) && MUTANT(READ_BEFORE_HELD) && !contains(read, e) -> \
  content[e] = memory[asked[e]]; read = read | (1 << e) }
#define on_ack(n, e) atomic { contains(open_notifications, n) && contains(ack[n], e) -> \
  open_notifications = open_notifications & ~(1 << n); ack[n] = 0; \
  if \
  :: e != 0 && (entry == e || MUTANT(EPOCH_IGNORED)) -> entry = 0 \
  :: else \
  fi }
#define on_acks(n) on_ack(n, 0) :: on_ack(n, 1) :: on_ack(n, 2)

active proctype server() {
end:
  do
  :: on_acquire(1) :: on_acquire(2)
  :: on_acks(0) :: on_acks(1)
  od
}

init {
  atomic {
    c_code { now.mutation = chosen_mutation(); };
    run application(2, true);
    run application(1, false)
  }
}
