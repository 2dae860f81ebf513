/* Topics: each offset of a partition has one message for ever, and a message has one offset.
 *
 * One partition, in segments. A publisher without a name, and two processes that publish the same number of one writer;
 * somebody closes segments; retention retires and deletes the oldest; somebody deletes the topic; a reader goes from offset 1
 * on. A segment has a head, beside it batches, rows of writers and bodies, and a line in the list. A batch has one message here.
 * Whoever finds a closed segment at the end opens the next one.
 *
 * A change of a head is conditional on the op that was seen. One whose reply is lost was applied, or is in flight and lands
 * later, or never. A publisher may then stop for ever, and tells that nobody knows. Everybody may stop between any two steps. A
 * plain read may or may not show a link that was applied and not acknowledged, the head and the batch each for itself, until
 * somebody loads the head or changes it: that settles it. A read of several batches looks at the bodies of each at a time of
 * its own. Retention may die while it deletes, and begins anew.
 *
 * Of an op matters only whether the one that somebody saw, or set, is the one that stands. Segments that were deleted do not
 * come back: inserts have fixed timestamps, and deletions one in the far future, as in push.pml.
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef FAULTS
#define FAULTS 1                     /* replies that are lost */
#endif
#ifndef CRASHES
#define CRASHES 0                    /* of retention */
#endif
#ifndef MESSAGES
#define MESSAGES 1                   /* of the publisher without a name */
#endif
#ifndef WRITERS
#define WRITERS 0                    /* processes that publish the same number of one writer */
#endif
#ifndef CLOSES
#define CLOSES 1
#endif
#ifndef RETENTION
#define RETENTION 0                  /* whether there is retention */
#endif
#ifndef END
#define END 0                        /* whether the topic is deleted */
#endif
#ifndef READERS
#define READERS 0
#endif
#ifndef LOOKS
#define LOOKS 1                      /* reads at the end of the log */
#endif

#define S 3                          /* segments, at most */
#define N 6                          /* more than there are offsets */

/* Who changes heads: publishers 0 (without a name), 1 and 2 (of one writer), and these. */
#define CLOSER 3
#define RETIRER 4
#define DELETER 5

/* Heads. */
#define ABSENT 0
#define OPEN 1
#define CLOSED 2
#define RETIRED 3
#define GONE 4

/* What an actor knows of the op of its segment. */
#define OTHER 0                      /* another one stands than it knows */
#define SEEN 1                       /* the one that it saw stands */
#define OWN 2                        /* the one that it set stands */

/* What a publisher told. */
#define PUBLISHED 1
#define UNPUBLISHED 2
#define UNKNOWN 3

byte faults = FAULTS, crashes = CRASHES, closes = CLOSES, looks = LOOKS;

/* The segments: 1, 2, 3. */
byte head[S + 2];
byte first[S + 2], next[S + 2];      /* offsets */
bool row[S + 2];                     /* the row of the writer says that its number is in the log */
bool line[S + 2];
bool cut[S + 2];                     /* bodies are deleted */
bool retired[S + 2];                 /* its head was retired, once */

bool deleted;                        /* the record says so */
bool is_over;                        /* whoever deleted the topic was told so */

/* The log, as it was ever linked. */
bool taken[N];                       /* the offset has a message */
bool in_log[2];                      /* the message without a writer, the writer's number */
byte end = 1;                        /* behind the last offset */
byte fresh;                          /* the last offset, while no plain read needs to show it */
bool batch_shown, head_shown;        /* one did, and from then on every one does */

/* The actors. */
byte at[6];                          /* its segment */
byte op[6];
byte fly[6];                         /* the segment of a change in flight that is conditional on an op that still stands */
byte since[3];                       /* the offset of a publisher's link */
bool linked[3];                      /* its link was applied */
byte told[3];

byte at_read = 1;                    /* the offset that the reader reads next */
byte place;                          /* its segment */
bool is_told;                        /* it heard that the topic was deleted */

#define message(p) ((p) > 0)
#define stands(s) (head[s] == OPEN || head[s] == CLOSED)
#define is_there(s) (head[s] != ABSENT && head[s] != GONE)
#define has_row(s) (is_there(s) && row[s])
#define last_line (line[3] -> 3 : (line[2] -> 2 : (line[1] -> 1 : 0)))
#define first_line (line[1] -> 1 : (line[2] -> 2 : (line[3] -> 3 : 0)))

inline settle() { fresh = 0; batch_shown = false; head_shown = false }

