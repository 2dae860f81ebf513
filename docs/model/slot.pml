/* Keys: of all messages with one key at most one is leased at a time, and those of one source come in order.
 *
 * Two owners of one slot, and three messages (0, 1 and 2) in pipes of it. An owner wins the slot's row, forgets all that it
 * knew, reads the list, loads every pipe, chooses a message and takes it, as anybody takes from a pipe; then it reads the row
 * once more. Where that shows its op still, and the gate lets the message pass, it is handed out; else it is given back.
 * Consumers commit, roll back and extend. What came back stands in the database first, and the owner in the same process hears
 * of it later. There is no lease on the slot and no claim: each owner wins whenever it likes, and goes on with what it knows for
 * as long as it likes.
 *
 * Why two owners never hand out one key: each writes its lease before it reads the row, and wins the row before it reads
 * leases. So of two owners one sees the other. A read of the row
 * shows each op whose owner knows that it won; who does not know it has read no leases yet.
 *
 * A transaction or a mark whose reply is lost was applied, or is in flight and lands later, or never. Everybody may stop for
 * any time between two steps. A lease ends for its holder before it ends for others. An extension that was sent in time
 * may land after that: then the lease runs again, unless the row was changed meanwhile.
 *
 * With PIPES=1 all messages are in one pipe, and message 1 has a key of its own. With PIPES=2 they have one key, and message 2 is in
 * another pipe: of another source, or (-DSAME) the younger one of the same, and messages 1 and 2 are pushed meanwhile.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 1                     /* replies that are lost */
#endif
#ifndef EXPIRIES
#define EXPIRIES 1                   /* leases that end under a living holder */
#endif
#ifndef ROLLBACKS
#define ROLLBACKS 0
#endif
#ifndef EXTENSIONS
#define EXTENSIONS 0
#endif
#ifndef PIPES
#define PIPES 2
#endif
#ifndef WINS
#define WINS 2                       /* how often the row is won until something else comes of it */
#endif

#define N 3
#define NONE N                       /* no message */
#define NOBODY 2

#if PIPES == 2
#define pipe_of(m) ((m) / 2)
#define is_alike(a, m) ((a) != (m))              /* another message of the same key */
#else
#define pipe_of(m) 0
#define is_alike(a, m) ((a) + (m) == 2 && (a) != (m))
#endif
#ifdef SAME
#define is_before(a, m) ((a) < (m))              /* of the same key and source, and earlier */
#else
#define is_before(a, m) (is_alike(a, m) && (a) < (m) && pipe_of(a) == pipe_of(m))
#endif

/* How a message stands, in the database or as an owner knows it. */
#define ABSENT 0
#define WAITS 1
#define LEASED 2
#define LAPSED 3                     /* leased, and over by the clock */
#define SPENT 4                      /* likewise, and it has ended by a mark of an earlier attempt */
#define BACK 5
#define ENDED 6

#define at(p, m) ((p) * N + (m))
#define on(p, x) ((p) * 2 + (x))

byte faults = FAULTS, expiries = EXPIRIES, rollbacks = ROLLBACKS, extensions = EXTENSIONS, wins = WINS;

/* The slot's row, and the list. */
bool has_begun;                      /* who is the first to win is owner 0 */
bool mine[2];                        /* the op with which the owner won is the one that stands */
bool shown[2];                       /* another op stands, of an owner that does not know it yet: a read may show the older one */
bool win_flies[2];                   /* a win that is conditional on an op that still stands */
#ifdef NO_FRESH_WIN
byte row = NOBODY, win_seen[2];
#endif
#ifdef SAME
byte pushed = 1;
#elif PIPES == 2
byte pushed = 2;
#else
byte pushed = 3;
#endif
#define is_listed (PIPES == 2 && pushed == N)

