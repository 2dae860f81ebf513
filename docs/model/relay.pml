/* Relays: a topic's log is brought into a queue, each message once.
 *
 * One partition with N messages, two relays, a popper, a reaper. The row of progress has an epoch, an owner, the offset that is
 * read next, and the pipe that is filled; it is changed by compare-and-set on epoch and next. A relay takes over whatever it
 * read: the epoch rises, and it is the owner. It leaves the pipe that the row names: it decides where that ends, and goes on
 * behind the last message in it. Then it names a pipe, creates it, and appends one message at a time. There are no claims: each
 * relay takes over whenever it likes, and takes its next steps for as long as it likes.
 *
 * A change of the progress, a seal or an append whose reply is lost was applied, or is in flight and lands later, or never. Who
 * sent it reads the row, or asks again. Everybody may stop between any two steps; a relay may die there, and its place is free
 * for the next one. Message k of a pipe is of the offset `base + k - 1`; who reads message k knows that. The popper hands out
 * what a read shows, up to the end. In a window it does so without writing it down, and no seal that looks at the cursor passes.
 *
 * With EMBEDDED nothing is left of a pipe that was deleted, and an append changes nothing where there is no pipe. Else what was
 * deleted stays so. The id of a pipe that nobody knows any more stands for a fresh one.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef N
#define N 2                          /* messages */
#endif
#ifndef FAULTS
#define FAULTS 1                     /* replies that are lost */
#endif
#ifndef TAKES
#define TAKES 2                      /* take-overs, of both relays together */
#endif
#ifndef ROLLS
#define ROLLS 1
#endif
#ifndef WINDOWS
#define WINDOWS 0
#endif

#define P 5                          /* pipes that somebody knows at a time, at most */
#define NOBODY 2
#define UNDECIDED 15

/* Pipes. */
#define ABSENT 0
#define THERE 1
#define GONE 2

/* What is told of a change. */
#define APPLIED 1
#define REFUSED 2
#define UNKNOWN 3

byte faults = FAULTS, takes = TAKES, rolls = ROLLS, windows = WINDOWS;
bool has_begun;                      /* a relay has read the row: who is the first is relay 0 */

/* The row. */
byte epoch, owner = NOBODY, next = 1, name;

byte state[P + 1];
byte base[P + 1];                    /* the offset of its first message */
byte size[P + 1];                    /* messages that a read shows */
byte cursor[P + 1];                  /* messages that were handed out */
byte end[P + 1] = UNDECIDED;
bool forced[P + 1];                  /* it is sealed by force: where it ends is to be decided */
byte window;                         /* the pipe of which a window is out */
byte watched;                        /* the pipe that the reaper looks at */
bool got[N + 1];                     /* the queue handed it out */

/* The relays: the row as each knows it. */
byte my_epoch[2], my_next[2], my_pipe[2];
byte named[2];                       /* the pipe that it is about to name */
byte wanted[2];                      /* the offset that it is about to write */

/* In flight: a change of the progress, with what it is conditional on; an append; a seal. */
bool flies[2];
byte fly_epoch[2], fly_next[2], fly_to_epoch[2], fly_to_next[2], fly_to_pipe[2];
byte batch_pipe[2], batch[2];
byte seal_pipe[2], seal_end[2];
bool seal_free[2];

#define is_of(r, q) (my_pipe[r] == (q) || named[r] == (q) || batch_pipe[r] == (q) || seal_pipe[r] == (q) || \
    (flies[r] && fly_to_pipe[r] == (q)))
#define is_known(q) (state[q] == THERE || name == (q) || watched == (q) || is_of(0, q) || is_of(1, q))

#define decided(q) (end[q] != UNDECIDED)
#define fits(r) (epoch == my_epoch[r] && next == my_next[r])

inline wipe(q) { base[q] = 0; size[q] = 0; cursor[q] = 0; end[q] = UNDECIDED; forced[q] = false }

/* An id that nobody has. */
inline pick(q) {
    assert(!is_known(1) || !is_known(2) || !is_known(3) || !is_known(4) || !is_known(5));    /* more pipes than the model has */
    q = (!is_known(1) -> 1 : (!is_known(2) -> 2 : (!is_known(3) -> 3 : (!is_known(4) -> 4 : 5))));
    state[q] = ABSENT; wipe(q)
}

inline drop_flight(r) {
    flies[r] = false; fly_epoch[r] = 0; fly_next[r] = 0; fly_to_epoch[r] = 0; fly_to_next[r] = 0; fly_to_pipe[r] = 0
}

