/* Hand over: messages of a pipe S get a new place in another pipe T, by one transaction on S that names T.
 *
 * Three messages (1, 2 and 4) in S, and two keepers, each with a T of its own (0 and 1). A keeper reads S, stages its T,
 * and decides: that transaction is conditional on the op under which S was read. Then T is published, in two writes: it is
 * inserted in the queue's list, and deleted from the staged one. A popper takes runs from S (1 and 2, then 4), commits
 * them or gives them back, whole or in part, and consumes what a T has that is listed. Somebody cancels message 4, in S
 * or in the T that has it. A reaper retires S once everything in it has ended; a tidier finds what is staged, at any
 * time, and publishes or deletes it.
 *
 * A transaction whose reply is lost was applied, or is in flight and lands later, or never; so is an insert into a list. Where
 * whoever sent it sends it again, what changes nothing is left out: only what is in flight is told. A keeper may die at any
 * point. Everybody may stop between any two steps. Ids of pipes are never used twice.
 *
 * With -DONE a keeper may also move message 4 alone, which waits or came back, while the others stay. With EXPIRIES a lease ends
 * consumer, whose extension may be in flight. With COMEBACKS a staged entry comes back whose deletion was forgotten. With -DFAR
 * a T is published to the scheduled list, and its entry moves on from there to the one that poppers see.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 2                     /* replies that are lost */
#endif
#ifndef CRASHES
#define CRASHES 1                    /* of a keeper */
#endif
#ifndef KEEPERS
#define KEEPERS 2
#endif
#ifndef ROLLBACKS
#define ROLLBACKS 1
#endif
#ifndef EXPIRIES
#define EXPIRIES 0                   /* leases that end under a living consumer, and extensions */
#endif
#ifndef COMEBACKS
#define COMEBACKS 0                  /* staged entries that come back */
#endif

#define ALL 7
#define LAST 4                       /* the message that is cancelled, or moved alone */

#define REAPER 2
#define TIDIER 3

byte faults = FAULTS, crashes = CRASHES, rollbacks = ROLLBACKS;
byte expiries = EXPIRIES, extensions = EXPIRIES, comebacks = COMEBACKS;

/* S: its head, the run that is out, its marks. */
bool stands = true;
byte cursor;                         /* the messages up to it */
byte out;                            /* in a consumer's hands, under a living lease */
byte lapsed;                         /* its lease is over for others; the row of the run is as it was */
bool extends;                        /* an extension of that lease is in flight */
byte done, cancelled, moved[2];      /* marks: committed, purged, moved to T; the last two are rows of one kind */
bool seen[4];                        /* the op that the actor read is the one that stands */
bool flies[2];                       /* a decision that is conditional on an op that still stands */
bool cancel_flies;                   /* a cancellation of what waits looks at the cursor, not at the op */

/* The pipes T: their rows, and what is left in them; the lists. */
bool there[2], staged[2], listed[2];
byte has_left[2];
bool one[2];                         /* message 4 alone is moved to it */
bool list_flies[2];
bool far[2];                         /* listed, in the scheduled list */
bool was_staged[2];
bool begun;                          /* keeper 0 has read S */

/* What came of the messages. */
byte delivered, stopped;

#define ended (done | cancelled | moved[0] | moved[1])
#define left (ALL & ~ended)
#define waits(m) (stands && !((cursor | ended) & (m)))

#ifdef NO_OP
#define is_free(k) true              /* its decision does not look at the op */
#elif defined(NO_ONE_OP)
#define is_free(k) one[k]
#else
#define is_free(k) false
#endif
#define fits(k) (is_free(k) -> (stands && (!one[k] || !(cursor & LAST))) : seen[k])    /* RULE op, one_op */

#ifdef NO_CANCEL_FREE
#define may_cancel (stands && !(cursor & LAST))
#else
#define may_cancel (stands && !((cursor | cancelled | moved[0] | moved[1]) & LAST))    /* RULE cancel_free */
#endif

