/* One pipe that is full and sealed: take, lease, commit, rollback, extend, return, floor, bury, purge, retire.
 *
 * Two poppers, each an owner (who takes, returns and retires) and a holder (the consumers' side). Claims are
 * left out, so both may take at any time. Every transaction may lose its reply: it was applied, or it is in
 * flight and lands later, or never. Marks likewise. Everybody may stop for any time between two steps.
 *
 * Random ids are modelled by what follows from them: is the op, the lease id, the leased_at that somebody saw
 * still the one that stands? Clocks likewise: a lease ends for its holder (`h_live`) before it may end for the
 * others (`r_over`).
 *
 * Rules are taken away by -DNO_...; docs/model/README.md has the table.
 */

#ifndef N
#define N 2                          /* messages; 4 at most */
#endif
#ifndef FAULTS
#define FAULTS 1                     /* replies that are lost */
#endif
#ifndef EXPIRIES
#define EXPIRIES 1                   /* leases that end under a living holder */
#endif
#ifndef ROLLBACKS
#define ROLLBACKS 1
#endif
#ifndef EXTENSIONS
#define EXTENSIONS 1
#endif
#ifndef POPPERS
#define POPPERS 2
#endif
#ifndef PURGES
#define PURGES 0
#endif
#ifndef WRITTEN
#define WRITTEN 0                    /* leases are written down: a holder that comes again begins them anew */
#endif

#define NONE 0
mtype = { take, take_again, give_back, retire };     /* what an owner's transaction does */

#define LEASED 1
#define RETURNED 2

#define ALL ((1 << N) - 1)
#define set(f, l) (((1 << (l)) - 1) & ~((1 << ((f) - 1)) - 1))
#define has(mask, part) (((mask) & (part)) == (part))
#define at(p, i) ((p) * 5 + (i))

byte faults = FAULTS, expiries = EXPIRIES, rollbacks = ROLLBACKS, extensions = EXTENSIONS, purges = PURGES;

/* The database: head, runs, marks (of their own and those that a purge sets), dead letters. */
byte cursor, floor;
bool gone;
byte r_last[5], r_state[5], r_tries[5];
bool r_over[5];                      /* the lease has run out for everybody else */
byte mk_last[5];
bool mk_dead[5];
byte purged, letters;

/* What owners know: is the op that they saw the one that stands; since a load, ended messages and runs. */
bool seen[3];
byte op_by;                          /* 1 + the owner whose last transaction set the op; 0: another */
bool k_on[2];
byte k_ended[2], k_over[2], k_ok[2]; /* k_ok: the run stands as it was seen, lease_id and leased_at */
byte k_last[10], k_state[10];
#if defined(NO_FENCE) || defined(NO_PURGE_FENCE)
byte known_cursor[2];
#define k_cursor known_cursor[p]
#else
#define k_cursor cursor              /* while its op is the one that stands, so is its cursor */
#endif

/* What holders have: rows of runs, their leases, the messages in consumers' hands. */
byte h_last[10], h_left[2];
bool h_live[10];                      /* the lease runs, by the holder's clock */
bool h_id[10];                        /* the row still carries this lease's id */
byte c_f[2];                         /* a commit is under way, of a stretch that begins here */
bool c_late[2];                      /* and its lease has ended */
byte x_i[2];                         /* an extension is under way, of this row */

/* In flight: an owner's transaction, a mark, a rollback, an extension of each popper. */
mtype fly[2];
byte fly_i[2], fly_t[2], fly_floor[2];
bool fly_asked[2];
byte fm_f[2], fm_l[2];
byte fr_i[2], fr_f[2], fr_l[2];
bool fr_flies[2];
byte fx_i[2], fx_l[2];
bool fx_flies[2];

/* What the properties speak of. */
byte committed;                      /* commits that returned */
byte marked;                         /* messages that a commit's mark has reached */

byte applied, j, m, e, fl;           /* scratch, 0 between two steps */

inline tidy() { applied = 0; j = 0; m = 0; e = 0; fl = 0 }

inline forget(p) {
    k_on[p] = false; seen[p] = false; k_ended[p] = 0; k_over[p] = 0; k_ok[p] = 0;
    k_last[at(p, 1)] = 0; k_last[at(p, 2)] = 0; k_last[at(p, 3)] = 0; k_last[at(p, 4)] = 0;
    k_state[at(p, 1)] = 0; k_state[at(p, 2)] = 0; k_state[at(p, 3)] = 0; k_state[at(p, 4)] = 0
}

#ifdef NO_FENCE
#define outdate(p) skip
#else
#define outdate(p) forget(p)
#endif

inline new_op(by) {                  /* whoever knows an older op can only be refused, and must load again */
    if
    :: k_on[0] && by != 1 -> outdate(0)
    :: else
    fi;
    if
    :: k_on[1] && by != 2 -> outdate(1)
    :: else
    fi;
    seen[0] = false; seen[1] = false; seen[2] = false;
#ifndef NO_FENCE
    fly[0] = NONE; fly_i[0] = 0; fly_t[0] = 0; fly_floor[0] = 0;
    fly[1] = NONE; fly_i[1] = 0; fly_t[1] = 0; fly_floor[1] = 0;
#endif
    op_by = by
}

