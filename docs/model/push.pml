/* One pipe from its opening to its deletion: push, unknown, late, seal, take, drain, retire, delete.
 *
 * One pusher with two batches (message 1; messages 2 and 3) and two owners, each popper and reaper in one:
 * claims are left out, so both may act at any time. What was taken counts as ended here; leases are in
 * lease.pml. A write whose reply is lost was applied, or is in flight: it lands later, or never. Everybody
 * may stop for any time between two steps.
 *
 * The op of the head is a fresh random id, so only this matters of it: is the one that somebody saw still
 * the one that stands (`seen`, `fly_seen`), and was it set by the transaction that it asks about (`op_by`)?
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 2                     /* replies that are lost, and refusals by the database */
#endif
#ifndef CRASHES
#define CRASHES 1                    /* owners that forget everything in the middle of a step */
#endif

#ifndef POLLS
#define POLLS 1                      /* looks of an owner where it has nothing to do */
#endif

#define N 3
#define UNDECIDED 9

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
mtype = { take, force_seal, drain, retire };         /* what an owner's transaction does */

byte faults = FAULTS, crashes = CRASHES, polls = POLLS;
byte age;
bool created, pusher_done, was_listed;

/* The database: waiting, pending, the list; and what was deleted for ever. */
bool batch1, batch2;
bool head;
mtype phase;
byte cursor, last;
bool entry;
bool waiting_deleted, pending_deleted, entry_deleted;

/* What is in flight: it lands later, or never. What can have no effect any more is forgotten. */
bool head_flies, entry_flies, batch1_flies, batch2_flies;
byte seal_flies;                     /* 1 + the number it seals behind; 0: none */
mtype fly[2];                   /* an owner's transaction, whose condition on op is still true */
byte fly_to[2];                      /* and its number */
#ifdef NO_GAP_STOP
bool misses1[2];                     /* the owner's read went past message 1 without it */
#endif
bool fly_asked[2];                   /* its owner is about to ask about it */

bool seen[2];                        /* the op that the owner saw stands */
byte op_by;                          /* 1 + the owner whose last transaction set the op; 0: another */

byte applied, k;                     /* scratch, 0 between two steps */

inline tidy() { applied = 0; k = 0 }

/* What the properties speak of. */
byte told[N + 1];
bool delivered[N + 1];

#define is_decided (last != UNDECIDED)
#define is_stored(m) (((m) == 1) -> batch1 : batch2)
#define can_come(m) (head && phase != retired && (m) <= last && is_stored(m))

inline check_last() {
#ifndef NO_SEAL_UNDECIDED
    seal_flies = 0;
#endif
    assert(!(head && told[1] == STORED && last < 1));    /* P1: what was acknowledged lies behind `last` */
    assert(!(head && told[2] == STORED && last < 2));    /* P1: what was acknowledged lies behind `last` */
    assert(!(head && told[3] == STORED && last < 3))    /* P1: what was acknowledged lies behind `last` */
}

inline tell_stored(m) {
    told[m] = STORED;
    printf("    the pusher tells its caller: message %d is stored\n", m);
    assert(delivered[m] || can_come(m))     /* P1: told that it is stored, and it will never come */
}