inline pass(a, s) { op[a] = (at[a] == (s) -> OTHER : op[a]); fly[a] = (fly[a] == (s) -> 0 : fly[a]) }

/* Another op stands: whoever knows an older one can only be refused. */
inline move_op(s) { settle(); pass(0, s); pass(1, s); pass(2, s); pass(3, s); pass(4, s); pass(5, s) }

#ifdef NO_LINK_OP
#define fits(a) is_there(at[a])
#define place_of(p, s) since[p]
#else
#define fits(a) (op[a] == SEEN)                  /* RULE link_op */
#define place_of(p, s) next[s]
#endif

inline link(p, s) {
    assert(!is_over);                            /* a message is published into a topic whose deletion had ended */
    assert(told[p] != UNPUBLISHED);              /* what was told as not published is */
    assert(!taken[place_of(p, s)]);              /* an offset has two messages */
    assert(!in_log[message(p)]);                 /* a message is in the log twice */
    taken[place_of(p, s)] = true; in_log[message(p)] = true; linked[p] = true;
    end = (place_of(p, s) + 1 > end -> place_of(p, s) + 1 : end);
    next[s] = place_of(p, s) + 1; row[s] = row[s] || (p) > 0;
    move_op(s);
    op[p] = (at[p] == (s) -> OWN : op[p])
#if READERS
    ; fresh = next[s] - 1
#endif
}

inline change(s, wanted) {
    head[s] = wanted; retired[s] = retired[s] || wanted == RETIRED;
    move_op(s)
}

/* Create the segment behind one that is closed; what exists, or was deleted, stays as it is. */
inline open_next(s) {
    atomic {
        if
        :: head[s + 1] == ABSENT ->
            head[s + 1] = OPEN; first[s + 1] = next[s]; next[s + 1] = next[s];
#ifndef NO_WRITERS_CARRIED
            row[s + 1] = has_row(s);             /* RULE writers_carried */
#endif
            printf("segment %d is there, from %d on\n", s + 1, next[s])
        :: else
        fi
    };
    atomic { line[s + 1] = (head[s + 1] != GONE) }
}

inline tell(p, what) {
    assert(what != PUBLISHED || in_log[message(p)]);     /* what was told as published is not in the log */
    assert(what != UNPUBLISHED || !linked[p]);           /* what was told as not published is */
    told[p] = what; printf("publisher %d: tells %d (1 published, 2 not, 3 nobody knows)\n", p, what)
}

/* The reply is lost. */
inline lose(p) {
    faults--; printf("publisher %d: links, the reply is lost\n", p);
    if
    :: link(p, s)
    :: fly[p] = s
    :: true
    fi
}

proctype Publisher(byte p) {
    byte s, left = MESSAGES;
    bool is_known;

find:
    atomic {
        last_line || deleted -> s = last_line; printf("publisher %d: lists, to segment %d\n", p, s);
        if
        :: s == 0 -> tell(p, UNPUBLISHED); goto over
        :: else
        fi
    };
    atomic {
        settle(); printf("publisher %d: loads head %d\n", p, s);
        if
        :: head[s] == OPEN -> at[p] = s; op[p] = SEEN; since[p] = next[s]; goto number
        :: head[s] == CLOSED
        :: !stands(s) && deleted -> tell(p, UNPUBLISHED); goto over
        :: !stands(s) && !deleted -> goto find
        fi
    };
    open_next(s);
    goto find;
number:
    atomic {
        if
        :: p == 0
#ifdef NO_WRITERS_SEEN
        :: p > 0 && is_known
        :: p > 0 && !is_known && has_row(s) -> tell(p, PUBLISHED); goto over
        :: p > 0 && !is_known && !has_row(s) -> is_known = true
#else
        :: p > 0 && has_row(s) -> tell(p, PUBLISHED); goto over      /* RULE writers_seen: they are read for each head */
        :: p > 0 && !has_row(s)
#endif
        fi
    };
    if
    :: atomic { fits(p) -> link(p, s); settle(); printf("publisher %d: links\n", p); goto published }
    :: atomic { !(fits(p)) -> printf("publisher %d: is refused\n", p); goto find }
    :: atomic { faults > 0 && fits(p) -> lose(p) }
    fi;
unknown:
#ifdef NO_LINK_KNOWN
    goto published;
#endif                                           /* RULE link_known */
    if
    :: atomic { tell(p, UNKNOWN); goto over }
    :: atomic { !is_there(s) -> tell(p, UNKNOWN); goto over }
    :: atomic { is_there(s) && op[p] == OWN -> settle(); goto published }
    :: atomic { is_there(s) && op[p] == SEEN -> settle(); printf("publisher %d: it is not applied yet\n", p) }
    :: atomic { is_there(s) && op[p] == OTHER -> settle(); printf("publisher %d: another op stands\n", p); goto look }
    fi;
#ifdef NO_LINK_AGAIN
    goto find;
#endif                                           /* RULE link_again: the same transaction */
    if
    :: atomic { fits(p) -> link(p, s); settle(); printf("publisher %d: links\n", p); goto published }
    :: atomic { !(fits(p)) -> printf("publisher %d: is refused\n", p); goto unknown }
    :: atomic { faults > 0 && fits(p) -> lose(p); goto unknown }
    fi;
look:
    atomic {
        printf("publisher %d: reads what is at %d\n", p, since[p]);
        if
#ifndef NO_SETTLE_GONE
        :: !is_there(s) -> tell(p, UNKNOWN); goto over       /* RULE settle_gone */
#else
        :: !is_there(s) -> goto find
#endif
#ifdef NO_LINK_ID
        :: is_there(s) && next[s] > since[p]
        :: is_there(s) && next[s] <= since[p] -> goto find
#else
        :: is_there(s) && linked[p]              /* RULE link_id: its link is at its offset */
        :: is_there(s) && !linked[p] -> goto find
#endif
        fi
    };
published:
    atomic {
        tell(p, PUBLISHED); left--;
        if
        :: p == 0 && left > 0 -> told[p] = 0; linked[p] = false; in_log[0] = false; goto find
        :: else
        fi
    };
over:
    atomic { op[p] = OTHER; at[p] = 0; since[p] = 0; s = 0; is_known = false }
}