inline forget_run(p, i) {            /* what is in flight on the condition that run i stands as it was */
#ifndef NO_HOLD_SEEN                  /* RULE hold_seen */
    if
    :: fx_i[p] == i -> fx_i[p] = 0; fx_l[p] = 0; fx_flies[p] = false
    :: else
    fi;
#endif
#ifndef NO_LEASE_SEEN
    if
    :: (fly[p] == take_again || fly[p] == give_back) && fly_i[p] == i ->
        fly[p] = NONE; fly_i[p] = 0; fly_t[p] = 0; fly_floor[p] = 0
    :: else
    fi
#endif
}

/* Row i has another leased_at now: what was conditional on the old one is refused. */
inline leased_anew(i) {
    r_over[i] = false;
    k_ok[0] = k_ok[0] & ~set(i, i); k_ok[1] = k_ok[1] & ~set(i, i);
    k_over[0] = (k_on[0] -> k_over[0] : k_over[0] & ~set(i, i));
    k_over[1] = (k_on[1] -> k_over[1] : k_over[1] & ~set(i, i));
    forget_run(0, i); forget_run(1, i)
}

/* Row i has another lease id too. */
inline leased_otherwise(i) {
    leased_anew(i);
    h_id[at(0, i)] = false; h_id[at(1, i)] = false;
    if
    :: fr_i[0] == i -> fr_i[0] = 0; fr_f[0] = 0; fr_l[0] = 0; fr_flies[0] = false
    :: else
    fi;
    if
    :: fr_i[1] == i -> fr_i[1] = 0; fr_f[1] = 0; fr_l[1] = 0; fr_flies[1] = false
    :: else
    fi
}

inline returned(i) {                 /* RULE fresh_return: a returned run gets a lease id of its own */
#ifndef NO_FRESH_RETURN
    leased_otherwise(i);
#endif
    r_over[i] = false;
    r_state[i] = RETURNED
}

/* Of two marks with the same first number the longer one stands, whole. */
inline put_mark(f, l, is_dead) {
    if
#ifdef NO_MARK_LONGER
    :: true -> mk_last[f] = (l > mk_last[f] -> l : mk_last[f]); mk_dead[f] = mk_dead[f] || is_dead
#else
    :: l > mk_last[f] -> mk_last[f] = l; mk_dead[f] = is_dead          /* RULE mark_longer */
    :: l == mk_last[f] -> mk_dead[f] = mk_dead[f] || is_dead
    :: l < mk_last[f]
#endif
    fi
}

/* What has ended, as a read above the floor shows it. */
#define mark_at(i) ((floor < (i) && mk_last[i]) -> set(i, mk_last[i]) : 0)
#define marks (mark_at(1) | mark_at(2) | mark_at(3) | mark_at(4))
#define all_ended (purged | marks | ((1 << floor) - 1))

inline load(p) {
    e = all_ended;
    k_on[p] = true; seen[p] = true; k_ended[p] = e; k_ok[p] = 0;
#if defined(NO_FENCE) || defined(NO_PURGE_FENCE)
    known_cursor[p] = cursor;
#endif
    j = 1;
    do
    :: j <= N ->
        k_last[at(p, j)] = ((j > floor && r_last[j] && !has(e, set(j, r_last[j]))) -> r_last[j] : 0);
        k_state[at(p, j)] = (k_last[at(p, j)] -> r_state[j] : 0);
        k_ok[p] = (k_last[at(p, j)] -> k_ok[p] | set(j, j) : k_ok[p]);
        k_over[p] = (k_last[at(p, j)] -> k_over[p] : k_over[p] & ~set(j, j));
        j++
    :: else -> break
    od
}

inline note_row(p, f, l, state, is_seen) {
    k_last[at(p, f)] = l; k_state[at(p, f)] = state;
    k_ok[p] = (is_seen -> k_ok[p] | set(f, f) : k_ok[p] & ~set(f, f));
    k_over[p] = k_over[p] & ~set(f, f)
}

inline close_rows(p) {               /* runs with nothing left are over */
    j = 1;
    do
    :: j <= N ->
        if
        :: k_last[at(p, j)] && has(k_ended[p], set(j, k_last[at(p, j)])) -> note_row(p, j, 0, 0, false)
        :: else
        fi;
        j++
    :: else -> break
    od
}

inline note_mark(p, f, l) {
    if
    :: k_on[p] -> k_ended[p] = k_ended[p] | set(f, l); close_rows(p)
    :: else
    fi
}

/* fl := the highest floor that the owner may write. */
inline raise_floor(p) {
    fl = floor;
    do
    :: fl < cursor && has(k_ended[p], set(fl + 1, fl + 1)) -> fl++
    :: else -> break
    od;
#ifndef NO_FLOOR_AT_RUN
    j = 1;                           /* RULE floor_at_run: no run that has something left is cut */
    do
    :: j <= N -> fl = ((k_last[at(p, j)] && j <= fl) -> j - 1 : fl); j++
    :: else -> break
    od
#endif
}

/* Judge an owner's transaction by its conditions, and write what it asks for. */
inline apply(p, kind, i, t, end_, floor_, has_op, has_run, by) {
    applied = !gone && has_op && (kind == take || kind == retire || has_run);
    if
    :: applied && kind == take ->
        cursor = t; leased_otherwise(i);
        r_last[i] = t; r_state[i] = LEASED; r_tries[i] = 1
    :: applied && kind == take_again ->
        leased_otherwise(i);
        r_last[i] = t; r_state[i] = LEASED;
        if
        :: t < end_ ->
            r_last[t + 1] = end_; r_tries[t + 1] = r_tries[i]; leased_otherwise(t + 1); r_state[t + 1] = RETURNED
        :: else
        fi;
#ifdef TRIES_MAX
        r_tries[i]++
#endif
    :: applied && kind == give_back -> returned(i)
    :: applied && kind == retire ->
        assert(has(marked | letters | purged, ALL));    /* P1: retired, and something has not ended */
        assert(!mk_dead[1] || has(letters, set(1, mk_last[1])));    /* P1: marked as dead without a dead letter */
        assert(!mk_dead[2] || has(letters, set(2, mk_last[2])));    /* P1: marked as dead without a dead letter */
        gone = true
    :: else
    fi;
    if
    :: applied -> floor = floor_; new_op(by)
    :: else
    fi
}

