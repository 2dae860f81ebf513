/* The window lease: a run of numbers that are not pushed yet, so that its holder hands out what comes without a
 * transaction for each. How it begins, is renewed, is cut by its holder and by others, and how a pusher settles
 * beside it.
 *
 * One pusher with two batches (message 1; messages 2 and 3) and two owners, each popper and reaper in one:
 * claims are left out, so both may act at any time. A consumer commits at once, or keeps a message until it
 * commits or the lease ends. A write whose reply is lost was applied, or is in flight: it lands later, or
 * never. Everybody may stop for any time between two steps, and a popper may die.
 *
 * While a window is out, the cursor is undecided: WINDOW_OUT. Of an op only this matters: is the one that somebody
 * saw the one that stands (`seen`), and was it set by the transaction that it asks about (`op_by`)? Clocks are
 * order only: a window ends for its holder (`w_live`) before it ends for others (`w_over`), and so does a lease
 * (`hand`, `over`).
 *
 * How a pipe is opened and deleted is in push.pml, how a run is split and its lease extended in lease.pml.
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 1                     /* replies that are lost */
#endif
#ifndef WINDOWS
#define WINDOWS 2                    /* windows that begin, renewals too */
#endif
#ifndef WIDTH
#define WIDTH 2                      /* messages of a window, at most */
#endif
#ifndef CRASHES
#define CRASHES 0                    /* poppers that die; others come in their place */
#endif
#ifndef KEEPS
#define KEEPS 0                      /* messages that a consumer keeps */
#endif
#ifndef POPPERS
#define POPPERS 2                    /* 0: one, and nobody comes in its place */
#endif
#ifndef KNOCKS
#define KNOCKS 0                     /* an operator purges, and knocks so often while a window is out */
#endif
#ifndef AGES
#define AGES 0                       /* 2: the pipe grows old, and its pusher may die */
#endif

#define N 3
#define UNDECIDED 9
#define WINDOW_OUT UNDECIDED         /* the cursor, while a window is out */
#define PUSHER 2                     /* as an owner */
#define OPERATOR 3

mtype = { opened, sealed, retired };                 /* phases */

/* What the pusher told its callers of a message. */
#define NOTHING 0
#define STORED 1
#define NOT_STORED 2

/* How old the pipe is: past push_age_max + grace/2 for its pusher, past push_age_max + grace for others. */
#define YOUNG 0
#define LATE 1
#define GONE 2

#define NONE 0
mtype = { take, take_again, begin, renew, cut, force_seal, drain, retire };       /* an owner's transaction */

#define set(f, l) (((1 << (l)) - 1) & ~((1 << ((f) - 1)) - 1))
#define has(mask, part) (((mask) & (part)) == (part))

byte faults = FAULTS, windows = WINDOWS, crashes = CRASHES, keeps = KEEPS, knocks = KNOCKS;
byte age;
bool pusher_done;
bool is_dead;                        /* the popper in whose place nobody comes */

/* The database. Row i of the runs begins at i; a window is a run, and begins at `window_at`. */
bool batch1, batch2;
mtype phase = opened;
byte cursor, last = UNDECIDED;
byte r_last[5], window_at;
byte ended;                          /* marks */
byte over;                           /* runs whose lease has run out for everybody else */
bool w_over;                         /* and the window itself, long before its lease */

/* What is in flight: it lands later, or never. What can have no effect any more is forgotten. */
bool batch1_flies, batch2_flies;
byte seal_flies;                     /* 1 + the number it seals behind; 0: none */
bool seal_is_free;
mtype fly[3];                        /* an owner's transaction, whose condition on op is still true */
byte fly_to[3];
bool fly_asked[3];                   /* its owner is about to ask about it */

bool seen[4];                        /* the op that the owner saw stands */
byte op_by;                          /* 1 + the owner whose last transaction set the op; 0: another */

/* What holders have. */
bool w_mine[2];                      /* the window has a lease id that is known to this popper as its own */
bool w_live[2];                      /* and has not run out, by its own clock */
byte hand[N + 1];                    /* 1 + the popper whose consumer has the message under a living lease */