proctype Closer() {
    byte s;

again:
    atomic {
        closes > 0 && last_line && head[last_line] == OPEN && next[last_line] > first[last_line] ->
        closes--; s = last_line; at[CLOSER] = s; op[CLOSER] = SEEN; settle(); printf("closer: sees segment %d\n", s)
    };
#ifdef NO_FINAL_HEAD
    open_next(s);
#endif                                           /* RULE final_head: it is opened behind that */
    if
    :: atomic { op[CLOSER] == SEEN -> change(s, CLOSED); printf("closer: closes %d\n", s) }
    :: op[CLOSER] != SEEN -> goto done
    :: atomic { faults > 0 && op[CLOSER] == SEEN -> faults--; fly[CLOSER] = s; printf("closer: closes %d, no reply\n", s) }
    fi;
    if
    :: atomic { head[s] == CLOSED }
    :: head[s] != CLOSED -> goto done
    fi;
    open_next(s);
done:
    atomic { at[CLOSER] = 0; op[CLOSER] = OTHER; s = 0; goto again }
}

inline retire(a, s) {
    do
    :: atomic { !stands(s) -> break }
    :: atomic { stands(s) -> at[a] = s; op[a] = SEEN; settle() };
        if
        :: atomic { op[a] == SEEN -> change(s, RETIRED); printf("%d: retires %d\n", a, s) }
        :: op[a] != SEEN
        :: atomic { faults > 0 && op[a] == SEEN -> faults--; fly[a] = s; printf("%d: retires %d, no reply\n", a, s) }
        fi;
        atomic { at[a] = 0; op[a] = OTHER }
    od
}

inline delete_links(s) { head[s] = GONE; row[s] = false; move_op(s); printf("segment %d is deleted\n", s) }
inline delete_line(s) { line[s] = false; printf("segment %d is off the list\n", s) }

/* Retention. */
proctype Retirer() {
    byte s;

again:
    atomic {
#ifdef NO_SUCCESSOR_STANDS
        first_line ->
#else
        first_line && line[first_line + 1] ->    /* RULE successor_stands */
#endif
        s = first_line; printf("retention: segment %d is over\n", s)
    };
#ifndef NO_RETIRE_FIRST
    retire(RETIRER, s);                          /* RULE retire_first */
#endif
    atomic { cut[s] = true };
#ifdef NO_LINE_LAST
    atomic { delete_line(s) };
#else
    atomic { delete_links(s) };                  /* RULE line_last */
#endif
    if
    :: true
    :: atomic { crashes > 0 -> crashes--; printf("retention: dies\n"); goto dead }
    fi;
#ifdef NO_LINE_LAST
    atomic { delete_links(s) };
#else
    atomic { delete_line(s) };
#endif
dead:
    atomic { s = 0; goto again }
}

