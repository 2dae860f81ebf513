/* Offers: a publisher lets others link its message, in one partition of a topic.
 *
 * One source and its message, two scribes, and whoever closes and deletes segments. The source offers its message under a number, in
 * the open segment. A scribe reads the head of the open segment, the row of the source there, and what is offered there; it links what
 * has a higher number than the row IF the op is that of the head, and writes the row with it. The source looks at its row. Where its
 * segment is closed, and the row says still that it was not linked, it offers the message anew in the next one. It may link its offer
 * itself, as a scribe does. Once its segment is gone, nobody knows.
 *
 * A link whose reply is lost was applied, or is in flight and lands later, or never; so is an offer. A scribe may stop between any two
 * steps for any time, and does again what it began when it goes on: on an op that it saw long ago. Each change has a fresh op.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 2                     /* replies that are lost */
#endif
#ifndef ROLLS
#define ROLLS 1                      /* segments that are closed */
#endif
#ifndef OTHERS
#define OTHERS 1                     /* messages that somebody else publishes */
#endif
#ifndef RETENTION
#define RETENTION 0                  /* segments that are deleted */
#endif
#ifndef ROUNDS
#define ROUNDS 3                     /* how often each scribe looks */
#endif

#define SEGMENTS 3

byte faults = FAULTS, rolls = ROLLS, others = OTHERS, retention = RETENTION;

byte op;                             /* of the head of the open segment */
byte segment = 1, oldest = 1;        /* the open one, and the oldest that is left */
byte offer[SEGMENTS + 1];            /* the number that the source offers, or offered last, in each; 0: none */
byte row[SEGMENTS + 1];              /* the source's last number that was linked there */
byte offering[SEGMENTS + 1];         /* an offer in flight */
byte linked;                         /* how often the message was linked */
bool is_told, is_unknown;

/* A link of each scribe, and of the source itself, in flight: with the op that it is conditional on. */
bool flies[3];
byte fly_op[3], fly_number[3];

inline thin() {
    if
    :: flies[0] && fly_op[0] != op -> flies[0] = false; fly_op[0] = 0; fly_number[0] = 0
    :: else
    fi;
    if
    :: flies[1] && fly_op[1] != op -> flies[1] = false; fly_op[1] = 0; fly_number[1] = 0
    :: else
    fi;
    if
    :: flies[2] && fly_op[2] != op -> flies[2] = false; fly_op[2] = 0; fly_number[2] = 0
    :: else
    fi
}

inline change() { op++; thin() }

inline link(number) {
    linked++;
#ifndef NO_OFFER_ROW
    row[segment] = number;           /* RULE offer_row: the row of the source is written with the link */
#endif
    change();
    assert(linked == 1)              /* a message is linked twice */
}

inline send(r, seen, number) {
    if
    :: seen == op -> link(number); printf("%d links %d\n", r, number)
    :: seen == op && faults > 0 ->
        faults--; printf("%d links %d, no reply\n", r, number);
        if
        :: link(number)
        :: flies[r] = true; fly_op[r] = op; fly_number[r] = number
        :: true
        fi
    :: seen != op -> printf("%d is refused\n", r)
    fi
}

proctype Scribe(byte r) {
    byte rounds = ROUNDS, seen, place, known, number;

    do
    :: rounds > 0 ->
        rounds--;
        atomic { seen = op; place = segment };
        atomic { known = row[place]; printf("%d: row %d\n", r, known) };
        atomic {
            number = offer[place]; printf("%d: offered %d\n", r, number);
#ifdef NO_OFFER_ABOVE
            known = 0                            /* RULE offer_above: only a number that is higher than the row's is linked */
#endif
        };
#ifdef NO_OFFER_SEGMENT
        atomic { seen != op -> seen = op; known = row[segment] };
                                                 /* RULE offer_segment: what is offered for a segment is linked in it alone */
#endif
        atomic {
            if
            :: number > known -> send(r, seen, number)
            :: else
            fi;
            seen = 0; place = 0; known = 0; number = 0
        }
    :: rounds == 0 -> break
    od
}

proctype Source() {
    byte number = 1, place, seen;
    bool is_closed;

offer_it:
    atomic {
        place = segment; seen = op;
        if
        :: offer[place] = number; printf("offers %d in %d\n", number, place)
        :: faults > 0 -> faults--; offering[place] = number; printf("offers %d in %d, no reply\n", number, place)
        fi
    };
#ifdef NO_OFFER_KNOWN
    atomic { is_told = true; goto over };        /* RULE offer_known: callers hear once the row says that it is linked */
#endif
look:
    do
    :: atomic { place < oldest ->
#ifdef NO_OFFER_GONE
        number++; goto offer_it
#else
        is_unknown = true; printf("nobody knows\n"); goto over
#endif
       }                                         /* RULE offer_gone: where its segment is gone, nobody knows */
    :: atomic { place >= oldest && row[place] >= number -> is_told = true; printf("told\n"); goto over }
    :: atomic { place >= oldest && row[place] < number && place == segment -> seen = op };
        atomic {
            /* It waits no more: it links its offer by itself, on the head before which it looked. */
            if
            :: place == segment -> send(2, seen, number)
            :: else
            fi;
            seen = 0
        }
#ifdef NO_OFFER_FINAL
    :: atomic { place >= oldest && row[place] < number };
        atomic {
            if
            :: place < segment -> number++; goto offer_it
            :: else
            fi
        }
#else
    :: atomic { place >= oldest && place < segment && row[place] < number -> number++; goto offer_it }
#endif                                           /* RULE offer_final: it is offered anew where its segment is closed, and the row
                                                    then says still that it is not linked */
    od;
over:
    atomic { number = 0; place = 0; assert(!is_told || linked == 1) }    /* a message is told, and not linked */
}

/* Somebody else publishes; segments are closed, and the next one is opened; retention. */
active proctype Others() {
    do
    :: atomic { others > 0 -> others--; change(); printf("another message\n") }
    :: atomic { rolls > 0 -> rolls--; segment++; change(); printf("segment %d\n", segment) }
    :: atomic { retention > 0 && oldest < segment -> retention--; oldest++; printf("segment %d is gone\n", oldest - 1) }
    :: atomic { others == 0 && rolls == 0 && (retention == 0 || oldest == segment) -> break }
    od
}

active proctype Late() {
    byte s;

    do
    :: atomic { flies[0] -> s = fly_number[0]; flies[0] = false; fly_op[0] = 0; fly_number[0] = 0; printf("late: 0\n"); link(s); s = 0 }
    :: atomic { flies[1] -> s = fly_number[1]; flies[1] = false; fly_op[1] = 0; fly_number[1] = 0; printf("late: 1\n"); link(s); s = 0 }
    :: atomic { flies[2] -> s = fly_number[2]; flies[2] = false; fly_op[2] = 0; fly_number[2] = 0; printf("late: 2\n"); link(s); s = 0 }
    :: atomic { offering[1] > 0 -> offer[1] = offering[1]; offering[1] = 0; printf("late: an offer\n") }
    :: atomic { offering[2] > 0 -> offer[2] = offering[2]; offering[2] = 0; printf("late: an offer\n") }
    od
}

/* Nothing more can happen, and failures have stopped. */
active proctype Stuck() {
    timeout -> assert(is_told || is_unknown)     /* a publisher hears nothing */
}

init { atomic { run Scribe(0); run Scribe(1); run Source() } }