bool waits;                          /* the pusher waits for a window to end */
byte told[N + 1];
#ifdef NO_LEASE_WHOLE
byte was_window;                       /* runs that a window began */
#endif
#ifdef NO_LEASE_KEPT
byte shorter;                        /* runs whose renewal made the lease shorter, unknown to the holder so far */
#endif
#ifdef NO_END_FIRST
byte fx_at, fx_l;                    /* an extension in flight, of the window from here to there */
#endif
byte applied, k;                     /* scratch, 0 between two steps */

inline tidy() { applied = 0; k = 0 }

#define is_decided (last != UNDECIDED)
#define newest (batch2 -> 3 : (batch1 -> 1 : 0))
#define is_there(m) ((m) == 1 -> batch1 : batch2)
#define left(i) (r_last[i] && window_at != (i) && !has(ended, set(i, r_last[i])))
#define is_again(i) (has(over, set(i, i)) && left(i))

inline check_last() {
    seal_flies = 0; seal_is_free = false;
    assert(told[1] != STORED || last >= 1);    /* P1: what was acknowledged lies behind `last` */
    assert(told[2] != STORED || last >= 2);    /* P1: what was acknowledged lies behind `last` */
    assert(told[3] != STORED || last >= 3)    /* P1: what was acknowledged lies behind `last` */
}

inline tell_stored(m) {
    told[m] = STORED;
    printf("    the pusher tells its caller: message %d is stored\n", m);
    assert(is_there(m) && last >= m)     /* P1: told that it is stored, and it will never come */
}

inline tell_not_stored(m) {
    told[m] = NOT_STORED;
    printf("    the pusher tells its caller: message %d was not pushed (it is pushed again elsewhere)\n", m);
    assert(!has(ended, set(m, m)) && !hand[m])    /* P3: told that it was not pushed, and it was delivered */
}

/* Tell of the batch acked + 1 .. upto what became of it, when the pipe ends at `reached`. */
inline tell_batch(reached) {
    k = acked + 1;
    do
    :: k <= upto && k <= reached -> tell_stored(k); k++
    :: k <= upto && k > reached -> tell_not_stored(k); k++
    :: else -> break
    od;
    tidy()
}

inline deliver(p, m) {
    printf("    popper %d: message %d is delivered\n", p, m);
    assert(!hand[m]);                       /* P2: two living leases on one message */
    assert(!has(ended, set(m, m)));         /* P2: delivered again after a commit that returned */
    assert(told[m] != NOT_STORED);          /* P3: told that it was not pushed, and it is delivered */
    if
    :: ended = ended | set(m, m)
    :: keeps > 0 -> keeps--; hand[m] = p + 1; printf("    its consumer keeps it\n")
    fi
}

inline new_op(by) {
    seen[0] = false; seen[1] = false; seen[PUSHER] = false; seen[OPERATOR] = false;
    fly[0] = NONE; fly[1] = NONE; fly[PUSHER] = NONE; fly_to[0] = 0; fly_to[1] = 0; fly_to[PUSHER] = 0;
    op_by = by
}

/* No run reaches to number f or behind it. */
#define is_free_from(f) (r_last[1] < (f) && r_last[2] < (f) && r_last[3] < (f) && r_last[4] < (f))

inline begin_window(p, f, by) {
    assert(!waits);    /* P4: a window begins while the pusher waits for one to end */
    assert(is_free_from(f));    /* P2: a message lies in two runs */
    over = over & ~set(f, f); r_last[f] = f + WIDTH - 1; window_at = f; cursor = WINDOW_OUT; w_over = false;
    if                               /* it counts from before it was sent, known or not */
    :: by == p + 1 -> w_live[p] = true; w_mine[p] = true
    :: else
    fi
}

inline end_window(to) {              /* an empty stretch where nothing was handed out: the next run overwrites it */
    r_last[window_at] = (to >= window_at -> to : 0);
#ifdef NO_LEASE_WHOLE
    was_window = was_window | set(window_at, window_at);
#endif
    window_at = 0; w_over = false
}

#ifdef NO_WINDOW_UNDECIDED
#define may_be_out true
#else
#define may_be_out (last >= WINDOW_OUT) /* RULE window_undecided: IF last >= the new cursor, as for any take */
#endif

