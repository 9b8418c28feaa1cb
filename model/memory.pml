/* The coherence of one segment: a home, up to three importers, two pages of two bytes.

   Processes: `application` runs one thread's program of memory_tests.inc, at the home or at an importer;
   each importer has a `service` thread (notifications, timer) and a `poller` (answers); `home` takes in publish
   requests. Names are those of src/core/memory; the rules are those of doc/design/protocol.md.

   The network keeps no order and delays everything at will: a message is a set bit that its receiver takes
   at some time. So a step that only makes a message ready to be taken is merged with the step before it,
   and a request that its sender awaits is executed as a step of the sender. Under a page's lock, steps are
   merged up to the next one that a thread without the lock can see: of the page's mapping or its bytes.

   Test and mutation are chosen when pan runs, by the variables TEST and MUTATION: one pan serves all. */

#define N 3    /* importers */
#define HOME N /* where an application runs at the home */
#define SLOTS 5
#define PUBLICATIONS 6
#define THREADS 5
#define REGISTERS 6

#define SPIN
#include "memory_tests.inc"

/* PageState */
#define kAbsent 0
#define kFetching 1
#define kStale 2
#define kClean 3
#define kDirty 4
#define kWriting 5
#define kZappedDirty 6
#define kZappedWriting 7

/* What the page table says of a page of the application's view. */
#define NOTHING 0
#define PROTECTED 1
#define WRITABLE 2

/* A write-back: free; begun; its message is on its way; at the home; its answer is on its way. */
#define kFree 0
#define kOpen 1
#define kSent 2
#define kAtHome 3
#define kAnswered 4
#define kEnded 5 /* by mistake, see WRITE_BACK_ENDED_EARLY */

#define kNotBegun SLOTS /* instead of a write-back: of a collector that has nothing to send yet */

typedef Page {
  byte state; byte map;
  bool locked; bool in_flight; bool listed;
  bool hot; bool candidate; /* Heat: stays writable over its write-backs; will be hot with the next store */
  byte data[2]; byte twin[2];
  byte same; /* threads whose swap is under way and for which the generation was not raised since */
  /* At the importer: the epoch under which it subscribes to the page, 0 when the generation was raised since; the
     epochs so far; the number of the update to come. On its way to the home, and there: the epoch, and the
     number of the next update. */
  byte epoch; byte epochs; byte next_update;
  byte asked; byte at_home; byte number
};
typedef WriteBack { byte status; byte pages; byte diff; byte value[4] };
typedef Importer {
  Page page[2];
  WriteBack write_backs[SLOTS];
  byte dirty; /* the dirty list, a bit for each page */
  byte hot;   /* the list of hot pages: HotPages::pages_ */
  bool order; /* HotPages::order_mu_ */
  byte ticks  /* how often the timer may still come */
};
typedef Publication {
  byte pages;
  byte notified;    /* importers to whom a notification is on its way */
  byte waiting; /* importers that have not acknowledged */
  byte origin;  /* the write-back to answer, + 1; 0: a thread awaits it itself */
  /* To whom updates go along, by importer and page, and under which epoch and number; locations that are
     new, and what they hold. */
  byte updates; byte update_epoch[6]; byte update_number[6];
  byte changed; byte value[4]
};

/* Never changed once chosen, so reading them is a step that concerns nobody else ("local" to spin). */
local byte test; local byte mutation; local byte node_of[THREADS];
local bool has_room;     /* for hot pages: without it no page becomes hot */
Importer imp[N];
Publication publication[PUBLICATIONS];
byte memory[4];          /* the home's, by location: page * 2 + byte */
byte written;            /* pages that the kernel's tracking knows to be stored to */
byte written_by_other;   /* the same by another process of the node: the kernel forgets when it dies */
bool other_died;         /* which no scan has found yet */
bool armed;              /* the tracking is on */
bool mu;                 /* HomeCore::mu */
byte sharers;            /* who is notified of publications */
byte scans;              /* InvalidationRounds::stores_ */
byte awaited_write_backs[THREADS]; byte awaited_publications[THREADS];
byte reg[REGISTERS];
byte marks;              /* what threads tell each other past the memory */
byte running;

c_decl {
\#include "memory_tests.inc"
}
c_code {
\#define OUT_OF(what) (fprintf(stderr, "out of %s\n", what), exit(3))
}

#define MUTANT(m) (mutation == m)
#define P(i, p) imp[i].page[p]
#define B(i, b) imp[i].write_backs[b]
#define contains(set, bit) (((set) >> (bit)) & 1)
#define raise_generation(i, p) P(i, p).same = 0; P(i, p).epoch = (MUTANT(UPDATE_ANY_GENERATION) -> P(i, p).epoch : 0)
#define dirty_pages(i) (P(i, 0).state == kDirty || P(i, 1).state == kDirty)
#define is_open(i, b) (B(i, b).status != kFree && B(i, b).status != kEnded)
#define open_write_backs(i) (is_open(i, 0) | (is_open(i, 1) << 1) | (is_open(i, 2) << 2) | \
                         (is_open(i, 3) << 3) | (is_open(i, 4) << 4))
#define is_swap(op) (op == CAS || op == CAS_FETCH || op == CAS_BY_PROVIDER)
#define mapped(i, p) (P(i, p).state == kClean || P(i, p).state == kDirty || P(i, p).state == kWriting)

/* --- write-backs (write_back.cpp) --------------------------------------------------------------- */

inline begin_write_back(i, b) {
  b = 0;
  do
  :: b < SLOTS && B(i, b).status != kFree -> b++
  :: else -> break
  od;
  if
  :: b == SLOTS -> c_code { OUT_OF("write-backs"); }
  :: else -> B(i, b).status = kOpen
  fi
}

inline end_part(i, b) {
  B(i, b).status = kFree; B(i, b).pages = 0;
  wake(i, b)
}

