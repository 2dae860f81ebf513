/* Schedules: messages that are pushed again and again, each once, by whoever comes by.
 *
 * A schedule with N occurrences that are due soon. Two keepers; each reads the schedule's row, finishes what that names,
 * stages a pipe with the next occurrence, and decides: the row then names the pipe, and the occurrence is behind it. That is
 * conditional on the op under which the row was read. Then the pipe is listed, in two writes, and the row says that nothing
 * is left. An application alters the schedule, or deletes it. Somebody looks after what is staged, at any time, and lists or
 * deletes it. What is listed stays so: how it is consumed matters to nobody here.
 *
 * A change of the row whose reply is lost was applied, or is in flight and lands later, or never. A keeper may die at any
 * point, and another one comes in its place; it goes on as if it had died where a reply is lost. Everybody may stop between
 * any two steps. Ids of pipes are never used twice. With COMEBACKS a staged entry comes back whose deletion was forgotten.
 * With -DCREATE the application creates the schedule, and then deletes it.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 1                     /* replies that are lost */
#endif
#ifndef CRASHES
#define CRASHES 1                    /* of a keeper */
#endif
#ifndef COMEBACKS
#define COMEBACKS 0                  /* staged entries that come back */
#endif
#ifndef N
#define N 2                          /* occurrences */
#endif

#ifndef KEEPERS
#define KEEPERS 2
#endif
#ifndef PIPES
#define PIPES 3                      /* attempts, of all keepers together */
#endif
#define NONE PIPES                   /* no pipe */
#define LOOKER 2
#define OWNER 3

byte faults = FAULTS, crashes = CRASHES, comebacks = COMEBACKS;

/* The schedule's row. */
#ifdef CREATE
bool row, exists;                    /* it stands; it has a schedule */
#else
bool row = true, exists = true;
#endif
byte next;                           /* the first occurrence that was not decided on */
byte target = NONE;
bool seen[4];                        /* the op that the actor read is the one that stands */
byte flown[2] = NONE;                /* the pipe of a decision that is conditional on an op that still stands */
bool creation_flies, told_deleted;
bool begun;                          /* keeper 0 has read the row: who is the first is keeper 0 */

/* The pipes: their rows, the lists. */
bool there[PIPES], staged[PIPES], listed[PIPES], was_staged[PIPES];
bool chosen[PIPES];                  /* it was decided on */
byte has[PIPES];                     /* its occurrence */
byte used;                           /* pipes that were staged */

inline move_op() {
    seen[0] = false; seen[1] = false; seen[LOOKER] = false; seen[OWNER] = false;
    flown[0] = NONE; flown[1] = NONE
}

/* The row names pipe p, and its occurrence is behind it. */
inline decide(p) {
    assert(!told_deleted);                       /* a schedule is pushed from that was deleted */
    assert(target == NONE);                      /* what was decided before is forgotten */
#ifndef NO_FILL_FIRST
    assert(there[p]);                            /* an occurrence is in a pipe that was deleted */
#endif
    assert(has[p] == next);                      /* an occurrence is decided on twice */
    target = p; next++; chosen[p] = true; has[p] = 0;
    move_op()
}

inline list(p) {
    assert(chosen[p]);                           /* what nobody decided on is listed */
    listed[p] = there[p]
}

/* Delete a pipe that is staged: its rows, then its entry. */
inline remove(p) {
    assert(!listed[p]);                          /* a pipe is deleted that is listed */
    assert(!chosen[p]);                          /* a pipe is deleted that was decided on */
    there[p] = false; staged[p] = false; has[p] = 0
}

/* The others go on in any case. */
#define may_die (me < 2 && crashes > 0)
inline die() { crashes--; printf("%d: dies\n", me); goto dead }

inline publish(p) {
    if
    :: atomic { list(p); printf("%d: lists T%d\n", me, p) }
    :: atomic { may_die -> die() }
    fi;
    if
    :: atomic { staged[p] = false; printf("%d: takes T%d off the staged list\n", me, p) }
    :: atomic { may_die -> die() }
    fi
}