/* Judge a transaction of owner p's by its conditions, and write what it asks for. */
inline apply(p, kind, to, has_op, by) {
    applied = phase != retired && has_op;
    if
    :: kind == take ->
        applied = applied && last >= to;
        if
        :: applied ->
            assert(is_free_from(cursor + 1));    /* P2: a message lies in two runs */
            r_last[cursor + 1] = to; over = over & ~set(cursor + 1, cursor + 1);
#ifdef NO_LEASE_WHOLE
            was_window = was_window & ~set(cursor + 1, cursor + 1);
#endif
            cursor = to
        :: else
        fi
    :: kind == take_again ->
        over = (applied -> over & ~set(to, to) : over)
#ifdef NO_LEASE_WHOLE
        ; was_window = (applied -> was_window & ~set(to, to) : was_window)
#endif
    :: kind == begin ->
        applied = applied && may_be_out;
        if
        :: applied -> begin_window(p, cursor + 1, by)
        :: else
        fi
    :: kind == renew ->
        applied = applied && may_be_out;
        if
        :: applied ->                                /* RULE lease_kept: leased anew, and never for a shorter time */
#ifdef NO_LEASE_KEPT
            shorter = shorter | set(window_at, window_at);
#endif
            over = over & ~set(window_at, window_at); end_window(to); begin_window(p, to + 1, by)
#ifdef NO_END_FIRST
            ; fx_at = 0
#endif
        :: else
        fi
    :: kind == cut ->
        if
        :: applied ->
#ifdef NO_END_FIRST
            fx_at = (p != PUSHER && w_mine[p] -> 0 : fx_at);
#endif
            end_window(to); cursor = to; w_mine[0] = false; w_mine[1] = false
        :: else
        fi
    :: kind == force_seal ->
        phase = (applied -> sealed : phase)
    :: kind == drain ->
        applied = applied && !is_decided;
        if
        :: applied -> last = to; check_last()
        :: else
        fi
    :: kind == retire ->
        if
        :: applied ->
            phase = retired;
            assert(told[1] != STORED || has(ended, set(1, 1)));    /* P1: what was acknowledged was never delivered */
            assert(told[2] != STORED || has(ended, set(2, 2)));    /* P1: what was acknowledged was never delivered */
            assert(told[3] != STORED || has(ended, set(3, 3)))    /* P1: what was acknowledged was never delivered */
        :: else
        fi
    fi;
    if
    :: applied -> new_op(by)
    :: else
    fi
}

/* The pusher's seal. A free one, of a pipe behind whose last number nothing was sent, looks at no cursor. */
inline apply_seal(to, is_free) {
#ifdef NO_SEAL_WINDOW
    applied = !is_decided && (is_free || cursor <= to || cursor == WINDOW_OUT);
#else
    applied = !is_decided && (is_free || cursor <= to);                    /* RULE seal_window */
#endif
    if
    :: applied -> last = to; phase = sealed; check_last()
    :: else
    fi
}

inline land_batch(upto_) {
    if
    :: upto_ == 1 -> batch1 = true; batch1_flies = false
    :: upto_ == 3 -> batch2 = true; batch2_flies = false
    fi
}

inline lose_batch() {                /* the reply to an append is lost: it was written, or is in flight */
    if
    :: land_batch(upto); printf("pusher: appends up to %d; stored, the reply is lost\n", upto)
    :: upto == 1 && !batch1 -> batch1_flies = true; printf("pusher: appends up to 1; it is in flight\n")
    :: upto == 3 && !batch2 -> batch2_flies = true; printf("pusher: appends up to 3; it is in flight\n")
    fi
}

inline lose_seal(to, is_free) {
    printf("pusher: seals behind %d; the reply is lost\n", to);
    if
    :: apply_seal(to, is_free)
    :: phase != retired && !is_decided -> seal_flies = to + 1; seal_is_free = is_free
    fi;
    tidy()
}

