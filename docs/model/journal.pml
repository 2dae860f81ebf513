/* The journal: when a pipe retires, its event is published in a topic, once.
 *
 * One pipe that is over, two reapers, and the partition of the journal that its event belongs to: a log of offsets 1, 2, 3 …,
 * cut into segments, in which others publish, too. Who retires the pipe reads the end of the log before, and the head of the pipe
 * names it: no event of the pipe stands before that offset. Whoever finds the pipe retired reads the head of the open segment,
 * looks for the event from the offset that is named up to where that head says, and links the event IF the segment's op is
 * that of this head. Once it is known to be there the pipe is deleted.
 *
 * A retirement or a link whose reply is lost was applied, or is in flight and lands later, or never. Segments are closed, and
 * retention deletes the oldest. The topic may be deleted, and one of its name be made anew, with another incarnation: its
 * offsets begin again. A reaper may die between any two steps; it comes again, and knows nothing. Each change of the log has a
 * fresh op, which stands for that of the open segment: what is linked on another one is refused for ever. There are no claims.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 1                     /* replies that are lost */
#endif
#ifndef CRASHES
#define CRASHES 1                    /* reapers that die */
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
#ifndef RENEWALS
#define RENEWALS 0                   /* how often the topic is deleted and made anew */
#endif

#define OVER 0
#define RETIRED 1
#define GONE 2

#define SEGMENTS 4
#define OFFSETS 6

/* What is told of a change. */
#define APPLIED 1
#define REFUSED 2
#define UNKNOWN 3

byte faults = FAULTS, crashes = CRASHES, rolls = ROLLS, others = OTHERS, retention = RETENTION, renewals = RENEWALS;

/* The pipe: its phase, and what its head names. */
byte phase, named_at, named_in;

/* The log. */
byte incarnation, op, next = 1;
byte segment = 1, oldest = 1;        /* the open segment, and the oldest that is left */
byte first[SEGMENTS + 1] = 1;        /* the offset that a segment begins with */
bool is_event[OFFSETS + 1];          /* what stands there is the event of the pipe */
byte linked;                         /* how often it was published */
bool is_lost;                        /* retention, or a deletion of the topic, took one */

/* In flight: a retirement, with what it names; a link, with the op that it is conditional on. */
bool retires[2];
byte retire_at[2], retire_in[2];
bool flies[2];
byte fly_op[2];

#define standing (is_event[1] + is_event[2] + is_event[3] + is_event[4] + is_event[5] + is_event[6])

inline retire(at, within) { phase = RETIRED; named_at = at; named_in = within; drop_retirements() }
inline drop_retirements() {
    retires[0] = false; retire_at[0] = 0; retire_in[0] = 0; retires[1] = false; retire_at[1] = 0; retire_in[1] = 0
}

/* What can be applied no more is in flight no more: an op never comes back. */
inline thin() {
    if
    :: flies[0] && fly_op[0] != op -> flies[0] = false; fly_op[0] = 0
    :: else
    fi;
    if
    :: flies[1] && fly_op[1] != op -> flies[1] = false; fly_op[1] = 0
    :: else
    fi
}

inline change_log() { op++; thin() }

inline link() {
    is_event[next] = true; next++; linked++; change_log();
    assert(standing == 1);                       /* an event stands twice */
    assert(linked == 1 || is_lost)               /* an event is published twice */
}

/* What is left of the log from an offset on. */
#define begin_of_rest first[oldest]