#define is_live_with(p, i, x) (h_live[at(p, i)] && (i) <= (x) && h_last[at(p, i)] >= (x))
#define is_in_hands_of(p, x) (has(h_left[p], set(x, x)) \
    && (is_live_with(p, 1, x) || is_live_with(p, 2, x) || is_live_with(p, 3, x) \
    || is_live_with(p, 4, x)))

inline drop_row(p, i) {              /* the holder has nothing in this row any more */
    h_left[p] = (h_last[at(p, i)] -> h_left[p] & ~set(i, h_last[at(p, i)]) : h_left[p]);
    h_last[at(p, i)] = 0; h_live[at(p, i)] = false; h_id[at(p, i)] = false
}

inline hand_out(p, i, t, mask) {
    m = 1;
    do
    :: m <= N && has(mask, set(m, m)) && h_live[at(p, i)] ->
        printf("    popper %d: message %d is delivered\n", p, m);
        assert(!is_in_hands_of(0, m) && !is_in_hands_of(1, m));    /* P2: two living leases on one message */
        assert(!has(committed, set(m, m)));    /* P2: delivered again after a commit that returned */
        assert(!has(purged, set(m, m)));    /* P2: delivered after a purge that returned */
        m++
    :: m <= N && !(has(mask, set(m, m)) && h_live[at(p, i)]) -> m++
    :: else -> break
    od;
    j = 1;                           /* what the same popper held here before is over */
    do
    :: j <= N && j != i && j <= t && h_last[at(p, j)] >= i -> drop_row(p, j); j++
    :: j <= N && !(j != i && j <= t && h_last[at(p, j)] >= i) -> j++
    :: else -> break
    od;
    if
    :: h_live[at(p, i)] ->
        h_last[at(p, i)] = t;
        h_left[p] = (h_left[p] & ~set(i, t)) | mask
    :: else -> printf("    popper %d: the lease has ended already\n", p); h_last[at(p, i)] = 0; h_id[at(p, i)] = false
    fi
}

/* What the database holds for an owner to do. */
#define came_back(i) (r_last[i] && (i) > floor && (r_state[i] == RETURNED || r_over[i]) && is_left(i))
#define is_left(i) (!has(purged | marks, set(i, r_last[i])))
#define is_over (cursor == N && has(all_ended, ALL))
#ifdef NO_RETIRE_ENDED
#undef is_over
#define is_over (cursor == N)
#endif
#define is_useful (cursor < N || came_back(1) || came_back(2) || came_back(3) || came_back(4) || is_over)

/* What an owner may do by what it knows. */
#define may_again(i) (k_last[at(p, i)] && (k_state[at(p, i)] == RETURNED || has(k_over[p], set(i, i))))
#define may_return(i) (k_last[at(p, i)] && k_state[at(p, i)] == LEASED && has(k_over[p], set(i, i)))
#ifdef NO_RETIRE_ENDED
#define may_retire (cursor == N)
#else
#define may_retire (k_cursor == N && has(k_ended[p], ALL))               /* RULE retire_ended */
#endif
#define may_act (k_cursor < N || may_again(1) || may_again(2) || may_again(3) || may_again(4) || may_retire)

inline plan(kind_, i_, t_) {
    kind = kind_; i = i_; t = t_;
    end = (kind == take_again -> k_last[at(p, i)] : t);
    mask = (kind == take || kind == take_again -> set(i, t) & ~k_ended[p] : 0)
}

#define clock_reading ((r_over[1] -> 1 : 0) | (r_over[2] -> 2 : 0) | (r_over[3] -> 4 : 0) | (r_over[4] -> 8 : 0))
#ifdef NO_FENCE
#define has_op true
#else
#define has_op seen[p]                                                 /* RULE fence */
#endif
#ifdef NO_LEASE_SEEN
#define has_run true
#else
#define has_run has(k_ok[p], set(i, i))                                /* RULE lease_seen */
#endif

/* Poppers keep a claim or let it go: the first keeps it while it is not refused, the second never does. */
inline keep_or_let_go(p) {
    if
    :: p == 1 -> forget(p)
    :: else
    fi
}

/* The transaction was applied, and its owner knows. */
inline win(p) {
    if
    :: kind == give_back -> note_row(p, i, t, RETURNED, true)
    :: kind == take || kind == take_again ->
        d_step {
            note_row(p, i, t, LEASED, false);
            if
            :: t < end -> note_row(p, t + 1, end, RETURNED, true)
            :: else
            fi;
            close_rows(p)
        };
#ifdef TRIES_MAX
        if
        :: r_tries[i] > TRIES_MAX -> drop_row(p, i); tidy(); goto bury
        :: else -> d_step { hand_out(p, i, t, mask) }
        fi
#else
        d_step { hand_out(p, i, t, mask) }
#endif
    :: else
    fi;
    done_with()
}

inline done_with() { kind = NONE; i = 0; t = 0; end = 0; mask = 0; tidy() }