active proctype Pusher() {
    byte acked, upto, behind;
    mtype kind;

push:
    if
    :: atomic { acked < N -> upto = (acked == 0 -> 1 : 3) }
    :: acked > 0 -> goto roll
    :: AGES > 0 -> goto done                         /* it dies */
    fi;

    atomic {
        if
        :: land_batch(upto); printf("pusher: appends up to %d, acknowledged\n", upto); goto acknowledged
        :: faults > 0 -> faults--; lose_batch()
        fi
    };

unknown:
    if
    :: atomic {                                      /* sent again as it is */
        land_batch(upto); printf("pusher: appends up to %d again, acknowledged\n", upto); goto acknowledged
       }
    :: atomic { behind = acked; goto settle }
    :: AGES > 0 -> goto done
    fi;

acknowledged:
    atomic {
        if
        :: age == YOUNG -> tell_batch(upto); acked = upto; upto = 0; goto push
        :: age != YOUNG -> printf("pusher: that came late\n")
        fi
    };
    atomic {
        if
        :: is_decided -> printf("pusher: reads the head: last %d\n", last); tell_batch(last); goto done
        :: !is_decided && phase == sealed ->
            printf("pusher: reads the head: sealed, undecided\n"); behind = upto; goto settle
        :: !is_decided && phase == opened ->
            printf("pusher: reads the head: open\n"); tell_batch(upto); acked = upto; goto roll
        fi
    };

settle:
    if
    :: atomic {
        printf("pusher: seals behind %d\n", behind);
        apply_seal(behind, false);
        if
        :: applied -> tell_batch(behind); goto done
        :: !applied && is_decided -> tell_batch(last); goto done
        :: !applied && !is_decided && cursor != WINDOW_OUT -> behind = cursor; tidy(); goto settle
#ifdef NO_WINDOW_SILENT
        :: !applied && !is_decided && cursor == WINDOW_OUT -> behind = cursor; tidy(); goto settle
#else
        :: !applied && !is_decided && cursor == WINDOW_OUT ->    /* RULE window_silent: tells nothing of it */
            printf("    refused: a window is out\n"); tidy()
#endif
        fi
       }
    :: atomic { faults > 0 -> faults--; lose_seal(behind, false); goto settle }
    :: AGES > 0 -> goto done                         /* else it ends without a word */
    fi;

look:                                                /* it seals by force, so that no window begins any more */
    atomic {
        if
#ifndef NO_FORCE_FIRST
        :: phase == opened -> seen[PUSHER] = true; kind = force_seal                   /* RULE force_first */
#else
        :: phase == opened -> waits = true; goto wait
#endif
        :: phase != opened -> waits = true; goto wait
        fi
    };

act:                                                 /* as any owner; the next look tells what became of it */
    atomic {
        if
        :: apply(PUSHER, kind, behind, seen[PUSHER], 0);
            printf("pusher: %e %d: %d (1: applied)\n", kind, behind, applied)
        :: faults > 0 && seen[PUSHER] && fly[PUSHER] == NONE ->
            faults--;
            fly[PUSHER] = kind; fly_to[PUSHER] = behind; printf("pusher: %e %d; in flight\n", kind, behind)
        fi;
        seen[PUSHER] = false; kind = NONE; behind = acked; tidy();
        goto look
    };

wait:
    if
    :: atomic { cursor != WINDOW_OUT || is_decided -> waits = false; goto settle }
#ifndef NO_PUSHER_CUTS
    :: atomic { cursor == WINDOW_OUT && w_over -> seen[PUSHER] = true; printf("pusher: the window is over\n") }
#endif                                               /* RULE pusher_cuts */
    :: atomic { AGES > 0 -> waits = false; goto done }
    fi;
    atomic {
        if
        :: seen[PUSHER] ->
            behind = newest; printf("pusher: reads the newest batch, up to %d\n", behind);
            behind = (behind > r_last[window_at] -> r_last[window_at] : behind);
            behind = (window_at > behind -> window_at - 1 : behind); kind = cut; goto act
        :: !seen[PUSHER] -> goto wait
        fi
    };

roll:
    if                                               /* nothing is sent after it */
    :: atomic { printf("pusher: seals behind %d\n", acked); apply_seal(acked, true); tidy() }
    :: atomic { faults > 0 -> faults--; lose_seal(acked, true); goto roll }
    :: AGES > 0
    fi;

done:
    atomic { acked = 0; upto = 0; behind = 0; pusher_done = true }
}

