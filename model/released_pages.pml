/* Pages that are released one by one: which pages of a region that it holds an importer is notified of. One home,
   one importer, one page. The region is held all the while (directory.pml).

   A notification that finds the page absent may release it: the importer marks the page, and the acknowledgement says
   so. The home does not notify it of the page from then on. A marked page enters by a message, which the home carries
   out and reads the page in one step; it keeps the number of the next notification then, and takes no release by a
   notification with a lower one. A page that had stores when the notification came is in no view until their
   write-back is answered; it may be released as one that is absent.

   The network keeps no order. What is on its way stays there: a notification or an acknowledgement may come any
   number of times, however late, also when its notification is over. An entry may never be answered, and may be
   carried out when nobody waits for it any more. */

#define PUBLICATIONS 3

/* Mutations */
#define ENTRY_LEFT_OUT 1
#define ENTERED_AFTER_READ 2
#define RELEASED_WHILE_FETCHING 3
#define NUMBER_IGNORED 4
#define MARK_GOES_WITHOUT_ANSWER 5
#define ZAPPED_NOT_RELEASED 6

#define kAbsent 0
#define kFetching 1
#define kStale 2
#define kClean 3
#define kZapped 4 /* in no view, its stores are on their way to the home */

local byte mutation;
c_code {
\#include "choice.h"
}
#define MUTANT(m) (mutation == m)

#define contains(set, bit) (((set) >> (bit)) & 1)

/* importer */
byte state; byte data; bool marked;
byte evictions = 1; byte given_up = 1; byte stored = 1;
/* on the wire; a bit for each notification */
byte notifications;
byte acks;     /* done as notified */
byte releases; /* the same, and the page is released */
bool late_entry;
/* home */
byte memory; byte published; bool released;
byte next_notification; byte entered; byte open_notifications;

inline on_enter_pages() {
  released = false;
  entered = next_notification
}

/* A marked page that is kFetching. */
inline enter_pages(content) {
  if
  :: MUTANT(ENTERED_AFTER_READ) -> content = memory; on_enter_pages()
  :: !MUTANT(ENTERED_AFTER_READ) -> d_step { on_enter_pages(); content = memory }
  :: given_up > 0 -> /* nothing comes back: the home has done it, will do it, or never does */
     given_up--;
     if
     :: true -> d_step { on_enter_pages() }
     :: true -> late_entry = true
     :: true
     fi;
     d_step {
       state = kAbsent;
       if
       :: MUTANT(MARK_GOES_WITHOUT_ANSWER) -> marked = false
       :: else
       fi
     };
     goto access
  fi;
  d_step { data = content; marked = false; content = 0 } /* the answer */
}

/* One thread of the importer's application. */
proctype application(byte loads) {
  byte content, at_least;
  do
  :: loads > 0 ->
     loads--;
     at_least = published;
access:
     if
     :: atomic { state == kClean -> assert(data >= at_least); at_least = 0 }
     :: atomic { state == kAbsent -> state = kFetching };
        if
        :: marked && !MUTANT(ENTRY_LEFT_OUT) -> enter_pages(content)
        :: else -> data = memory
        fi;
        d_step { /* deliver */
          if
          :: state == kStale -> state = kAbsent; data = 0
          :: else -> state = kClean
          fi
        };
        goto access
     :: atomic { evictions > 0 && state == kClean -> evictions--; state = kAbsent; data = 0; goto access }
     fi
  :: else -> break
  od
}

/* The importer's service thread. */
active proctype service() {
  byte n; bool says;
end:
  do
  :: atomic {
       if
       :: contains(notifications, 0) -> n = 0
       :: contains(notifications, 1) -> n = 1
       :: contains(notifications, 2) -> n = 2
       fi;
       if
       :: state == kClean -> state = kAbsent; data = 0
       :: stored > 0 && state == kClean -> stored--; state = kZapped; data = 0
       :: state == kFetching -> state = kStale
       :: else
       fi;
       if
       :: state == kAbsent || (MUTANT(RELEASED_WHILE_FETCHING) && state == kStale) -> marked = true; says = true
       :: state == kZapped -> marked = marked || !MUTANT(ZAPPED_NOT_RELEASED); says = true
       :: true /* the next one may */
       fi };
     atomic {
       if
       :: says -> releases = releases | (1 << n)
       :: else -> acks = acks | (1 << n)
       fi;
       n = 0; says = false }
  od
}

/* The home's application stores to the page and publishes it. */
active proctype home() {
  byte n;
  do
  :: n < PUBLICATIONS ->
     memory = n + 1;
     atomic {
       if
       :: !released -> notifications = notifications | (1 << n); open_notifications = open_notifications | (1 << n); next_notification = n + 1
       :: else -> assert(state != kClean) /* a page that is released is mapped nowhere */
       fi };
     !contains(open_notifications, n);
     published = n + 1;
     n++
  :: else -> break
  od
}

#define on_ack(n) atomic { contains(acks, n) && contains(open_notifications, n) -> open_notifications = open_notifications & ~(1 << n) } \
  :: atomic { contains(releases, n) && \
       (contains(open_notifications, n) || (!released && (n >= entered || MUTANT(NUMBER_IGNORED)))) -> \
     open_notifications = open_notifications & ~(1 << n); \
     if \
     :: n >= entered || MUTANT(NUMBER_IGNORED) -> released = true \
     :: else \
     fi }

active proctype server() {
end:
  do
  :: on_ack(0) :: on_ack(1) :: on_ack(2)
  :: atomic { late_entry -> late_entry = false; on_enter_pages() }
  :: atomic { state == kZapped -> state = kAbsent } /* answers the write-back */
  od
}

init {
  atomic {
    c_code { now.mutation = chosen_mutation(); };
    run application(1);
    run application(1)
  }
}