inline lease_row(p) {                /* the lease counts from before the take was sent, known or not */
    if
    :: applied && (kind == take || kind == take_again) ->
        drop_row(p, i); h_live[at(p, i)] = true; h_id[at(p, i)] = true
    :: else
    fi
}

proctype Owner(byte p) {
    mtype kind;
    byte i, t, end, mask;
#ifdef NO_NEXT_DECIDES
    bool is_sure;
#undef has_op
#define has_op (seen[p] || is_sure)
#endif

idle:
    atomic {
#ifdef NO_CLOCK_FIRST
        !gone ->
        d_step { load(p); tidy() }; printf("owner %d: reads head, runs and marks\n", p)
#else
        !gone && is_useful ->
        k_over[p] = clock_reading;
        printf("owner %d: reads the clock: leases of runs that are over: %d (1, 2, 4, 8)\n", p, k_over[p])
#endif
    };
read:
    atomic {
        !gone ->
#ifdef NO_CLOCK_FIRST
        k_over[p] = clock_reading & k_ok[p];
        printf("owner %d: reads the clock: leases of runs that are over: %d (1, 2, 4, 8)\n", p, k_over[p])
#else
        d_step { load(p); tidy() };                  /* RULE clock_first: the marks are read after the clock */
        printf("owner %d: loads: cursor %d, floor %d, ended %d\n", p, cursor, floor, k_ended[p])
#endif
    };

choose:
    atomic {
        if
        :: !gone && !k_on[p] -> goto idle
        :: !gone && k_on[p] && k_cursor < N -> plan(take, k_cursor + 1, k_cursor + 1)
        :: !gone && k_on[p] && k_cursor + 1 < N -> plan(take, k_cursor + 1, k_cursor + 2)
        :: !gone && k_on[p] && may_again(1) && !has(k_ended[p], set(1, 1)) -> plan(take_again, 1, 1)
        :: !gone && k_on[p] && may_again(1) && k_last[at(p, 1)] > 1 && !has(k_ended[p], set(1, 2)) ->
            plan(take_again, 1, 2)
        :: !gone && k_on[p] && may_again(2) && !has(k_ended[p], set(2, 2)) -> plan(take_again, 2, 2)
        :: !gone && k_on[p] && may_return(1) -> plan(give_back, 1, k_last[at(p, 1)])
        :: !gone && k_on[p] && may_return(2) -> plan(give_back, 2, k_last[at(p, 2)])
#if N > 2
        :: !gone && k_on[p] && k_cursor + 2 < N -> plan(take, k_cursor + 1, k_cursor + 3)
        :: !gone && k_on[p] && may_again(1) && k_last[at(p, 1)] > 2 && !has(k_ended[p], set(1, 3)) -> plan(take_again, 1, 3)
        :: !gone && k_on[p] && may_again(2) && k_last[at(p, 2)] > 2 && !has(k_ended[p], set(2, 3)) -> plan(take_again, 2, 3)
        :: !gone && k_on[p] && may_again(3) && !has(k_ended[p], set(3, 3)) -> plan(take_again, 3, 3)
        :: !gone && k_on[p] && may_return(3) -> plan(give_back, 3, k_last[at(p, 3)])
#endif
#if N > 3
        :: !gone && k_on[p] && k_cursor + 3 < N -> plan(take, k_cursor + 1, k_cursor + 4)
        :: !gone && k_on[p] && may_again(1) && k_last[at(p, 1)] > 3 -> plan(take_again, 1, 4)
        :: !gone && k_on[p] && may_again(2) && k_last[at(p, 2)] > 3 -> plan(take_again, 2, 4)
        :: !gone && k_on[p] && may_again(3) && k_last[at(p, 3)] > 3 -> plan(take_again, 3, 4)
        :: !gone && k_on[p] && may_again(4) -> plan(take_again, 4, 4)
        :: !gone && k_on[p] && may_return(4) -> plan(give_back, 4, k_last[at(p, 4)])
#endif
        :: !gone && k_on[p] && may_retire -> plan(retire, 0, 0)
        :: !gone && k_on[p] && !may_act && is_useful -> forget(p); goto idle
        fi;
act:
        op_by = (op_by == p + 1 -> 0 : op_by);
        d_step { raise_floor(p) };
        if
        :: d_step {
            printf("owner %d: %e %d..%d\n", p, kind, i, t);
            apply(p, kind, i, t, end, fl, has_op, has_run, p + 1)
           };
            if
            :: applied -> d_step { seen[p] = true; lease_row(p) }; win(p)
            :: else -> d_step { printf("    refused\n"); done_with(); forget(p) }
            fi;
            keep_or_let_go(p);
            goto choose
        :: faults > 0 && seen[p] ->
            faults--;
            printf("owner %d: %e %d..%d; the reply is lost\n", p, kind, i, t);
            if
            :: d_step { apply(p, kind, i, t, end, fl, has_op, has_run, p + 1); lease_row(p) }
            :: fly[p] == NONE && (kind == take || kind == retire || has_run) ->
                fly[p] = kind; fly_i[p] = i; fly_t[p] = t; fly_floor[p] = fl; fly_asked[p] = true
            fi;
            tidy();
#ifdef NO_HANDOUT_AFTER
            if
            :: kind == take || kind == take_again -> h_live[at(p, i)] = true; hand_out(p, i, t, mask)
            :: else
            fi;
            fly_asked[p] = false; done_with(); forget(p);
            goto choose
#endif                                               /* RULE handout_after: not before it is known to be applied */
        fi
    };

ask:
    atomic {                                         /* a settled read; what is in flight may land after it */
        !gone;
        fly_asked[p] = false;
#ifdef NO_NEXT_DECIDES
        is_sure = true;
#endif
        if
#ifdef NO_OWN_OP
        :: op_by == p + 1 || (kind == take && cursor >= t) ->
            h_live[at(p, i)] = (kind == take || kind == take_again);
#else
        :: op_by == p + 1 ->                         /* RULE own_op */
#endif
            d_step { load(p); k_over[p] = 0; tidy() }; printf("owner %d: it was applied\n", p);
            win(p);
            keep_or_let_go(p)
#ifdef NO_NEXT_DECIDES
        :: op_by != p + 1 -> printf("owner %d: it was not applied, so it is sent again\n", p); goto act
#else
        :: else ->                                   /* RULE next_decides: from here on it knows no op */
            printf("owner %d: it was not applied so far\n", p);
            if                                       /* what it may have leased is nobody's */
            :: h_live[at(p, i)] && !h_last[at(p, i)] -> h_live[at(p, i)] = false; h_id[at(p, i)] = false
            :: else
            fi;
            done_with(); forget(p)
#endif
        fi;
        goto choose
    };

#ifdef TRIES_MAX
bury:
#ifndef NO_LETTER_FIRST
    atomic { letters = letters | mask; printf("owner %d: writes the dead letters %d\n", p, mask) };  /* RULE letter_first */
#endif
    atomic {
        !gone;
        i = (has(mask, set(i, i)) -> i : i + 1);     /* two messages at most: one stretch */
        t = (has(mask, set(t, t)) -> t : i);
        if
        :: put_mark(i, t, true); printf("owner %d: marks %d..%d as dead\n", p, i, t); note_mark(p, i, t)
        :: faults > 0 -> faults--; mask = 0; printf("owner %d: dies\n", p)
        fi
    };
#ifdef NO_LETTER_FIRST
    atomic {
        if
        :: letters = letters | mask; printf("owner %d: writes the dead letters %d\n", p, mask)
        :: faults > 0 -> faults--; printf("owner %d: dies\n", p)
        fi
    };
#endif
    atomic { done_with(); forget(p); goto choose }
#endif
}