/* Who awaits the write-back goes on. */
inline wake(i, b) {
  k = 0;
  do
  :: k < THREADS ->
     if
     :: node_of[k] == i -> awaited_write_backs[k] = awaited_write_backs[k] & ~(1 << b)
     :: else
     fi;
     k++
  :: else -> break
  od;
  k = 0
}

/* The bytes that differ, `d`, with their values, into the write-back's message. */
inline pack(i, p, b, first, second) {
  if
  :: d != 0 ->
     if
     :: MUTANT(MERGED_GAPS) -> d = 3
     :: else
     fi;
     B(i, b).pages = B(i, b).pages | (1 << (p));
     B(i, b).diff = B(i, b).diff | (d << (2 * (p)));
     if
     :: d & 1 -> B(i, b).value[2 * (p)] = first
     :: else
     fi;
     if
     :: d & 2 -> B(i, b).value[2 * (p) + 1] = second
     :: else
     fi
  :: else
  fi;
  P(i, p).in_flight = (d != 0)
}

/* Of a page that is protected, or in no view. */
inline add(i, p, b) {
  d = (P(i, p).data[0] != P(i, p).twin[0]) | ((P(i, p).data[1] != P(i, p).twin[1]) << 1);
  pack(i, p, b, P(i, p).data[0], P(i, p).data[1]);
  drop_twin(i, p)
}

/* Of a hot page, whose first byte has been read into `seen`, and which is stored to meanwhile: what was read
   becomes the twin. A page without a change cools, sooner or later. */
inline add_hot(i, p, b) {
  d = (seen != P(i, p).twin[0]) | ((P(i, p).data[1] != P(i, p).twin[1]) << 1);
  if
  :: d != 0
  :: d == 0 -> cooled = cooled | (1 << p); some_left = true
  :: d == 0
  fi;
  if
  :: b == kNotBegun && (d != 0 || cooled != 0) -> begin_write_back(i, b)
  :: else
  fi;
  pack(i, p, b, seen, P(i, p).data[1]);
  if
  :: d == 0 || MUTANT(HOT_TWIN_KEPT)
  :: else ->
     P(i, p).twin[0] = (MUTANT(HOT_READ_AGAIN) -> P(i, p).data[0] : seen); P(i, p).twin[1] = P(i, p).data[1]
  fi;
  seen = 0
}

#define written_back(i, p, changed) P(i, p).hot = false; P(i, p).candidate = (changed) && has_room
#define taken_away(i, p) P(i, p).hot = false; P(i, p).candidate = false

inline drop_twin(i, p) { P(i, p).twin[0] = 0; P(i, p).twin[1] = 0 }

inline make_absent(i, p) {
  P(i, p).state = kAbsent; P(i, p).data[0] = 0; P(i, p).data[1] = 0;
  taken_away(i, p)
}

/* Sends what the write-back holds, or ends it. */
inline flush(i, b) {
  if
  :: b == kNotBegun
  :: b != kNotBegun && B(i, b).pages != 0 -> B(i, b).status = kSent
  :: b != kNotBegun && B(i, b).pages == 0 -> end_part(i, b)
  fi
}

inline lock(i, p) { !P(i, p).locked; P(i, p).locked = true }

/* Those of `pages`, in ascending order. */
inline lock_run(i) {
  if
  :: pages & 1 -> lock(i, 0)
  :: else
  fi;
  if
  :: pages & 2 -> lock(i, 1)
  :: else
  fi
}

inline protect(i, p) {
  if
  :: contains(pages, p) && P(i, p).map == WRITABLE && !MUTANT(NOT_PROTECTED) -> P(i, p).map = PROTECTED
  :: else
  fi
}

/* One page of write_back, locked and protected. */
inline write_back_page(i, p, b) {
  if
  :: !contains(pages, p)
  :: else ->
     if
     :: P(i, p).state == kDirty && P(i, p).in_flight && P(i, p).hot -> /* it stands in the other list */
        P(i, p).listed = P(i, p).listed && MUTANT(HOT_STAYS_LISTED)
     :: P(i, p).state == kDirty && P(i, p).in_flight && !P(i, p).hot ->
        if
        :: !MUTANT(IN_FLIGHT_FORGOTTEN) -> P(i, p).listed = true; imp[i].dirty = imp[i].dirty | (1 << (p))
        :: else -> P(i, p).listed = false
        fi
     :: P(i, p).state == kDirty && !P(i, p).in_flight ->
        P(i, p).listed = P(i, p).listed && P(i, p).hot && MUTANT(HOT_STAYS_LISTED);
        add(i, p, b);
        raise_generation(i, p);
        written_back(i, p, P(i, p).in_flight);
        P(i, p).in_flight = P(i, p).in_flight && !MUTANT(CLEAN_WHEN_SENT);
        P(i, p).state = (P(i, p).in_flight -> kWriting : kClean)
     :: P(i, p).state != kDirty -> P(i, p).listed = false
     fi;
     P(i, p).locked = false
  fi
}

/* Of what was dirty when `pages` was taken, into write-back b, which is sent if it is `complete` then. */
inline write_back(i, b, complete) {
  if
  :: MUTANT(LOCKED_DESCENDING) && pages == 3 -> atomic { lock(i, 1) }
  :: else
  fi;
  atomic {
    if
    :: MUTANT(LOCKED_DESCENDING) && pages == 3 -> lock(i, 0)
    :: else -> lock_run(i)
    fi;
    if
    :: MUTANT(HANDLER_MEETS_LOCK) -> /* a client's handler runs here and loads from page 0 */
       (P(i, 0).map != NOTHING || !P(i, 0).locked)
    :: else
    fi;
    if
    :: MUTANT(PROTECTED_LATE) -> write_back_page(i, 0, b); write_back_page(i, 1, b); d = 0
    :: !MUTANT(PROTECTED_LATE) &&
       ((contains(pages, 0) && P(i, 0).state == kDirty && !P(i, 0).in_flight) ||
        (contains(pages, 1) && P(i, 1).state == kDirty && !P(i, 1).in_flight)) -> protect(i, 0); protect(i, 1)
    :: else
    fi;
    if
    :: MUTANT(UNLOCKED_PROTECT) -> P(i, 0).locked = false; P(i, 1).locked = false
    :: else
    fi
  };
  atomic {
    if
    :: MUTANT(UNLOCKED_PROTECT) -> lock_run(i)
    :: else
    fi;
    if
    :: MUTANT(PROTECTED_LATE) -> protect(i, 0); protect(i, 1)
    :: else -> write_back_page(i, 0, b); write_back_page(i, 1, b)
    fi;
    if
    :: complete -> flush(i, b); b = 0
    :: !complete
    fi;
    d = 0; pages = 0
  }
}

