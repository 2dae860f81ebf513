/* Leases of a group: clients of a service have its messages, one client those of a partition at a time.
 *
 * One partition with two messages, two processes that lend, two clients, and an operator who resets the group. The row of
 * progress is that of group.pml, which has the take-over, and what becomes of it when its reply is lost. A process that has
 * the partition lends what comes next to a client. The client has a token: the epoch, the offset that the group read next,
 * and the one behind the last message. It works, and commits or releases by that at any process, again and again, or says
 * nothing; it may do so late. Its process gives it up at any time, and lets the partition go whenever it likes.
 *
 * A change whose reply is lost was applied, or is in flight and lands later, or never. The process that was to answer reads
 * the row. The process that lends hears of a commit at once, where that was told there, or looks at the row. Everybody may
 * stop between any two steps.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 1                     /* replies that are lost */
#endif
#ifndef TAKES
#define TAKES 3                      /* take-overs, of both processes together */
#endif
#ifndef CALLS
#define CALLS 3                      /* calls of both clients together */
#endif
#ifndef RESETS
#define RESETS 1                     /* how often the operator tries to */
#endif

#define N 2                          /* messages: offsets 1 and 2 */
#define NOBODY 2
#define EPOCHS 8                     /* more than take-overs, releases and resets */

byte faults = FAULTS, takes = TAKES, calls = CALLS, resets = RESETS;

/* The row. */
byte epoch, owner = NOBODY, next = 1;

bool done[N + 1];                    /* a client has worked on the message since the last reset to before it */
bool committed[N + 1];               /* the group has passed it since then */
byte far[EPOCHS];                    /* how far the group came in the epoch */
bool released[EPOCHS];               /* it was told that a lease of the epoch was given back, before it was committed */

/* What each process has: the epoch, the offset that it knows, and what is lent from there on. */
bool held[2], lent[2];
byte held_epoch[2], held_next[2], lent_to[2];

/* The token of each client. */
bool has[2];
byte of_epoch[2], first[2], behind[2], home[2];

/* The change of each client that is in flight. */
bool flies[2];
byte fly_epoch[2], fly_first[2], fly_to_epoch[2], fly_to[2];

#ifdef NO_LENT_EPOCH
#define has_epoch(if_epoch) true
#else
#define has_epoch(if_epoch) (epoch == (if_epoch))       /* RULE lent_epoch: a token is good in its own epoch */
#endif
#ifdef NO_LENT_NEXT
#define has_next(if_next) true
#else
#define has_next(if_next) (next == (if_next))           /* RULE lent_next: and while nothing of it is committed */
#endif
#define fits(if_epoch, if_next) (has_epoch(if_epoch) && has_next(if_next))

#ifdef NO_LENT_BACK
#define back_epoch(c) of_epoch[c]
#else
#define back_epoch(c) (of_epoch[c] + 1)                 /* RULE lent_back: a release raises the epoch */
#endif

/* A token changes the row. */
inline apply(if_epoch, to_epoch, to_next, is_back) {
    assert(epoch == if_epoch);                   /* a token that is over changes something */
    assert(next <= to_next);                     /* what is committed comes again */
    if
    :: is_back && to_epoch != if_epoch -> owner = NOBODY
    :: !is_back ->
        assert(!released[if_epoch]);             /* a lease that was given back is committed */
        assert(next > 1 || to_next <= 1 || done[1]);     /* a message is skipped */
        assert(next > 2 || to_next <= 2 || done[2]);     /* a message is skipped */
        committed[1] = (committed[1] || to_next > 1); committed[2] = (committed[2] || to_next > 2)
    :: else
    fi;
    epoch = to_epoch; next = to_next;
    far[epoch] = (far[epoch] > next -> far[epoch] : next)
}

/* The reply is lost. */
inline lose(c, to_epoch, to_next, is_back) {
    faults--; printf("client %d: no reply\n", c);
    if
    :: apply(of_epoch[c], to_epoch, to_next, is_back)
    :: !flies[c] ->
        flies[c] = true; fly_epoch[c] = of_epoch[c]; fly_first[c] = first[c];
        fly_to_epoch[c] = to_epoch; fly_to[c] = to_next
    :: true
    fi
}