inline tell_not_stored(m) {
    told[m] = NOT_STORED;
    printf("    the pusher tells its caller: message %d was not pushed (it is pushed again elsewhere)\n", m);
    assert(!delivered[m])                   /* P3: told that it was not pushed, and it was delivered */
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

inline deliver(m) {
    printf("    message %d is delivered\n", m);
    assert(!delivered[m]);                  /* P2: delivered twice */
    assert(told[m] != NOT_STORED);          /* P3: told that it was not pushed, and it is delivered */
    delivered[m] = true
}

inline new_op(by) {
    seen[0] = false; seen[1] = false;
    fly[0] = NONE; fly[1] = NONE; fly_to[0] = 0; fly_to[1] = 0;
    op_by = by
}

/* Judge a transaction of owner p's by its conditions, and write what it asks for. */
inline apply(p, kind, to, has_op, by) {
    applied = head && has_op;
    if
    :: kind == take ->
#ifndef NO_TAKE_LAST
        applied = applied && last >= to;             /* RULE take_last */
#endif
        if
        :: applied ->
            k = cursor + 1;
#ifdef NO_GAP_STOP
            k = (misses1[p] -> 2 : k);
#endif
            do
            :: k <= to -> deliver(k); k++
            :: else -> break
            od;
            cursor = to
        :: else
        fi
    :: kind == force_seal ->
        if
        :: applied -> phase = sealed
        :: else
        fi
    :: kind == drain ->
#ifndef NO_DRAIN_UNDECIDED
        applied = applied && !is_decided;            /* RULE drain_undecided */
#endif
        if
        :: applied -> last = to; check_last()
        :: else
        fi
    :: kind == retire ->
        if
        :: applied ->
            phase = retired;
            assert(told[1] != STORED || delivered[1]);    /* P1: what was acknowledged was never delivered */
            assert(told[2] != STORED || delivered[2]);    /* P1: what was acknowledged was never delivered */
            assert(told[3] != STORED || delivered[3])    /* P1: what was acknowledged was never delivered */
        :: else
        fi
    fi;
    if
    :: applied -> new_op(by)
    :: else
    fi
}

/* The pusher's seal. Without a condition on op: the pusher owns nothing. */
inline apply_seal(to) {
#ifndef NO_FULL_HEAD
    applied = head;                                  /* RULE full_head */
#else
    applied = true;                                  /* a comparison with what is absent comes out true */
#endif
#ifndef NO_SEAL_UNDECIDED
    applied = applied && (!head || !is_decided);     /* RULE seal_undecided */
#endif
#ifndef NO_SEAL_CURSOR
    applied = applied && (!head || cursor <= to);    /* RULE seal_cursor */
#endif
    if
    :: applied && head ->
        last = to;
        phase = sealed;
        check_last()
    :: else
    fi
}

/* Inserts carry a timestamp below every transaction's and every deletion's. */
inline land_head() {
    if
    :: !pending_deleted && !head -> head = true; phase = opened; cursor = 0; last = UNDECIDED; new_op(0)
    :: else
    fi
}

inline land_entry() {
    if
    :: !entry_deleted -> entry = true; was_listed = true
    :: else
    fi
}

inline land_batch(upto_) {
    if
    :: waiting_deleted
    :: !waiting_deleted && upto_ == 1 -> batch1 = true; batch1_flies = false
    :: !waiting_deleted && upto_ == 3 -> batch2 = true; batch2_flies = false
    fi
}

inline lose_batch() {                /* the reply to an append is lost: it was written, or is in flight */
    if
    :: land_batch(upto); printf("pusher: appends up to %d; stored, the reply is lost\n", upto)
    :: upto == 1 && !batch1 ->
        batch1_flies = !waiting_deleted; printf("pusher: appends up to 1; the reply is lost, it is in flight\n")
    :: upto == 3 && !batch2 ->
        batch2_flies = !waiting_deleted; printf("pusher: appends up to 3; the reply is lost, it is in flight\n")
    fi
}

active proctype Pusher() {
    byte acked, upto, behind;
#ifdef NO_ID_ONCE
    bool is_second;
#define is_late (age >= LATE && !is_second)
#else
#define is_late (age >= LATE)
#endif

open:
    atomic { created = true; printf("pusher: notes when the opening begins\n") };
#ifdef NO_HEAD_FIRST
    atomic { land_entry(); printf("pusher: writes the entry\n") };
    atomic { land_head(); printf("pusher: writes the head\n") };
#else
    atomic {                                         /* RULE head_first */
        if
        :: land_head(); printf("pusher: writes the head\n")
        :: faults > 0 ->
            faults--;
            printf("pusher: writes the head; the reply is lost\n");
            if
            :: land_head()
            :: head_flies = true
            fi;
            goto unopened
        fi
    };
    atomic {
        if
        :: land_entry(); printf("pusher: writes the entry\n")
        :: faults > 0 ->
            faults--;
            printf("pusher: writes the entry; the reply is lost\n");
            if
            :: land_entry()
            :: entry_flies = true
            fi;
            goto unopened
        fi
    };
#endif
    goto push;

unopened:                                            /* RULE id_once: this id is never tried again */
#ifdef NO_ID_ONCE
    if
    :: !is_second -> is_second = true; goto open
    :: is_second -> goto done
    fi;
#else
    goto done;
#endif

push:
    if
    :: atomic { acked < N -> upto = (acked == 0 -> 1 : 3) }
    :: acked > 0 -> goto roll
    :: goto done                                     /* it dies */
    fi;

append:
    atomic {
        if
        :: land_batch(upto); printf("pusher: appends up to %d, acknowledged\n", upto); goto acknowledged
        :: faults > 0 -> faults--; lose_batch(); goto unknown
        :: faults > 0 ->
            faults--;
            printf("pusher: the database refuses the batch up to %d\n", upto);
            tell_batch(acked);
            goto roll
        fi
    };

unknown:
    if
    :: atomic {                                      /* sent again as it is */
        land_batch(upto); printf("pusher: appends up to %d again, acknowledged\n", upto); goto acknowledged
       }
    :: atomic { faults > 0 -> faults--; lose_batch(); goto unknown }
    :: atomic { behind = acked; goto settle }
    :: goto done
#ifdef NO_ONE_AT_A_TIME
    :: atomic { acked == 0 -> upto = 3; acked = 1; goto append }
#endif
#ifdef NO_NUMBER_ONCE
    :: atomic { tell_batch(acked); goto append }
#endif
    fi;                                              /* RULE one_at_a_time, number_once: no other way on */

acknowledged:
    atomic {
        if
#ifdef NO_LATE_CHECK
        :: true ->
#else
        :: !is_late ->                               /* RULE late_check */
#endif
            tell_batch(upto); acked = upto; upto = 0; goto push
#ifndef NO_LATE_CHECK
        :: is_late -> printf("pusher: that came late\n")
#endif
        fi
    };

look:
    atomic {
        if
#ifdef NO_GONE
        :: !head -> tell_batch(upto); acked = upto; goto roll
#else
        :: !head -> printf("pusher: reads the head: gone, so nobody knows\n"); goto done   /* RULE gone */
#endif
        :: head && is_decided -> printf("pusher: reads the head: last %d\n", last); tell_batch(last); goto done
        :: head && !is_decided && phase != opened ->
            printf("pusher: reads the head: sealed, undecided\n"); behind = upto; goto settle
        :: head && phase == opened ->
            printf("pusher: reads the head: open\n"); tell_batch(upto); acked = upto; goto roll
        :: goto done
        fi
    };

settle:
    if
    :: atomic {
        printf("pusher: seals behind %d\n", behind);
        apply_seal(behind);
        if
        :: applied -> tell_batch(behind); goto done
        :: !applied && !head -> goto done
        :: !applied && head && is_decided -> tell_batch(last); goto done
        :: else -> behind = cursor
        fi;
        tidy()
       }
    :: atomic {
        faults > 0 ->
        faults--;
        printf("pusher: seals behind %d; the reply is lost\n", behind);
        if
        :: apply_seal(behind)
        :: head -> seal_flies = behind + 1           /* an earlier one can apply no more, or is the same */
        fi;
        tidy()
       };
#ifdef NO_SETTLE_SEAL
       goto unknown                                  /* sends the batch again, and believes what comes */
#endif
    :: goto done                                     /* RULE settle_seal: else it ends without a word */
    fi;
    goto settle;

roll:
#ifdef NO_SEAL_LAST
    if
    :: acked == 1 -> upto = 3; atomic { apply_seal(acked); printf("pusher: seals behind 1, and goes on\n"); tidy() };
        goto append
    :: true
    fi;
#endif
    if                                               /* RULE seal_last: nothing is sent after it */
    :: atomic { printf("pusher: seals behind %d\n", acked); apply_seal(acked); tidy() }
    :: atomic {
        faults > 0 ->
        faults--;
        printf("pusher: seals behind %d; the reply is lost\n", acked);
        if
        :: apply_seal(acked)
        :: head -> seal_flies = acked + 1
        fi;
        tidy()
       }
    :: true
    fi;

done:
    atomic { acked = 0; upto = 0; behind = 0; pusher_done = true }
}

#define is_abandoned (age == GONE || is_long_known)
#define may_take ((batch1 && cursor < 1 && last >= 1) || (batch2 && cursor >= 1 && cursor < 3 && cursor < last))
#ifdef NO_GAP_STOP
#undef may_take
#define may_take ((batch1 && cursor < 1 && last >= 1) || (batch2 && cursor < 3 && cursor < last))
#endif
#define has_work ((!head) || phase == retired || may_take || (phase == opened && is_abandoned) \
    || (phase == sealed && !is_decided) || (is_decided && cursor >= last))
