/* Requests that are sent again: each takes effect once, and its answer arrives. fabric/link.cpp and
   fabric/server.cpp. A client starts two requests; its link is rebuilt up to twice.

   A frame stays on the wire: it arrives any number of times, in any order, while the session that it was sent
   on is the server's present one. It carries the number below which everything is over at the client. */

/* Mutations */
#define OPEN_NOT_LOOKED_AT 1
#define ANSWER_NOT_KEPT 2
#define SETTLED_NOT_LOOKED_AT 3
#define SETTLED_TOO_HIGH 4

#define SESSIONS 3

local byte mutation;
c_code {
\#include "choice.h"
}
#define MUTANT(m) (mutation == m)
#define contains(set, bit) (((set) >> (bit)) & 1)

/* client; requests are numbered 1 and 2 */
byte session; bool answered[3];
/* the wire, by session: a bit for each request and settled number (number * 3 + settled - 4), and replies */
byte frames[SESSIONS]; byte replies[SESSIONS];
/* server */
byte generation; byte settled = 1; bool open[3]; bool kept[3]; byte executed[3];

#define settled_at_client(number) \
  (MUTANT(SETTLED_TOO_HIGH) -> number : (!answered[1] -> 1 : (!answered[2] -> 2 : 3)))
#define frame(number, settled) (1 << ((number - 1) * 3 + settled - 1))

/* At first, when patience is over, and on a new session. */
inline send(number) {
  atomic {
    !answered[number] && !(frames[session] & frame(number, settled_at_client(number))) ->
    frames[session] = frames[session] | frame(number, settled_at_client(number))
  }
}

active proctype client() {
end:
  do
  /* an answer */
  :: atomic { contains(replies[session], 1) && !answered[1] -> answered[1] = true; assert(executed[1] == 1) }
  :: atomic { contains(replies[session], 2) && !answered[2] -> answered[2] = true; assert(executed[2] == 1) }
  :: send(1)
  :: send(2)
  :: atomic { session < SESSIONS - 1 ->
       session++;
       generation = session } /* the hello: what comes from older sessions is dropped from here on */
  :: atomic { answered[1] && answered[2] -> break }
  od
}

inline arrive(number, said) {
  atomic {
    frames[generation] & frame(number, said) ->
    d = (said < number -> said : number);
    settled = (d > settled -> d : settled);
    d = 0;
    if
    :: settled == 2 -> kept[1] = false
    :: else
    fi;
    if
    :: number < settled && !MUTANT(SETTLED_NOT_LOOKED_AT) -> assert(answered[number])
    :: else ->
       if
       :: open[number] && !MUTANT(OPEN_NOT_LOOKED_AT) /* it is being worked on */
       :: kept[number] -> replies[generation] = replies[generation] | (1 << number)
       :: else -> open[number] = true; executed[number]++; assert(executed[number] == 1)
       fi
    fi
  }
}

/* The answer, when others have acknowledged. */
inline reply(number) {
  atomic {
    open[number] ->
    open[number] = false;
    kept[number] = !MUTANT(ANSWER_NOT_KEPT);
    replies[generation] = replies[generation] | (1 << number)
  }
}

active proctype server() {
  byte d;
end:
  do
  :: arrive(1, 1) :: arrive(1, 2) :: arrive(1, 3)
  :: arrive(2, 1) :: arrive(2, 2) :: arrive(2, 3)
  :: reply(1) :: reply(2)
  od
}

init { c_code { now.mutation = chosen_mutation(); } }