#ifdef NO_WHOLE_MARKS
bool is_below;                       /* the floor has risen above the marks */
#define names(k) (stands && moved[k] != 0 && !is_below)
#else
#define names(k) (stands && moved[k] != 0)           /* RULE whole_marks */
#endif

/* What a T has that can be moved no more matters to nobody: fewer states. */
inline forget(k) {
#if !defined(NO_ONE_T) && !defined(NO_CANCEL_FREE)
    if
    :: stands && moved[k] == 0 && !is_free(k) -> has_left[k] = 0
    :: else
    fi
#else
    skip
#endif
}

inline move_op() {
    seen[0] = false; seen[1] = false; seen[REAPER] = false; seen[TIDIER] = false;
    flies[0] = flies[0] && is_free(0); flies[1] = flies[1] && is_free(1);
    cancel_flies = cancel_flies && may_cancel;
    forget(0); forget(1)
#ifdef NO_WHOLE_MARKS
    ; is_below = (left == 0)
#endif
}

inline decide(k) {
    moved[1 - (k)] = moved[1 - (k)] & ~has_left[k];
    moved[k] = has_left[k];
    if
    :: one[k]
    :: !one[k] -> cursor = ALL
    fi;
#ifndef NO_STAGE_FIRST
    assert(there[k]);                /* messages are moved to a pipe that was deleted */
#endif
    move_op()
#ifdef NO_WHOLE_MARKS
    ; is_below = false
#endif
}

inline stop() {
    assert(!(delivered & LAST));     /* a message is cancelled that was delivered */
    stopped = stopped | LAST
}

inline cancel() {
    cancelled = cancelled | LAST; stop();
    moved[0] = moved[0] & ~LAST; moved[1] = moved[1] & ~LAST;
    move_op()
}

inline cancel_in(i) {
    if
    :: there[i] && (has_left[i] & LAST) -> printf("canceller: cancels 4 in T%d\n", i); has_left[i] = has_left[i] & ~LAST; stop()
    :: else                          /* somebody has it, or it ended */
    fi
}

inline deliver(m) {
    assert(!(delivered & (m)));      /* a message is delivered twice */
    assert(!(stopped & (m)));        /* a message that was cancelled is delivered */
    delivered = delivered | (m)
}

inline list(i) {
    if
    :: there[i] && !listed[i] ->
#ifdef FAR
        far[i] = true
#else
        listed[i] = true
#endif
        ; list_flies[i] = false
    :: else                          /* again, or late: what was consumed does not come back */
    fi
}

/* Delete a pipe that is staged: its rows, then its entry. */
inline remove(i) {
    assert(!(there[i] && (listed[i] || far[i])));    /* a pipe is deleted that is listed */
    assert(!(there[i] && stands && moved[i]));       /* a pipe is deleted that messages were moved to */
    there[i] = false; has_left[i] = 0; staged[i] = false
}

/* The reaper and the tidier begin anew in any case. */
#define may_die(me) (me < KEEPERS && crashes > 0)
inline die() { crashes--; seen[me] = false; printf("%d: dies\n", me); goto dead }

inline publish(i) {
    do
    :: atomic { list(i); printf("%d: lists T%d\n", me, i); break }
    :: atomic {
        faults > 0 && there[i] && !listed[i] ->
        faults--; list_flies[i] = true; printf("%d: lists T%d, the reply is lost\n", me, i)
#ifdef NO_LISTED_KNOWN
        ; break
#endif
       }                                             /* RULE listed_known: again, until it is acknowledged */
    :: atomic { may_die(me) -> die() }
    od;
    if
    :: atomic { staged[i] = false; printf("%d: takes T%d off the staged list\n", me, i) }
    :: atomic { may_die(me) -> die() }
    fi
}