/* Its process has what it lent no more. */
inline forget(p) { held[p] = false; lent[p] = false; held_epoch[p] = 0; held_next[p] = 0; lent_to[p] = 0 }

/* What process p is about to lend, another client has in the same epoch. */
#define overlaps(other) (has[other] && of_epoch[other] == held_epoch[p] && behind[other] > held_next[p])

proctype Process(byte p) {
    byte seen_epoch, seen_next, client;

again:
    if
    :: atomic { !held[p] && takes > 0 && next <= N -> takes--; seen_epoch = epoch; seen_next = next }
        if
        :: atomic {
            epoch == seen_epoch && next == seen_next ->
            epoch++; owner = p; far[epoch] = next; held[p] = true; held_epoch[p] = epoch; held_next[p] = next;
            printf("%d: takes over, epoch %d, next %d\n", p, epoch, next)
           }
        :: atomic { epoch != seen_epoch || next != seen_next -> printf("%d: is refused\n", p) }
        fi;
        seen_epoch = 0; seen_next = 0
#ifdef NO_LEND_ONE
    :: atomic { held[p] && held_next[p] <= N && !(has[0] && has[1]) ->
#else
    :: atomic { held[p] && !lent[p] && held_next[p] <= N && !(has[0] && has[1]) ->   /* RULE lend_one */
#endif
        client = (has[0] -> 1 : 0);
        if
        :: lent_to[p] = held_next[p] + 1
        :: held_next[p] == 1 -> lent_to[p] = 3
        fi;
        printf("%d: lends %d to %d to client %d\n", p, held_next[p], lent_to[p] - 1, client);
        assert(far[held_epoch[p]] == held_next[p]);      /* what is lent is not what comes next */
        assert(!overlaps(1 - client));           /* two clients have one message */
        assert(epoch != held_epoch[p] || !committed[held_next[p]]);      /* what is committed comes again */
        lent[p] = true; has[client] = true; of_epoch[client] = held_epoch[p]; first[client] = held_next[p];
        behind[client] = lent_to[p]; home[client] = p; client = 0
       }
    :: atomic {                                  /* looks at the row */
        held[p] && lent[p] && (epoch != held_epoch[p] || next >= lent_to[p]) ->
        if
        :: epoch != held_epoch[p] -> printf("%d: has it no more\n", p); forget(p)
        :: else -> held_next[p] = next; lent[p] = false; lent_to[p] = 0; printf("%d: sees next %d\n", p, next)
        fi
       }
#ifdef NO_LEND_KNOWN
    :: atomic { held[p] && lent[p] -> held_next[p] = lent_to[p]; lent[p] = false; lent_to[p] = 0 }
#endif                                           /* RULE lend_known: it is known to be committed */
#ifdef NO_GIVEN_UP
    :: atomic { held[p] && lent[p] -> printf("%d: gives its client up\n", p); lent[p] = false; lent_to[p] = 0 }
#endif                                           /* RULE given_up: who gives a client up lets go */
    :: atomic { held[p] && takes > 0 -> printf("%d: lets go\n", p); forget(p) }
    fi;
    goto again
}

/* What a client is told. */
inline tell(c, is_back) {
    if
    :: is_back -> released[of_epoch[c]] = (released[of_epoch[c]] || far[of_epoch[c]] < behind[c])
    :: else -> assert(far[of_epoch[c]] >= behind[c])     /* it is told as committed, and is not */
    fi;
    printf("client %d: is told %s\n", c, (is_back -> 1 : 0));
    if
    :: held[home[c]] && lent[home[c]] && held_epoch[home[c]] == of_epoch[c] && held_next[home[c]] == first[c] ->
        if                                       /* at the process that lent it */
        :: !is_back -> held_next[home[c]] = behind[c]; lent[home[c]] = false; lent_to[home[c]] = 0
#ifdef NO_LENT_BACK
        :: is_back -> lent[home[c]] = false; lent_to[home[c]] = 0
#else
        :: is_back -> forget(home[c])
#endif
        :: true                                  /* at another one */
        fi
    :: else
    fi
}

#define is_released(c, to_epoch) (epoch == (to_epoch) && epoch != of_epoch[c] && owner == NOBODY && next == first[c])
#define is_passed(c) (epoch == of_epoch[c] && next >= behind[c])
#define stands(c, is_back, to_epoch) (is_passed(c) || ((is_back) && is_released(c, to_epoch)))

inline drop(c) { has[c] = false; of_epoch[c] = 0; first[c] = 0; behind[c] = 0; home[c] = 0 }

proctype Client(byte c) {
    bool is_back;
    byte to_epoch, to_next;

idle:
    atomic {
        has[c] && calls > 0 -> calls--;
        if
        :: is_back = false; to_epoch = of_epoch[c]; to_next = behind[c];
            done[1] = (done[1] || first[c] == 1); done[2] = (done[2] || behind[c] == 3)
        :: is_back = true; to_epoch = back_epoch(c); to_next = first[c]
        fi
    };
call:
    if
    :: atomic {
        fits(of_epoch[c], first[c]) ->
        apply(of_epoch[c], to_epoch, to_next, is_back); printf("client %d: epoch %d, next %d\n", c, epoch, next); tell(c, is_back)
       };
       goto told
    :: atomic { !fits(of_epoch[c], first[c]) -> printf("client %d: is refused\n", c) }
    :: atomic { faults > 0 && fits(of_epoch[c], first[c]) -> lose(c, to_epoch, to_next, is_back) }
#ifdef NO_LENT_SETTLED
        ; atomic { tell(c, is_back); goto told }
#endif
    fi;
    atomic {                                     /* RULE lent_settled: what was refused, or is unknown, the row tells */
        if
        :: stands(c, is_back, to_epoch) -> tell(c, is_back)
        :: else ->
            if
            :: epoch == of_epoch[c] && next == first[c] -> goto call
            :: else -> printf("client %d: it is over\n", c); drop(c)
            fi
        fi
    };
told:
    atomic {
        is_back = false; to_epoch = 0; to_next = 0;
        if
        :: has[c] -> drop(c)
        :: true                                  /* it will repeat itself, or say something else */
        fi
    };
    goto idle
}

active proctype Operator() {
    byte seen_epoch, seen_next, goal;

again:
    atomic { resets > 0 -> resets--; seen_epoch = epoch; seen_next = next };
    if
    :: atomic {
        epoch == seen_epoch && next == seen_next ->
        if
        :: goal = 1
        :: goal = N + 1
        fi;
        epoch++; owner = NOBODY; next = goal; far[epoch] = next; printf("operator: resets to %d\n", goal);
        done[1] = (done[1] && goal > 1); done[2] = (done[2] && goal > 2);
        committed[1] = (committed[1] && goal > 1); committed[2] = (committed[2] && goal > 2)
       }
    :: atomic { epoch != seen_epoch || next != seen_next -> goto again }
    fi
}

inline land(c) {
    flies[c] = false;
    if
    :: fits(fly_epoch[c], fly_first[c]) ->
        printf("late: of client %d, epoch %d, next %d\n", c, fly_to_epoch[c], fly_to[c]);
        apply(fly_epoch[c], fly_to_epoch[c], fly_to[c], fly_to[c] == fly_first[c])
    :: else
    fi;
    fly_epoch[c] = 0; fly_first[c] = 0; fly_to_epoch[c] = 0; fly_to[c] = 0
}

active proctype Late() {
    do
    :: atomic { flies[0] -> land(0) }
    :: atomic { flies[1] -> land(1) }
    od
}

/* Nothing more can happen, and failures have stopped. */
active proctype Stuck() {
    timeout -> assert(next == N + 1 || takes == 0 || calls == 0)     /* a message is never lent */
}

init { atomic { far[0] = 1; run Process(0); run Process(1); run Client(0); run Client(1) } }