/* What can be applied no more is in flight no more: epoch and next never come back. */
inline thin(r) {
    if
    :: flies[r] && (epoch != fly_epoch[r] || next != fly_next[r]) -> drop_flight(r)
    :: else
    fi
}

inline apply(r, to_epoch, to_next, to_pipe) {
    assert(to_next >= next);                     /* progress moves back */
    epoch = to_epoch; next = to_next; name = to_pipe; owner = r;
    thin(0); thin(1)
}

/* Change the progress; the answer is APPLIED or REFUSED. */
inline change(r, to_epoch, to_next, to_pipe) {
    if
    :: atomic { fits(r) -> apply(r, to_epoch, to_next, to_pipe); answer = APPLIED }
    :: atomic { !fits(r) -> answer = REFUSED }
    :: atomic {
        faults > 0 && fits(r) -> faults--; printf("%d: no reply\n", r);
        if
        :: apply(r, to_epoch, to_next, to_pipe)
        :: !flies[r] ->
            flies[r] = true; fly_epoch[r] = epoch; fly_next[r] = next;
            fly_to_epoch[r] = to_epoch; fly_to_next[r] = to_next; fly_to_pipe[r] = to_pipe
        :: true
        fi;
        answer = UNKNOWN
       }
    :: atomic { takes > 0 -> goto dead }
    fi;
    atomic {
        if
        :: answer == UNKNOWN ->
#ifdef NO_SETTLE_READ
            answer = APPLIED
#else
            /* RULE settle_read */
            answer = (epoch == to_epoch && next == to_next && name == to_pipe && owner == r -> APPLIED : REFUSED)
#endif
        :: else
        fi;
        printf("%d: epoch %d, next %d, pipe %d: %d (1 applied, 2 refused)\n", r, to_epoch, to_next, to_pipe, answer);
        if
        :: answer == APPLIED -> my_epoch[r] = to_epoch; my_next[r] = to_next; my_pipe[r] = to_pipe
        :: else
        fi
    }
}

#ifdef NO_NAME_EPOCH
#define next_epoch my_epoch[r]
#else
#define next_epoch (my_epoch[r] + 1)             /* RULE name_epoch */
#endif

inline land_batch(q, k) {
    if
#ifdef EMBEDDED
    :: state[q] == THERE && size[q] < k -> size[q] = k
#else
    :: state[q] != GONE && size[q] < k -> size[q] = k
#endif
    :: else
    fi
}

inline seal(q, k) { end[q] = k; drop_seals(q) }
inline drop_seals(q) {
    if
    :: seal_pipe[0] == q -> seal_pipe[0] = 0; seal_end[0] = 0; seal_free[0] = false
    :: else
    fi;
    if
    :: seal_pipe[1] == q -> seal_pipe[1] = 0; seal_end[1] = 0; seal_free[1] = false
    :: else
    fi
}

#define can_seal(q, k, is_free) (state[q] == THERE && !decided(q) && (is_free || (window != (q) && cursor[q] <= (k))))

/* The reply of a seal is lost. */
inline lose_seal(r, q, k, is_free) {
    faults--; printf("%d: seals %d at %d, no reply\n", r, q, k);
    if
    :: seal(q, k)
    :: seal_pipe[r] == 0 -> seal_pipe[r] = q; seal_end[r] = k; seal_free[r] = is_free
    :: true
    fi
}

#ifdef EMBEDDED
#ifdef NO_CREATE_NAMED
#define can_create(q) (state[q] == ABSENT)
#else
#define can_create(q) (state[q] == ABSENT && name == (q))    /* RULE create_named */
#endif
#else
#define can_create(q) (state[q] == ABSENT)
#endif

inline create(r, q) {
    printf("%d: creates %d\n", r, q);
    if
    :: can_create(q) -> state[q] = THERE
    :: else
    fi
}