/* The pipes: runs of one message each, marks, and the floor of the first pipe. */
byte state[N] = WAITS;               /* or LEASED, BACK */
byte attempt[N], mark[N];            /* mark: the attempt that the mark carries; 0: there is none */
byte by[N] = NOBODY;                 /* who leased it */
bool runs[N];                        /* the lease, for who has it; then it is over for others, too */
byte floor;                          /* so many of the first pipe's messages are read no more */
bool seen[4];                        /* the op that the owner knows of the pipe is the one that stands */
byte flies[2] = NONE;                /* a take that is conditional on an op that still stands */

/* What owners know. */
bool lists[2];                       /* the second pipe is in the list that it read */
bool loaded[4];
byte knows[6];
bool row_seen[6];                    /* the run stands as it was seen: lease_id and leased_at */

/* What owners are still to hear from consumers of their process: that a message was put back. */
#define HEARD 0                      /* nothing */
#define STANDS 1                     /* its run is as it was told */
#define CHANGED 2                    /* it was taken since */
byte note[6];

/* Consumers. */
bool works[N];                       /* a consumer has it, and goes on while its lease runs */
bool extends[N];                     /* an extension is in flight */
byte mark_flies[N];                  /* the attempt of a mark in flight */
bool told[N];                        /* a commit returned */

#define is_covered(m) (pipe_of(m) == 0 && (m) < floor)
#ifdef NO_MARK_ATTEMPT
#define is_ended(m) (mark[m] != 0)
#else
#define is_ended(m) (mark[m] != 0 && (state[m] != LEASED || mark[m] == attempt[m]))      /* RULE mark_attempt */
#endif
#define as_leased(m) (runs[m] -> LEASED : (mark[m] -> SPENT : LAPSED))
#define stands(m) ((m) >= pushed -> ABSENT : (is_covered(m) || is_ended(m) -> ENDED : \
    (state[m] == LEASED -> as_leased(m) : state[m])))

/* The gate, by what an owner knows. */
#ifdef NO_LAPSED_BACK
#define is_out(s) ((s) == LEASED)
#else
#define is_out(s) ((s) == LEASED || (s) == LAPSED || (s) == SPENT)       /* RULE lapsed_back: not by the clock alone */
#endif
#ifdef NO_OLDER_END
#define is_done(s) ((s) == ENDED || (s) == ABSENT)
#else
#define is_done(s) ((s) == ENDED)                    /* RULE older_end: what may still come waits, too */
#endif
#ifdef NO_KEY_FREE
#define is_free_of(p, a, m) true
#else
#define is_free_of(p, a, m) (!is_alike(a, m) || !is_out(knows[at(p, a)]))        /* RULE key_free */
#endif
#ifdef NO_IN_ORDER
#define is_next_to(p, a, m) true
#else
#define is_next_to(p, a, m) (!is_before(a, m) || is_done(knows[at(p, a)]))       /* RULE in_order */
#endif
#define lets(p, a, m) (is_free_of(p, a, m) && is_next_to(p, a, m))
#define may_pass(p, m) (lets(p, 0, m) && lets(p, 1, m) && lets(p, 2, m))

inline move_on() { wins = WINS }

inline new_op(p, x) {                /* whoever knows an older op can only be refused, and must load again */
    seen[on(0, x)] = (p == 0); seen[on(1, x)] = (p == 1);
    flies[0] = (flies[0] != NONE && pipe_of(flies[0]) == (x) -> NONE : flies[0]);
    flies[1] = (flies[1] != NONE && pipe_of(flies[1]) == (x) -> NONE : flies[1])
}

#define later(p, m) (note[at(p, m)] -> CHANGED : HEARD)
inline changed(m) {                  /* its run has another leased_at: what is conditional on the old one is refused */
    note[at(0, m)] = later(0, m); note[at(1, m)] = later(1, m);
    row_seen[at(0, m)] = false; row_seen[at(1, m)] = false;
    extends[m] = false; works[m] = false
}