#define FIRST (hot & 1 -> 0 : 1)
#define is_hot(i, p) (P(i, p).state == kDirty && P(i, p).hot)
#define all_hot(i) (!imp[i].order || MUTANT(HOT_COPIED_UNLOCKED))

/* Those of `hot`; what has an earlier write-back out is left in `busy`, what is to be cooled in `cooled`. */
inline send_hot(i, b) {
  do
  :: hot == 0 -> break
  :: atomic { hot != 0 && !P(i, FIRST).locked && !(is_hot(i, FIRST) && !P(i, FIRST).in_flight) ->
       if
       :: is_hot(i, FIRST) -> busy = busy | (1 << FIRST)
       :: else -> some_left = true
       fi;
       hot = hot & (hot - 1) }
  :: atomic { hot != 0 && !P(i, FIRST).locked && is_hot(i, FIRST) && !P(i, FIRST).in_flight ->
       P(i, FIRST).locked = true; seen = P(i, FIRST).data[0] };
     atomic {
       add_hot(i, FIRST, b);
       if
       :: d != 0 -> raise_generation(i, FIRST)
       :: else
       fi;
       d = 0;
       P(i, FIRST).locked = false;
       hot = hot & (hot - 1) }
  od
}

/* What is hot no more is taken out of the list; what becomes hot meanwhile stays there. */
inline forget(i) {
  if
  :: some_left ->
     atomic { !imp[i].order -> imp[i].order = true; hot = imp[i].hot; imp[i].hot = 0; some_left = false };
     atomic { !(contains(hot, 0) && P(i, 0).locked) && !(contains(hot, 1) && P(i, 1).locked) ->
       imp[i].hot = imp[i].hot | (hot & (is_hot(i, 0) | (is_hot(i, 1) << 1)));
       hot = 0;
       imp[i].order = false }
  :: else
  fi
}

inline cool(i, b) {
  if
  :: cooled != 0 ->
     d_step { pages = cooled; cooled = 0 };
     write_back(i, b, false)
  :: else
  fi;
  forget(i)
}

/* The dirty list, and the write-back for it if none is begun. */
inline take_listed(i, b, begun) {
  if
  :: MUTANT(LIST_BEFORE_WRITE_BACK) ->
     d_step { pages = imp[i].dirty; imp[i].dirty = 0 };
     d_step { begin_write_back(i, b) }
  :: !MUTANT(LIST_BEFORE_WRITE_BACK) && !(begun) ->
     d_step { begin_write_back(i, b); pages = imp[i].dirty; imp[i].dirty = 0 }
  :: !MUTANT(LIST_BEFORE_WRITE_BACK) && begun -> d_step { pages = imp[i].dirty; imp[i].dirty = 0 }
  fi
}

/* One page of send_and_protect, up to its message: it stays writable, and its twin is what has been sent. */
inline send_page(i, p, b) {
  if
  :: !contains(pages, p)
  :: else ->
     !P(i, p).locked;
     if
     :: P(i, p).state == kDirty && P(i, p).in_flight && P(i, p).hot ->
        P(i, p).listed = P(i, p).listed && MUTANT(HOT_STAYS_LISTED); pages = pages & ~(1 << (p))
     :: P(i, p).state == kDirty && P(i, p).in_flight && !P(i, p).hot ->
        P(i, p).listed = true; imp[i].dirty = imp[i].dirty | (1 << (p)); pages = pages & ~(1 << (p))
     :: P(i, p).state == kDirty && !P(i, p).in_flight ->
        P(i, p).listed = P(i, p).listed && P(i, p).hot && MUTANT(HOT_STAYS_LISTED);
        if
        :: MUTANT(SENT_TWIN_KEPT) ->
           value = P(i, p).twin[0]; other = P(i, p).twin[1];
           add(i, p, b);
           P(i, p).twin[0] = value; P(i, p).twin[1] = other; value = 0; other = 0
        :: else ->
           add(i, p, b);
           P(i, p).twin[0] = P(i, p).data[0]; P(i, p).twin[1] = P(i, p).data[1]
        fi;
        raise_generation(i, p)
     :: P(i, p).state != kDirty -> P(i, p).listed = false; pages = pages & ~(1 << (p))
     fi
  fi
}

/* One page of protect_sent, locked and protected: what was stored to it since stays dirty. */
inline protect_sent_page(i, p) {
  if
  :: !contains(pages, p)
  :: else ->
     if
     :: P(i, p).state == kDirty ->
        if
        :: (P(i, p).data[0] == P(i, p).twin[0] && P(i, p).data[1] == P(i, p).twin[1]) || MUTANT(SENT_NOT_COMPARED) ->
           drop_twin(i, p);
           raise_generation(i, p);
           written_back(i, p, true);
           P(i, p).state = (P(i, p).in_flight -> kWriting : kClean)
        :: else ->
           if
           :: !P(i, p).hot -> P(i, p).listed = true; imp[i].dirty = imp[i].dirty | (1 << (p))
           :: else
           fi
        fi
     :: else
     fi;
     P(i, p).locked = false
  fi
}