#define may_take (cursor < N && cursor < last && ((batch1 && cursor < 1) || (batch2 && cursor >= 1)))
#ifdef NO_WINDOW_IN_OPEN
#define may_open true
#else
#define may_open (ph == opened)                                        /* RULE window_in_open */
#endif
#define may_begin (phase == opened && !is_decided && cursor != WINDOW_OUT && windows > 0)
#define may_retire (is_decided && cursor != WINDOW_OUT && cursor >= last && has(ended, set(1, last)))
#ifdef NO_READ_AFTER
#define may_look true
#else
#define may_look w_over
#endif
#define has_work (may_take || may_begin || (window_at && may_look) || is_again(1) || is_again(2) || is_again(3) \
    || (phase == opened && age == GONE) || (phase == sealed && !is_decided && cursor != WINDOW_OUT) || may_retire)

inline plan(kind_, to_) { kind = kind_; to = to_ }

inline let_go() {
    seen[p] = false; kind = NONE; to = 0; f = 0; x = 0; l = 0; ph = NONE; h = 0; w = 0; is_cutting = false; tidy()
}

inline lose_hand(p, m) {
    if
    :: hand[m] == p + 1 -> hand[m] = 0
    :: else
    fi
}

inline die() {
    crashes--; printf("popper %d: dies\n", p);
    w_mine[p] = false; w_live[p] = false; fly_asked[p] = false;
    lose_hand(p, 1); lose_hand(p, 2); lose_hand(p, 3);
    is_dead = (POPPERS == 0);
    let_go()
}

inline deliver_row(p, i, skipped) {  /* while its lease runs; those that have ended are skipped */
    k = i;
    do
    :: k <= r_last[i] && !has(over, set(i, i)) && !has(skipped, set(k, k)) -> deliver(p, k); k++
    :: k <= r_last[i] && (has(over, set(i, i)) || has(skipped, set(k, k))) -> k++
    :: else -> break
    od
}

/* The transaction was applied, and its owner knows. */
inline win() {
    if
    :: kind == take -> deliver_row(p, f, 0)
    :: kind == take_again -> deliver_row(p, to, ended)
    :: else
    fi;
#ifdef NO_LEASE_KEPT
    shorter = (kind == renew -> 0 : shorter);
#endif
    if
    :: kind == begin || kind == renew -> w = h + WIDTH; kind = NONE; to = 0; tidy(); goto hold
    :: kind == cut -> w_live[p] = false; let_go(); goto idle
    :: kind == retire -> let_go(); goto end
    :: else -> let_go(); goto idle
    fi
}

#ifdef NO_CHECK_AFTER
#define is_in_window true
#else
#define is_in_window w_live[p]       /* RULE check_after: its clock is read after the batches were */
#endif

#ifdef NO_WINDOW_END
#define limit N
#else
#define limit w                      /* RULE window_end: nothing behind it is handed out from it */
#endif

#define is_holder (w > 0)