/* Only of what is taken or returned again the run is to stand as it was seen. */
#ifdef NO_NOTE_LEASE
inline heard(p, m) { skip }
#else
inline heard(p, m) { note[at(p, m)] = HEARD }        /* RULE note_lease: it is of an older lease */
#endif
inline learn(p, m, s) { heard(p, m); knows[at(p, m)] = s; row_seen[at(p, m)] = (s == BACK) }
inline know(p, m) {
    heard(p, m);
    knows[at(p, m)] = stands(m); row_seen[at(p, m)] = (knows[at(p, m)] >= LAPSED && knows[at(p, m)] <= BACK)
}

inline forget_pipe(p, x) {
    loaded[on(p, x)] = false; seen[on(p, x)] = false;
    if
    :: (x) == 0 -> knows[at(p, 0)] = ABSENT; knows[at(p, 1)] = ABSENT; row_seen[at(p, 0)] = false; row_seen[at(p, 1)] = false
    :: else
    fi;
    if
    :: pipe_of(2) == (x) -> knows[at(p, 2)] = ABSENT; row_seen[at(p, 2)] = false
    :: else
    fi
}

inline load(p, x) {
    loaded[on(p, x)] = true; seen[on(p, x)] = true;
    if
    :: (x) == 0 -> know(p, 0); know(p, 1)
    :: else
    fi;
    if
    :: pipe_of(2) == (x) -> know(p, 2)
    :: else
    fi;
    printf("owner %d: loads pipe %d\n", p, x)
}

/* The first messages of the first pipe that have ended. */
#ifdef NO_FLOOR_ATTEMPT
#define is_past(p, m) (mark[m] != 0)
#else
#define is_past(p, m) (knows[at(p, m)] == ENDED)     /* RULE floor_attempt: by a mark of the run's attempt */
#endif
inline raise_floor(p, x) {
    do
    :: (x) == 0 && floor < (PIPES == 2 -> 2 : 3) && is_past(p, floor) -> floor++
    :: else -> break
    od
}

/* Message m is leased, and its lease runs for `whom`. */
inline lease(m, whom) {
    changed(m);
    state[m] = LEASED; attempt[m]++; by[m] = whom; runs[m] = (whom != NOBODY)
}

inline put_back(m) { changed(m); state[m] = BACK; runs[m] = false; by[m] = NOBODY }

inline check_key(m) {
    assert(!((is_alike(0, m) || m == 0) && works[0] && runs[0]));    /* E1: two living leases of one key */
    assert(!((is_alike(1, m) || m == 1) && works[1] && runs[1]));    /* E1: two living leases of one key */
    assert(!((is_alike(2, m) || m == 2) && works[2] && runs[2]))     /* E1: two living leases of one key */
}

inline hand_out(p, m) {
    printf("owner %d: hands out %d, attempt %d\n", p, m, attempt[m]);
    check_key(m);
    assert(!(is_before(0, m) && !mark[0]));          /* E2: an earlier one of the key has not ended */
    assert(!(is_before(1, m) && !mark[1]));          /* E2: an earlier one of the key has not ended */
    assert(!told[m]);                                /* P2: delivered again after a commit that returned */
    works[m] = true; move_on()
}

inline win(p) {
    shown[0] = (p != 0 && (mine[0] || shown[0])); shown[1] = (p != 1 && (mine[1] || shown[1]));
    mine[0] = (p == 0); mine[1] = (p == 1);
#ifdef NO_FRESH_WIN
    row = p
#else
    win_flies[0] = false; win_flies[1] = false       /* RULE fresh_win: each attempt to win sets an op of its own */
#endif
}