proctype Relay(byte r) {
    bool is_filling;
    byte count;                      /* messages that are acknowledged */
    byte newest, answer;
    bool is_sent;                    /* a message was sent, and is not acknowledged */

again:
    atomic { takes > 0 && next <= N && (r == 0 || has_begun) -> takes--; has_begun = true };
take:
    atomic {
        my_epoch[r] = epoch; my_next[r] = next; my_pipe[r] = name;
        printf("%d: reads epoch %d, next %d, pipe %d\n", r, epoch, next, name)
    };
    change(r, my_epoch[r] + 1, my_next[r], my_pipe[r]);
    atomic {
        if
        :: answer == REFUSED -> answer = 0; goto take
        :: else -> answer = 0
        fi;
#ifdef NO_PIPE_EPOCH
        if
        :: my_pipe[r] && state[my_pipe[r]] == THERE && !decided(my_pipe[r]) -> is_filling = true; count = size[my_pipe[r]]
        :: else
        fi
#endif                                           /* RULE pipe_epoch: it leaves the pipe that it finds */
    };
step:
    atomic {
        if
        :: my_pipe[r] && !is_filling -> goto leave
        :: my_pipe[r] && is_filling && base[my_pipe[r]] + count <= N -> goto append
        :: my_pipe[r] && is_filling && base[my_pipe[r]] + count > N -> goto tend
        :: !my_pipe[r] && my_next[r] <= N -> pick(named[r]); base[named[r]] = my_next[r]; goto open
        :: !my_pipe[r] && my_next[r] > N -> goto lost
        fi
    };
open:
#ifdef NO_NAME_FIRST
    if
    :: atomic { create(r, named[r]) }
    :: atomic { takes > 0 -> goto dead }
    fi;
#endif                                           /* RULE name_first */
    change(r, next_epoch, my_next[r], named[r]);
    atomic {
        if
        :: answer == REFUSED -> answer = 0; named[r] = 0; goto check
        :: else -> answer = 0
        fi
    };
#ifndef NO_NAME_FIRST
    if
    :: atomic { create(r, named[r]) }
    :: atomic { faults > 0 -> faults--; printf("%d: creates %d, no reply\n", r, named[r]); named[r] = 0; goto step }
    :: atomic { faults > 0 -> faults--; create(r, named[r]); printf("%d: no reply\n", r); named[r] = 0; goto step }
    :: atomic { takes > 0 -> goto dead }
    fi;
#endif
    atomic { named[r] = 0; is_filling = true; count = 0; goto step };
append:
    if
    :: atomic {
        count++; land_batch(my_pipe[r], count); is_sent = false;
        printf("%d: appends %d to pipe %d\n", r, base[my_pipe[r]] + count - 1, my_pipe[r])
       }
    :: atomic {
        faults > 0 -> faults--; is_sent = true;
        printf("%d: appends %d to pipe %d, no reply\n", r, base[my_pipe[r]] + count, my_pipe[r]);
        if
        :: land_batch(my_pipe[r], count + 1)
        :: batch_pipe[r] == 0 -> batch_pipe[r] = my_pipe[r]; batch[r] = count + 1
        :: true
        fi;
#ifdef NO_SEND_AGAIN
        count++; is_sent = false
#else
        goto append                              /* RULE send_again */
#endif
       }
#ifdef NO_ROLL_SETTLED
    :: atomic { rolls > 0 && is_sent && count > 0 -> rolls--; goto roll }
#endif                                           /* RULE roll_settled: what was sent is acknowledged before it is sealed so */
    :: atomic { takes > 0 -> goto dead }
    fi;
tend:
    if
    :: atomic { base[my_pipe[r]] + count <= N -> goto step }
    :: atomic { base[my_pipe[r]] + count > my_next[r] }
    :: atomic { rolls > 0 && count > 0 -> rolls--; goto roll }
    :: atomic { takes > 0 -> goto dead }
    fi;
    change(r, my_epoch[r], base[my_pipe[r]] + count, my_pipe[r]);
    atomic {
        if
        :: answer == REFUSED -> answer = 0; goto check
        :: else -> answer = 0; goto step
        fi
    };
roll:
    atomic { is_filling = false; is_sent = false };
    if
    :: atomic {
        can_seal(my_pipe[r], count, true) -> seal(my_pipe[r], count); printf("%d: rolls %d at %d\n", r, my_pipe[r], count);
        wanted[r] = base[my_pipe[r]] + count; count = 0
       }
    :: atomic { !can_seal(my_pipe[r], count, true) -> count = 0; goto step }
    :: atomic { faults > 0 && can_seal(my_pipe[r], count, true) -> lose_seal(r, my_pipe[r], count, true); count = 0; goto step }
    :: atomic { takes > 0 -> goto dead }
    fi;
    goto write;
leave:
#ifdef NO_SEAL_FIRST
    atomic { wanted[r] = base[my_pipe[r]] + size[my_pipe[r]]; goto write };
#endif                                           /* RULE seal_first */
    atomic { newest = size[my_pipe[r]]; printf("%d: pipe %d has %d\n", r, my_pipe[r], newest) };
#ifdef NO_SEAL_CURSOR
#define is_free true
#else
#define is_free false                            /* RULE seal_cursor */
#endif
    if
    :: atomic {
        can_seal(my_pipe[r], newest, is_free) ->
        seal(my_pipe[r], newest); printf("%d: seals %d at %d\n", r, my_pipe[r], newest)
       }
    :: atomic {
        faults > 0 && can_seal(my_pipe[r], newest, is_free) ->
        lose_seal(r, my_pipe[r], newest, is_free); newest = 0; goto step
       }
    :: atomic { state[my_pipe[r]] == THERE && decided(my_pipe[r]) }
    :: atomic {
        state[my_pipe[r]] == THERE && !decided(my_pipe[r]) && window != my_pipe[r] && cursor[my_pipe[r]] > newest ->
        goto leave
       }
    /* A window is out: with the pipe sealed by force none follows it. */
    :: atomic { window == my_pipe[r] && !decided(my_pipe[r]) && !forced[my_pipe[r]] -> forced[my_pipe[r]] = true; goto leave }
    :: atomic { window == my_pipe[r] && !decided(my_pipe[r]) && size[my_pipe[r]] > newest -> goto leave }
#ifdef NO_MISSING_SEALED
    :: atomic { state[my_pipe[r]] != THERE -> newest = 0; wanted[r] = my_next[r]; goto write }
#else
    :: atomic { can_create(my_pipe[r]) -> create(r, my_pipe[r]); goto leave }     /* RULE missing_sealed */
    :: atomic { state[my_pipe[r]] != THERE && !can_create(my_pipe[r]) -> newest = 0; goto missing }
#endif
    :: atomic { takes > 0 -> goto dead }
    fi;
    atomic {
        newest = 0; wanted[r] = my_next[r];
#ifndef NO_LAST_IN
        /* RULE last_in: it goes on behind the last message that the seal lets in */
        if
        :: state[my_pipe[r]] != THERE -> wanted[r] = 0; goto missing
        :: state[my_pipe[r]] == THERE && base[my_pipe[r]] + end[my_pipe[r]] > wanted[r] ->
            wanted[r] = base[my_pipe[r]] + end[my_pipe[r]]
        :: else
        fi
#endif
    };
write:
    change(r, next_epoch, wanted[r], 0);
    atomic {
        wanted[r] = 0;
        if
        :: answer == REFUSED -> answer = 0; goto check
        :: else -> answer = 0; goto step
        fi
    };
missing:
    /* While the row is as it was known, it asks again and again. */
    atomic { epoch != my_epoch[r] || next != my_next[r] || name != my_pipe[r] || owner != r };
check:
    atomic {
        printf("%d: looks: epoch %d, owner %d, next %d, pipe %d\n", r, epoch, owner, next, name);
        if
        :: owner == r ->
            is_filling = (is_filling && name == my_pipe[r]); count = (is_filling -> count : 0);
            my_epoch[r] = epoch; my_next[r] = next; my_pipe[r] = name; goto step
        :: owner != r -> goto lost
        fi
    };
dead:
    printf("%d: dies\n", r);
lost:
    atomic {
        my_epoch[r] = 0; my_next[r] = 0; my_pipe[r] = 0; named[r] = 0; wanted[r] = 0;
        is_filling = false; count = 0; newest = 0; answer = 0; is_sent = false; goto again
    }
}