/* Whoever deletes the topic. */
proctype Deleter() {
    byte s, from, to;

    atomic { deleted = true; printf("deleter: the topic is deleted\n") };
list:
    atomic {
        from = first_line; to = last_line; printf("deleter: lists %d to %d\n", from, to);
        if
        :: to == 0 -> goto over
        :: else
        fi
    };
#ifdef NO_END_RETIRED
    goto clear;
#endif                                           /* RULE end_retired */
load:
    atomic {
        settle();
        if
        :: head[to] == OPEN -> at[DELETER] = to; op[DELETER] = SEEN
        :: head[to] == CLOSED -> goto next_one
        :: !stands(to) -> goto relist
        fi
    };
    if
    :: atomic { op[DELETER] == SEEN -> change(to, RETIRED); printf("deleter: retires the last, %d\n", to); goto relist }
    :: op[DELETER] != SEEN -> goto load
    :: atomic { faults > 0 && op[DELETER] == SEEN -> faults--; fly[DELETER] = to; printf("deleter: no reply\n"); goto load }
    fi;
next_one:
    open_next(to);
    goto list;
relist:
#ifndef NO_END_LISTED
    atomic {                                     /* RULE end_listed: others may have retired it, once it had a successor */
        if
        :: last_line > to -> goto list
        :: else
        fi
    };
#endif
clear:
    do
    :: from <= to ->
        retire(DELETER, from);
        atomic { cut[from] = true };
        atomic { delete_links(from) };
        atomic { delete_line(from); from++ }
    :: from > to -> break
    od;
over:
    atomic { is_over = true; from = 0; to = 0; at[DELETER] = 0; op[DELETER] = OTHER; printf("deleter: all is deleted\n") }
}

/* The reader. */
#define holder(x) (line[3] && first[3] <= (x) -> 3 : (line[2] && first[2] <= (x) -> 2 : (line[1] && first[1] <= (x) -> 1 : 0)))
#define oldest (line[1] && stands(1) -> 1 : (line[2] && stands(2) -> 2 : (line[3] && stands(3) -> 3 : 0)))
#define is_listed(x) (is_there(place) && (x) >= first[place] && (x) < next[place])
#define is_hidden(x) ((x) == fresh && !batch_shown)
#define was_retired(x) ((retired[1] && (x) < next[1]) || (retired[2] && (x) < next[2]) || (retired[3] && (x) < next[3]))
#define has_news (at_read < end || (deleted && (place == 0 || !stands(place))))

/* Read one batch; a fresh one is there or not. */
inline look_at(x, is_seen) {
    if
    :: is_listed(x) && !cut[place] && !is_hidden(x) -> is_seen = true
    :: is_listed(x) && !cut[place] && is_hidden(x) -> is_seen = true; batch_shown = true
    :: !is_listed(x) || cut[place] || is_hidden(x) -> is_seen = false
    fi
}

inline accept(x) {
    printf("reader: gets %d\n", x);
    assert(x == at_read);                        /* a reader misses a message and hears nothing of it */
    at_read++
}

