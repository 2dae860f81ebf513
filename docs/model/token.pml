/* A lease that a token names: its client calls any process, and calls again. Commit, settle, extend.
 *
 * One run of N messages, leased by the home process for one client; a second process that knows the token alone; a
 * taker and a reaper, which are owners. Each call may be sent to either process, at any time, also twice. Replies of
 * marks, extensions and returns may get lost: they land later, or never. A client that contradicts itself (one call
 * commits what another rolls back) is told nothing of what it rolled back; all else must hold for it, too.
 *
 * `live` says that a process may mark, by its own clock, which ends before `over` may: the lease has run out for
 * others. Whether the row still has the lease_id and the leased_at that somebody saw is kept as a flag, as in lease.pml.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef N
#define N 2
#endif
#ifndef FAULTS
#define FAULTS 1                     /* replies that are lost */
#endif
#ifndef ACTS
#define ACTS 1                       /* calls to each process */
#endif
#ifndef OWNERS
#define OWNERS 1                     /* 2: a reaper beside the taker */
#endif

#define HOME 0
#define AWAY 1

mtype = { commit, settle, extend };

#define LEASED 1                     /* under the id that the token names */
#define RETURNED 2
#define TAKEN 3                      /* leased by others */

#define ALL ((1 << N) - 1)
#define set(f, l) (((1 << (l)) - 1) & ~((1 << ((f) - 1)) - 1))
#define has(mask, part) (((mask) & (part)) == (part))

byte faults = FAULTS;

/* The database. */
byte r_last[4], r_state[4], mk_last[4], floor;
bool over, is_back;                  /* is_back: leased_at was set back, so that it ends before its holders think */
bool gone;

/* Processes that know the token: may they mark, and does the row stand as they read it? */
bool live[2], seen[2];
bool knows[2];                       /* it was leased here, or read here before */

/* Owners: is their op the one that stands; what they read. */
bool op_seen[2], was_over[2];
byte k_last[8], k_state[8], k_ok[2], k_ended[2];
#define k(o, i) ((o) * 4 + (i))

/* In flight: of each process an extension, a return, a mark. */
bool fx[2], fr[2], is_stale[2];      /* is_stale: another extension was told of since it was sent */
byte fr_last[2], fm_f[2], fm_l[2];

/* What the properties speak of. */
byte committed, out, asked;          /* told as committed; in others' hands; rolled back by the client */

byte j, e, fl;                       /* scratch, 0 between two steps */

#define mark_at(i) ((floor < (i) && mk_last[i]) -> set(i, mk_last[i]) : 0)
#define ended (mark_at(1) | mark_at(2) | mark_at(3) | ((1 << floor) - 1))

inline put_mark(f, l) { mk_last[f] = (l > mk_last[f] -> l : mk_last[f]) }

/* The row of the token has another leased_at: what was conditional on the one before is refused. */
inline leased_anew() {
    over = false; seen[0] = false; seen[1] = false;
    k_ok[0] = k_ok[0] & ~1; k_ok[1] = k_ok[1] & ~1;
    was_over[0] = false; was_over[1] = false;
#ifdef NO_REVIVE_SEEN
    is_stale[0] = fx[0]; is_stale[1] = fx[1];
#else
    fx[0] = false; fx[1] = false;                                      /* RULE revive_seen */
#endif
    fr[0] = false; fr[1] = false
}

/* Row i has another lease id. */
inline leased_otherwise(i) {
    k_ok[0] = k_ok[0] & ~set(i, i); k_ok[1] = k_ok[1] & ~set(i, i);
    if
    :: i == 1 -> over = false; is_back = false; seen[0] = false; seen[1] = false; fx[0] = false; fx[1] = false;
#ifndef NO_SETTLE_SEEN
        fr[0] = false; fr[1] = false
#endif
    :: else
    fi
}

/* What a settlement writes: the first message has ended, the others come again. RULE settle_fresh: no part of it
 * keeps the id, so that a row under that id has all of the lease, as the token says. */
