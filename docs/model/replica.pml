/* One batch on three replicas: what is decided by a read stays true when a node is lost for good.
 *
 * One pusher whose only batch may reach any of the replicas, at any time or never; two owners that take a dead
 * popper's window over, drain, take and take again; an onlooker that reads outlines for statistics; one node that is
 * lost. A read asks two replicas, one after the other, and then writes to both what it was shown of the columns that
 * it named: blocking read repair. `outline` stands for the columns without bodies, `body` for all.
 *
 * The head is changed by transactions, which are taken to be whole here: lease.pml and window.pml have their
 * failures. Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef LOSSES
#define LOSSES 1                     /* nodes that are lost for good */
#endif
#ifndef LOOKS
#define LOOKS 1                      /* reads of an outline that decide nothing */
#endif
#ifndef OWNERS
#define OWNERS 2
#endif

#define REPLICAS 3
#define WINDOW_OUT 2                 /* the cursor, while a window is out */

#define NOTHING 0
#define STORED 1
#define NOT_STORED 2

byte losses = LOSSES, looks = LOOKS;

/* The replicas of `waiting`. A replica that was sent the batch may write it later, or never. */
bool sent[REPLICAS], outline[REPLICAS], body[REPLICAS], lost[REPLICAS];

/* The head. */
byte cursor = WINDOW_OUT;            /* of a popper that is dead, and over */
bool is_decided;
byte last;
bool is_sealed, is_again;            /* is_again: the run came back, because its lease had ended */

byte told;
bool has_ended, pusher_done;

#define copies (body[0] + body[1] + body[2])
#define is_safe (told != STORED || has_ended || copies > losses)

inline tell(what) {
    told = what;
    if
    :: what == STORED -> printf("    the pusher tells its caller: stored\n")
    :: else -> printf("    the pusher tells its caller: not pushed\n")
    fi;
    assert(is_safe);                 /* P1: told as stored, and the loss of one node takes it away */
}

active proctype Pusher() {
    atomic { sent[0] = true; sent[1] = true; sent[2] = true; printf("pusher: appends\n") };
    if
    :: atomic { copies >= 2 -> printf("pusher: acknowledged\n"); tell(STORED); goto done }
    :: true                          /* it gives up waiting, at any time */
    fi;

settle:
    atomic {
        if
        :: !is_decided && cursor == 0 ->
            last = 0; is_decided = true; is_sealed = true; printf("pusher: seals behind 0\n"); tell(NOT_STORED)
        :: !is_decided && cursor == 1 ->
            last = 1; is_decided = true; is_sealed = true; printf("pusher: seals behind 1\n"); tell(STORED)
        :: is_decided && last >= 1 -> tell(STORED)
        :: is_decided && last == 0 -> tell(NOT_STORED)
        fi                           /* it waits while a window is out */
    };

done:
    atomic { is_sealed = true; pusher_done = true }
}

/* Lands the batch on a replica, at any time. */
active proctype Network() {
    byte r;
    do
    :: atomic {
        sent[0] || sent[1] || sent[2] ->
        if
        :: sent[0] -> r = 0
        :: sent[1] -> r = 1
        :: sent[2] -> r = 2
        fi;
        sent[r] = false;
        if
        :: !lost[r] -> outline[r] = true; body[r] = true; printf("network: replica %d writes the batch\n", r)
        :: printf("network: replica %d never gets the batch\n", r)
        fi;
        r = 0
       }
    od
}

/* What the first of two replicas said, when the second one is asked. */
inline ask(r) {
    atomic {
        if
        :: !lost[0] -> r = 0
        :: !lost[1] -> r = 1
        :: !lost[2] -> r = 2
        fi;
        has_outline = outline[r]; has_body = body[r]
    }
}

