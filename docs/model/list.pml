/* The list of pipes is no snapshot: the pipes of one source are taken from one after the other all the same.
 *
 * A pusher opens three pipes of one source, each once the entry of the one before was acknowledged. Two poppers read the list:
 * each entry at a time of its own, from any replica or page, between the call and the answer. What was acknowledged before a
 * read began is in it. Somebody who takes from a pipe has all of it, and its entry is deleted; how a pipe is taken from while it
 * is filled is in push.pml.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#define N 3

byte listed;                         /* the entries of pipes 0 to listed - 1 were acknowledged */
byte over;                           /* pipes 0 to over - 1 were taken from, to the end */

active proctype Pusher() {
    do
    :: atomic { listed < N -> listed++; printf("pusher: opens pipe %d\n", listed - 1) }
    :: listed == N -> break
    od
}

inline look(x) { asked[x] = true; sees[x] = (listed > (x) && over <= (x)) }

inline read_list() {
    atomic { asked[0] = false; asked[1] = false; asked[2] = false };
    do
    :: atomic { !asked[0] -> look(0) }
    :: atomic { !asked[1] -> look(1) }
    :: atomic { !asked[2] -> look(2) }
    :: atomic { asked[0] && asked[1] && asked[2] -> break }
    od
}

inline take(x) {
    printf("popper %d: takes from pipe %d\n", p, x);
    if
    :: over <= (x) -> assert(over == (x)); over = (x) + 1        /* order: an older pipe of the source has not been taken from */
    :: else                          /* another popper did */
    fi
}

#define newest (sees[2] -> 3 : (sees[1] -> 2 : (sees[0] -> 1 : 0)))

proctype Popper(byte p) {
    bool asked[N], sees[N];
    byte known, last;                /* how far the source was known from a list that had ended; 0: not at all */

    do
    :: listed > over ->
        read_list();
        last = newest;
#ifndef NO_LIST_TWICE
        if
        :: last > known ->                           /* RULE list_twice: what is older than its news is in the next list */
            read_list();
#ifndef NO_LIST_CUT
            atomic {                                 /* RULE list_cut: the next list may have news of its own */
                sees[1] = (sees[1] && last >= 2); sees[2] = (sees[2] && last >= 3)
            }
#endif
        :: else
        fi;
#endif
        known = newest;
        do
        :: atomic { sees[0] -> sees[0] = false; take(0) }
        :: atomic { !sees[0] && sees[1] -> sees[1] = false; take(1) }
        :: atomic { !sees[0] && !sees[1] && sees[2] -> sees[2] = false; take(2) }
        :: atomic { !sees[0] && !sees[1] && !sees[2] -> break }
        od
    :: over == N -> break
    od
}

active proctype Stuck() {
    timeout -> assert(over == N)     /* stuck: a pipe is seen by nobody */
}

init { atomic { run Popper(0); run Popper(1) } }