proctype Owner(byte p) {
    mtype kind, ph;
    byte to, f, l, x;                /* x: how far the batches reach */
    byte h, w;                       /* the last message that it handed out from its window; where that ends, or 0 */
    bool is_cutting;

idle:
    atomic {
        if
        :: phase == retired -> goto end
        :: phase != retired && has_work ->
            seen[p] = true; ph = phase; l = last;
            printf("owner %d: loads: phase %e, cursor %d (9: a window is out), last %d\n", p, ph, cursor, l)
        fi
    };

choose:
    atomic {
        if
        :: !seen[p] -> let_go(); goto idle           /* its transaction would be refused */
#ifdef NO_READ_AFTER
        :: seen[p] && window_at && !w_over ->
            x = newest; printf("owner %d: reads the newest batch, up to %d\n", p, x); goto take_over
#endif
        :: seen[p] && window_at && w_over -> printf("owner %d: the window is over\n", p); goto take_over
        :: seen[p] && !window_at && may_open && l == UNDECIDED && windows > 0 ->
            windows--; h = cursor; plan(begin, 0); goto act
        :: seen[p] && ph == opened && age == GONE -> plan(force_seal, 0); goto act
        :: seen[p] && is_again(1) -> plan(take_again, 1); goto act
        :: seen[p] && is_again(2) -> plan(take_again, 2); goto act
        :: seen[p] && is_again(3) -> plan(take_again, 3); goto act
        :: seen[p] && ph == sealed && l != UNDECIDED && may_retire -> plan(retire, 0); goto act
        :: seen[p] && !window_at && cursor < l && (ph == sealed || may_take) ->
            x = (cursor < 1 && batch1 -> 1 : cursor); x = (x >= 1 && batch2 -> 3 : x); f = cursor + 1;
            printf("owner %d: reads the batches, up to %d\n", p, x)
#ifdef NO_DRAIN_CUT
        :: seen[p] && window_at && ph == sealed && l == UNDECIDED -> plan(drain, newest); goto act
#endif                                               /* RULE drain_cut: not while a window is out */
        :: else -> let_go(); goto idle
        fi
    };
    atomic {
        if
        :: x >= f && f <= l -> plan(take, f)
        :: x > f && x <= l -> plan(take, x)
        :: x < f && ph == sealed && l == UNDECIDED -> plan(drain, f - 1)
        :: else -> let_go(); goto idle
        fi
    };

act:
    atomic {
        op_by = (op_by == p + 1 -> 0 : op_by);
        if
        :: printf("owner %d: %e %d\n", p, kind, to);
            apply(p, kind, to, seen[p], p + 1);
            if
            :: applied -> seen[p] = true; win()
            :: !applied && is_holder ->
                printf("    refused\n"); kind = NONE; to = 0; tidy(); seen[p] = false; goto hold
            :: else -> printf("    refused\n"); let_go(); goto idle
            fi
        :: faults > 0 && seen[p] && kind != take_again && kind != retire ->
            faults--;
            printf("owner %d: %e %d; the reply is lost\n", p, kind, to);
            if
            :: apply(p, kind, to, seen[p], p + 1)
            :: fly[p] == NONE -> fly[p] = kind; fly_to[p] = to; fly_asked[p] = true
            fi;
            tidy()
        fi
    };
    atomic {                                         /* a settled read; what is in flight may land after it */
        fly_asked[p] = false;
        if
        :: op_by == p + 1 -> seen[p] = true; ph = phase; l = last; printf("owner %d: it was applied\n", p); win()
        :: op_by != p + 1 && is_holder ->
            printf("owner %d: it was not applied so far\n", p); kind = NONE; to = 0; seen[p] = false; goto hold
#ifdef NO_WINDOW_KNOWN
        :: op_by != p + 1 && kind == begin -> kind = NONE; w = h + WIDTH; w_live[p] = true; goto hold
#endif                                               /* RULE window_known: nothing is handed out before it is known */
        :: op_by != p + 1 && !is_holder ->           /* what it may have begun is nobody's */
            w_mine[p] = false; w_live[p] = false;
            printf("owner %d: it was not applied so far\n", p); let_go(); goto idle
        :: crashes > 0 -> die(); goto dead
        fi
    };

take_over:                                           /* it ends the run behind what can have been handed out */
    atomic {
        if
        :: !seen[p] -> let_go(); goto idle
#ifdef NO_READ_AFTER
        :: seen[p] && w_over ->
#else
        :: seen[p] ->                                /* RULE read_after: that read begins after the window */
#ifdef NO_CUT_AT_NEWEST
            x = (has(ended, 4) -> 3 : (has(ended, 2) -> 2 : ended));
#else
            x = newest;                              /* RULE cut_at_newest */
#endif
            printf("owner %d: reads the newest batch, up to %d\n", p, x);
#endif
            x = (x > r_last[window_at] -> r_last[window_at] : x);
            x = (x >= window_at -> x : window_at - 1); plan(cut, x); goto act
        fi
    };

hold:                                                /* it has the window, as far as it knows */
    atomic {
        if
        :: !is_cutting && w_live[p] && h < limit && ((h < 1 && batch1) || (h >= 1 && h < 3 && batch2)) ->
            x = newest; printf("owner %d: reads the batches, up to %d\n", p, x); x = (x > limit -> limit : x)
        :: seen[p] && w_mine[p] && !is_cutting && may_open && l == UNDECIDED && windows > 0 ->
            windows--; plan(renew, h); goto act
#ifdef NO_END_FIRST
        :: w_mine[p] && w_live[p] && !fx_at ->
            fx_at = window_at; fx_l = r_last[window_at];
            printf("holder %d: extends the lease of the window; in flight\n", p); goto hold
#endif                                               /* RULE end_first: no other write touches a window */
        :: seen[p] && w_mine[p] ->
#ifndef NO_CUT_STOPS
            is_cutting = true;                       /* RULE cut_stops: nothing is handed out after it was sent */
#endif
            plan(cut, h); goto act
        :: !seen[p] && w_mine[p] ->
            seen[p] = true; ph = phase; l = last; w = r_last[window_at];
            printf("owner %d: loads: phase %e, last %d, and the window is its own\n", p, ph, l); goto hold
        :: !w_mine[p] ->
            printf("owner %d: its window was ended by another\n", p); w_live[p] = false; let_go(); goto idle
        :: crashes > 0 -> die(); goto dead
        fi
    };
    atomic {
        if
        :: is_in_window && x > h -> h++; deliver(p, h)
        :: is_in_window && x > h + 1 -> h++; deliver(p, h); h++; deliver(p, h)
        :: !is_in_window -> printf("owner %d: its window is over\n", p)
        fi;
        x = 0;
        goto hold
    };

dead:
    if
    :: is_dead -> false
    :: else -> goto idle
    fi;
end:
    skip
}