/* Where the reply to this is lost the id is thrown away; if it lands late it is as if its keeper had died. */
inline stage() {
    there[me] = true; staged[me] = true; was_staged[me] = COMEBACKS > 0;
    printf("%d: stages T%d with %d\n", me, me, has_left[me])
}

#ifdef NO_RETURN_FIRST
#define is_idle (out == 0)
#else
#define is_idle (out == 0 && lapsed == 0)            /* RULE return_first: not even a lease that is over */
#endif
#define may_begin (stands && (me == 0 || begun))     /* who is the first to read S is keeper 0 */

proctype Keeper(byte me) {
    /* S is read and T staged in one step: nobody can see what is between. */
    atomic {
        if
        :: may_begin && left != 0 && is_idle -> has_left[me] = left
#ifdef ONE
        :: may_begin && stands && (left & LAST) && !((out | lapsed) & LAST) -> has_left[me] = LAST; one[me] = true
#endif
        fi;
        begun = true; printf("%d: reads S, plans to move %d\n", me, has_left[me]);
#ifndef NO_STAGE_FIRST
        stage();                                     /* RULE stage_first */
#endif
        seen[me] = true
    };
    if
    :: atomic { fits(me) -> printf("%d: moves %d\n", me, has_left[me]); decide(me) }
    :: atomic { !fits(me) -> seen[me] = false; printf("%d: is refused, deletes T%d\n", me, me); remove(me); goto dead }
    :: atomic {
        faults > 0 && fits(me) ->
        faults--; printf("%d: moves %d, the reply is lost\n", me, has_left[me]);
        if
        :: decide(me)
        :: flies[me] = true
        :: true
        fi;
        seen[me] = false; goto unknown
       }
    :: atomic { may_die(me) -> die() }
    fi;
publish_it:
#ifdef NO_STAGE_FIRST
    if
    :: atomic { stage() }
    :: atomic { may_die(me) -> die() }
    fi;
#endif
    publish(me);
    goto dead;

unknown:
#ifdef NO_ONE_T
    atomic { seen[me] = stands; printf("%d: reads S, and moves %d once more\n", me, has_left[me]) };
    if
    :: atomic { fits(me) -> decide(me); goto publish_it }
    :: atomic { !fits(me) -> printf("%d: is refused\n", me); goto withdraw }
    fi;
#endif
    if                                               /* RULE one_t: it looks, and does not send that again */
    :: atomic {
        !stands -> printf("%d: S is gone\n", me);
#ifdef NO_LEAVE_GONE
        goto withdraw
#else
        goto dead                                    /* RULE leave_gone */
#endif
       }
    :: atomic { names(me) -> printf("%d: S names T%d\n", me, me); goto publish_it }
    :: atomic { stands && !names(me) -> seen[me] = true; printf("%d: S does not name T%d\n", me, me) }
    :: atomic { may_die(me) -> die() }
    fi;
#ifndef NO_SETTLE_FENCE
    if
    :: atomic { seen[me] -> move_op(); printf("%d: moves the fence\n", me) }    /* RULE settle_fence */
    :: atomic { !seen[me] -> goto unknown }
    :: atomic { may_die(me) -> die() }
    fi;
#endif

withdraw:
    if
    :: atomic { seen[me] = false; printf("%d: deletes T%d\n", me, me); remove(me) }
    :: atomic { may_die(me) -> die() }
    fi;
dead:
    false
}

/* One cancellation. While S stands its marks tell where the message is; later, the lists. What came back, and what is in a T,
 * is cancelled in one step: its transaction is conditional on all that was read. */