/* The way of a process with one thread, which it takes here beside other threads, too. */
inline send_and_protect(i, b, begun) {
  take_listed(i, b, begun);
  atomic { send_page(i, 0, b); send_page(i, 1, b); flush(i, b); d = 0; b = 0 };
  atomic {
    lock_run(i);
    if
    :: (contains(pages, 0) && P(i, 0).state == kDirty) || (contains(pages, 1) && P(i, 1).state == kDirty) ->
       protect(i, 0); protect(i, 1)
    :: else
    fi
  };
  atomic { protect_sent_page(i, 0); protect_sent_page(i, 1); pages = 0 }
}

/* One page of answered(). */
inline answered(i, p) {
  if
  :: !contains(B(i, b).pages, p)
  :: else ->
     !P(i, p).locked;
     P(i, p).in_flight = false;
     if
     :: P(i, p).state == kWriting -> P(i, p).state = kClean
     :: P(i, p).state == kZappedWriting -> make_absent(i, p)
     :: P(i, p).state == kZappedDirty ->
        begin_write_back(i, next);
        add(i, p, next);
        P(i, p).state = kZappedWriting;
        if
        :: d == 0 -> make_absent(i, p)
        :: else
        fi;
        d = 0;
        flush(i, next);
        next = 0
     :: else
     fi
  fi
}

/* --- the home (rounds.cpp, on_publish.cpp, barriers.cpp) -------------------------------------------- */

/* What goes to importer i of a page that it subscribes to: the locations that are new, as they are by then. */
inline updates_for(i, p, news, f) {
  if
  :: contains(publication[f].notified, i) && P(i, p).at_home != 0 && (news & (3 << (2 * (p)))) ->
     publication[f].updates = publication[f].updates | (1 << (2 * (i) + p));
     publication[f].update_epoch[2 * (i) + p] = P(i, p).at_home;
     publication[f].update_number[2 * (i) + p] = P(i, p).number;
     P(i, p).number++;
     publication[f].changed = news;
     publication[f].value[0] = memory[0]; publication[f].value[1] = memory[1];
     publication[f].value[2] = memory[2]; publication[f].value[3] = memory[3]
  :: else
  fi
}

/* To all sharers but `except`; f is the publication, or what it takes to answer is done at once. */
inline publish(what, news, except, from, f) {
  f = 0;
  do
  :: f < PUBLICATIONS && publication[f].pages != 0 -> f++
  :: else -> break
  od;
  if
  :: f == PUBLICATIONS -> c_code { OUT_OF("publications"); }
  :: else ->
     publication[f].pages = what;
     publication[f].origin = from;
     publication[f].notified = sharers & ~(1 << (except));
     publication[f].waiting = publication[f].notified;
     updates_for(0, 0, news, f); updates_for(0, 1, news, f);
     updates_for(1, 0, news, f); updates_for(1, 1, news, f);
     updates_for(2, 0, news, f); updates_for(2, 1, news, f);
     settle(f)
  fi
}

/* The home answers, or the last direct ack does: either way without a lock that anybody else holds. */
inline settle(f) {
  if
  :: publication[f].waiting == 0 ->
     if
     :: publication[f].origin != 0 ->
        B((publication[f].origin - 1) / SLOTS, (publication[f].origin - 1) % SLOTS).status = kAnswered
     :: else
     fi;
     publication[f].pages = 0; publication[f].origin = 0; publication[f].notified = 0;
     publication[f].updates = 0; publication[f].changed = 0;
     publication[f].value[0] = 0; publication[f].value[1] = 0;
     publication[f].value[2] = 0; publication[f].value[3] = 0;
     scans = scans & ~(1 << f);
     k = 0;
     do
     :: k < THREADS -> awaited_publications[k] = awaited_publications[k] & ~(1 << f); k++
     :: else -> break
     od;
     k = 0
  :: else
  fi
}

inline on_ack(i, f) {
  publication[f].waiting = publication[f].waiting & ~(1 << (i));
  settle(f)
}

/* What the kernel says was stored to since the last scan. */
inline scan(what) {
  what = written | written_by_other;
  if
  :: other_died && !MUTANT(DEATH_NOT_PUBLISHED) -> what = 3
  :: else
  fi;
  written = 0; written_by_other = 0; other_died = false
}

inline publish_stores(t, what, f) {
  if
  :: what != 0 ->
     publish(what, (contains(what, 0) -> 3 : 0) | (contains(what, 1) -> 12 : 0), HOME, 0, f);
     if
     :: publication[f].pages != 0 -> scans = scans | (1 << f)
     :: else
     fi;
     what = 0; f = 0
  :: else
  fi;
  awaited_publications[t] = scans
}

#define sent(i, b) atomic { !mu && B(i, b).status == kSent -> mu = true; B(i, b).status = kAtHome; i_ = i; b_ = b; new = B(i, b).diff }
#define on_subscribe(i, p) \
  atomic { !mu && P(i, p).asked != 0 -> P(i, p).at_home = P(i, p).asked; P(i, p).asked = 0; P(i, p).number = 0 }
#define APPLY(l) \
  d_step { contains(B(i_, b_).diff, l) && (l == 0 || (B(i_, b_).diff & ((1 << l) - 1)) == 0) -> \
    memory[l] = (MUTANT(LIVE_BYTES) -> P(i_, l / 2).data[l % 2] : B(i_, b_).value[l]); \
    B(i_, b_).value[l] = 0; B(i_, b_).diff = B(i_, b_).diff & ~(1 << l) }