#define is_at(p, i, x) ((i) <= (x) && h_last[at(p, i)] >= (x))
#define row_of(p, x) (is_at(p, 4, x) -> 4 : (is_at(p, 3, x) -> 3 : (is_at(p, 2, x) -> 2 : 1)))
#ifdef NO_MARK_IN_ROW
#define is_in_row(f, l) (h_live[at(p, row_of(p, l))])
#else
#define is_in_row(f, l) (row_of(p, f) == row_of(p, l))                 /* RULE mark_in_row */
#endif
#ifdef NO_BELIEVE_LIVE
#define is_in_time true
#define may_commit(f, l) (has(h_left[p], set(f, l)) && is_in_row(f, l))
#else
#define is_in_time (!c_late[p])                                        /* RULE believe_live: begun and believed */
#define may_commit(f, l) (has(h_left[p], set(f, l)) && h_live[at(p, row_of(p, f))] && is_in_row(f, l))
#endif
#define may_roll_back(f, l) (!fr_i[p] && has(h_left[p], set(f, l)) && h_live[at(p, row_of(p, f))] && row_of(p, f) == row_of(p, l))
inline aim(p, f_, l_) {              /* what a rollback of f_..l_ is conditional on: the row, with this lease id */
    f = f_; l = l_; i = row_of(p, f_); x = h_last[at(p, i)];
    fr_i[p] = i; fr_f[p] = f_; fr_l[p] = l_
}

#if WRITTEN
#define may_extend(i) (h_last[at(p, i)] && !fx_i[p])
#else
#define may_extend(i) (h_live[at(p, i)] && h_last[at(p, i)] && !fx_i[p])
#endif
#ifdef NO_HOLD_SEEN
#define is_as_written(i) (h_last[at(p, i)])
#else
#define is_as_written(i) (h_id[at(p, i)])
#endif

/* A lease that had ended for its holder begins anew: what is left of the run is in its consumers' hands again. */
inline hold(p, i) {
    m = 1;
    do
    :: m <= N && !h_live[at(p, i)] && (i) <= m && m <= h_last[at(p, i)] && has(h_left[p], set(m, m)) ->
        printf("    popper %d: message %d is its again\n", p, m);
        assert(!is_in_hands_of(0, m) && !is_in_hands_of(1, m));    /* P2: two living leases on one message */
        assert(!has(committed, set(m, m)));    /* P2: delivered again after a commit that returned */
        assert(!has(purged, set(m, m)));    /* P2: delivered after a purge that returned */
        m++
    :: m <= N && !(!h_live[at(p, i)] && (i) <= m && m <= h_last[at(p, i)] && has(h_left[p], set(m, m))) -> m++
    :: else -> break
    od;
    m = 0
}

/* Split row i: f..l goes back, what is around it stays leased under the same lease. */
inline split(p, i, f, l, end_, is_held) {
    if
    :: f > i -> leased_anew(i); r_last[i] = f - 1
    :: else
    fi;
    r_last[f] = l; r_tries[f] = r_tries[i];
    if
    :: f > i -> leased_otherwise(f)                  /* a row that was not there before */
    :: else
    fi;
    returned(f);
    if
    :: l < end_ ->
        leased_otherwise(l + 1); r_last[l + 1] = end_; r_state[l + 1] = LEASED; r_tries[l + 1] = r_tries[i];
        h_id[at(p, l + 1)] = is_held
    :: else
    fi
}

