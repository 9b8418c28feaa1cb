/* The dirty intent of one page in the home's map of pages in flux, by epoch, while its importer stores to it again and
   again. core/memory/importer/dirty_intents.cpp, collector.cpp, on_dirty_intent.cpp.

   `x` is a thread that stores up to three times; `timer` writes the page back, one write-back at a time. A store
   may change nothing: then the intent goes by a message that nobody waits for. Messages arrive in any order, once.
   The importer may have its answer in direct acks, of which the home hears with the next write-back, or by itself.
   `swapper` asks for the intent once with a swap, which the home answers late; it may have given that up by then, and
   the intent goes back. One that no store has used goes back, too (give_back_unused). Epochs come back after 63 in
   the code, but for that of a given-up swap: here none does.
   A page that is stored to after a write-back with changes may become hot: then a write-back leaves it dirty, and its
   intent at the home, until it cools. X dies at any time: what it had stored and nobody had published by then must be
   marked, and what had been published must not be, once the home has found it dead, but for a hot page. At rest, when
   all has cooled, nothing is. */

/* Mutations */
#define SET_NOT_AWAITED 1
#define CLEARED_BEFORE_PUBLISHED 2
#define EPOCH_NOT_LOOKED_AT 3
#define EPOCH_REUSED 4
#define KEPT_BY_WRITE_BACK 5
#define NOT_CLEARED 6
#define INTENTS_OF_RECEIVED_LOST 7
#define HOT_INTENT_CLEARED 8
#define SWAP_TAKES_OVER 9
#define LATE_EPOCH_REUSED 10

#define STORES 3
#define kRefused 7

local byte mutation;
c_code {
\#include "choice.h"
}
#define MUTANT(m) (mutation == m)
#define contains(set, bit) (((set) >> (bit)) & 1)

/* the importer's page */
bool dirty; bool changed; bool held; bool asks; byte epoch;
bool candidate; bool hot;
bool in_flight; byte carried; /* a write-back, and the epoch that it clears */
bool unused; bool late; /* brought by a swap, and no store has come; a swap is not waited for any more */
byte mine; /* the epoch that the swap has asked for */
/* on the wire: the epoch that a swap asks for; the home's answer: that epoch, or kRefused */
byte swap_fetch; byte swap_answer;
/* on the wire, sets of epochs */
byte set; byte granted; byte clear_intent;
bool publish; bool answer;
/* the home; `pending`: the epoch that it clears when it hears that the others have dropped the page */
byte intent; bool applied; byte pending; bool received; bool dead;

active proctype x() {
  byte stores;
  bool room; /* for hot pages */
  {
  if
  :: room = true
  :: skip
  fi;
  do
  :: stores < STORES ->
     if
     :: atomic { !held && !asks ->
          if
          :: MUTANT(EPOCH_REUSED) -> epoch = 1
          :: MUTANT(LATE_EPOCH_REUSED) && late -> epoch = mine
          :: !MUTANT(EPOCH_REUSED) -> epoch++
          fi;
          asks = true; set = set | (1 << epoch); granted = granted & ~(1 << epoch)
        };
        if
        :: !MUTANT(SET_NOT_AWAITED) -> contains(granted, epoch)
        :: else
        fi;
        atomic { held = true; asks = false }
     :: held
     fi;
     atomic {
       if /* a write-back may have taken the intent since */
       :: held ->
          hot = hot || (!dirty && candidate && room);
          candidate = false; dirty = true; unused = false;
          if
          :: changed = true
          :: skip
          fi;
          stores++
       :: else
       fi
     }
  :: else -> break
  od
  } unless { dead }
}