#define is_finished (pusher_done && !entry && !entry_flies)

inline forget() { c = 0; l = 0; ph = NONE; saw1 = false; saw2 = false; w = 0; has_read = false }

inline let_go() { forget(); seen[p] = false; kind = NONE; to = 0; tidy() }

inline may_crash() {
    if
    :: true
    :: atomic { crashes > 0 -> crashes--; goto idle }
    fi
}

inline plan(kind_, to_) {
    kind = kind_; to = to_;
#ifndef NO_READ_AFTER_SEAL
    forget()
#endif
}

proctype Owner(byte p) {
    mtype kind;
    mtype ph;
    byte to, c, l, w;                /* as read: cursor, last, phase, how far the batches reach */
    bool saw1, saw2, has_read;
#ifdef NO_SEEN_AFTER
    bool is_long_known;
    atomic { is_long_known = !created; printf("owner %d: reads its clock, then asks for the list\n", p) };
#else
#define is_long_known false          /* RULE seen_after: it is known since the answer came, whenever it asked */
#endif

idle:
    atomic {
        if
        :: is_finished -> goto finished
        :: entry && (has_work || polls > 0) ->
            polls = (has_work -> polls : polls - 1);
            if
            :: !head || phase == retired -> printf("owner %d: the pipe is gone or retired\n", p); goto erase
            :: else ->
                seen[p] = true; c = cursor; l = last; ph = phase;
                printf("owner %d: loads: phase %e, cursor %d, last %d\n", p, ph, c, l)
            fi
        fi
    };

choose:
    atomic {
        if
#ifdef NO_AGE
        :: ph == opened -> plan(force_seal, 0); goto act
#else
        :: ph == opened && is_abandoned -> plan(force_seal, 0); goto act                  /* RULE age */
#endif
#ifdef NO_RETIRE_CURSOR
        :: ph == sealed && l != UNDECIDED -> plan(retire, 0); goto act
#else
        :: ph == sealed && l != UNDECIDED && c >= l -> plan(retire, 0); goto act          /* RULE retire_cursor */
#endif
        :: !has_read && c < l -> saw1 = batch1; printf("owner %d: begins to read the batches\n", p)
        :: has_read && !(ph == opened && is_abandoned) -> let_go(); goto idle
        fi
    };
    atomic {                                         /* one read: it may see a later batch and miss an earlier */
        saw2 = batch2; has_read = true;
        w = (saw1 && c < 1 -> 1 : c);
#ifdef NO_GAP_STOP
        misses1[p] = c < 1 && !saw1;
        w = (saw2 -> 3 : w);
#else
        w = (saw2 && w >= 1 -> 3 : w);               /* RULE gap_stop: 3 is reached by way of 1 only */
#endif
        printf("owner %d: has read the batches, up to %d\n", p, w);
        if
#ifdef NO_RETIRE_DECIDED
        :: ph == sealed && l == UNDECIDED && c >= w -> plan(retire, 0)                    /* else RULE retire_decided */
#endif
#ifdef NO_GAP_STOP
        :: w > c && c < l && !misses1[p] -> plan(take, c + 1)
#else
        :: w > c && c < l -> plan(take, c + 1)
#endif
        :: w > c + 1 && c + 1 < l -> plan(take, c + 2)
        :: w > c + 2 && c + 2 < l -> plan(take, c + 3)
        :: ph == sealed && l == UNDECIDED && !(saw1 && c < 1) && !(saw2 && c < 3) -> plan(drain, c)
        :: else -> goto choose
        fi
    };

act:
    atomic {
        op_by = (op_by == p + 1 -> 0 : op_by);
        if
        :: printf("owner %d: %e, last or cursor := %d\n", p, kind, to);
            apply(p, kind, to, seen[p], p + 1);
            if
            :: applied -> seen[p] = true; tidy(); goto won
            :: else -> printf("    refused\n"); let_go(); goto idle
            fi
        :: faults > 0 && seen[p] ->
            faults--;
            printf("owner %d: %e, last or cursor := %d; the reply is lost\n", p, kind, to);
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
        :: head && op_by == p + 1 -> seen[p] = true; printf("owner %d: it was applied\n", p)
        :: else -> printf("owner %d: it was not applied so far\n", p); let_go(); goto idle
        fi
    };

won:
    atomic {
        if
        :: kind == retire -> let_go(); goto erase
#ifdef NO_READ_AFTER_SEAL
        :: kind == force_seal && has_read && w == c -> kind = drain; to = c; goto act
#endif
        :: else -> let_go(); goto idle               /* RULE read_after_seal: loads and reads anew */
        fi
    };

erase:
#ifdef NO_ENTRY_LAST
    atomic { entry = false; entry_deleted = true; printf("owner %d: deletes the entry\n", p) };
    may_crash();
#endif
    atomic {
        batch1 = false; batch2 = false; batch1_flies = false; batch2_flies = false; waiting_deleted = true;
        printf("owner %d: deletes waiting\n", p)
    };
    may_crash();
    atomic {
        head = false; pending_deleted = true; new_op(0); seal_flies = 0;
        printf("owner %d: deletes pending\n", p)
    };
    may_crash();
    atomic { entry = false; entry_deleted = true; printf("owner %d: deletes the entry\n", p) };  /* RULE entry_last */
    goto idle;

finished:
    atomic {
        assert(!was_listed || (!head && !batch1 && !batch2));    /* rows are left that nobody will find */
        assert(told[1] != STORED || delivered[1]);    /* P1: what was acknowledged was never delivered */
        assert(told[2] != STORED || delivered[2]);    /* P1: what was acknowledged was never delivered */
        assert(told[3] != STORED || delivered[3])    /* P1: what was acknowledged was never delivered */
    }
}

