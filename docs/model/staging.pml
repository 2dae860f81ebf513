/* Staged pipes: of one batch of a writer one set of pipes is published, and what was decided is never deleted.
 *
 * Two drivers of the same writer, each with a set of pipes of its own (0 and 1). Both write batch 1: Spark started
 * the query again, and the old driver lives on. With -DNEXT the second one writes batch 2. A set is staged, listed, or gone: consumed and retired, which is
 * modelled, or deleted. The record has the number of the writer's last batch, and the manifest of what is
 * published. It is changed by compare-and-set on its op; a write whose reply is lost was applied, or is in
 * flight and lands later, or never. Anybody may die at any point; a reaper comes by for ever.
 *
 * Time: a set gets old at any moment. A driver that looks at the record after that gives up; before, it decides.
 *
 * A deletion may be forgotten (COMEBACKS): a set that was published, consumed or deleted is staged again, as far as
 * the list tells.
 *
 * With -DONCE the writer has one batch and one driver, which publishes a second time though it was told (its caller
 * was not), and the reaper takes the writer out of the record once its batch is published.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 2                     /* replies that are lost */
#endif
#ifndef CRASHES
#define CRASHES 2
#endif

#ifndef COMEBACKS
#define COMEBACKS 0                  /* staged entries that come back */
#endif

#ifdef NEXT
#define number(d) ((d) + 1)
#else
#define number(d) 1
#endif

#define REAPER 2
#define ACTORS 3
#define NONE 2                       /* no manifest */

byte faults = FAULTS, crashes = CRASHES, comebacks = COMEBACKS;
#ifdef ONCE
#define DRIVERS 1
byte repeats = 1;
#else
#define DRIVERS 2
#endif

bool staged[2];                      /* the entries of the set among the staged ones */
bool listed[2];                      /* its entries in the queue's list */
bool published[2];                   /* it was listed at some time */
bool lost[2];                        /* its rows were deleted, and not because all was consumed */
bool written[2];                     /* its manifest stands */
bool old[2];                         /* older than what may still be decided */
bool was_staged[2];
bool refused[2];                     /* its driver was told that it is not published */
byte ends = 0;                       /* drivers that came to their end */

byte batch = 0, manifest = NONE;     /* the record */
bool seen[ACTORS];                   /* the op that the actor read is the one that stands */
bool flies[2];                       /* a driver's decision that is conditional on an op that still stands */

inline write_record(b, m) {
    batch = b; manifest = m;
    seen[0] = false; seen[1] = false; seen[2] = false;
    flies[0] = false; flies[1] = false
}

inline decided(d) {
    assert(batch < number(d));       /* one batch is decided twice */
    assert(manifest == NONE);        /* what was decided before is lost */
    write_record(number(d), d)
}

inline list(s) {
    assert(!lost[s]);                /* what was decided is gone */
    assert(!refused[s]);             /* told as failed, and published */
#if !defined(NEXT) && !defined(ONCE)
    assert(!published[1 - (s)]);     /* both sets of one batch are published */
#endif
    if
    :: !published[s] -> listed[s] = true; published[s] = true
    :: else                          /* again: what was consumed does not come back */
    fi
}

inline delete_set(s) {
    assert(!listed[s]);              /* a published pipe is deleted */
    staged[s] = false;
    if
    :: !published[s] -> lost[s] = true
    :: else
    fi
}

/* A pipe's rows are there: a head, and what was pushed. */
#define stands(s) (!lost[s] && (!published[s] || listed[s]))

/* Delete a set that is staged, as far as the list tells: of one that is published only the entry goes. */
inline remove(s, is_listed) {
    if
    :: is_listed -> staged[s] = false
    :: !is_listed -> delete_set(s)
    fi
}

inline look_listed() {
#ifdef NO_LISTED_STAYS
    there[0] = false; there[1] = false
#else
    atomic { there[0] = listed[0]; there[1] = listed[1]; printf("%d: what is listed: %d %d\n", me, there[0], there[1]) }    /* RULE listed_stays */
#endif
}

inline may_die() {
    if
    :: true
    :: atomic { crashes > 0 -> crashes--; printf("%d: dies\n", me); goto dead }
    fi
}