#define is_held_by(p, i) (hand[i] == p + 1 && w_live[p] && window_at && i >= window_at)
#define may_lose(i) (hand[i] && !is_held_by(0, i) && !is_held_by(1, i))
#define is_in_hands(i, m) (m >= i && m <= r_last[i] && hand[m])
#define is_idle(i) (!(is_in_hands(i, 1) || is_in_hands(i, 2) || is_in_hands(i, 3)))
#ifdef NO_LEASE_KEPT
#define is_unheld(i) (has(shorter, set(i, i)) || is_idle(i))
#else
#ifdef NO_LEASE_WHOLE
#define is_unheld(i) (has(was_window, set(i, i)) || is_idle(i))
#else
#define is_unheld(i) is_idle(i)      /* RULE lease_whole */
#endif
#endif
#define may_end(i) (left(i) && !has(over, set(i, i)) && is_unheld(i))

inline end_row(i) { over = over | set(i, i); printf("time: the lease of run %d..%d is over for all\n", i, r_last[i]) }

#ifdef NO_WINDOW_FIRST
#define may_be_over true
#else
#define may_be_over (!(w_mine[0] && w_live[0]) && !(w_mine[1] && w_live[1]))       /* RULE window_first */
#endif

active proctype Time() {
    do
    :: atomic { w_live[0] -> w_live[0] = false; printf("time: the window of popper 0 ends for itself\n") }
    :: atomic { w_live[1] -> w_live[1] = false; printf("time: the window of popper 1 ends for itself\n") }
    :: atomic {
        window_at && !w_over && may_be_over ->
        w_over = true; printf("time: the window is over for all\n")
       }
    :: atomic { may_end(1) -> end_row(1) }
    :: atomic { may_end(2) -> end_row(2) }
    :: atomic { may_end(3) -> end_row(3) }
    :: atomic { may_lose(1) -> hand[1] = 0; printf("time: the lease of message 1 ends for its holder\n") }
    :: atomic { may_lose(2) -> hand[2] = 0; printf("time: the lease of message 2 ends for its holder\n") }
    :: atomic { may_lose(3) -> hand[3] = 0; printf("time: the lease of message 3 ends for its holder\n") }
    :: atomic { hand[1] -> hand[1] = 0; ended = ended | set(1, 1); printf("a consumer commits message 1\n") }
    :: atomic { hand[2] -> hand[2] = 0; ended = ended | set(2, 2); printf("a consumer commits message 2\n") }
    :: atomic { hand[3] -> hand[3] = 0; ended = ended | set(3, 3); printf("a consumer commits message 3\n") }
    :: atomic { AGES > 0 && age == YOUNG -> age = LATE; printf("time: the pipe is late for its pusher\n") }
    :: atomic { age == LATE -> age = GONE; printf("time: the pusher is gone for all others\n") }
    od
}

