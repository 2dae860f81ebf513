/* Groups: a group gets each message of a partition, and its progress moves back by an operator alone.
 *
 * One partition with two messages, two members of a group, and an operator who resets the group, to the first message or to
 * the end. The row of progress has an epoch, an owner, and the offset that the group reads next; it is changed by
 * compare-and-set on epoch and next. A member takes over what it read: the epoch rises, and it is the owner. It delivers from
 * there on, and commits what has ended. There are no claims: each member takes over whenever it likes, and goes on with what it
 * knows for as long as it likes. So a message may be delivered twice; none is passed that has not ended.
 *
 * A change whose reply is lost was applied, or is in flight and lands later, or never. Who sent it reads the row: a take-over
 * was applied where its epoch and its owner stand, and in one's own epoch the offset that stands is one's own. Everybody may
 * stop between any two steps.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 2                     /* replies that are lost */
#endif
#ifndef TAKES
#define TAKES 2                      /* take-overs, of both members together */
#endif
#ifndef RESETS
#define RESETS 1                     /* how often the operator tries to */
#endif

#define N 2                          /* messages: offsets 1 and 2 */
#define OPERATOR 2
#define NOBODY 2                     /* who owns the partition after a reset */

byte faults = FAULTS, takes = TAKES, resets = RESETS;
bool has_begun;                      /* a member has read the row: who is the first is member 0 */

/* The row. */
byte epoch, owner = NOBODY, next = 1;

byte rewound;                        /* resets that were applied */
bool done[N + 1];                    /* the message ended, resets_seen the last reset to before it */
bool began[2];                       /* the member's take-over was applied */

/* Changes in flight: what each is conditional on, what it writes, and the resets before its epoch. */
bool flies[3];
byte fly_epoch[3], fly_next[3], fly_wanted_epoch[3], fly_wanted[3], fly_rewound[3];

#define is_commit(who, if_epoch, to_epoch) ((who) != OPERATOR && (if_epoch) == (to_epoch))

#ifdef NO_COMMIT_EPOCH
#define has_epoch(who, if_epoch, to_epoch) (is_commit(who, if_epoch, to_epoch) || epoch == (if_epoch))
#else
#define has_epoch(who, if_epoch, to_epoch) (epoch == (if_epoch))     /* RULE commit_epoch */
#endif
#ifdef NO_COMMIT_NEXT
#define has_next(who, if_epoch, if_next, to_epoch) (is_commit(who, if_epoch, to_epoch) || next == (if_next))
#else
#define has_next(who, if_epoch, if_next, to_epoch) (next == (if_next))   /* RULE commit_next */
#endif
#define fits(who, if_epoch, if_next, to_epoch) \
    (has_epoch(who, if_epoch, to_epoch) && has_next(who, if_epoch, if_next, to_epoch))

inline apply(who, if_epoch, to_epoch, to_next, after) {
    if
    :: is_commit(who, if_epoch, to_epoch) ->
        assert(epoch == to_epoch);               /* progress is moved by an old epoch */
        assert(after == rewound);                /* a commit overwrites a reset */
        assert(next <= to_next);                 /* progress moves back */
        assert(next > 1 || to_next <= 1 || done[1]);     /* a message is skipped */
        assert(next > 2 || to_next <= 2 || done[2])  /* a message is skipped */
    :: !is_commit(who, if_epoch, to_epoch) && who != OPERATOR -> owner = who; began[who] = true
    :: who == OPERATOR ->
        owner = NOBODY; rewound++;
        done[1] = (done[1] && to_next > 1); done[2] = (done[2] && to_next > 2)
    fi;
    epoch = to_epoch; next = to_next
}

/* The reply is lost. */
inline lose(who, if_epoch, if_next, to_epoch, to_next, after) {
    faults--; printf("%d: no reply\n", who);
    if
    :: apply(who, if_epoch, to_epoch, to_next, after)
    :: !flies[who] ->
        flies[who] = true; fly_epoch[who] = if_epoch; fly_next[who] = if_next;
        fly_wanted_epoch[who] = to_epoch; fly_wanted[who] = to_next; fly_rewound[who] = after
    :: true
    fi
}

inline deliver() {
    printf("%d: delivers %d\n", m, out);
    assert(began[m]);                            /* a message is delivered in an epoch that has not begun */
    out++
}

