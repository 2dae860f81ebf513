/* A reader that writes down what it leased, dies, and comes again under its name: adopt, hold, commit.
 *
 * One message, two drivers of one stream with one checkpoint, and a popper. A driver reads the checkpoint, and then claims
 * the reader's name; it may lose the claim while it lives, in the middle of any step, and hear of it late or never.
 * The checkpoint names each batch once: the second driver that writes a batch down ends there. A batch that was
 * written down and is not done is worked on again; one that is done and not committed is committed again. The sink
 * keeps a batch once, by its number.
 *
 * How one lease begins anew, step by step, is in lease.pml. Rules are taken away by -DNO_...; docs/model/README.md has
 * the table.
 */

#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef EXPIRIES
#define EXPIRIES 1                   /* leases that end under a living reader */
#endif
#ifndef TAKES
#define TAKES 2                      /* of the popper */
#endif

#define BATCHES 3

#ifndef LOSSES
#define LOSSES 1                     /* claims that a living driver loses */
#endif
#define NOBODY 2

#ifndef RESTARTS
#define RESTARTS 1                   /* drivers that are started in the place of one that ended */
#endif

byte crashes = CRASHES, expiries = EXPIRIES, takes = TAKES, losses = LOSSES, restarts = RESTARTS;
byte seat = NOBODY;                  /* the driver that has the claim */

/* The database: the run of the message. A lease id is never used twice. */
byte row_id, ids;
bool is_readers, is_over, has_ended;
bool seen[2];                        /* the run stands as the driver read it: lease id and leased_at */

/* The checkpoint: under which lease id a batch has the message, and whether the batch is done. The sink. */
bool is_written[BATCHES + 1], is_done[BATCHES + 1];
byte written[BATCHES + 1];
bool sunk[BATCHES + 1];

bool live[2];                        /* the driver's lease runs, by its own clock */
byte held[2];                        /* and has this id */
byte popped;                         /* the lease id of what the popper has in hand */
bool popper_kept;                    /* the popper committed it */
bool was_over;                       /* a reader's lease ended while it ran a batch: others have it, too */

#define highest (is_written[3] -> 3 : (is_written[2] -> 2 : (is_written[1] -> 1 : 0)))
#define in_sink (sunk[1] + sunk[2] + sunk[3])

inline changed() { seen[0] = false; seen[1] = false }
inline lease(d, id) { changed(); ids++; row_id = ids; is_readers = true; is_over = false; id = ids; held[d] = ids; live[d] = true }
inline let_go(d) { held[d] = 0; live[d] = false }
inline may_die(d) {
    if
    :: true
    :: atomic { crashes > 0 -> crashes--; printf("driver %d: dies\n", d); goto dead }
    fi
}