/* Lands what is in flight, at any time; what never lands simply stays. */
active proctype Late() {
    mtype kind;
    byte p, to, by;

    do
#ifdef NO_END_FIRST
    :: atomic {
        fx_at -> r_last[fx_at] = fx_l; printf("late: the extension of the run from %d on lands\n", fx_at);
        fx_at = 0; fx_l = 0
       }
#endif
    :: atomic { batch1_flies -> land_batch(1); printf("late: the batch with 1 lands\n") }
    :: atomic { batch2_flies -> land_batch(3); printf("late: the batch with 2 and 3 lands\n") }
    :: atomic { batch1_flies -> batch1_flies = false; printf("late: the batch with 1 will never land\n") }
    :: atomic { batch2_flies -> batch2_flies = false; printf("late: the batch with 2 and 3 will never land\n") }
    :: atomic { seal_flies > 0 -> seal_flies = 0; seal_is_free = false; printf("late: the seal will never land\n") }
    :: atomic {
        seal_flies > 0 -> to = seal_flies - 1; seal_flies = 0; printf("late: the seal behind %d lands\n", to);
        apply_seal(to, seal_is_free); seal_is_free = false; to = 0; tidy()
       }
    :: atomic {
        fly[0] || fly[1] || fly[PUSHER] ->
        p = (fly[0] -> 0 : (fly[1] -> 1 : PUSHER)); kind = fly[p]; to = fly_to[p]; fly[p] = NONE; fly_to[p] = 0;
        by = (fly_asked[p] -> p + 1 : 0);
        if
        :: printf("late: %e %d of owner %d lands\n", kind, to, p);
            apply(p, kind, to, true, by)
        :: printf("late: %e %d of owner %d will never land\n", kind, to, p)
        fi;
        p = 0; kind = NONE; to = 0; by = 0; tidy()
       }
    od
}

#if KNOCKS
#define is_in_nobodys_hands(m) (!hand[m] || (m) <= from || (m) > x)

/* An operator's purge, once. Beside a window it writes a fresh op, so that the next renewal is refused. */
active proctype Operator() {
    byte x, from;

look:
    atomic {
        if
        :: phase == retired -> goto end
        :: phase != retired && window_at && knocks > 0 -> seen[OPERATOR] = true
#ifdef NO_PURGE_CUT
        :: phase != retired -> seen[OPERATOR] = true; x = newest; from = (window_at -> window_at - 1 : cursor); goto purge
#else
        :: phase != retired && !window_at ->         /* RULE purge_cut: no purge beside a window */
            seen[OPERATOR] = true; from = cursor; x = newest; x = (x > last -> last : x); goto purge
#endif
        fi
    };
    atomic {
        if
        :: seen[OPERATOR] -> knocks--; printf("operator: knocks\n"); new_op(0)
        :: else
        fi;
        goto look
    };

purge:
    atomic {
        if
        :: phase != retired && seen[OPERATOR] && x > from ->
            printf("operator: purges %d..%d\n", from + 1, x);
            assert(is_in_nobodys_hands(1) && is_in_nobodys_hands(2) && is_in_nobodys_hands(3));    /* P2: purged out of a consumer's hands */
            ended = ended | set(from + 1, x);
            cursor = (window_at -> cursor : x);
            new_op(0)
        :: phase != retired && !seen[OPERATOR] -> x = 0; from = 0; goto look
        :: else
        fi
    };
end:
    atomic { seen[OPERATOR] = false; x = 0; from = 0 }
}
#endif

/* Nothing more can happen, and failures have stopped: then the pipe is retired, unless nobody is there for it. */
active proctype Stuck() {
    timeout -> assert(pusher_done && (phase == retired || is_dead))    /* stuck: somebody waits for ever */
}

init {
    atomic {
        run Owner(0);
#if POPPERS > 1
        run Owner(1)
#endif
    }
}