/* RULE repair_blocking: an answer comes once both replicas have what it shows. */
inline answer(first, is_whole) {
    atomic {
        if
        :: first != 0 && !lost[0] -> other = 0
        :: first != 1 && !lost[1] -> other = 1
        :: first != 2 && !lost[2] -> other = 2
        fi;
        has_outline = has_outline || outline[other]; has_body = has_body || body[other];
#ifndef NO_REPAIR_BLOCKING
        outline[first] = outline[first] || (has_outline && !lost[first]);
        outline[other] = outline[other] || has_outline;
        body[first] = body[first] || (is_whole && has_body && !lost[first]);
        body[other] = body[other] || (is_whole && has_body)
#endif
    }
}

#ifdef NO_READ_WHOLE
#define is_whole_read false
#else
#define is_whole_read true           /* RULE read_whole: what decides is read in full */
#endif
#ifdef NO_BODIES_COUNT
#define is_there has_outline
#else
#define is_there (has_body || (!is_whole_read && has_outline))     /* RULE bodies_count: without them it is not there yet */
#endif

#define has_work (cursor == WINDOW_OUT || (cursor == 1 && is_again && !has_ended) || (!is_decided && cursor == 0) \
    || (is_decided && cursor < last))

inline let_go() { first = 0; other = 0; has_outline = false; has_body = false; was = 0; was_sealed = false }

proctype Owner(byte p) {
    byte first, other, was;
    bool has_outline, has_body, was_sealed;

    do
    :: atomic { has_work -> was = cursor; was_sealed = is_sealed };
        if
        :: was == 1 ->               /* take again: what was handed out must be there to be read */
            ask(first); answer(first, true);
            atomic {
                if
                :: is_again && !has_ended ->
                    printf("owner %d: takes again; reads the bodies: %d\n", p, has_body);
                    assert(has_body || told != STORED);     /* P1: told as stored, and cannot be read */
                    has_ended = (has_body -> true : has_ended); is_again = (has_body -> false : is_again)
                :: else
                fi;
                let_go()
            }
        :: was != 1 ->
            ask(first); answer(first, is_whole_read);
            atomic {
                printf("owner %d: reads: outline %d, bodies %d\n", p, has_outline, has_body);
                if
                :: was == WINDOW_OUT && cursor == WINDOW_OUT ->
                    cursor = (is_there -> 1 : 0); is_again = (cursor == 1);
                    printf("owner %d: takes the window over, cuts behind %d\n", p, cursor)
                :: was == 0 && cursor == 0 && is_there && has_body && (!is_decided || last >= 1) ->
                    cursor = 1; printf("owner %d: takes\n", p);
                    assert(told != NOT_STORED);             /* P3: told as not pushed, and delivered */
                    if
                    :: has_ended = true
                    :: is_again = true                      /* its consumer dies */
                    fi
                :: was == 0 && cursor == 0 && !is_there && !is_decided && was_sealed ->
                    last = 0; is_decided = true; printf("owner %d: drains\n", p);
                    assert(told != STORED)                  /* P1: told as stored, and behind the end */
                :: else
                fi;
                let_go()
            }
        fi
    od
}

/* Somebody who only looks, by outlines: statistics. */
active proctype Onlooker() {
    byte first, other;
    bool has_outline, has_body;
    do
    :: atomic { looks > 0 -> looks-- };
        ask(first); answer(first, false);
        atomic { printf("onlooker: reads an outline: %d\n", has_outline); first = 0; other = 0; has_outline = false; has_body = false }
    od
}

active proctype Loss() {
    byte r;
    atomic {
        losses > 0 ->
        if
        :: r = 0
        :: r = 1
        :: r = 2
        fi;
        losses--; lost[r] = true; sent[r] = false; outline[r] = false; body[r] = false;
        printf("replica %d is lost for good\n", r);
        r = 0;
        assert(is_safe)              /* P1: told as stored, and the loss of one node took it away */
    }
}

active proctype Stuck() {
    timeout -> assert(pusher_done && cursor != WINDOW_OUT && !has_work)    /* stuck: somebody waits for ever */
}

init {
    atomic {
        run Owner(0);
#if OWNERS > 1
        run Owner(1)
#endif
    }
}