proctype Reader() {
    bool sees, sees_next;
    byte state, counted;

again:
    atomic {
        has_news || looks > 0 ->
        looks = (has_news -> looks : looks - 1);
        if
        :: place == 0 -> goto list
        :: place > 0
        fi
    };
read:
    atomic { look_at(at_read + 1, sees_next) };
    atomic {
        look_at(at_read, sees);
        if
        :: sees -> accept(at_read)
        :: else -> goto no_more
        fi;
        if
        :: sees_next -> accept(at_read)
        :: else
        fi;
        sees = false; sees_next = false; goto again
    };
no_more:
#ifdef NO_LOG_GAP
    atomic {
        if
        :: sees_next -> accept(at_read + 1)
        :: else
        fi
    };
#endif                                           /* RULE log_gap */
    /* The head, by a plain read. */
    atomic {
        sees = false; sees_next = false; state = head[place]; counted = next[place];
        if
        :: fresh && fresh == counted - 1 && !head_shown -> counted--
        :: fresh && fresh == counted - 1 -> head_shown = true
        :: !(fresh && fresh == counted - 1)
        fi;
        printf("reader: head %d is %d (3 retired, 4 gone), to %d\n", place, state, counted);
        if
        :: state == OPEN || state == CLOSED
#ifdef NO_GONE_HEAD
        :: state != OPEN && state != CLOSED -> goto end_of_log
#else
        :: state != OPEN && state != CLOSED -> goto list     /* RULE gone_head */
#endif
        fi;
        if
        :: at_read < counted -> goto reread
        :: at_read >= counted && state == CLOSED && is_there(place + 1) -> place++; goto forget
        :: else
        fi
    };
end_of_log:
    atomic {
        assert(state == OPEN || state == CLOSED);            /* the end of the log is told where something is gone */
        goto forget
    };
reread:
    /* Linked between the two reads? */
    atomic {
        if
        :: is_listed(at_read) -> batch_shown = (at_read == fresh || batch_shown); goto forget
        :: !is_listed(at_read) || is_hidden(at_read)
        fi
    };
    atomic {
        if
        :: head[place] != state || next[place] != counted -> goto forget
        :: head[place] == state && next[place] == counted
        fi;
#ifndef NO_GAP_SETTLED
        settle();                                /* RULE gap_settled: the head is loaded */
#endif
        assert(is_listed(at_read) && !is_hidden(at_read));   /* a log is told to be damaged that is not */
        goto forget
    };
list:
    atomic {
        printf("reader: lists\n");
        if
        :: holder(at_read) == 0 && last_line == 0 && deleted -> goto over
        :: holder(at_read) == 0 && last_line == 0 && !deleted -> goto forget
        :: holder(at_read) == 0 && last_line > 0 -> goto gone
        :: holder(at_read) > 0 && holder(at_read) != place -> place = holder(at_read); goto forget
        :: holder(at_read) > 0 && holder(at_read) == place -> goto gone
        fi
    };
gone:
    atomic {
        printf("reader: %d is gone\n", at_read);
        assert(deleted || was_retired(at_read));             /* a reader hears that something is gone that was not retired */
        if
        :: oldest > 0 && deleted -> goto over
        :: oldest > 0 && !deleted ->
            assert(oldest == 1 || retired[oldest - 1]);      /* a reader goes on behind what was not retired */
            assert(at_read < first[oldest]);                 /* a reader hears that something is gone that stands */
            at_read = first[oldest]; place = 0
        :: oldest == 0 && deleted -> goto over
        :: oldest == 0 && !deleted
        fi
    };
forget:
    atomic { state = 0; counted = 0; goto again };
over:
    atomic { is_told = true; state = 0; counted = 0; place = 0 }
}

active proctype Late() {
    byte s;

    do
    :: atomic { fly[0] -> s = fly[0]; printf("late: publisher 0 links\n"); link(0, s); s = 0 }
    :: atomic { fly[1] -> s = fly[1]; printf("late: publisher 1 links\n"); link(1, s); s = 0 }
    :: atomic { fly[2] -> s = fly[2]; printf("late: publisher 2 links\n"); link(2, s); s = 0 }
    :: atomic { fly[CLOSER] -> s = fly[CLOSER]; printf("late: %d is closed\n", s); change(s, CLOSED); s = 0 }
    :: atomic { fly[RETIRER] -> s = fly[RETIRER]; printf("late: %d is retired\n", s); change(s, RETIRED); s = 0 }
    :: atomic { fly[DELETER] -> s = fly[DELETER]; printf("late: %d is retired\n", s); change(s, RETIRED); s = 0 }
    :: atomic { fly[0] -> fly[0] = 0 }
    :: atomic { fly[1] -> fly[1] = 0 }
    :: atomic { fly[2] -> fly[2] = 0 }
    :: atomic { fly[CLOSER] -> fly[CLOSER] = 0 }
    :: atomic { fly[RETIRER] -> fly[RETIRER] = 0 }
    :: atomic { fly[DELETER] -> fly[DELETER] = 0 }
    :: atomic { fresh -> settle() }
    od
}

#define has_answer(p) (told[p] > 0 || (p) > WRITERS)
#define is_left(s) (is_there(s) && (deleted || !line[s]))
#define is_read (READERS == 0 || is_told || at_read == end)

/* Nothing more can happen, and failures have stopped. */
active proctype Stuck() {
    timeout ->
        assert(has_answer(0) && has_answer(1) && has_answer(2));     /* a publisher never ends */
        assert(is_read);                                             /* a reader never ends */
        assert(END == 0 || is_over);                                 /* a topic's deletion never ends */
        assert(!is_left(1) && !is_left(2) && !is_left(3))            /* what was deleted stays for ever */
}

init {
    atomic {
        head[1] = OPEN; first[1] = 1; next[1] = 1; line[1] = true;
        run Publisher(0);
#if WRITERS > 0
        run Publisher(1);
#endif
#if WRITERS > 1
        run Publisher(2);
#endif
#if CLOSES
        run Closer();
#endif
#if RETENTION
        run Retirer();
#endif
#if END
        run Deleter();
#endif
#if READERS
        run Reader()
#endif
    }
}