inline return_rest(last) {
    printf("    rows 1 and 2..%d\n", last);
    assert(r_last[1] == last);       /* damage: a row is written over that has another stretch by now */
    assert(!(out & ~asked & set(2, last)) && (r_state[1] != TAKEN));    /* P2: what others have is returned */
    assert(r_last[2] == 0);          /* damage: a row of somebody else's is written over */
    r_last[1] = 1;
#ifndef NO_SETTLE_FRESH
    leased_otherwise(1); r_state[1] = RETURNED;
#endif
    r_last[2] = last; r_state[2] = RETURNED; leased_otherwise(2)
}

#define stands (r_last[1] && r_state[1] == LEASED)
#ifdef NO_SETTLE_SEEN
#define may_settle true
#else
#define may_settle (seen[p] && stands)                                 /* RULE settle_seen */
#endif

proctype Process(byte p) {
    mtype op;
    byte acts = ACTS, part, last;
    bool is_marked;

idle:
    atomic {
        op = 0; part = 0; last = 0; is_marked = false;
        if
        :: acts && !gone -> acts--; op = commit; part = ALL; printf("process %d: is to commit\n", p)
        :: acts && !gone -> acts--; op = settle; part = 1; printf("process %d: is to settle, 1 ended\n", p)
        :: acts && !gone -> acts--; op = extend; printf("process %d: is to extend\n", p)
        :: goto end
        fi
    };
    atomic {
        if
        :: op == commit && knows[p] && live[p] -> goto mark    /* RULE home_clock */
#ifdef NO_HOME_CLOCK
        :: op == commit && p == HOME -> goto mark
#endif
#ifdef NO_READ_FIRST
        :: op == commit && p == AWAY -> live[p] = true; goto mark
#endif
        :: else
        fi
    };

read:                                /* RULE read_first: who did not lease it, or whose clock has run out, reads the row */
    atomic {
        if
        :: gone || !stands -> printf("process %d: finds no such lease\n", p); goto idle
        :: !gone && stands && op == commit && has(ended, ALL) -> printf("process %d: it has ended\n", p); goto idle
        :: !gone && stands && !(op == commit && has(ended, ALL)) ->
            seen[p] = true; last = r_last[1]; printf("process %d: reads 1..%d, over %d\n", p, last, over)
        fi;
        if
        :: op == extend || over ->
#ifdef NO_LEFT
            if
            :: op == extend -> goto begin_anew
            :: else -> live[p] = true; knows[p] = true
            fi
#else
            goto begin_anew          /* RULE left: the database's clock tells how much is left of it */
#endif
        :: else ->
#ifndef NO_LEFT_BEFORE
            live[p] = true; knows[p] = true    /* RULE left_before: counted from before the read was sent */
#endif
        fi
    };
#ifdef NO_LEFT_BEFORE
    atomic { live[p] = true; knows[p] = true };
#endif
    goto then;

begin_anew:                          /* an extension, or one before a mark */
    atomic {
        if
        :: seen[p] && stands -> leased_anew(); is_back = false; live[p] = true; knows[p] = true;
            printf("process %d: the lease begins anew\n", p)
        :: !(seen[p] && stands) -> printf("process %d: not extended\n", p); goto read
        :: faults && seen[p] -> faults--; fx[p] = true; printf("process %d: an extension gets lost\n", p); goto read
        fi
    };
    atomic {
        if
        :: op == extend -> goto idle
        :: op == settle -> goto read                                   /* its leased_at is not known */
        :: op == commit
        fi
    };

then:
    atomic {
        if
        :: op == settle && is_marked -> goto give_back
#ifdef NO_MARKS_FIRST
        :: op == settle && !is_marked -> goto give_back
#endif
        :: else                                                        /* RULE marks_first */
        fi
    };

mark:                                /* a mark is begun, and believed, only while the lease runs by its own clock */
    atomic {
        if
        :: live[p] -> put_mark(1, (part == ALL -> N : 1)); printf("process %d: marks %d\n", p, part)
#ifdef NO_HOME_CLOCK
        :: !live[p] && p == HOME -> put_mark(1, (part == ALL -> N : 1)); printf("process %d: marks %d, late\n", p, part)
        :: !live[p] && p == AWAY -> goto idle
#else
        :: !live[p] -> printf("process %d: its clock has run out\n", p);
            if
            :: is_marked || gone -> goto idle
            :: else -> goto read
            fi
#endif
        :: live[p] && faults -> faults--; fm_f[p] = 1; fm_l[p] = (part == ALL -> N : 1);
            printf("process %d: a mark gets lost\n", p); goto mark
        fi
    };
    atomic {
        if
#ifdef NO_HOME_CLOCK
        :: live[p] || p == HOME ->
#else
        :: live[p] ->
#endif
            printf("process %d: %d is told as committed\n", p, part);
            assert(!(out & part & ~asked));    /* P2: told as committed while others have it */
            committed = committed | part; is_marked = true
        :: else -> printf("process %d: nobody knows\n", p); goto idle
        fi
    };
    if
    :: op == commit -> goto idle
#ifdef NO_MARKS_FIRST
    :: op == settle -> goto idle
#else
    :: op == settle
#endif
    fi;

give_back:
    atomic {
        asked = asked | set(2, N);
        if
        :: last < 2 -> printf("process %d: nothing to return\n", p)
        :: last >= 2 && may_settle -> return_rest(last); printf("process %d: returned 2..%d\n", p, last)
        :: last >= 2 && !may_settle -> printf("process %d: not returned\n", p); goto read_again
        :: last >= 2 && faults && may_settle ->
            faults--; fr[p] = true; fr_last[p] = last; printf("process %d: a return gets lost\n", p); goto read_again
        fi
    };
#ifdef NO_MARKS_FIRST
    goto mark;
#endif
    goto idle;

read_again:
    atomic {
        if
        :: gone || !stands -> goto idle
        :: !gone && stands -> seen[p] = true; last = r_last[1]; printf("process %d: reads again 1..%d\n", p, last)
        fi
    };
    goto give_back;

end:
    knows[p] = false
}

