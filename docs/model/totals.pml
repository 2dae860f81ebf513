/* The totals: the counts of a pipe that is over enter the queue's record once, and before the pipe retires.
 *
 * Two pipes that are over (0 and 1) and three reapers. The record has the totals, and the names of the pipes
 * whose counts are in but which may still stand. It is changed by compare-and-set on its op; a write whose
 * reply is lost was applied, or is in flight and lands later, or never. A reaper may forget everything at any
 * point and begin again.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 2                     /* replies that are lost */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif

#define REAPERS 3
#define pipe(x) (1 << (x))
#define has(mask, x) (((mask) & pipe(x)) != 0)

byte faults = FAULTS, crashes = CRASHES;

byte retired;                        /* the pipes whose head says so, or that are gone */
byte times[2];                       /* how often the totals have each pipe */
byte counted;                        /* the names in the record */
bool seen[REAPERS];                  /* the op of the record that the reaper read is the one that stands */
bool flies[REAPERS];                 /* a write that is conditional on an op that still stands */
byte fly_counted[REAPERS], fly_new[REAPERS];

inline write_record(names, new_) {
    if
    :: has(new_, 0) -> times[0]++
    :: else
    fi;
    if
    :: has(new_, 1) -> times[1]++
    :: else
    fi;
    assert(times[0] <= 1 && times[1] <= 1);    /* a pipe is in the totals twice */
    counted = names;
    seen[0] = false; seen[1] = false; seen[2] = false;
    forget_write(0); forget_write(1); forget_write(2)
}

inline forget_write(r) { flies[r] = false; fly_counted[r] = 0; fly_new[r] = 0 }

inline forget() { over = 0; ready = 0; names = 0; fresh = 0; seen[r] = false }

inline may_crash() {
    if
    :: true
    :: atomic { crashes > 0 -> crashes--; printf("reaper %d: dies\n", r); forget(); goto idle }
    fi
}

inline read_record() {
    atomic { names = counted; seen[r] = true; printf("reaper %d: reads the record: counted %d\n", r, names) }
}

inline read_heads() {
    atomic { ready = over & ~retired; printf("reaper %d: reads the heads: %d stand\n", r, ready) }
}

inline retire(x) {
    if
    :: atomic {
        has(ready, x) && !has(retired, x) ->
        retired = retired | pipe(x);
        printf("reaper %d: retires pipe %d\n", r, x)
#ifndef NO_COUNT_FIRST
        ; assert(times[x] == 1)    /* a pipe retires, and its counts are not in the totals */
#endif
       }
    :: !has(ready, x) || has(retired, x)
    fi
}

#ifdef NO_COUNT_CAS
#define is_current true
#else
#define is_current seen[r]           /* RULE count_cas */
#endif

proctype Reaper(byte r) {
    byte over, ready, names, fresh;

idle:
    atomic {
        retired != 3 ->
        if
        :: !has(retired, 0) -> over = 1
        :: !has(retired, 1) -> over = 2
        :: retired == 0 -> over = 3
        fi;
        printf("reaper %d: has found pipes that are over: %d\n", r, over)
    };

#ifdef NO_COUNT_FIRST
    ready = over;
    retire(0);
    retire(1);
    may_crash();
#endif

attempt:
#ifdef NO_RECORD_FIRST
    read_heads();
    read_record();
#else
    read_record();                                   /* RULE record_first */
    read_heads();
#endif
    atomic {
#ifdef NO_COUNT_FIRST
        ready = over;
#endif
        fresh = ready & ~names;
        if
        :: fresh == 0 -> names = 0; seen[r] = false; goto settled
        :: else
        fi;
#ifdef NO_KEEP_COUNTED
        names = fresh;
#else
        names = (names & ~retired) | fresh;          /* RULE keep_counted: only what has retired is left out */
#endif
        printf("reaper %d: writes the totals with %d, counted %d\n", r, fresh, names)
    };
    if
    :: atomic {
        is_current -> write_record(names, fresh); names = 0; fresh = 0; printf("reaper %d: that was applied\n", r)
       }
    :: atomic {
        !is_current -> printf("reaper %d: that was refused\n", r); ready = 0; names = 0; fresh = 0;
        goto attempt
       }
    :: atomic {
        faults > 0 && is_current ->
        faults--; printf("reaper %d: the reply is lost\n", r);
        if
        :: write_record(names, fresh)
        :: !flies[r] -> flies[r] = true; fly_counted[r] = names; fly_new[r] = fresh
        fi;
        ready = 0; names = 0; fresh = 0; seen[r] = false;
        goto attempt                                 /* the next write of the record decides */
       }
    fi;
    may_crash();

settled:
    retire(0);                                       /* RULE count_first */
    retire(1);
    atomic { forget(); goto idle }
}

inline land(r) {
    write_record(fly_counted[r], fly_new[r]); printf("late: the write of reaper %d lands\n", r)
}

active proctype Late() {
    do
    :: atomic { flies[0] -> land(0) }
    :: atomic { flies[1] -> land(1) }
    :: atomic { flies[2] -> land(2) }
    :: atomic { flies[0] -> forget_write(0) }
    :: atomic { flies[1] -> forget_write(1) }
    :: atomic { flies[2] -> forget_write(2) }
    od
}

/* Nothing more can happen, and failures have stopped: then both are retired, and counted once. */
active proctype Stuck() {
    timeout -> assert(retired == 3 && times[0] == 1 && times[1] == 1)    /* stuck, or the totals lack a pipe */
}

init { atomic { run Reaper(0); run Reaper(1); run Reaper(2) } }