inline tell_rows(p, i, f, l, end_) {                 /* the owner in the same process hears of all rows */
    if
    :: k_on[p] ->
        note_row(p, f, l, RETURNED, true);
#ifndef NO_TELL_ALL
        if                                           /* RULE tell_all */
        :: f > i -> note_row(p, i, f - 1, LEASED, false)
        :: else
        fi;
        if
        :: l < end_ -> note_row(p, l + 1, end_, LEASED, false)
        :: else
        fi;
#endif
        close_rows(p)
    :: else
    fi
}

inline drop_dead_row(p, i) {         /* taken over, or ended; what the same popper has taken anew stays */
    if
    :: !(h_live[at(p, i)] && h_id[at(p, i)]) -> drop_row(p, i)
    :: else
    fi
}

inline keep_rows(p, i, f, l, end_) {                 /* the holder's rows after a split */
    h_left[p] = (h_live[at(p, i)] -> h_left[p] & ~set(f, l) : h_left[p]);
    if
    :: l < end_ && h_live[at(p, i)] -> h_last[at(p, l + 1)] = end_; h_live[at(p, l + 1)] = h_live[at(p, i)];
        if
        :: !(h_left[p] & set(l + 1, end_)) -> drop_row(p, l + 1)
        :: else
        fi
    :: else
    fi;
    if
    :: h_live[at(p, i)] && f > i && (h_left[p] & set(i, f - 1)) -> h_last[at(p, i)] = f - 1
    :: else -> h_last[at(p, i)] = 0; drop_row(p, i)
    fi
}

proctype Holder(byte p) {
    byte f, l, i, x;
    bool is_unknown;                 /* a mark of this commit may have been written */

next:
    atomic {
        if
        :: !gone && may_commit(1, 1) -> f = 1; l = 1; c_f[p] = 1; goto commit
        :: !gone && may_commit(2, 2) -> f = 2; l = 2; c_f[p] = 2; goto commit
        :: !gone && may_commit(1, 2) -> f = 1; l = 2; c_f[p] = 1; goto commit
#if N > 2
        :: !gone && may_commit(3, 3) -> f = 3; l = 3; c_f[p] = 3; goto commit
        :: !gone && may_commit(2, 3) -> f = 2; l = 3; c_f[p] = 2; goto commit
        :: !gone && may_commit(1, 3) -> f = 1; l = 3; c_f[p] = 1; goto commit
#endif
#if N > 3
        :: !gone && may_commit(4, 4) -> f = 4; l = 4; c_f[p] = 4; goto commit
        :: !gone && may_commit(3, 4) -> f = 3; l = 4; c_f[p] = 3; goto commit
        :: !gone && may_commit(2, 4) -> f = 2; l = 4; c_f[p] = 2; goto commit
        :: !gone && may_commit(1, 4) -> f = 1; l = 4; c_f[p] = 1; goto commit
#endif
        :: !gone && rollbacks > 0 && may_roll_back(1, 1) -> rollbacks--; aim(p, 1, 1); goto roll_back
        :: !gone && rollbacks > 0 && may_roll_back(2, 2) -> rollbacks--; aim(p, 2, 2); goto roll_back
        :: !gone && rollbacks > 0 && may_roll_back(1, 2) -> rollbacks--; aim(p, 1, 2); goto roll_back
#if N > 2
        :: !gone && rollbacks > 0 && may_roll_back(3, 3) -> rollbacks--; aim(p, 3, 3); goto roll_back
        :: !gone && rollbacks > 0 && may_roll_back(2, 3) -> rollbacks--; aim(p, 2, 3); goto roll_back
        :: !gone && rollbacks > 0 && may_roll_back(1, 3) -> rollbacks--; aim(p, 1, 3); goto roll_back
#endif
#if N > 3
        :: !gone && rollbacks > 0 && may_roll_back(4, 4) -> rollbacks--; aim(p, 4, 4); goto roll_back
        :: !gone && rollbacks > 0 && may_roll_back(3, 4) -> rollbacks--; aim(p, 3, 4); goto roll_back
        :: !gone && rollbacks > 0 && may_roll_back(2, 4) -> rollbacks--; aim(p, 2, 4); goto roll_back
        :: !gone && rollbacks > 0 && may_roll_back(1, 4) -> rollbacks--; aim(p, 1, 4); goto roll_back
#endif
        :: !gone && extensions > 0 && may_extend(1) -> extensions--; i = 1; goto extend
        :: !gone && extensions > 0 && may_extend(2) -> extensions--; i = 2; goto extend
        :: !gone && extensions > 0 && may_extend(3) -> extensions--; i = 3; goto extend
        :: !gone && extensions > 0 && may_extend(4) -> extensions--; i = 4; goto extend
        fi
    };

roll_back:
    atomic {
        !gone;
        if
        :: fr_i[p] == i ->
            d_step { printf("holder %d: rolls back %d..%d of the run %d..%d\n", p, f, l, i, x);
            split(p, i, f, l, x, h_live[at(p, i)]); tell_rows(p, i, f, l, x); keep_rows(p, i, f, l, x);
            fr_i[p] = 0; fr_f[p] = 0; fr_l[p] = 0; tidy() }
        :: fr_i[p] == i && faults > 0 ->
            faults--;
            printf("holder %d: rolls back %d..%d of the run %d..%d; the reply is lost\n", p, f, l, i, x);
            if
            :: d_step { split(p, i, f, l, x, false); fr_i[p] = 0; fr_f[p] = 0; fr_l[p] = 0 }
            :: fr_flies[p] = true
            fi;
            drop_row(p, i)
        :: fr_i[p] != i -> drop_dead_row(p, i)
        fi;
        f = 0; l = 0; i = 0; x = 0;
        goto next
    };

extend:
    atomic {                                         /* reads the run as it stands: its end, its leased_at */
        if
        :: !gone && is_as_written(i) -> fx_i[p] = i; fx_l[p] = r_last[i]; x_i[p] = i
        :: else -> drop_row(p, i); i = 0; goto next
        fi
    };
    atomic {
        if
        :: fx_i[p] == i ->
            x = fx_l[p]; leased_anew(i); r_last[i] = x; r_state[i] = LEASED;
            d_step { hold(p, i) };
            h_live[at(p, i)] = (h_last[at(p, i)] != 0);
            printf("holder %d: extends the lease of run %d..%d\n", p, i, x)
        :: fx_i[p] == i && faults > 0 ->
            faults--;
            printf("holder %d: extends the lease of run %d; the reply is lost\n", p, i);
            if
            :: x = fx_l[p]; leased_anew(i); r_last[i] = x; r_state[i] = LEASED
            :: fx_flies[p] = true
            fi
        :: fx_i[p] != i
        fi;
        x_i[p] = 0;
#if WRITTEN
        if
        :: !h_id[at(p, i)] -> drop_row(p, i)
        :: else                                      /* unknown: it may try again */
        fi;
#else
        drop_dead_row(p, i);
#endif
        i = 0; x = 0;
        goto next
    };

commit:
    if
    :: atomic {
        !gone && !(c_late[p] && is_unknown) ->
        d_step { put_mark(f, l, false); marked = marked | set(f, l) };
        if
        :: is_in_time ->
            d_step {
                printf("holder %d: the commit of %d..%d returns\n", p, f, l);
                committed = committed | set(f, l); note_mark(p, f, l); tidy();
#if WRITTEN
                h_left[p] = h_left[p] & ~set(f, l)       /* it is written down, too, what is done */
#endif
            }
        :: else -> printf("holder %d: marked %d..%d too late, so nobody knows\n", p, f, l)
        fi
       }
    :: atomic {
        !gone && faults > 0 && !(c_late[p] && is_unknown) ->
        faults--; is_unknown = true;
        printf("holder %d: marks %d..%d; the reply is lost\n", p, f, l);
        if
        :: put_mark(f, l, false); marked = marked | set(f, l)
        :: fm_f[p] == 0 -> fm_f[p] = f; fm_l[p] = l
        fi;
        goto commit                                  /* again, while the lease runs */
       }
    :: atomic { !gone && c_late[p] && is_unknown -> printf("holder %d: nobody knows of %d..%d\n", p, f, l) }
    fi;
    atomic {
        if
        :: c_late[p]                                 /* what it had is dropped already */
        :: else ->
            i = row_of(p, f); h_left[p] = h_left[p] & ~set(f, l);
            if
            :: h_last[at(p, i)] && !(h_left[p] & set(i, h_last[at(p, i)])) -> drop_row(p, i)
            :: else
            fi
        fi;
        i = 0; f = 0; l = 0; c_f[p] = 0; c_late[p] = false; is_unknown = false;
        goto next
    }
}

