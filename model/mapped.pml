/* An importer that maps the home's pages and does not announce its stores while nobody caches any:
   core/memory/importer/local_views.cpp and core/memory/home/local_grants.cpp. Two threads of the importer store to
   two words of one page, each then with a barrier; a third node comes and caches the page.

   A store waits in its processor's buffer until that is drained: by a fence, or when the page is protected. */

/* Mutations */
#define WORD_READ_BEFORE_PROTECTED 1
#define NO_FENCE 2
#define TAKEN_BACK_LATE 3
#define WRITE_BACK_BEGUN_LATE 4

#define ROUNDS 2

local byte mutation;
c_code {
\#include "choice.h"
}
#define MUTANT(m) (mutation == m)

byte home[2], buffer[2]; /* a buffer of 0 holds nothing */
byte published[2];       /* what a barrier that has returned says that everybody sees */
bool alone = true;       /* the home's word */
bool has; byte cached[2]; /* of the third node */
bool locked, writable, stored; byte write_backs;

#define drain(t) home[t] = (buffer[t] != 0 -> buffer[t] : home[t]); buffer[t] = 0

active proctype processors() {
end:
  do
  :: d_step { buffer[0] != 0 -> drain(0) }
  :: d_step { buffer[1] != 0 -> drain(1) }
  od
}

inline let_store() {
  atomic { !locked -> locked = true }
  stored = true;
  writable = true;
  locked = false
}

/* What is decided is left in `silent`. A hot page stays writable where nothing is announced. */
inline take() {
  atomic { !locked -> locked = true }
  silent = alone;
  if
  :: silent -> hot = true
  :: hot = false
  fi;
  if
  :: !hot || !stored -> d_step { writable = false; stored = false; drain(0); drain(1) }
  :: else
  fi;
  if
  :: silent && !MUTANT(WORD_READ_BEFORE_PROTECTED) -> silent = alone
  :: else
  fi;
  if
  :: !silent -> d_step { writable = false; stored = false; drain(0); drain(1) }
  :: else
  fi;
  locked = false
}

proctype application(bit me) {
  byte round; bool silent, hot;
  for (round : 1 .. ROUNDS) {
    do
    :: atomic { writable -> buffer[me] = round; break }
    :: atomic { !writable && !locked } let_store()
    od;
    if
    :: !stored && !MUTANT(WRITE_BACK_BEGUN_LATE) /* another thread has taken it: its write-back is awaited */
    :: !stored && MUTANT(WRITE_BACK_BEGUN_LATE)
    :: else ->
       if
       :: !MUTANT(NO_FENCE) -> buffer[me] == 0
       :: else
       fi;
       if
       :: !MUTANT(WRITE_BACK_BEGUN_LATE) -> write_backs++
       :: else
       fi;
       take();
       if
       :: MUTANT(WRITE_BACK_BEGUN_LATE) -> write_backs++
       :: else
       fi;
       if
       :: !silent -> has = false /* announced, and answered */
       :: else
       fi;
       write_backs--
    fi;
    atomic { write_backs == 0 -> published[me] = round }
  }
}

proctype third() {
  byte loads;
  if
  :: !MUTANT(TAKEN_BACK_LATE) -> alone = false
  :: else
  fi;
  for (loads : 1 .. 3) {
    do
    :: d_step { !has -> cached[0] = home[0]; cached[1] = home[1]; has = true }
    :: atomic { has -> assert(cached[0] >= published[0] && cached[1] >= published[1]); break }
    od;
    alone = false
  }
}

init {
  c_code { now.mutation = chosen_mutation(); }
  atomic { run application(0); run application(1); run third() }
}