inline clear() {
    if
    :: atomic { seen[me] -> target = NONE; move_op(); seen[me] = true; printf("%d: says that nothing is left\n", me) }
    :: atomic { !seen[me] -> printf("%d: is refused\n", me); goto anew }
    :: atomic { may_die -> die() }
    fi
}

/* List what the row names, then say that nothing is left. */
inline finish(p) {
#ifdef NO_LIST_FIRST
    clear();
    publish(p)
#else
    publish(p);                                  /* RULE list_first */
    clear()
#endif
}

inline stage() {
    there[t] = true; staged[t] = true; was_staged[t] = COMEBACKS > 0; printf("%d: stages T%d\n", me, t)
}

#ifdef NO_SCHEDULE_OP
#define fits (exists && target == NONE)
#else
#define fits seen[me]                            /* RULE schedule_op */
#endif

proctype Keeper(byte me) {
    byte m = NONE, t = NONE;

again:
    atomic {
        (me == 0 || begun) && exists && (target != NONE || (next < N && used < PIPES)) ->
        begun = true; seen[me] = true; m = target; printf("%d: reads: T%d, next %d\n", me, m, next);
        if
#ifndef NO_FINISH_FIRST
        :: m != NONE                             /* RULE finish_first */
#endif
        :: else -> goto plan
        fi
    };
    finish(m);
plan:
    atomic {
        m = NONE;
        if
        :: seen[me] && next < N && used < PIPES -> t = used; used++; has[t] = next
        :: else -> goto dead
        fi;
#ifndef NO_FILL_FIRST
        stage()                                  /* RULE fill_first */
#endif
    };
#ifdef NO_DECIDE_FIRST
    publish(t);
#endif                                           /* RULE decide_first: it is listed behind that */
    if
    :: atomic { fits -> printf("%d: decides on T%d\n", me, t); decide(t); seen[me] = true }
    :: atomic { !(fits) -> printf("%d: is refused\n", me); goto refused }
    :: atomic {
        faults > 0 && seen[me] && flown[me] == NONE ->
        faults--; printf("%d: decides on T%d, the reply is lost\n", me, t);
        if
        :: decide(t)
        :: flown[me] = t
        fi;
        goto dead
       }
    :: atomic { may_die -> die() }
    fi;
#ifdef NO_FILL_FIRST
    if
    :: atomic { stage() }
    :: atomic { may_die -> die() }
    fi;
#endif
    finish(t);
    goto dead;
refused:
#ifndef NO_FILL_FIRST
    if
    :: atomic { remove(t); printf("%d: deletes T%d\n", me, t) }
    :: atomic { may_die -> die() }
    fi;
#endif
dead:
anew:
    atomic { seen[me] = false; m = NONE; t = NONE; goto again }
}

/* The application. */
active proctype Owner() {
    byte me = OWNER, m = NONE;

#ifdef CREATE
create:
    if
    :: atomic { row -> printf("owner: it is there\n") }
    :: atomic { !row -> row = true; exists = true; printf("owner: creates\n") }
    :: atomic {
        faults > 0 && !row -> faults--; printf("owner: creates, the reply is lost\n");
        if
        :: row = true; exists = true
        :: creation_flies = true
        fi;
        goto create
       }
    fi;
#else
    if
    :: goto alter
    :: true
    fi;
#endif
delete:
anew:
    atomic {
        seen[OWNER] = true; m = target; printf("owner: reads: T%d\n", m);
        if
#ifndef NO_DELETE_FINISH
        :: m != NONE                             /* RULE delete_finish */
#endif
        :: else -> goto finished
        fi
    };
    finish(m);
finished:
    if
    :: atomic {
        seen[OWNER] -> exists = false; target = NONE; move_op(); told_deleted = true; printf("owner: deletes\n");
#ifdef NO_ROW_STAYS
        row = false
#endif                                           /* RULE row_stays */
       }
    :: !seen[OWNER] -> goto delete
    fi;
    goto end;
alter:
    atomic { seen[OWNER] = true; m = target; printf("owner: reads: T%d\n", m) };
    if
    :: atomic {
        seen[OWNER] -> printf("owner: alters\n");
#ifdef NO_ALTER_KEEPS
        target = NONE;
#endif                                           /* RULE alter_keeps */
        move_op()
       }
    :: !seen[OWNER] -> goto alter
    fi;
dead:
end:
    atomic { seen[OWNER] = false; m = NONE }
}