/* on_publish: the diffs are applied byte by byte, then the others are notified. */
active proctype home() {
  byte i_, b_, f, k, new;
end:
  do
  :: if
     :: sent(0, 0) :: sent(0, 1) :: sent(0, 2) :: sent(0, 3) :: sent(0, 4)
     :: sent(1, 0) :: sent(1, 1) :: sent(1, 2) :: sent(1, 3) :: sent(1, 4)
     :: sent(2, 0) :: sent(2, 1) :: sent(2, 2) :: sent(2, 3) :: sent(2, 4)
     fi;
     if
     :: MUTANT(PUBLISHED_BEFORE_DATA) -> d_step { publish(B(i_, b_).pages, new, i_, 0, f); f = 0 }
     :: else
     fi;
     do
     :: APPLY(0) :: APPLY(1) :: APPLY(2) :: APPLY(3)
     :: atomic { B(i_, b_).diff == 0 ->
          if
          :: MUTANT(PUBLISHED_BEFORE_DATA) || MUTANT(NOTICE_NOT_SENT) -> B(i_, b_).status = kAnswered
          :: MUTANT(ACKS_NOT_AWAITED) ->
             publish(B(i_, b_).pages, new, i_, 0, f);
             B(i_, b_).status = kAnswered
          :: else -> publish(B(i_, b_).pages, new, i_, 1 + i_ * SLOTS + b_, f)
          fi;
          mu = false; i_ = 0; b_ = 0; f = 0; new = 0;
          break }
     od
  :: atomic { MUTANT(ARMED_LATE) && sharers != 0 && !armed -> armed = true }
  :: on_subscribe(0, 0) :: on_subscribe(0, 1) :: on_subscribe(1, 0) :: on_subscribe(1, 1) :: on_subscribe(2, 0) :: on_subscribe(2, 1)
  od
}

/* --- an importer's service thread (invalidate.cpp, write_back.cpp) ----------------------------------- */

#define may_be_mapped(p) (P(i, p).state == kClean || P(i, p).state == kDirty || P(i, p).state == kWriting)

inline zap(i, p) {
  if
  :: contains(pages, p) && may_be_mapped(p) && !(MUTANT(DIRTY_KEPT) && P(i, p).state == kDirty) && !MUTANT(NOT_ZAPPED) ->
     P(i, p).map = NOTHING
  :: else
  fi
}

inline invalidate_page(i, p) {
  if
  :: !contains(pages, p)
  :: else ->
     raise_generation(i, p);
     if
     :: P(i, p).state == kFetching && !MUTANT(FETCHING_FORGOTTEN) -> P(i, p).state = kStale
     :: P(i, p).state == kClean -> make_absent(i, p); P(i, p).epoch = 0
     :: P(i, p).state == kWriting ->
        if
        :: MUTANT(REFETCHED_BEFORE_DELIVERY) -> make_absent(i, p)
        :: else -> P(i, p).state = kZappedWriting; taken_away(i, p)
        fi
     :: P(i, p).state == kDirty && !MUTANT(DIRTY_KEPT) ->
        taken_away(i, p);
        if
        :: MUTANT(DIRTY_DROPPED) -> drop_twin(i, p); make_absent(i, p)
        :: P(i, p).in_flight && !MUTANT(DIRTY_DROPPED) -> P(i, p).state = kZappedDirty
        :: !P(i, p).in_flight && !MUTANT(DIRTY_DROPPED) ->
           begin_write_back(i, next);
           add(i, p, next);
           P(i, p).state = kZappedWriting;
           if
           :: d == 0 -> make_absent(i, p)
           :: else
           fi;
           d = 0;
           flush(i, next);
           next = 0
        fi
     :: else
     fi;
     P(i, p).locked = false
  fi
}

/* `pages` are locked and zapped; then it is decided by their states what becomes of them. */
inline zap_everywhere(i) { lock_run(i); zap(i, 0); zap(i, 1) }
inline invalidate(i) { invalidate_page(i, 0); invalidate_page(i, 1); pages = 0 }

/* One page of which an update has come: taken in, or left in `pages`, which are dropped. */
inline update(i, p) {
  if
  :: !contains(publication[taken].updates, 2 * i + p)
  :: else ->
     !P(i, p).locked;
     if
     :: P(i, p).state == kClean && P(i, p).epoch != 0 && P(i, p).epoch == publication[taken].update_epoch[2 * i + p] &&
        (P(i, p).next_update == publication[taken].update_number[2 * i + p] || MUTANT(UPDATE_ANY_NUMBER)) ->
        if
        :: contains(publication[taken].changed, 2 * p) -> P(i, p).data[0] = publication[taken].value[2 * p]
        :: else
        fi;
        if
        :: contains(publication[taken].changed, 2 * p + 1) -> P(i, p).data[1] = publication[taken].value[2 * p + 1]
        :: else
        fi;
        P(i, p).same = 0;
        P(i, p).next_update++;
        pages = pages & ~(1 << p)
     :: else
     fi;
     publication[taken].updates = publication[taken].updates & ~(1 << (2 * i + p));
     publication[taken].update_epoch[2 * i + p] = 0; publication[taken].update_number[2 * i + p] = 0
  fi
}

#define notified(f) atomic { contains(publication[f].notified, i) -> \
  publication[f].notified = publication[f].notified & ~(1 << i); pages = publication[f].pages; taken = f }

/* The timer's: its write-back begins with the first page that has a change, or is to be cooled. */
inline take_hot(i, b) {
  atomic { imp[i].ticks > 0 && imp[i].hot != 0 && all_hot(i) ->
    imp[i].ticks--; hot = imp[i].hot; b = kNotBegun };
  send_hot(i, b);
  atomic { pages = cooled; cooled = 0; busy = 0 }
}

proctype service(byte i) {
  byte pages, taken, next, b, d, k, hot, busy, cooled, seen;
  bool some_left;
end:
  do
  :: if
     :: notified(0) :: notified(1) :: notified(2) :: notified(3) :: notified(4) :: notified(5)
     fi;
     if
     :: MUTANT(ACK_BEFORE_ZAP) -> d_step { on_ack(i, taken) }
     :: else
     fi;
     if
     :: publication[taken].updates & (3 << (2 * i)) -> atomic { update(i, 0); update(i, 1) }
     :: else
     fi;
     atomic { zap_everywhere(i) };
     atomic {
       invalidate(i);
       if
       :: !MUTANT(ACK_BEFORE_ZAP) -> on_ack(i, taken)
       :: else
       fi;
       taken = 0
     }
  :: if
     :: atomic { imp[i].ticks > 0 && imp[i].dirty != 0 -> imp[i].ticks-- };
        take_listed(i, b, false)
     :: take_hot(i, b)
     fi;
     write_back(i, b, true);
     forget(i)
  od
}