#define wants(m) (stands(m) == WAITS || stands(m) == BACK || stands(m) == LAPSED || stands(m) == SPENT)
#define has_first(m) ((m) == 0 || pipe_of((m) - 1) != pipe_of(m) || knows[at(p, (m) - 1)] != WAITS)
#define may_take(m) ((knows[at(p, m)] == WAITS && has_first(m)) || (knows[at(p, m)] == BACK && may_pass(p, m)))
#define may_return(m) (knows[at(p, m)] == LAPSED || knows[at(p, m)] == SPENT)
#define may_act (may_take(0) || may_take(1) || may_take(2) || may_return(0) || may_return(1) || may_return(2))
#define is_old(m) (knows[at(p, m)] != stands(m) || (may_return(m) && !row_seen[at(p, m)]))
#ifdef NO_LOAD_ALL
#define is_ready loaded[on(p, 0)]
#else
#define is_ready (loaded[on(p, 0)] && (!lists[p] || loaded[on(p, 1)]))       /* RULE load_all */
#endif
#define fits(m) (seen[on(p, pipe_of(m))] && (knows[at(p, m)] == WAITS || row_seen[at(p, m)]))
#define holds(m) (by[m] == p && runs[m])
#define may_win(p) (wins > 0 && (p == 0 || has_begun) && (wants(0) || wants(1) || wants(2)))

inline forget(p) {
    forget_pipe(p, 0); forget_pipe(p, 1);
    note[at(p, 0)] = HEARD; note[at(p, 1)] = HEARD; note[at(p, 2)] = HEARD
}

inline bring_back(p, i) {
    if
    :: fits(i) ->
        new_op(p, pipe_of(i)); put_back(i); know(p, i);
        printf("owner %d: returns %d, whose lease is over\n", p, i)
    :: else -> forget_pipe(p, pipe_of(i))
    fi
}

/* RULE give_back: nobody waits for the end of its lease, and it counts as no attempt. */
inline give_back(p, i) {
    if
#ifndef NO_GIVE_BACK
    :: holds(i) -> put_back(i); attempt[i]--; learn(p, i, BACK); printf("owner %d: gives %d back\n", p, i)
    :: holds(i) && faults > 0 -> faults--; runs[i] = false; printf("owner %d: gives %d back in vain\n", p, i)
    :: !holds(i)
#else
    :: true                          /* it keeps it, and its lease alive */
#endif
    fi
}

proctype Owner(byte p) {
    byte m = NONE;

again:
#if defined(NO_LIST_ANEW) || defined(NO_LOAD_ANEW)
    atomic {
        may_win(p) -> lists[p] = is_listed; printf("owner %d: reads the list\n", p);
#ifdef NO_LOAD_ANEW
        load(p, 0);
        if
        :: lists[p] -> load(p, pipe_of(2))
        :: else
        fi
#endif
    };
#endif
    do
    :: atomic { may_win(p) -> wins--; has_begun = true; win(p); printf("owner %d: wins\n", p); break }
    :: atomic {
        may_win(p) && faults > 0 && !win_flies[p] ->
        faults--; win_flies[p] = true; printf("owner %d: wins, the reply is lost\n", p);
#ifdef NO_FRESH_WIN
        win_seen[p] = row;
#endif
#ifdef NO_WIN_KNOWN
        break
#endif
       }                                             /* RULE win_known: not before the row has its op */
    od;
    atomic {
        shown[1 - p] = false;
#ifndef NO_LOAD_ANEW
        forget(p);                                   /* RULE load_anew */
#ifndef NO_LIST_ANEW
        lists[p] = is_listed; printf("owner %d: reads the list\n", p);      /* RULE list_anew */
#endif
        load(p, 0)
#endif
    };

choose:
    atomic {
        if
        :: !loaded[on(p, 0)] -> load(p, 0); goto choose
        :: lists[p] && !loaded[on(p, 1)] -> load(p, pipe_of(2)); goto choose
        :: is_ready && is_listed && !lists[p] ->
            lists[p] = true; printf("owner %d: reads the list again\n", p); load(p, pipe_of(2)); goto choose
        :: is_ready && may_take(0) -> m = 0
        :: is_ready && may_take(1) -> m = 1
        :: is_ready && may_take(2) -> m = 2
        :: is_ready && may_return(0) -> bring_back(p, 0); goto choose
        :: is_ready && may_return(1) -> bring_back(p, 1); goto choose
        :: is_ready && may_return(2) -> bring_back(p, 2); goto choose
        :: is_ready && !may_act && (is_old(0) || is_old(1)) -> load(p, 0); goto choose
        :: is_ready && !may_act && loaded[on(p, pipe_of(2))] && is_old(2) -> load(p, pipe_of(2)); goto choose
        fi;
#ifdef NO_ROW_AFTER
       };
    if
    :: mine[p]
    :: atomic { !mine[p] -> m = NONE; goto again }
    fi;
    atomic {
#endif
        if
        :: fits(m) ->
            raise_floor(p, pipe_of(m)); new_op(p, pipe_of(m)); lease(m, p); learn(p, m, LEASED);
            printf("owner %d: takes %d\n", p, m)
        :: !fits(m) -> printf("owner %d: is refused\n", p); forget_pipe(p, pipe_of(m)); m = NONE; goto choose
        :: faults > 0 && fits(m) && knows[at(p, m)] == WAITS ->
            faults--; flies[p] = m; printf("owner %d: takes %d, the reply is lost\n", p, m);
            forget_pipe(p, pipe_of(m)); m = NONE; goto choose
        fi
    };
#ifndef NO_ROW_AFTER
    if                                               /* RULE row_after: its lease is written before the row is read */
    :: mine[p] || shown[p]
    :: atomic { !mine[p] -> printf("owner %d: the row is another's\n", p); give_back(p, m); m = NONE; goto again }
    fi;
#endif
    atomic {
        if
        :: holds(m) && may_pass(p, m) -> hand_out(p, m)
        :: holds(m) && !may_pass(p, m) -> printf("owner %d: the gate refuses %d\n", p, m); give_back(p, m)
        :: !holds(m) -> printf("owner %d: the lease of %d has ended\n", p, m)
        fi;
        m = NONE; goto choose
    }
}