/* Publish what was decided; say so; only then delete the manifest. */
inline finish() {
    atomic { m = manifest; printf("%d: reads the record: batch %d, manifest %d\n", me, batch, m) };
    if
    :: m == NONE
    :: m != NONE ->
        atomic { names = written[m]; has = names && staged[m]; printf("%d: reads the manifest: %d\n", me, names) };
        if
#ifdef NO_PUBLISH_FIRST
        :: true
#else
        :: has ->                                    /* RULE publish_first */
            atomic { list(m); printf("%d: lists set %d\n", me, m) };
            may_die();
            atomic { staged[m] = false; printf("%d: takes set %d off the staged list\n", me, m) }
        :: !has
#endif
        fi;
        /* compare-and-set, again until it is applied or somebody else did it */
        do
        :: atomic {
            manifest == m -> write_record(batch, NONE); printf("%d: says that nothing is left\n", me); break
           }
        :: manifest != m -> break
        od;
        may_die();
        atomic { written[m] = false; printf("%d: deletes manifest %d\n", me, m) }
    fi;
    m = NONE; names = false; has = false
}

/* Delete what is staged of a batch that was decided, and all of it published. */
inline clear_losers() {
    atomic { out = (batch >= number(me) && manifest == NONE); printf("%d: losers are out: %d\n", me, out) };
#ifdef NO_LOSERS_LATE
    out = (batch >= number(me));
#endif
    if
    :: out ->                                        /* RULE losers_late */
        atomic { losers[0] = (number(0) == number(me) && staged[0]); losers[1] = (number(1) == number(me) && staged[1]) };
        look_listed();
        if
        :: atomic { losers[0] -> remove(0, there[0]); printf("%d: removes set 0\n", me) }
        :: !losers[0]
        fi;
        if
        :: atomic { losers[1] -> remove(1, there[1]); printf("%d: removes set 1\n", me) }
        :: !losers[1]
        fi
    :: !out
    fi;
    atomic { out = false; losers[0] = false; losers[1] = false; there[0] = false; there[1] = false }
}

/* What a driver is told that did not decide by itself. */
inline tell() {
    if
#ifdef NO_TOLD_BY_LIST
    :: atomic { !staged[me] -> assert(published[me] || lost[me]) }
    :: atomic { staged[me] -> assert(!published[me]); printf("%d: is told no\n", me) }    /* told as failed, and published */
#else
    :: atomic { listed[me] -> assert(published[me]); printf("%d: is told yes\n", me) }    /* RULE told_by_list */
    :: !listed[me] ->
        if
        :: atomic { staged[me] && stands(me) -> assert(!published[me]); refused[me] = true; printf("%d: is told no\n", me) }
        :: atomic { !(staged[me] && stands(me)) -> printf("%d: nobody knows\n", me) }
        fi
#endif
    fi
}

proctype Driver(byte me) {
    byte m = NONE;
    bool names, has, out, losers[2], there[2];

    atomic { staged[me] = true; was_staged[me] = true; printf("%d: its tasks have staged\n", me) };
begin:
    may_die();
    finish();
    if
    :: batch >= number(me) -> goto after
    :: batch < number(me)
    fi;
    if
    :: atomic { !(staged[me] && stands(me)) -> printf("%d: its pipes are gone\n", me); goto refuse }
    :: staged[me] && stands(me)
    fi;
    atomic { written[me] = true; printf("%d: writes its manifest\n", me) };
    may_die();
decide:
    atomic {
        seen[me] = true;
        if
        :: batch >= number(me) -> seen[me] = false; goto after
        :: batch < number(me)
        fi;
#ifndef NO_UNFINISHED
        if
        :: manifest != NONE -> seen[me] = false; goto unfinished    /* RULE unfinished */
        :: manifest == NONE
        fi;
#endif
#ifndef NO_OLD_CHECK
        if
        :: old[me] -> seen[me] = false; printf("%d: is too late\n", me); goto refuse    /* RULE old_check */
        :: !old[me]
        fi
#endif
    };
    if
#ifdef NO_DECIDE_CAS
    :: atomic { true -> write_record(number(me), me); printf("%d: decides\n", me) }
#else
    :: atomic { seen[me] -> decided(me); printf("%d: decides\n", me) }            /* RULE decide_cas */
#endif
    :: atomic { !seen[me] -> printf("%d: is refused\n", me); goto decide }
    :: atomic {
        faults > 0 && seen[me] ->
        faults--; seen[me] = false; printf("%d: the reply is lost\n", me);
        if
        :: decided(me)
        :: !flies[me] -> flies[me] = true
        fi;
        if
        :: goto decide                               /* reads again, and tries again */
        :: goto begin                                /* its caller is told that nobody knows, and publishes again */
        :: goto discard                              /* gives up: the job is aborted */
        fi
       }
    fi;
    may_die();
    goto after;
unfinished:
    finish();
    goto decide;
after:
    finish();
    tell();
    clear_losers();
#ifdef ONCE
    if
    :: atomic { repeats > 0 -> repeats--; printf("%d: publishes once more\n", me); goto begin }
    :: true
    fi;
#endif
    goto end;

refuse:
#ifndef NO_REFUSED_LATE
    atomic { write_record(batch, manifest); printf("%d: moves the fence, to refuse\n", me) };    /* RULE refused_late */
    finish();
    if
    :: batch >= number(me) -> goto after
    :: batch < number(me)
    fi;
#endif
#if defined(ONCE) && defined(NO_FORGOTTEN)
    assert(!published[me]);              /* told as failed, and published */
#else
    tell();                              /* RULE forgotten */
#endif
    goto end;

discard:
#ifndef NO_FENCE_FIRST
    atomic { write_record(batch, manifest); printf("%d: moves the fence\n", me) };     /* RULE fence_first */
#endif
    finish();
    atomic { out = (batch < number(me)); printf("%d: was decided: %d\n", me, !out) };
    if
    :: out ->
        atomic { losers[me] = staged[me] };
        look_listed();
        if
        :: atomic { losers[me] -> remove(me, there[me]); printf("%d: removes its set\n", me) }
        :: !losers[me]
        fi
    :: !out -> clear_losers()
    fi;
end:
dead:
    atomic {
        m = NONE; names = false; has = false; out = false; ends++;
        losers[0] = false; losers[1] = false; there[0] = false; there[1] = false
    }
}