proctype Member(byte m) {
    byte my_epoch, my_next, out, goal, resets_seen;
    bool has[N + 1];

again:
    atomic {
        takes > 0 && next <= N && (m == 0 || has_begun) ->
        takes--; has_begun = true; resets_seen = rewound; my_epoch = epoch; my_next = next; out = next;
        printf("%d: reads epoch %d, next %d\n", m, my_epoch, my_next)
    };
take:
#ifdef NO_TAKEOVER_FIRST
    if
    :: atomic { out <= N -> deliver() }
    :: true
    fi;
#endif                                           /* RULE takeover_first: nothing is delivered before that */
    if
    :: atomic {
        fits(m, my_epoch, my_next, my_epoch + 1) ->
        apply(m, my_epoch, my_epoch + 1, my_next, resets_seen); printf("%d: takes over\n", m); my_epoch++; goto held
       }
    :: atomic { !fits(m, my_epoch, my_next, my_epoch + 1) -> printf("%d: is refused\n", m) }
    :: atomic {
        faults > 0 && fits(m, my_epoch, my_next, my_epoch + 1) ->
        lose(m, my_epoch, my_next, my_epoch + 1, my_next, resets_seen)
       }
    fi;
    atomic {
        printf("%d: reads epoch %d, owner %d, next %d\n", m, epoch, owner, next);
        if
        :: epoch == my_epoch + 1 && owner == m -> my_next = next; out = next; my_epoch++; goto held
        :: epoch == my_epoch && next == my_next -> goto take
        :: else -> goto lost
        fi
    };
held:
    if
    :: atomic { out <= N -> deliver(); goto held }
    :: atomic { my_next <= 1 && out > 1 && !has[1] -> has[1] = true; done[1] = true; printf("%d: 1 ended\n", m); goto held }
    :: atomic { my_next <= 2 && out > 2 && !has[2] -> has[2] = true; done[2] = true; printf("%d: 2 ended\n", m); goto held }
#ifdef NO_COMMIT_DONE
    :: atomic { my_next < out -> goal = out }
#else
    :: atomic { my_next <= N && my_next < out && has[my_next] -> goal = my_next + 1 }    /* RULE commit_done */
    :: atomic { my_next == 1 && out == 3 && has[1] && has[2] -> goal = 3 }
#endif
    :: atomic { takes > 0 -> printf("%d: stops\n", m); goto lost }
    fi;
    if
    :: atomic {
        fits(m, my_epoch, my_next, my_epoch) ->
        apply(m, my_epoch, my_epoch, goal, resets_seen); printf("%d: commits to %d\n", m, goal);
        my_next = goal; goal = 0; goto held
       }
    :: atomic { !fits(m, my_epoch, my_next, my_epoch) -> printf("%d: is refused\n", m) }
    :: atomic {
        faults > 0 && fits(m, my_epoch, my_next, my_epoch) -> lose(m, my_epoch, my_next, my_epoch, goal, resets_seen)
       }
    fi;
    atomic {
        goal = 0; printf("%d: reads epoch %d, next %d\n", m, epoch, next);
        if
        :: epoch == my_epoch -> my_next = next; goto held
        :: epoch != my_epoch
        fi
    };
lost:
    atomic {
        my_epoch = 0; my_next = 0; out = 0; goal = 0; resets_seen = 0; has[1] = false; has[2] = false; began[m] = false;
        goto again
    }
}

#ifdef NO_RESET_EPOCH
#define reset_epoch my_epoch
#else
#define reset_epoch (my_epoch + 1)                      /* RULE reset_epoch */
#endif

active proctype Operator() {
    byte my_epoch, my_next, goal;

    atomic {
        if
        :: goal = 1
        :: goal = N + 1
        fi
    };
again:
    atomic {
        resets > 0 -> resets--; my_epoch = epoch; my_next = next;
        printf("operator: reads epoch %d, next %d\n", my_epoch, my_next)
    };
    if
    :: atomic {
        fits(OPERATOR, my_epoch, my_next, reset_epoch) ->
        apply(OPERATOR, my_epoch, reset_epoch, goal, 0); printf("operator: resets to %d\n", goal)
       }
    :: atomic { !fits(OPERATOR, my_epoch, my_next, reset_epoch) -> printf("operator: is refused\n"); goto again }
    :: atomic {
        faults > 0 && fits(OPERATOR, my_epoch, my_next, reset_epoch) ->
        lose(OPERATOR, my_epoch, my_next, reset_epoch, goal, 0); goto again
       }
    fi
}

inline land(who) {
    flies[who] = false;
    if
    :: fits(who, fly_epoch[who], fly_next[who], fly_wanted_epoch[who]) ->
        printf("late: of %d, epoch %d, next %d\n", who, fly_wanted_epoch[who], fly_wanted[who]);
        apply(who, fly_epoch[who], fly_wanted_epoch[who], fly_wanted[who], fly_rewound[who])
    :: else
    fi;
    fly_epoch[who] = 0; fly_next[who] = 0; fly_wanted_epoch[who] = 0; fly_wanted[who] = 0; fly_rewound[who] = 0
}

active proctype Late() {
    do
    :: atomic { flies[0] -> land(0) }
    :: atomic { flies[1] -> land(1) }
    :: atomic { flies[OPERATOR] -> land(OPERATOR) }
    od
}

/* Nothing more can happen, and failures have stopped. */
active proctype Stuck() {
    timeout -> assert(next == N + 1 || takes == 0)       /* a message is never delivered */
}

init { atomic { run Member(0); run Member(1) } }