proctype Reaper(byte r) {
    byte at, within, answer;
    byte seen_op, seen_next;         /* the head of the open segment */
    bool is_found;

again:
    atomic { phase != GONE };
    atomic {
        at = 0; within = 0; seen_op = 0; seen_next = 0; is_found = false; answer = 0;
        if
        :: phase == OVER -> goto begin
        :: phase == RETIRED -> goto find
        :: phase == GONE -> goto again
        fi
    };
begin:
    atomic {
        at = next; within = incarnation; seen_op = op; seen_next = next;
        printf("%d: the log goes up to %d\n", r, seen_next)
    };
#ifdef NO_OFFSET_FIRST
    if
    :: atomic { phase == OVER -> link(); printf("%d: links before\n", r) }
    :: atomic { phase != OVER }
    :: atomic { crashes > 0 -> crashes--; goto again }
    fi;
#endif                                           /* RULE offset_first: the head names an offset before the event is linked */
    if
    :: atomic { phase == OVER -> retire(at, within); printf("%d: retires, %d\n", r, at); goto search }
    :: atomic { phase != OVER -> goto again }
    :: atomic {
        faults > 0 && phase == OVER -> faults--; printf("%d: retires, no reply\n", r);
        if
        :: retire(at, within)
        :: retires[r] = true; retire_at[r] = at; retire_in[r] = within
        :: true
        fi;
        goto again
       }
    :: atomic { crashes > 0 -> crashes--; printf("%d: dies\n", r); goto again }
    fi;
find:
    atomic {
        if
        :: phase == GONE -> goto again
        :: else -> at = named_at; within = named_in
        fi
    };
head:
    atomic { seen_op = op; seen_next = next; printf("%d: the log goes up to %d\n", r, seen_next) };
search:
    atomic {
#ifndef NO_NAME_INCARNATION
        if
        :: within != incarnation -> at = 1       /* RULE name_incarnation: of another topic's log it looks through all */
        :: else
        fi;
#endif
#ifdef NO_SEARCH_ALL
        at = first[segment];
#endif                                           /* RULE search_all: from the offset that is named on, in all segments */
        if
        :: at < begin_of_rest ->
#ifdef NO_SEARCH_REST
            is_found = true
#else
            at = begin_of_rest                   /* RULE search_rest: where that is gone, in what is left */
#endif
        :: else
        fi;
        do
        :: at < seen_next && at < next -> is_found = is_found || is_event[at]; at++
        :: else -> break
        od;
        printf("%d: is it there: %d\n", r, is_found);
        at = named_at;
        if
        :: is_found -> goto delete
        :: else
        fi
    };
send:
#ifdef NO_SEARCHED_OP
#define fits true
#else
#define fits (op == seen_op)                     /* RULE searched_op: the link is conditional on the head up to which it looked */
#endif
    if
    :: atomic { fits -> link(); printf("%d: links\n", r); goto delete }
    :: atomic { !fits -> printf("%d: is refused\n", r); goto find }
    :: atomic {
        faults > 0 && fits -> faults--; printf("%d: links, no reply\n", r);
        if
        :: link()
        :: !flies[r] -> flies[r] = true; fly_op[r] = op
        :: true
        fi;
#ifdef NO_EVENT_KNOWN
        goto delete
#else
        goto find                                /* RULE event_known: nothing is deleted before it is known to be linked */
#endif
       }
    :: atomic { crashes > 0 -> crashes--; printf("%d: dies\n", r); goto again }
    fi;
delete:
    if
    :: atomic {
        phase == RETIRED -> phase = GONE; printf("%d: deletes the pipe\n", r);
        assert(linked > 0);                      /* a pipe is deleted without an event */
        goto again
       }
    :: atomic { phase == GONE -> goto again }
    :: atomic { crashes > 0 -> crashes--; printf("%d: dies\n", r); goto again }
    fi
}

/* Somebody else publishes in the same partition; segments are closed; retention; the topic is made anew. */
active proctype Others() {
    byte at;

    do
    :: atomic { others > 0 && phase != GONE -> others--; next++; change_log(); printf("another event\n") }
    :: atomic {
        rolls > 0 && phase != GONE && next > first[segment] ->
        rolls--; segment++; first[segment] = next; change_log(); printf("segment %d\n", segment)
       }
    :: atomic {
        retention > 0 && phase != GONE && oldest < segment -> retention--; at = first[oldest]; oldest++;
        printf("retention: from %d on\n", first[oldest]);
        do
        :: at < first[oldest] -> is_lost = is_lost || is_event[at]; is_event[at] = false; at++
        :: else -> break
        od;
        at = 0
       }
    :: atomic {
        renewals > 0 && phase != GONE -> renewals--; printf("the topic is made anew\n");
        is_lost = is_lost || standing > 0;
        is_event[1] = false; is_event[2] = false; is_event[3] = false; is_event[4] = false; is_event[5] = false;
        is_event[6] = false;
        incarnation++; next = 1; segment = 1; oldest = 1; first[2] = 0; first[3] = 0; first[4] = 0; change_log()
       }
    od
}

inline land_link(r) {
    printf("late: link of %d\n", r); flies[r] = false; fly_op[r] = 0; link()
}

active proctype Late() {
    do
    :: atomic { retires[0] -> printf("late: retired, %d\n", retire_at[0]); retire(retire_at[0], retire_in[0]) }
    :: atomic { retires[1] -> printf("late: retired, %d\n", retire_at[1]); retire(retire_at[1], retire_in[1]) }
    :: atomic { flies[0] -> land_link(0) }
    :: atomic { flies[1] -> land_link(1) }
    od
}

/* Nothing more can happen, and failures have stopped. */
active proctype Stuck() {
    timeout -> assert(phase == GONE && linked > 0)   /* a pipe stays */
}

init { atomic { run Reaper(0); run Reaper(1) } }