active proctype Canceller() {
again:
    atomic {
        if
        :: waits(LAST)
        :: stands && (cursor & LAST) && !((ended | out | lapsed) & LAST) ->
            printf("canceller: cancels 4, which came back\n"); cancel(); goto end
        :: stands && ((done | cancelled | out | lapsed) & LAST) -> goto end
        :: stands && (moved[0] & LAST) -> cancel_in(0); goto end
        :: stands && (moved[1] & LAST) -> cancel_in(1); goto end
        :: !stands ->
            if
            :: listed[0] -> cancel_in(0)
            :: listed[1] -> cancel_in(1)
            :: else
            fi;
            goto end
        fi
    };
    if
    :: atomic { may_cancel -> printf("canceller: cancels 4\n"); cancel(); goto end }
    :: atomic { !may_cancel -> goto again }
    :: atomic {
        faults > 0 && may_cancel && !cancel_flies ->
        faults--; cancel_flies = true; printf("canceller: cancels 4, the reply is lost\n"); goto again
       }
    fi;
end:
    false
}

#ifdef NO_MARKS_FIRST
#define is_staged(i) (was_seen[i] && staged[i])
#else
#define is_staged(i) staged[i]
#endif

active proctype Reaper() {
    byte me = REAPER;
#ifdef NO_MARKS_FIRST
    bool was_seen[2];
#endif

    do
#ifdef NO_MARKS_FIRST
    :: atomic { was_seen[0] = staged[0]; was_seen[1] = staged[1]; printf("reaper: reads the staged list\n") }
#endif
    :: atomic { stands && lapsed != 0 -> lapsed = 0; extends = false; move_op(); printf("reaper: returns what is over\n") }
    :: atomic {
        stands && out == 0 && lapsed == 0 && left == 0 -> seen[REAPER] = true; printf("reaper: S is over, reads all of it\n")
       };
#ifndef NO_PUBLISH_BEFORE_RETIRE
       do
       :: names(0) && is_staged(0) -> publish(0)    /* RULE publish_before_retire, marks_first */
       :: names(1) && is_staged(1) -> publish(1)
       :: else -> break
       od;
#endif
       atomic {
        if
        :: seen[REAPER] ->
            move_op(); stands = false; flies[0] = false; flies[1] = false; cancel_flies = false; printf("reaper: retires S\n");
            assert(!moved[0] || !there[0] || listed[0] || far[0]);    /* S is gone before its target is listed */
            assert(!moved[1] || !there[1] || listed[1] || far[1]);    /* S is gone before its target is listed */
            cursor = 0; done = 0; cancelled = 0; moved[0] = 0; moved[1] = 0
        :: !seen[REAPER]
        fi
       }
    od;
dead:
    skip
}

active proctype Tidier() {
    byte me = TIDIER, t;
    bool is_listed;

again:
    atomic {
        t = 0; is_listed = false;
        if
        :: staged[0]
        :: staged[1] -> t = 1
        fi;
        printf("tidier: T%d is staged\n", t)
    };
look:
    atomic {
        if
        :: !stands -> printf("tidier: S is gone\n"); goto gone
        :: names(t) -> goto named
        :: stands && !names(t) -> seen[TIDIER] = true; printf("tidier: S does not name T%d\n", t)
        fi
    };
#ifndef NO_FENCE_TIDY
    if
    :: atomic { seen[TIDIER] -> move_op(); printf("tidier: moves the fence\n") }    /* RULE fence_tidy */
    :: atomic { !seen[TIDIER] -> goto look }
    fi;
#endif
    goto delete;
gone:
#ifndef NO_LOOK_TWICE
    if
    :: staged[t]                                     /* RULE look_twice */
    :: !staged[t] -> goto again
    fi;
#endif
#ifndef NO_LIVE_STAYS
#ifdef FAR
#ifdef NO_FAR_FIRST
    is_listed = listed[t];
    is_listed = is_listed || far[t];
#else
    is_listed = far[t];                              /* RULE far_first */
    is_listed = is_listed || listed[t];
#endif
#else
    is_listed = listed[t];
#endif
    if
    :: atomic {
        is_listed ->                                 /* RULE live_stays: only its staged entry goes */
        staged[t] = false; printf("tidier: T%d is listed\n", t); goto again
       }
    :: !is_listed
    fi;
#endif
delete:
    atomic { seen[TIDIER] = false; printf("tidier: deletes T%d\n", t); remove(t); goto again };
named:
    publish(t);
    goto again;
dead:
    skip
}