#ifdef NO_HOLDER_FIRST
#define is_unheld(i) true
#else
#define is_unheld(i) (!(h_live[at(0, i)] && h_id[at(0, i)]) && !(h_live[at(1, i)] && h_id[at(1, i)]))   /* RULE holder_first */
#endif
#define may_end(i) (!gone && r_last[i] && (i) > floor && r_state[i] == LEASED && !r_over[i] && is_left(i) && is_unheld(i))

inline end_for_holder(p, i) {
    expiries--;
    printf("time: the lease of run %d ends for holder %d\n", i, p);
    c_late[p] = (c_f[p] && row_of(p, c_f[p]) == i -> true : c_late[p]);
    h_live[at(p, i)] = false;
#if !WRITTEN && !defined(NO_BELIEVE_LIVE)
    if
    :: h_last[at(p, i)] && x_i[p] != i -> drop_row(p, i)
    :: else
    fi
#endif
}

active proctype Time() {
    do
    :: atomic { !gone && expiries > 0 && h_live[at(0, 1)] -> d_step { end_for_holder(0, 1) } }
    :: atomic { !gone && expiries > 0 && h_live[at(0, 2)] -> d_step { end_for_holder(0, 2) } }
    :: atomic { !gone && expiries > 0 && h_live[at(0, 3)] -> d_step { end_for_holder(0, 3) } }
    :: atomic { !gone && expiries > 0 && h_live[at(0, 4)] -> d_step { end_for_holder(0, 4) } }
    :: atomic { !gone && expiries > 0 && h_live[at(1, 1)] -> d_step { end_for_holder(1, 1) } }
    :: atomic { !gone && expiries > 0 && h_live[at(1, 2)] -> d_step { end_for_holder(1, 2) } }
    :: atomic { !gone && expiries > 0 && h_live[at(1, 3)] -> d_step { end_for_holder(1, 3) } }
    :: atomic { !gone && expiries > 0 && h_live[at(1, 4)] -> d_step { end_for_holder(1, 4) } }
    :: atomic { may_end(1) -> r_over[1] = true; printf("time: the lease of run 1 is over for all\n") }
    :: atomic { may_end(2) -> r_over[2] = true; printf("time: the lease of run 2 is over for all\n") }
    :: atomic { may_end(3) -> r_over[3] = true; printf("time: the lease of run 3 is over for all\n") }
    :: atomic { may_end(4) -> r_over[4] = true; printf("time: the lease of run 4 is over for all\n") }
    od
}