inline hand_out(q) {
    cursor[q]++; printf("popper: gets %d from pipe %d\n", base[q] + cursor[q] - 1, q);
    assert(!got[base[q] + cursor[q] - 1]);       /* a message is handed out twice */
    got[base[q] + cursor[q] - 1] = true
}

#define can_pop(q) (state[q] == THERE && cursor[q] < size[q] && (window == (q) || cursor[q] < end[q]))
#define can_begin(q) (state[q] == THERE && !decided(q) && !forced[q] && window == 0 && windows > 0)

active proctype Popper() {
    do
    :: atomic { can_pop(1) -> hand_out(1) }
    :: atomic { can_pop(2) -> hand_out(2) }
    :: atomic { can_pop(3) -> hand_out(3) }
    :: atomic { can_pop(4) -> hand_out(4) }
    :: atomic { can_pop(5) -> hand_out(5) }
    :: atomic { can_begin(1) -> windows--; window = 1 }
    :: atomic { can_begin(2) -> windows--; window = 2 }
    :: atomic { can_begin(3) -> windows--; window = 3 }
    :: atomic { can_begin(4) -> windows--; window = 4 }
    :: atomic { can_begin(5) -> windows--; window = 5 }
    :: atomic { window -> window = 0; printf("popper: the window is over\n") }
    od
}