active proctype Looker() {
    byte me = LOOKER, t = NONE;
    bool is_listed;

again:
    atomic {
        if
        :: staged[0] -> t = 0
        :: staged[1] -> t = 1
#if PIPES > 2
        :: staged[2] -> t = 2
#endif
        fi;
        printf("looker: T%d is staged\n", t)
#ifdef NO_LISTED_LATER
        ; is_listed = listed[t]
#endif
    };
    atomic {
        seen[LOOKER] = exists; printf("looker: reads: T%d\n", target);
        if
#ifndef NO_TARGET_STAYS
        :: exists && target == t                 /* RULE target_stays */
#endif
        :: else -> goto fence
        fi
    };
    finish(t);
    goto done;
fence:
#ifndef NO_LOOK_FENCE
    if
    :: atomic { exists && seen[LOOKER] -> move_op(); printf("looker: moves the op\n") }    /* RULE look_fence */
    :: !exists && !seen[LOOKER]
    :: exists && !seen[LOOKER] -> goto done
    fi;
#endif
#ifndef NO_LISTED_LATER
    is_listed = listed[t];                       /* RULE listed_later */
#endif
#ifndef NO_DUE_STAYS
    if
    :: atomic { is_listed -> staged[t] = false; printf("looker: T%d is listed\n", t); goto done }    /* RULE due_stays */
    :: !is_listed
    fi;
#endif
    atomic { remove(t); printf("looker: deletes T%d\n", t) };
dead:
anew:
done:
    atomic { seen[LOOKER] = false; t = NONE; is_listed = false; goto again }
}

active proctype Late() {
    do
    :: atomic { flown[0] != NONE -> printf("late: 0 decides on T%d\n", flown[0]); decide(flown[0]) }
    :: atomic { flown[1] != NONE -> printf("late: 1 decides on T%d\n", flown[1]); decide(flown[1]) }
    :: atomic { flown[0] != NONE -> flown[0] = NONE }
    :: atomic { flown[1] != NONE -> flown[1] = NONE }
#ifdef CREATE
    :: atomic {
        creation_flies -> creation_flies = false;
        if
        :: !row ->
            row = true; exists = true; printf("late: it is created\n");
            assert(!told_deleted)                /* a schedule that was deleted is there again */
        :: row
        fi
       }
#endif
#if COMEBACKS
    :: atomic { comebacks > 0 && was_staged[0] && !staged[0] -> comebacks--; staged[0] = true; printf("T0 is staged again\n") }
    :: atomic { comebacks > 0 && was_staged[1] && !staged[1] -> comebacks--; staged[1] = true; printf("T1 is staged again\n") }
#endif
    od
}

#define is_well(p) (chosen[p] == listed[p] && !staged[p])
#if PIPES > 2
#define are_well (is_well(0) && is_well(1) && is_well(2))
#else
#define are_well (is_well(0) && is_well(1))
#endif
#define is_up_to_date (next == N || used == PIPES)

/* Nothing more can happen, and failures have stopped: what was decided on is listed, and nothing else is left. */
active proctype Stuck() {
    timeout -> assert(are_well && (!exists || (target == NONE && is_up_to_date)))    /* an occurrence is lost, or something stays for ever */
}

#if KEEPERS == 2
init { atomic { run Keeper(0); run Keeper(1) } }
#else
init { run Keeper(0) }
#endif