#define answer(s) B(i, s).status == kAnswered -> b = s

/* Whoever polls the link. */
proctype poller(byte i) {
  byte b, next, d, k;
  bool two;
end:
  do
  :: atomic {
       if
       :: answer(0) :: answer(1) :: answer(2) :: answer(3) :: answer(4)
       fi;
       if
       :: MUTANT(WRITE_BACK_ENDED_EARLY) -> B(i, b).status = kEnded; wake(i, b)
       :: else
       fi;
       answered(i, 0);
       two = (B(i, b).pages == 3);
       if
       :: !two -> answered(i, 1); end_part(i, b); b = 0
       :: else
       fi
     };
     if
     :: two -> atomic { answered(i, 1); end_part(i, b); b = 0; two = false }
     :: else
     fi
  od
}

/* --- threads of the application (fetch.cpp, write_back.cpp, cas.cpp, barriers.cpp) ------------------ */

/* Under the page's lock, the page being write-protected or in no view. */
inline make_dirty(i, p) {
  P(i, p).twin[0] = P(i, p).data[0]; P(i, p).twin[1] = P(i, p).data[1];
  P(i, p).state = kDirty;
  if
  :: P(i, p).candidate ->
     P(i, p).hot = true; P(i, p).candidate = false;
     imp[i].hot = imp[i].hot | (MUTANT(HOT_UNLISTED) -> 0 : 1 << (p))
  :: !P(i, p).candidate && !P(i, p).listed -> P(i, p).listed = true; imp[i].dirty = imp[i].dirty | (1 << (p))
  :: else
  fi
}

#define PAGE P(i, at / 2)
#define BYTE PAGE.data[at % 2]
#define BYTE_OF_TWIN PAGE.twin[at % 2]

inline await_open_write_backs() {
  atomic { awaited_write_backs[t] = open_write_backs(i); awaited_write_backs[t] == 0 }
}

inline publish_swap(t, except) {
  publish(pages, 1 << at, except, 0, f);
  awaited_publications[t] = (publication[f].pages != 0 -> 1 << f : 0);
  pages = 0; f = 0
}