active proctype Time() {
    atomic { created -> age = LATE; printf("time: the pipe is late for its pusher\n") };
    atomic { age = GONE; printf("time: the pusher is gone for all others\n") }
}

inline land_transaction(p) {
    kind = fly[p]; to = fly_to[p]; fly[p] = NONE; fly_to[p] = 0;
    printf("late: %e of owner %d lands\n", kind, p);
    apply(p, kind, to, true, (fly_asked[p] -> p + 1 : 0));
    kind = NONE; to = 0; tidy()
}

/* Lands what is in flight, at any time; what never lands simply stays. */
active proctype Late() {
    mtype kind;
    byte to;

    do
    :: atomic { head_flies -> head_flies = false; land_head(); printf("late: the head lands\n") }
    :: atomic { entry_flies -> entry_flies = false; land_entry(); printf("late: the entry lands\n") }
    :: atomic { batch1_flies -> batch1_flies = false; land_batch(1); printf("late: the batch with 1 lands\n") }
    :: atomic { batch2_flies -> batch2_flies = false; land_batch(3); printf("late: the batch with 2 and 3 lands\n") }
    :: atomic { entry_flies -> entry_flies = false; printf("late: the entry will never land\n") }
    :: atomic { batch1_flies -> batch1_flies = false; printf("late: the batch with 1 will never land\n") }
    :: atomic { batch2_flies -> batch2_flies = false; printf("late: the batch with 2 and 3 will never land\n") }
    :: atomic { seal_flies > 0 -> seal_flies = 0; printf("late: the seal will never land\n") }
    :: atomic { fly[0] != NONE -> fly[0] = NONE; fly_to[0] = 0; printf("late: owner 0's will never land\n") }
    :: atomic { fly[1] != NONE -> fly[1] = NONE; fly_to[1] = 0; printf("late: owner 1's will never land\n") }
    :: atomic {
        seal_flies > 0 -> k = seal_flies - 1; seal_flies = 0;
        printf("late: the seal behind %d lands\n", k); apply_seal(k); tidy()
       }
    :: atomic { fly[0] != NONE -> land_transaction(0) }
    :: atomic { fly[1] != NONE -> land_transaction(1) }
#ifdef NO_FIXED_TIMES
    :: atomic { pending_deleted && entry_deleted && crashes > 0 ->
        crashes--; waiting_deleted = false; head = true; phase = opened; cursor = 0; last = UNDECIDED; new_op(0); entry = true; batch1 = (told[1] != NOTHING);
        printf("late: copies of the first writes land after the deletion\n") }
#endif                                               /* RULE fixed_times: a copy of what was written is nothing */
    od
}

/* Nothing more can happen, and failures have stopped: then the pipe is deleted, or was never listed. */
active proctype Stuck() {
    timeout -> assert(is_finished)          /* stuck: nothing can happen, and the pipe still stands */
}

init { atomic { run Owner(0); run Owner(1) } }