/* Its clock, and that of the others, which is later. */
active proctype Time() {
    do
    :: atomic { live[0] -> live[0] = false; printf("home: its clock has run out\n") }
    :: atomic { live[1] -> live[1] = false; printf("away: its clock has run out\n") }
    :: atomic { stands && !over && ((!live[0] && !live[1]) || is_back) ->
        over = true; printf("the lease has run out for others\n") }
    od
}

inline land_extension(p) {           /* with the time at which it was sent: who extended since counts from later on */
    printf("late: the extension of process %d lands\n", p);
    e = is_stale[p]; fx[p] = false; is_stale[p] = false;
    leased_anew();
    is_back = e; e = 0
}

active proctype Late() {
    do
    :: atomic { fx[0] && stands -> land_extension(0) }
    :: atomic { fx[1] && stands -> land_extension(1) }
    :: atomic { fr[0] -> fr[0] = false; printf("late: a return of home lands\n"); return_rest(fr_last[0]); fr_last[0] = 0 }
    :: atomic { fr[1] -> fr[1] = false; printf("late: a return of away lands\n"); return_rest(fr_last[1]); fr_last[1] = 0 }
    :: atomic { fm_f[0] -> put_mark(fm_f[0], fm_l[0]); printf("late: a mark of home lands\n"); fm_f[0] = 0; fm_l[0] = 0 }
    :: atomic { fm_f[1] -> put_mark(fm_f[1], fm_l[1]); printf("late: a mark of away lands\n"); fm_f[1] = 0; fm_l[1] = 0 }
    :: atomic { fx[0] -> fx[0] = false; is_stale[0] = false }
    :: atomic { fx[1] -> fx[1] = false; is_stale[1] = false }
    :: atomic { fr[0] -> fr[0] = false; fr_last[0] = 0 }
    :: atomic { fr[1] -> fr[1] = false; fr_last[1] = 0 }
    :: atomic { fm_f[0] -> fm_f[0] = 0; fm_l[0] = 0 }
    :: atomic { fm_f[1] -> fm_f[1] = 0; fm_l[1] = 0 }
    od
}

#define row_due(i) (r_last[i] && (i) > floor && (r_state[i] == RETURNED || (r_state[i] == LEASED && over)) && !has(ended, set(i, r_last[i])))
#define is_any (row_due(1) || row_due(2) || has(ended, ALL) || out)
#define may(i) (k_last[k(o, i)] && !has(k_ended[o], set(i, k_last[k(o, i)])) && (k_state[k(o, i)] == RETURNED || (k_state[k(o, i)] == LEASED && was_over[o])))