proctype application(byte t) {
  byte i, pc, op, at, value, other, r, pages, b, next, d, f, k, hot, busy, cooled, seen;
  bool some_left, quiet, second, fetches;
  i = node_of[t];

again:
  atomic {
    c_code {
      const struct op* o = &tests[now.test].threads[Papplication->t].program[Papplication->pc++];
      Papplication->op = o == expected_op ? REACHED : o->kind;
      Papplication->at = o->at;
      Papplication->value = o->value;
      Papplication->other = o->other;
      Papplication->r = o->reg;
    };
    if
    :: op == END -> running--; goto done
    :: op == MARK -> marks = marks | (1 << value); goto again
    :: op == AWAIT_MARK -> contains(marks, value); goto again
    :: op == AWAIT_ALONE -> running == 1; goto again
    :: op == IF_MARKED ->
       if
       :: contains(marks, value) -> goto again
       :: else -> running--; goto done
       fi
    :: op == IF ->
       if
       :: reg[r] == value -> goto again
       :: else -> running--; goto done
       fi
    :: op == REACHED -> assert(false)
    :: op == EXPECT -> assert(reg[r] == value); goto again
    :: op == EXPECT_NOT -> assert(reg[r] != value); goto again
    :: op == EXPECT_ORDER -> assert(reg[r] <= reg[other]); goto again
    :: op == EXPECT_ANY -> assert(reg[r] != 0 || reg[other] != 0); goto again
    :: op == EXPECT_AT_HOME -> assert(memory[at] == value); goto again
    :: op == EXPECT_AS_HOME -> assert(memory[at] == reg[r]); goto again
    :: op == SUBSCRIBE -> goto subscribe
    :: op == DIE -> written_by_other = 0; other_died = true; goto again
    :: i >= HOME && op >= LOAD && op <= CAS_BY_PROVIDER -> goto at_home
    :: i < HOME && is_swap(op) && MUTANT(CAS_WITHOUT_BARRIER) -> goto swap
    :: i < HOME && (op == BARRIER || op == BARRIER_ALONE || (is_swap(op) && !MUTANT(CAS_WITHOUT_BARRIER))) ->
       goto barrier
    :: i < HOME && op == CFLUSH && MUTANT(CFLUSH_SENDS_NOTHING) -> goto again
    :: i < HOME && op == CFLUSH && !MUTANT(CFLUSH_SENDS_NOTHING) -> goto collect
    :: i < HOME && (op == LOAD || op == STORE)
    fi
  };

subscribe:
  /* What has been fetched, is clean, and was not stored to here. Nobody waits until the home has heard of it. */
  if
  :: op == SUBSCRIBE ->
     atomic { !PAGE.locked ->
       if
       :: PAGE.state == kClean || MUTANT(SUBSCRIBED_BEFORE_FETCHED) ->
          PAGE.epochs++; PAGE.epoch = PAGE.epochs; PAGE.next_update = 0; PAGE.asked = PAGE.epochs
       :: else
       fi;
       goto again }
  :: else
  fi;

access:
  do
  :: atomic { op == LOAD && PAGE.map != NOTHING -> reg[r] = BYTE; goto again }
  :: atomic { op == STORE && PAGE.map == WRITABLE && !(MUTANT(HOT_UNLISTED) && PAGE.hot) -> BYTE = value; goto again }
  :: atomic { op == STORE && PAGE.map == WRITABLE && MUTANT(HOT_UNLISTED) && PAGE.hot -> BYTE = value };
     imp[i].hot = imp[i].hot | (1 << (at / 2));
     goto again
  /* serve, for what faults */
  :: atomic { PAGE.map == NOTHING && PAGE.state == kAbsent && !PAGE.locked ->
       PAGE.state = kFetching; raise_generation(i, at / 2);
       goto fetch }
  :: atomic { op == STORE && PAGE.map == PROTECTED && !PAGE.locked && !MUTANT(TWIN_LATE) &&
       (PAGE.state == kClean || (PAGE.state == kWriting && !MUTANT(WRITING_STORED_TO))) ->
       make_dirty(i, at / 2); PAGE.map = WRITABLE; raise_generation(i, at / 2) }
  :: atomic { op == STORE && PAGE.map == PROTECTED && !PAGE.locked && MUTANT(TWIN_LATE) &&
       (PAGE.state == kClean || PAGE.state == kWriting) -> PAGE.locked = true; PAGE.map = WRITABLE };
     d_step { make_dirty(i, at / 2); PAGE.locked = false }
  :: atomic { op == STORE && PAGE.map == PROTECTED && !PAGE.locked && MUTANT(WRITING_STORED_TO) &&
       PAGE.state == kWriting -> PAGE.map = WRITABLE; raise_generation(i, at / 2) }
  :: atomic { op == STORE && PAGE.map == PROTECTED && !PAGE.locked && PAGE.state == kDirty -> PAGE.map = WRITABLE }
  od;

fetch:
  atomic {
    if
    :: contains(sharers, i)
    :: !contains(sharers, i) && !mu -> /* on_present */
       sharers = sharers | (1 << i);
       if
       :: !MUTANT(ARMED_LATE) -> armed = true
       :: else
       fi
    fi;
    PAGE.data[0] = memory[at - at % 2]
  };
  PAGE.data[1] = memory[at - at % 2 + 1];
  /* deliver */
  if
  :: MUTANT(CLEAN_BEFORE_MAPPED) ->
     if
     :: atomic { PAGE.state == kStale && !PAGE.locked -> make_absent(i, at / 2) }
     :: atomic { PAGE.state == kFetching && !PAGE.locked -> PAGE.state = kClean };
        PAGE.map = PROTECTED
     fi
  :: MUTANT(MAPPED_OUTSIDE_LOCK) ->
     if
     :: atomic { PAGE.state == kStale && !PAGE.locked -> make_absent(i, at / 2) }
     :: atomic { PAGE.state == kFetching && !PAGE.locked };
        PAGE.map = PROTECTED;
        atomic { !PAGE.locked ->
          if
          :: PAGE.state == kStale -> PAGE.map = NOTHING; make_absent(i, at / 2)
          :: else -> PAGE.state = kClean
          fi }
     fi
  :: else ->
     atomic { !PAGE.locked ->
       if
       :: PAGE.state == kStale && !MUTANT(STALE_IGNORED) ->
          make_absent(i, at / 2)
       :: else ->
          raise_generation(i, at / 2);
          if
          :: op == STORE -> make_dirty(i, at / 2); PAGE.map = WRITABLE
          :: else -> PAGE.state = kClean; PAGE.map = PROTECTED
          fi;
          PAGE.epoch = (MUTANT(SUBSCRIBED_BEFORE_FETCHED) -> PAGE.epochs : PAGE.epoch)
       fi }
  fi;
  goto access;

barrier:
  /* settled(), in two looks, one after the other */
  if
  :: dirty_pages(i)
  :: !dirty_pages(i) ->
     if
     :: open_write_backs(i) != 0
     :: open_write_backs(i) == 0 -> goto barrier_over
     fi
  fi;
collect:
  /* Of a barrier or cflush: first hot pages, all of them or those that were busy, or the one that is named. */
  if
  :: has_room ->
     atomic { op == CFLUSH || second || all_hot(i) ->
       begin_write_back(i, b);
       hot = (op == CFLUSH -> 1 << (at / 2) : (second -> busy : imp[i].hot));
       busy = 0 };
     send_hot(i, b);
     cool(i, b)
  :: !has_room
  fi;
  if
  :: op == CFLUSH ->
     if
     :: has_room -> atomic { !PAGE.locked -> pages = (is_hot(i, at / 2) -> 0 : 1 << (at / 2)) }
     :: !has_room -> d_step { begin_write_back(i, b); pages = 1 << (at / 2) }
     fi;
     write_back(i, b, true)
  :: op == BARRIER_ALONE -> send_and_protect(i, b, has_room)
  :: else -> take_listed(i, b, has_room); write_back(i, b, true)
  fi;
  if
  :: MUTANT(OTHERS_WRITE_BACKS_FORGOTTEN) -> goto barrier_over
  :: else -> await_open_write_backs()
  fi;
  /* What was in flight before is over now. A barrier takes two looks then, one after the other. */
  if
  :: atomic { !second && (op == CFLUSH || (dirty_pages(i) && !MUTANT(ONE_ROUND))) ->
       second = true;
       busy = (MUTANT(HOT_EARLIER_TRUSTED) -> 0 : busy);
       goto collect }
  :: atomic { second -> second = false; busy = 0 }
  :: atomic { !second && op != CFLUSH && (!dirty_pages(i) || MUTANT(ONE_ROUND)) -> busy = 0 };
     await_open_write_backs()
  fi;
  if
  :: MUTANT(LAST_AWAIT_LEFT_OUT)
  :: else -> await_open_write_backs()
  fi;
barrier_over:
  if
  :: is_swap(op) -> goto swap
  :: else -> goto again
  fi;

swap:
  atomic { !PAGE.locked ->
    quiet = (PAGE.state == kClean || PAGE.state == kDirty) && !PAGE.in_flight;
    PAGE.same = PAGE.same | (1 << t);
    if /* the answer is to bring the page: begin */
    :: op == CAS_FETCH && PAGE.state == kAbsent && contains(sharers, i) ->
       fetches = true;
       if
       :: !MUTANT(SWAPPED_PAGE_UNCLAIMED) -> PAGE.state = kFetching; raise_generation(i, at / 2)
       :: else
       fi
    :: else
    fi };
  if
  :: fetches && MUTANT(SWAPPED_PAGE_READ_EARLY) ->
     PAGE.data[0] = memory[at - at % 2]; PAGE.data[1] = memory[at - at % 2 + 1]
  :: else
  fi;
  /* on_cas, or the provider's atomic, which asks nobody and tells nobody */
  atomic { !mu || op == CAS_BY_PROVIDER ->
    reg[r] = memory[at];
    if
    :: reg[r] == value -> memory[at] = other; pages = (MUTANT(CAS_UNPUBLISHED) -> 0 : 1 << (at / 2))
    :: else
    fi;
    d = memory[at]; /* which the caller's copy takes */
    if
    :: op != CAS_BY_PROVIDER && pages != 0 -> publish_swap(t, i)
    :: else
    fi };
  if
  :: pages != 0 -> atomic { !mu -> publish_swap(t, i) } /* kAnnounce */
  :: else
  fi;
  awaited_publications[t] == 0;
  /* answer_with_page, take */
  if
  :: fetches ->
     if
     :: !MUTANT(SWAPPED_PAGE_READ_EARLY) ->
        PAGE.data[0] = memory[at - at % 2]; PAGE.data[1] = memory[at - at % 2 + 1]
     :: else
     fi;
     atomic { !PAGE.locked ->
       if
       :: PAGE.state == kStale -> make_absent(i, at / 2)
       :: else -> PAGE.state = kClean; PAGE.map = PROTECTED; raise_generation(i, at / 2)
       fi;
       PAGE.same = PAGE.same & ~(1 << t); d = 0; pages = 0; quiet = false; fetches = false;
       goto again }
  :: else
  fi;
  /* patch */
  atomic { !PAGE.locked ->
    if
    :: MUTANT(CAS_GENERATION_IGNORED) -> PAGE.same = PAGE.same | (1 << t)
    :: else
    fi;
    if
    :: MUTANT(CAS_UNPATCHED)
    :: else ->
       if
       :: quiet && contains(PAGE.same, t) && !PAGE.in_flight && PAGE.state == kClean ->
          BYTE = d; raise_generation(i, at / 2)
       :: quiet && contains(PAGE.same, t) && !PAGE.in_flight && PAGE.state == kDirty ->
          if
          :: BYTE == BYTE_OF_TWIN -> BYTE = d
          :: else
          fi;
          if
          :: !MUTANT(CAS_TWIN_KEPT) -> BYTE_OF_TWIN = d
          :: else
          fi;
          raise_generation(i, at / 2)
       :: else -> pages = (PAGE.state == kAbsent -> 0 : 1 << (at / 2))
       fi
    fi;
    PAGE.same = PAGE.same & ~(1 << t); d = 0; quiet = false };
  if
  :: pages != 0 ->
     atomic { zap_everywhere(i) };
     atomic { invalidate(i) }
  :: else
  fi;
  goto again;

at_home:
  if
  :: atomic { op == LOAD -> reg[r] = memory[at]; goto again }
  :: atomic { op == STORE -> memory[at] = value;
       if
       :: !armed
       :: armed && i == HOME -> written = written | (1 << (at / 2))
       :: armed && i != HOME -> written_by_other = written_by_other | (1 << (at / 2))
       fi;
       goto again }
  :: op == BARRIER || op == CAS
  fi;
  if
  :: sharers == 0
  :: sharers != 0 && MUTANT(SCAN_UNLOCKED) -> /* a second barrier may come between the two */
     d_step { scan(pages) };
     atomic { !mu -> publish_stores(t, pages, f) }
  :: sharers != 0 && !MUTANT(SCAN_UNLOCKED) -> atomic { !mu -> scan(pages); publish_stores(t, pages, f) }
  fi;
  awaited_publications[t] == 0;
  if
  :: op == CAS ->
     atomic { !mu ->
       reg[r] = memory[at];
       if
       :: reg[r] == value ->
          memory[at] = other;
          if
          :: !MUTANT(HOME_CAS_UNPUBLISHED) ->
             pages = 1 << (at / 2);
             publish_swap(t, HOME);
             scans = scans | awaited_publications[t]
          :: else
          fi
       :: else
       fi };
     awaited_publications[t] == 0
  :: else
  fi;
  goto again;

done:
  skip
}