/* The owner in the same process hears of a commit: it has ended, whatever else is known by then. */
inline tell_end(p, m) {
    if
    :: loaded[on(p, pipe_of(m))] -> learn(p, m, ENDED)
    :: else
    fi
}

/* And of what was put back: later, and meanwhile it may have been read, taken, and handed out again. */
inline tell_back(p, m) {
    printf("owner %d: hears that %d came back\n", p, m);
    if
    :: loaded[on(p, pipe_of(m))] -> knows[at(p, m)] = BACK; row_seen[at(p, m)] = (note[at(p, m)] == STANDS)
    :: else
    fi;
    note[at(p, m)] = HEARD
}

inline put_mark(m, a) { mark[m] = (a > mark[m] -> a : mark[m]); move_on() }

inline use(m) {
    if
    :: works[m] && runs[m] ->
        printf("consumer: commits %d\n", m);
        tell_end(by[m], m); put_mark(m, attempt[m]); told[m] = true; works[m] = false; runs[m] = false; by[m] = NOBODY
    :: works[m] && runs[m] && faults > 0 && !mark_flies[m] ->
        faults--; works[m] = false; printf("consumer: commits %d, the reply is lost\n", m);
        if
        :: put_mark(m, attempt[m])
        :: mark_flies[m] = attempt[m]
        fi;
        runs[m] = false; by[m] = NOBODY; move_on()
    :: works[m] && runs[m] && rollbacks > 0 ->
        rollbacks--; printf("consumer: rolls %d back\n", m);
        if
        :: who = by[m]; put_back(m); note[at(who, m)] = STANDS; who = 0
        :: faults > 0 -> faults--; put_back(m)
        fi;
        move_on()
    :: works[m] && runs[m] && extensions > 0 && !extends[m] ->
        extensions--; extends[m] = true; printf("consumer: extends %d\n", m)
    fi
}

active proctype Consumers() {
    byte who;

    do
    :: atomic { works[0] && runs[0] -> use(0) }
    :: atomic { works[1] && runs[1] -> use(1) }
    :: atomic { works[2] && runs[2] -> use(2) }
    :: atomic { note[at(0, 0)] -> tell_back(0, 0) }
    :: atomic { note[at(0, 1)] -> tell_back(0, 1) }
    :: atomic { note[at(0, 2)] -> tell_back(0, 2) }
    :: atomic { note[at(1, 0)] -> tell_back(1, 0) }
    :: atomic { note[at(1, 1)] -> tell_back(1, 1) }
    :: atomic { note[at(1, 2)] -> tell_back(1, 2) }
    od
}