/* Owners: the taker, who also returns, and a reaper, who only returns; each conditional on the op and the row it read. */
proctype Owner(byte o) {
    byte i, t, mask;

look:
    atomic {
        if
        :: !gone && (o == 0 || (stands && over)) && (is_any) ->
            was_over[o] = over; k_ok[o] = 0; printf("owner %d: reads the clock, over %d\n", o, over)
        :: gone -> goto end
        fi
    };
    atomic {
        if
        :: gone -> goto end
        :: else -> op_seen[o] = true; k_ok[o] = ALL; k_ended[o] = ended; j = 1;
            do
            :: j <= N -> k_last[k(o, j)] = (j > floor -> r_last[j] : 0); k_state[k(o, j)] = r_state[j]; j++
            :: else -> j = 0; break
            od;
            printf("owner %d: reads rows and marks, ended %d\n", o, k_ended[o])
        fi
    };
    atomic {
        if
        :: !gone && op_seen[o] && o == 0 && has(k_ended[o], ALL) -> gone = true; printf("owner: retires it\n");
            assert(has(ended, ALL))
        :: !gone && op_seen[o] && may(1) && o == 0 -> i = 1
        :: !gone && op_seen[o] && may(2) && o == 0 -> i = 2
        :: !gone && op_seen[o] && may(1) && k_state[k(o, 1)] == LEASED && has(k_ok[o], 1) ->
            leased_otherwise(1); r_state[1] = RETURNED; printf("owner %d: returns row 1\n", o); op_seen[1 - o] = false
        :: else -> printf("owner %d: can do nothing\n", o)
        fi;
        if
        :: i ->
            t = k_last[k(o, i)];
            if
            :: t > i && !has(k_ended[o], set(i, i)) -> t = i    /* less is wanted: the rest becomes a row of its own */
            :: true
            fi;
            if
            :: has(k_ok[o], set(i, i)) ->
                fl = floor;
                do
                :: fl < N && has(k_ended[o], set(fl + 1, fl + 1)) -> fl++
                :: else -> break
                od;
                fl = (k_last[k(o, 1)] && !has(k_ended[o], set(1, k_last[k(o, 1)])) -> 0 : fl);
                fl = (fl >= 2 && k_last[k(o, 2)] && !has(k_ended[o], set(2, k_last[k(o, 2)])) -> 1 : fl);
                mask = set(i, t) & ~k_ended[o];
                if
                :: t < r_last[i] -> r_last[t + 1] = r_last[i]; r_state[t + 1] = RETURNED; leased_otherwise(t + 1)
                :: else
                fi;
                r_last[i] = t; r_state[i] = TAKEN; leased_otherwise(i); floor = fl; op_seen[1] = false;
                printf("owner: takes %d..%d, hands out %d\n", i, t, mask);
                assert(!(committed & mask & ~asked));    /* P2: delivered again after a commit that returned */
                out = out | mask
            :: else -> printf("owner: the take is refused\n")
            fi
        :: else
        fi;
        i = 0; t = 0; mask = 0; fl = 0; op_seen[o] = false; k_ok[o] = 0; k_ended[o] = 0; was_over[o] = false;
        k_last[k(o, 1)] = 0; k_last[k(o, 2)] = 0; k_state[k(o, 1)] = 0; k_state[k(o, 2)] = 0
    };
    atomic {                         /* what it took it ends, under a lease that lasts */
        if
        :: out && !gone ->
            if
            :: has(out, 1) && r_last[1] == 1 -> put_mark(1, 1); out = out & ~1
            :: has(out, ALL) && r_last[1] == N -> put_mark(1, N); out = 0
            :: out == 1 && r_last[1] == N -> put_mark(1, 1); out = 0
            :: has(out, 2) -> put_mark(2, 2); out = out & ~2
            fi
        :: !gone
        :: gone -> goto end
        fi
    };
    goto look;

end:
    skip
}

/* Nothing more can happen: then it has ended, and is retired. */
active proctype Stuck() {
    timeout -> assert(gone)          /* stuck: nothing can happen, and the pipe still stands */
}

init {
    atomic {
        r_last[1] = N; r_state[1] = LEASED; live[HOME] = true; knows[HOME] = true;
        run Process(HOME); run Process(AWAY); run Owner(0);
#if OWNERS > 1
        run Owner(1)
#endif
    }
}