/* What a T has is taken, committed and retired in one step: how a T is consumed matters to nobody here. */
inline consume(i) {
    printf("popper: consumes T%d with %d\n", i, has_left[i]);
    assert(!(has_left[i] & out));                    /* a message under two living leases */
    deliver(has_left[i]);
    has_left[i] = 0; listed[i] = false; there[i] = false; list_flies[i] = false
}

inline commit(m) { printf("popper: commits %d\n", m); deliver(m); done = done | (m); extends = false }
inline give_back() { extends = false; out = 0; printf("popper: gives back what it has\n") }

active proctype Popper() {
    do
    :: atomic {
        stands && out == 0 && lapsed == 0 && left != 0 ->
        if
        :: left & 3 -> out = left & 3; cursor = cursor | 3
        :: else -> out = LAST; cursor = ALL
        fi;
        move_op(); printf("popper: takes %d\n", out)
       }
    :: atomic { out != 0 -> commit(out); out = 0 }
    :: atomic { out != 0 && rollbacks > 0 -> rollbacks--; give_back() }
    :: atomic { out == 3 && rollbacks > 0 -> rollbacks--; commit(1); give_back() }
    :: atomic { out != 0 && !extends && extensions > 0 -> extensions--; extends = true; printf("popper: extends\n") }
    :: atomic { listed[0] -> consume(0) }
    :: atomic { listed[1] -> consume(1) }
    od
}

inline decide_late(k) {
    if
    :: !is_free(k) || fits(k) -> printf("late: %d moves %d\n", k, has_left[k]); decide(k)
    :: else
    fi
}

/* What lands late; what the clock does; deletions that are forgotten. */
active proctype Late() {
    do
    :: atomic { flies[0] -> flies[0] = false; decide_late(0) }
    :: atomic { flies[1] -> flies[1] = false; decide_late(1) }
    :: atomic { cancel_flies && may_cancel -> cancel_flies = false; printf("late: 4 is cancelled\n"); cancel() }
    :: atomic { list_flies[0] -> list_flies[0] = false; list(0); printf("late: T0 is listed\n") }
    :: atomic { list_flies[1] -> list_flies[1] = false; list(1); printf("late: T1 is listed\n") }
    :: atomic { expiries > 0 && out != 0 -> expiries--; lapsed = out; out = 0; printf("the lease of %d is over\n", lapsed) }
    :: atomic { extends && lapsed != 0 -> extends = false; out = lapsed; lapsed = 0; printf("late: %d is leased again\n", out) }
    :: atomic { extends -> extends = false }
#if COMEBACKS
    :: atomic { comebacks > 0 && was_staged[0] && !staged[0] -> comebacks--; staged[0] = true; printf("T0 is staged again\n") }
    :: atomic { comebacks > 0 && was_staged[1] && !staged[1] -> comebacks--; staged[1] = true; printf("T1 is staged again\n") }
#endif
    od
}

#ifdef FAR
active proctype Schedule() {
    do
    :: far[0] -> listed[0] = there[0]; far[0] = false
    :: far[1] -> listed[1] = there[1]; far[1] = false
    od
}
#endif

/* Nothing more can happen, and failures have stopped: everything was delivered or cancelled, and nothing is left. */
#define is_clear (!stands && !staged[0] && !staged[1] && !there[0] && !there[1])
active proctype Stuck() {
    timeout -> assert((delivered | stopped) == ALL && is_clear)    /* stuck: a message is lost, or something stays for ever */
}

#if KEEPERS == 2
init { atomic { run Keeper(0); run Keeper(1) } }
#else
init { run Keeper(0) }
#endif