active proctype Reaper() {
    byte me = REAPER, m = NONE;
    bool names, has, out = false, olds[2], there[2];

again:
    if
#ifdef ONCE
    :: atomic { batch > 0 && manifest == NONE -> write_record(0, NONE); printf("reaper: forgets the writer\n"); goto again }
#endif
    :: atomic { manifest != NONE -> skip }
    :: atomic { manifest == NONE && ((staged[0] && old[0]) || (staged[1] && old[1])) -> skip }
    fi;
    finish();
    atomic { olds[0] = staged[0] && old[0]; olds[1] = staged[1] && old[1] };
    if
    :: olds[0] || olds[1] ->
#ifndef NO_FENCE_OLD
        atomic { write_record(batch, manifest); out = (manifest != NONE); printf("reaper: moves the fence\n") };    /* RULE fence_old */
#endif
        if
        :: out                                       /* something was decided meanwhile: the next pass */
        :: !out ->
#ifndef NO_LOOK_AGAIN
            atomic { olds[0] = olds[0] && staged[0]; olds[1] = olds[1] && staged[1] };    /* RULE look_again */
#endif
            look_listed();
            if
            :: olds[0] -> atomic { remove(0, there[0]); printf("reaper: removes set 0\n") }
            :: !olds[0]
            fi;
            if
            :: olds[1] -> atomic { remove(1, there[1]); printf("reaper: removes set 1\n") }
            :: !olds[1]
            fi
        fi
    :: !olds[0] && !olds[1]
    fi;
dead:
    atomic {
        olds[0] = false; olds[1] = false; there[0] = false; there[1] = false;
        out = false; m = NONE; names = false; has = false; goto again
    }
}

/* Poppers and the reaper of pipes: what is listed is consumed and retired. */
active proctype Poppers() {
    do
    :: atomic { listed[0] -> listed[0] = false; printf("set 0 is consumed\n") }
    :: atomic { listed[1] -> listed[1] = false; printf("set 1 is consumed\n") }
    od
}

active proctype Late() {
    do
    :: atomic { flies[0] -> decided(0); printf("late: the decision of 0 lands\n") }
    :: atomic { flies[1] -> decided(1); printf("late: the decision of 1 lands\n") }
    :: atomic { flies[0] -> flies[0] = false }
    :: atomic { flies[1] -> flies[1] = false }
    :: atomic { comebacks > 0 && was_staged[0] && !staged[0] -> comebacks--; staged[0] = true; printf("set 0 is staged again\n") }
    :: atomic { comebacks > 0 && was_staged[1] && !staged[1] -> comebacks--; staged[1] = true; printf("set 1 is staged again\n") }
    :: atomic { !old[0] && staged[0] -> old[0] = true }
    :: atomic { !old[1] && staged[1] -> old[1] = true }
    od
}

/* Nothing more can happen, and failures have stopped: a decided batch is published, nothing else is left. */
active proctype Stuck() {
    timeout -> assert(ends == DRIVERS && (batch != 1 || published[0] || published[1]) && (batch != 2 || published[1])
                      && manifest == NONE && !staged[0] && !staged[1])    /* stuck, or something stays for ever */
}

#ifdef ONCE
init { run Driver(0) }
#else
init { atomic { run Driver(0); run Driver(1) } }
#endif