#ifdef NO_REAP_NAMED
#define may_reap(q) true
#else
#define may_reap(q) (name != (q))                /* RULE reap_named: it seals no pipe that the progress names */
#endif
#ifdef NO_RETIRE_NAMED
#define may_retire(q) true
#else
#define may_retire(q) (name != (q))              /* RULE retire_named */
#endif

#define is_over(q) (decided(q) && cursor[q] >= end[q] && window != (q))
#define may_go(q) (state[q] == THERE && is_over(q) && may_retire(q))
#define may_end(q) (state[q] == THERE && !decided(q) && !forced[q] && may_reap(q))
#define is_open_end(q) (state[q] == THERE && !decided(q) && forced[q] && window != (q) && cursor[q] >= size[q])

/* It looks, and takes its step later. A pipe ends at the cursor where a read shows nothing behind it. */
active proctype Reaper() {
    bool is_to_go, is_to_end;
    byte seen;

again:
    atomic {
        if
        :: may_go(1) -> is_to_go = true; watched = 1
        :: may_go(2) -> is_to_go = true; watched = 2
        :: may_go(3) -> is_to_go = true; watched = 3
        :: may_go(4) -> is_to_go = true; watched = 4
        :: may_go(5) -> is_to_go = true; watched = 5
        :: may_end(1) -> is_to_end = true; watched = 1
        :: may_end(2) -> is_to_end = true; watched = 2
        :: may_end(3) -> is_to_end = true; watched = 3
        :: may_end(4) -> is_to_end = true; watched = 4
        :: may_end(5) -> is_to_end = true; watched = 5
        :: is_open_end(1) -> watched = 1
        :: is_open_end(2) -> watched = 2
        :: is_open_end(3) -> watched = 3
        :: is_open_end(4) -> watched = 4
        :: is_open_end(5) -> watched = 5
        fi;
        seen = cursor[watched]
    };
    atomic {
        if
        :: is_to_go ->
            printf("reaper: pipe %d is gone\n", watched); wipe(watched); drop_seals(watched);
#ifdef EMBEDDED
            state[watched] = ABSENT
#else
            state[watched] = GONE
#endif
        :: is_to_end && !decided(watched) -> forced[watched] = true; printf("reaper: seals %d by force\n", watched)
        :: !is_to_go && !is_to_end && !decided(watched) && window != watched && cursor[watched] == seen ->
            seal(watched, seen); printf("reaper: pipe %d ends at %d\n", watched, seen)
        :: !is_to_go && (decided(watched) || (!is_to_end && (window == watched || cursor[watched] != seen)))
        fi;
        watched = 0; is_to_go = false; is_to_end = false; seen = 0; goto again
    }
}

inline land(r) {
    if
    :: epoch == fly_epoch[r] && next == fly_next[r] ->
        printf("late: of %d, epoch %d, next %d, pipe %d\n", r, fly_to_epoch[r], fly_to_next[r], fly_to_pipe[r]);
        apply(r, fly_to_epoch[r], fly_to_next[r], fly_to_pipe[r])
    :: else
    fi;
    drop_flight(r)
}

inline land_append(r) {
    printf("late: message %d of pipe %d\n", batch[r], batch_pipe[r]);
    land_batch(batch_pipe[r], batch[r]); batch_pipe[r] = 0; batch[r] = 0
}

inline land_seal(r) {
    if
    :: can_seal(seal_pipe[r], seal_end[r], seal_free[r]) ->
        printf("late: pipe %d is sealed at %d\n", seal_pipe[r], seal_end[r]);
        seal(seal_pipe[r], seal_end[r])
    :: else -> seal_pipe[r] = 0; seal_end[r] = 0; seal_free[r] = false
    fi
}

active proctype Late() {
    do
    :: atomic { flies[0] -> land(0) }
    :: atomic { flies[1] -> land(1) }
    :: atomic { batch_pipe[0] -> land_append(0) }
    :: atomic { batch_pipe[1] -> land_append(1) }
    :: atomic { seal_pipe[0] -> land_seal(0) }
    :: atomic { seal_pipe[1] -> land_seal(1) }
    od
}

#define is_left(q) (state[q] == THERE && name != (q))

/* Nothing more can happen, and failures have stopped. */
active proctype Stuck() {
    byte at = 1;

    timeout ->
        do
        :: at <= N -> assert(got[at]); at++      /* a message is never handed out */
        :: at > N -> break
        od;
        assert(!is_left(1) && !is_left(2) && !is_left(3) && !is_left(4) && !is_left(5))  /* a pipe that nobody fills stays */
}

init { atomic { run Relay(0); run Relay(1) } }