active proctype swapper() {
end:
  {
    atomic { !held && !asks && !dirty && !in_flight -> /* begin */
      epoch++; mine = epoch; asks = true; swap_fetch = epoch };
    if
    :: atomic { swap_answer != 0 -> /* take */
         asks = false; held = swap_answer == mine; unused = held;
         epoch = (held -> epoch : epoch - 1);
         swap_answer = 0; mine = 0 }
    :: atomic { true -> asks = false; late = true }; /* give_up */
endlate:
       atomic { swap_answer != 0 ->
         if
         :: swap_answer == mine -> clear_intent = clear_intent | (1 << mine)
         :: else
         fi;
         late = false; swap_answer = 0; mine = 0 }
    fi
  } unless { dead }
}

active proctype timer() {
end:
  do
  :: atomic { unused && held && !dirty && !in_flight -> /* give_back_unused */
       unused = false; held = false; clear_intent = clear_intent | (1 << epoch) }
  :: atomic { dirty && !in_flight ->
       dirty = false; hot = false;
       carried = (held -> epoch : 0);
       held = MUTANT(KEPT_BY_WRITE_BACK);
       if
       :: changed -> changed = false; candidate = true; in_flight = true; publish = true
       :: else ->
          if
          :: MUTANT(NOT_CLEARED)
          :: else -> clear_intent = clear_intent | (1 << carried)
          fi;
          carried = 0
       fi }
  /* Or, of a hot page, which has cooled by then. */
  :: atomic { hot && changed && !in_flight -> /* send_hot */
       changed = false; in_flight = true; publish = true;
       carried = (MUTANT(HOT_INTENT_CLEARED) -> epoch : 0) }
  :: atomic { answer -> answer = false; in_flight = false; carried = 0 }
  od
}

inline drop_intent(e) {
  if
  :: intent == e || MUTANT(EPOCH_NOT_LOOKED_AT) -> intent = 0
  :: else
  fi
}

inline on_dirty_intent(e) {
  atomic { contains(set, e) -> set = set & ~(1 << e); intent = e; granted = granted | (1 << e) }
}
/* One that it has stays. */
inline on_swap_fetch() {
  atomic { swap_fetch != 0 ->
    if
    :: intent == 0 || MUTANT(SWAP_TAKES_OVER) -> intent = swap_fetch; swap_answer = swap_fetch
    :: else -> swap_answer = kRefused
    fi;
    swap_fetch = 0 }
}
inline on_clear_intent(e) {
  atomic { contains(clear_intent, e) -> clear_intent = clear_intent & ~(1 << e); drop_intent(e) }
}

inline on_acked_below() {
  if
  :: received -> received = false; drop_intent(pending); pending = 0
  :: else
  fi
}

active proctype home() {
  {
end:
    do
    :: on_dirty_intent(1) :: on_dirty_intent(2) :: on_dirty_intent(3) :: on_dirty_intent(4) :: on_swap_fetch()
    :: on_clear_intent(1) :: on_clear_intent(2) :: on_clear_intent(3) :: on_clear_intent(4)
    :: atomic { publish ->
         publish = false;
         on_acked_below(); /* it comes along */
         applied = true; pending = carried;
         if
         :: MUTANT(CLEARED_BEFORE_PUBLISHED) -> drop_intent(carried)
         :: else
         fi }
    /* The others have dropped it, and say so here, or to the importer. */
    :: atomic { applied -> applied = false; drop_intent(pending); pending = 0; answer = true }
    :: atomic { applied -> applied = false; received = true; answer = true }
    :: atomic { received -> on_acked_below() }
    od
  } unless { dead }
}

active proctype death() {
  if
  :: atomic {
       dead = true;
       if /* lose_intents() */
       :: !MUTANT(INTENTS_OF_RECEIVED_LOST) -> on_acked_below()
       :: else
       fi;
       assert(!((dirty && changed) || (in_flight && !answer)) || intent != 0);
       assert(intent == 0 || dirty || held || asks || (in_flight && !answer) || clear_intent != 0 || late)
     }
  :: skip
  fi
}

active proctype rest() { timeout -> assert(dead || intent == 0) }

init { c_code { now.mutation = chosen_mutation(); } }