inline land_transaction(p) {
    kind = fly[p]; i = fly_i[p]; t = fly_t[p]; fl = fly_floor[p]; is_asked = fly_asked[p];
    fly[p] = NONE; fly_i[p] = 0; fly_t[p] = 0; fly_floor[p] = 0;
    end_ = r_last[i];
    printf("late: %e %d..%d of owner %d lands\n", kind, i, t, p);
    apply(p, kind, i, t, end_, fl, true, true, (is_asked -> p + 1 : 0));
    if
    :: applied && is_asked && (kind == take || kind == take_again) ->
        drop_row(p, i); h_live[at(p, i)] = true; h_id[at(p, i)] = true
    :: else
    fi;
    kind = NONE; i = 0; t = 0; end_ = 0; is_asked = false; tidy()
}

inline land_mark(p) {
    put_mark(fm_f[p], fm_l[p], false); marked = marked | set(fm_f[p], fm_l[p]);
    printf("late: the mark %d..%d of holder %d lands\n", fm_f[p], fm_l[p], p);
    fm_f[p] = 0; fm_l[p] = 0
}

inline land_rollback(p) {
    i = fr_i[p]; m = fr_f[p]; t = fr_l[p]; fr_i[p] = 0; fr_f[p] = 0; fr_l[p] = 0; fr_flies[p] = false;
    end_ = r_last[i];
    split(p, i, m, t, end_, false);
    printf("late: the rollback of %d..%d of holder %d lands\n", m, t, p);
    i = 0; t = 0; end_ = 0; tidy()
}

inline land_extension(p) {
    i = fx_i[p]; t = fx_l[p]; fx_flies[p] = false;
    leased_anew(i); r_last[i] = t; r_state[i] = LEASED;
    printf("late: the extension of run %d..%d of holder %d lands\n", i, t, p);
    i = 0; t = 0
}

/* Lands what is in flight, at any time. What never lands: only of transactions could anybody wait for it. */
active proctype Late() {
    mtype kind;
    byte i, t, end_;
    bool is_asked;
    do
    :: atomic { !gone && fly[0] -> d_step { land_transaction(0) } }
    :: atomic { !gone && fly[1] -> d_step { land_transaction(1) } }
    :: atomic { !gone && fm_f[0] -> d_step { land_mark(0) } }
    :: atomic { !gone && fm_f[1] -> d_step { land_mark(1) } }
    :: atomic { !gone && fr_flies[0] -> d_step { land_rollback(0) } }
    :: atomic { !gone && fr_flies[1] -> d_step { land_rollback(1) } }
    :: atomic { !gone && fx_flies[0] -> d_step { land_extension(0) } }
    :: atomic { !gone && fx_flies[1] -> d_step { land_extension(1) } }
    :: atomic { fly[0] -> fly[0] = NONE; fly_i[0] = 0; fly_t[0] = 0; fly_floor[0] = 0 }
    :: atomic { fly[1] -> fly[1] = NONE; fly_i[1] = 0; fly_t[1] = 0; fly_floor[1] = 0 }
    :: atomic { fm_f[0] -> fm_f[0] = 0; fm_l[0] = 0 }
    :: atomic { fm_f[1] -> fm_f[1] = 0; fm_l[1] = 0 }
    :: atomic { fr_flies[0] -> fr_i[0] = 0; fr_f[0] = 0; fr_l[0] = 0; fr_flies[0] = false }
    :: atomic { fr_flies[1] -> fr_i[1] = 0; fr_f[1] = 0; fr_l[1] = 0; fr_flies[1] = false }
    od
}

#if PURGES
/* An operator's purge: one transaction as an owner, of what is in nobody's hands. */
active proctype Purger() {
    byte mask;

look:
    if
    :: atomic {
        !gone -> seen[2] = true; mask = ALL & ~((1 << cursor) - 1);
        mask = mask | ((r_last[1] && floor < 1 && r_state[1] == RETURNED) -> set(1, r_last[1]) : 0);
        mask = mask | ((r_last[2] && floor < 2 && r_state[2] == RETURNED) -> set(2, r_last[2]) : 0);
        mask = mask | ((r_last[3] && floor < 3 && r_state[3] == RETURNED) -> set(3, r_last[3]) : 0);
        mask = mask | ((r_last[4] && floor < 4 && r_state[4] == RETURNED) -> set(4, r_last[4]) : 0);
        mask = mask & ~(purged | marks);
        printf("purger: reads what waits: %d\n", mask)
       }
    :: goto done
    fi;
    atomic {
        if
        :: !gone && seen[2] && mask ->
            cursor = N; purged = purged | mask; printf("purger: has purged %d\n", mask);
#ifndef NO_PURGE_FENCE
            new_op(0)                                /* RULE purge_fence */
#endif
        :: !gone && !seen[2] -> mask = 0; goto look
        :: else
        fi
    };

done:
    atomic { seen[2] = false; mask = 0 }
}
#endif

/* Nothing more can happen, and failures have stopped: then the pipe is retired, with everything in it ended. */
active proctype Stuck() {
    timeout -> assert(gone)                 /* stuck: nothing can happen, and the pipe still stands */
}

init {
    atomic {
        run Owner(0); run Holder(0);
#if POPPERS > 1
        run Owner(1); run Holder(1)
#endif
    }
}