init {
  byte t;
  atomic {
    c_code {
      now.test = chosen_test();
      now.mutation = chosen_mutation();
      now.armed = !tests[now.test].presented_late;
      now.has_room = tests[now.test].hot != kNoRoom;
      if (tests[now.test].hot == kCandidate) { /* cached by importer 0, and a write-back found changes */
        now.imp[0].page[0].state = kClean;
        now.imp[0].page[0].map = PROTECTED;
        now.imp[0].page[0].candidate = 1;
      }
      for (int i = 0; i < 5; ++i) {
        const struct thread* thread = &tests[now.test].threads[i];
        now.node_of[i] = thread->program == NULL ? NOBODY : thread->node;
        if (thread->program != NULL) ++now.running;
      }
      for (int i = 0; i < 3; ++i) now.imp[i].ticks = tests[now.test].ticks[i];
    };
    t = 0;
    do
    :: t < N ->
       if
       :: node_of[0] == t || node_of[1] == t || node_of[2] == t || node_of[3] == t || node_of[4] == t ->
          run service(t);
          run poller(t);
          sharers = sharers | (armed << t)
       :: else
       fi;
       t++
    :: else -> break
    od;
    t = 0;
    do
    :: t < THREADS ->
       if
       :: node_of[t] != NOBODY -> run application(t)
       :: else
       fi;
       t++
    :: else -> break
    od;
    t = 0
  }
}