proctype Driver(byte d) {
    byte b, id;
    bool is_again;

begin:                               /* the checkpoint is read before the claim is asked for */
    atomic {
        b = highest; id = 0; is_again = b > 0 && !is_done[b];
        printf("driver %d: reads the checkpoint up to batch %d\n", d, b)
    };
    atomic {
        if
        :: has_ended -> goto end
        :: !has_ended && seat == NOBODY -> seat = d
        fi
    };
    atomic {
        if
        :: is_again -> id = written[b]; printf("driver %d: plans batch %d again\n", d, b); goto hold
        :: else -> printf("driver %d: begins behind batch %d\n", d, b)
        fi
    };

next:                                /* what the last batch had is done: it is committed before anything is adopted */
    may_die(d);
#ifndef NO_COMMIT_FIRST
commit:                              /* RULE commit_first */
    atomic {
        if
#ifdef NO_COMMIT_LEASE
        :: b > 0 && written[b] && !has_ended ->
#else
        :: b > 0 && written[b] && !has_ended && row_id == written[b] ->    /* RULE commit_lease: under the lease written down */
#endif
            has_ended = true; printf("driver %d: commits batch %d\n", d, b);
            assert(!popped || popped != row_id);    /* P2: ended under its holder's hands */
            assert(in_sink || popper_kept)          /* P1: committed, and in no sink */
        :: else
        fi;
        let_go(d)
    };
    may_die(d);
#endif
take:
    atomic {
        if
        :: has_ended || b == BATCHES -> goto end
        :: !has_ended && b < BATCHES && row_id && is_readers -> seen[d] = true
        :: !has_ended && b < BATCHES && !row_id -> lease(d, id); printf("driver %d: takes, as %d\n", d, id); goto write
        fi                           /* it waits while a popper has it */
    };
    printf("driver %d: reads what is leased to its name\n", d);
    atomic {
        if
#ifdef NO_ADOPT_SAME
        :: seen[d] -> lease(d, id); printf("driver %d: adopts it, as %d\n", d, id)
#else
        :: seen[d] -> changed(); is_over = false; id = row_id; held[d] = id; live[d] = true;    /* RULE adopt_same */
            printf("driver %d: adopts it, as %d\n", d, id)
#endif
        :: !seen[d] -> goto take
        fi
    };

write:
    may_die(d);
    atomic {
        if
        :: !is_written[b + 1] -> b++; is_written[b] = true; written[b] = id; printf("driver %d: writes batch %d down\n", d, b)
        :: else -> printf("driver %d: another wrote batch %d down\n", d, b + 1); goto dead
        fi
    };

hold:                                /* RULE hold_first: a batch is worked on once its lease is known to stand */
    may_die(d);
    atomic {
#ifdef NO_HOLD_FIRST
        held[d] = id; live[d] = true
#else
        if
        :: id && row_id == id && !has_ended -> changed(); is_over = false; held[d] = id; live[d] = true
        :: else -> printf("driver %d: the lease of batch %d is lost\n", d, b); let_go(d); id = 0
        fi
#endif
    };
    may_die(d);
#ifdef NO_DONE_FIRST
    atomic {
        if
        :: id && row_id == id && !has_ended -> has_ended = true; printf("driver %d: commits batch %d before it is done\n", d, b);
            assert(in_sink || popper_kept)          /* P1: committed, and in no sink */
        :: else
        fi
    };
#endif
    atomic {
        if
        :: id ->
            printf("driver %d: works on batch %d\n", d, b);
            assert(!live[d] || !popped || popped != row_id);    /* P2: two living leases on one message */
            sunk[b] = true;
            assert(in_sink <= 1 || was_over);       /* once and only once: in two batches, and no lease ended */
            assert(!popper_kept || was_over)        /* once and only once: in a batch, and with a popper */
        :: else                      /* nothing of it is in the batch */
        fi
    };
    may_die(d);
    atomic { is_done[b] = true; printf("driver %d: batch %d is done\n", d, b) };   /* RULE done_first: and then committed */
    goto next;

dead:
    atomic {
        let_go(d); seat = (seat == d -> NOBODY : seat);
        if
        :: restarts > 0 -> restarts--; goto begin
        :: else
        fi
    };
end:
    skip
}

/* Consumes what nobody else has; it alone goes on for ever. */
active proctype Popper() {
    do
    :: atomic {
        !has_ended && (row_id == 0 || is_over) ->
        printf("popper: takes\n");
        assert(!(live[0] && held[0] == row_id) && !(live[1] && held[1] == row_id));    /* P2: two living leases */
        changed(); ids++; row_id = ids; is_readers = false; is_over = false; popped = row_id
       };
       if
       :: atomic {
            has_ended = true; popper_kept = true; popped = 0; printf("popper: commits\n");
            assert(!in_sink || was_over)            /* once and only once: in a batch, and with a popper */
          }
       :: atomic { takes > 0 -> takes--; changed(); row_id = 0; popped = 0; printf("popper: rolls back\n") }
       fi
    :: atomic { has_ended -> break }
    od
}

#define is_held (row_id && ((live[0] && held[0] == row_id) || (live[1] && held[1] == row_id)))

active proctype Time() {
    do
    :: atomic { expiries > 0 && live[0] -> expiries--; live[0] = false; printf("time: the lease of driver 0 ends for itself\n") }
    :: atomic { expiries > 0 && live[1] -> expiries--; live[1] = false; printf("time: the lease of driver 1 ends for itself\n") }
    :: atomic {
        row_id && is_readers && !is_over && !is_held && !has_ended ->
        is_over = true; was_over = true; printf("time: the reader's lease is over for all\n")
       }
    :: atomic { losses > 0 && seat != NOBODY -> losses--;
        live[seat] = false;
        printf("time: driver %d loses its claim\n", seat); seat = NOBODY }
    :: atomic { has_ended -> break }
    od
}

active proctype Stuck() {
    timeout -> assert(has_ended)            /* stuck: nothing can happen, and the message has not ended */
}

init { atomic { run Driver(0); run Driver(1) } }