inline land_win(p) {
#ifdef NO_FRESH_WIN
    win_flies[p] = false;
    if
    :: row == win_seen[p] -> win(p)
    :: else
    fi
#else
    m = mine[p] || shown[p];
    win(p);
#ifndef NO_WIN_KNOWN
    mine[p] = false; shown[p] = m;   /* it goes by another op, or by none */
#endif
    m = 0
#endif
    ; move_on(); printf("late: owner %d wins\n", p)
}

inline land_take(p) {
    m = flies[p]; printf("late: owner %d takes %d\n", p, m);
    new_op(NOBODY, pipe_of(m)); lease(m, NOBODY); m = 0
}

inline land_extension(m) {
    printf("late: the lease of %d is extended\n", m);
    row_seen[at(0, m)] = false; row_seen[at(1, m)] = false; extends[m] = false;
    if
    :: works[m] && !runs[m] -> check_key(m); runs[m] = true
    :: else
    fi
}

inline lose_extension(m) { extends[m] = false; works[m] = works[m] && runs[m] }

inline end_lease(m) {
    printf("the lease of %d ends for its holder\n", m);
    runs[m] = false; works[m] = works[m] && extends[m]; move_on()
}

#define may_end(m) (state[m] == LEASED && runs[m] && expiries > 0 && !is_ended(m))

/* What lands late, and what the clock does. */
active proctype Late() {
    byte m;

    do
    :: atomic { pushed < N -> pushed++; move_on(); printf("pusher: pushes %d\n", pushed - 1) }
    :: atomic { win_flies[0] -> d_step { land_win(0) } }
    :: atomic { win_flies[1] -> d_step { land_win(1) } }
    :: atomic { win_flies[0] -> win_flies[0] = false }
    :: atomic { win_flies[1] -> win_flies[1] = false }
    :: atomic { flies[0] != NONE -> d_step { land_take(0) } }
    :: atomic { flies[1] != NONE -> d_step { land_take(1) } }
    :: atomic { flies[0] != NONE -> flies[0] = NONE }
    :: atomic { flies[1] != NONE -> flies[1] = NONE }
    :: atomic { mark_flies[0] -> put_mark(0, mark_flies[0]); mark_flies[0] = 0; printf("late: the mark of 0\n") }
    :: atomic { mark_flies[1] -> put_mark(1, mark_flies[1]); mark_flies[1] = 0; printf("late: the mark of 1\n") }
    :: atomic { mark_flies[2] -> put_mark(2, mark_flies[2]); mark_flies[2] = 0; printf("late: the mark of 2\n") }
    :: atomic { mark_flies[0] -> mark_flies[0] = 0 }
    :: atomic { mark_flies[1] -> mark_flies[1] = 0 }
    :: atomic { mark_flies[2] -> mark_flies[2] = 0 }
    :: atomic { extends[0] -> d_step { land_extension(0) } }
    :: atomic { extends[1] -> d_step { land_extension(1) } }
    :: atomic { extends[2] -> d_step { land_extension(2) } }
    :: atomic { extends[0] -> lose_extension(0) }
    :: atomic { extends[1] -> lose_extension(1) }
    :: atomic { extends[2] -> lose_extension(2) }
    :: atomic { may_end(0) -> expiries--; end_lease(0) }
    :: atomic { may_end(1) -> expiries--; end_lease(1) }
    :: atomic { may_end(2) -> expiries--; end_lease(2) }
    od
}

#define is_clear (stands(0) == ENDED && stands(1) == ENDED && stands(2) == ENDED)

/* Nothing more can happen, and failures have stopped: everything was delivered and has ended. */
active proctype Stuck() {
    timeout -> assert(is_clear)    /* stuck: a message waits for ever */
}

init { atomic { run Owner(0); run Owner(1) } }
