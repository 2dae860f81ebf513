"""What is searched: each file of the model within its bounds, and each rule taken away.

Owns the bounds of every search. Refuses to run one. What must not break: the bounds in which a rule is taken
away are bounds in which the model with all rules was searched too, or smaller ones.
"""

from dataclasses import dataclass

from _check_model.rules import RULES, Rule


@dataclass(frozen=True, slots=True)
class Run:
    """One search.

    Attributes:
        file: the model, without its ending.
        title: what is looked at.
        bounds: preprocessor values.
        without: the rule that is taken away; empty: none.
    """

    file: str
    title: str
    bounds: tuple[str, ...]
    without: str = ""

    @property
    def definitions(self) -> list[str]:
        """The arguments for spin's preprocessor."""
        defined = [*self.bounds, f"NO_{self.without.upper()}"] if self.without else self.bounds
        return [f"-D{each}" for each in defined]


def _lease(title: str, **bounds: int) -> Run:
    every = {"FAULTS": 0, "EXPIRIES": 0, "ROLLBACKS": 0, "EXTENSIONS": 0, **bounds}
    return Run("lease", title, tuple(f"{name}={value}" for name, value in every.items()))


def _window(title: str, **bounds: int) -> Run:
    every = {"FAULTS": 0, "WINDOWS": 1, **bounds}
    return Run("window", title, tuple(f"{name}={value}" for name, value in every.items()))


def _handover(title: str, *flags: str, **bounds: int) -> Run:
    every = {"FAULTS": 1, "CRASHES": 1, **bounds}
    return Run("handover", title, (*(f"{name}={value}" for name, value in every.items()), *flags))


def _slot(title: str, *flags: str, **bounds: int) -> Run:
    every = {"PIPES": 2, "FAULTS": 0, "EXPIRIES": 0, **bounds}
    return Run("slot", title, (*(f"{name}={value}" for name, value in every.items()), *flags))


def _topic(title: str, **bounds: int) -> Run:
    every = {"FAULTS": 1, "CLOSES": 1, **bounds}
    return Run("topic", title, tuple(f"{name}={value}" for name, value in every.items()))


def _group(title: str, **bounds: int) -> Run:
    return Run("group", title, tuple(f"{name}={value}" for name, value in bounds.items()))


def _lending(title: str, **bounds: int) -> Run:
    every = {"FAULTS": 1, "TAKES": 2, "CALLS": 2, "RESETS": 0, **bounds}
    return Run("lending", title, tuple(f"{name}={value}" for name, value in every.items()))


def _relay(title: str, *flags: str, **bounds: int) -> Run:
    every = {"FAULTS": 0, "TAKES": 2, "ROLLS": 0, **bounds}
    return Run("relay", title, (*(f"{name}={value}" for name, value in every.items()), *flags))


def _journal(title: str, **bounds: int) -> Run:
    every = {"FAULTS": 1, "CRASHES": 1, "ROLLS": 1, "OTHERS": 1, **bounds}
    return Run("journal", title, tuple(f"{name}={value}" for name, value in every.items()))


def _token(title: str, **bounds: int) -> Run:
    every = {"FAULTS": 0, "ACTS": 1, **bounds}
    return Run("token", title, tuple(f"{name}={value}" for name, value in every.items()))


def _offers(title: str, **bounds: int) -> Run:
    every = {"FAULTS": 1, "ROLLS": 1, "OTHERS": 1, "RETENTION": 0, **bounds}
    return Run("offers", title, tuple(f"{name}={value}" for name, value in every.items()))


PUSH = Run("push", "push, settle, late, drain, retire, delete", ("FAULTS=2", "CRASHES=1"))
LEASE = _lease("leases, all together", N=2, FAULTS=1, EXPIRIES=1, ROLLBACKS=1, EXTENSIONS=1)
LEASE_SPLIT = _lease("runs of three, split", N=3, EXPIRIES=1, ROLLBACKS=1)
LEASE_FLOOR = _lease("one popper, four messages", N=4, POPPERS=1, EXPIRIES=1, ROLLBACKS=1)
LEASE_DEAD = _lease("dead letters", N=2, TRIES_MAX=1, FAULTS=1, EXPIRIES=1)
LEASE_PURGE = _lease("purge", N=2, PURGES=1, EXPIRIES=1, ROLLBACKS=1)
LEASE_WRITTEN = _lease("leases that are written down", N=2, WRITTEN=1, FAULTS=1, EXPIRIES=1, EXTENSIONS=1)
TOTALS = Run("totals", "totals, three reapers", ("FAULTS=2", "CRASHES=1"))
WINDOW = _window("two windows", FAULTS=1, WINDOWS=2)
WINDOW_LOST = _window("a window, two lost replies", FAULTS=2)
WINDOW_OLD = _window("a window in an old pipe", FAULTS=1, AGES=2)
WINDOW_KEPT = _window("a window, kept messages, a dead popper", WINDOWS=2, KEEPS=1, CRASHES=1)
WINDOW_ALONE = _window("a window whose popper nobody follows", FAULTS=2, WINDOWS=2, POPPERS=0, CRASHES=1)

WINDOW_KNOCK = _window("two windows, and a purge that knocks", WINDOWS=2, KNOCKS=1)

READER = Run(
    "reader",
    "two drivers, a lost claim, a restart",
    ("CRASHES=2", "EXPIRIES=1", "TAKES=2", "LOSSES=2", "RESTARTS=1"),
)
REPLICA = Run("replica", "two owners, a lost node", ("LOSSES=1", "LOOKS=0", "OWNERS=2"))
REPLICA_LOOK = Run(
    "replica", "outlines that somebody reads, a lost node", ("LOSSES=1", "LOOKS=1", "OWNERS=1")
)

STAGING = Run("staging", "two drivers of one batch", ("FAULTS=1", "CRASHES=1"))
STAGING_BACK = Run(
    "staging", "two drivers of one batch, an entry that comes back", ("FAULTS=0", "CRASHES=1", "COMEBACKS=1")
)
STAGING_ONCE = Run(
    "staging",
    "a writer of one batch, entries that come back",
    ("FAULTS=1", "CRASHES=1", "COMEBACKS=2", "ONCE"),
)
STAGING_NEXT = Run("staging", "two drivers, two batches", ("FAULTS=1", "CRASHES=1", "NEXT"))

HANDOVER = _handover("two keepers, two lost replies", FAULTS=2)
HANDOVER_ONE = _handover("two keepers, one message alone", "ONE")
HANDOVER_LEASE = _handover("two keepers, a lease that ends", EXPIRIES=1)
HANDOVER_BACK = _handover("two keepers, an entry that comes back", COMEBACKS=1)
HANDOVER_FAR = _handover("one keeper, the scheduled list", "FAR", KEEPERS=1, COMEBACKS=1)

SCHEDULE = Run("schedule", "a schedule, three attempts", ("FAULTS=1", "CRASHES=0"))
SCHEDULE_DEAD = Run("schedule", "a schedule, a dead keeper", ("FAULTS=1", "CRASHES=1", "PIPES=2"))
SCHEDULE_BACK = Run(
    "schedule",
    "a schedule, an entry that comes back",
    ("FAULTS=1", "CRASHES=1", "COMEBACKS=1", "KEEPERS=1"),
)
SCHEDULE_CREATED = Run(
    "schedule",
    "a schedule that is created and deleted",
    ("FAULTS=2", "CRASHES=1", "CREATE", "KEEPERS=1"),
)

SLOT = _slot("a slot, two pipes, a lost reply", FAULTS=1)
SLOT_ONE = _slot("a slot, one pipe with two keys", PIPES=1, FAULTS=1)
SLOT_SOURCE = _slot("a slot, two pipes of one source", "SAME", FAULTS=1)
SLOT_BACK = _slot("a slot, messages that come back", EXPIRIES=1, ROLLBACKS=1)
SLOT_EXTENDED = _slot("a slot, an extension that lands late", EXPIRIES=1, EXTENSIONS=1)
LIST = Run("list", "a list that is no snapshot", ())
TOPIC_WRITERS = _topic("a log, two processes of one writer", FAULTS=2, WRITERS=2)
TOPIC_READ = _topic("a log, a reader and retention", FAULTS=2, MESSAGES=2, RETENTION=1, CRASHES=1, READERS=1)
TOPIC_SEGMENTS = _topic("a log, three segments", CLOSES=2, MESSAGES=2, RETENTION=1, CRASHES=1, READERS=1)
TOPIC_END = _topic("a topic that is deleted", FAULTS=2, CLOSES=2, RETENTION=1, END=1)
TOPIC_END_WRITER = _topic("a topic that is deleted, a writer", WRITERS=1, END=1)
TOPIC_END_READ = _topic("a topic that is deleted, a reader", FAULTS=0, RETENTION=1, END=1, READERS=1)
GROUP = _group("a group, two lost replies", FAULTS=2, TAKES=2, RESETS=1)
GROUP_RESETS = _group("a group, two resets", FAULTS=1, TAKES=2, RESETS=2)
LENDING = _lending("a group that is lent, a lost reply", CALLS=3)
LENDING_TAKES = _lending("a group that is lent, three take-overs", FAULTS=0, TAKES=3, CALLS=3)
LENDING_RESET = _lending("a group that is lent, a reset", RESETS=1)
RELAY = _relay("two relays, a lost reply", FAULTS=1, ROLLS=1)
RELAY_TAKES = _relay("two relays, three take-overs", TAKES=3, ROLLS=1)
RELAY_THREE = _relay("two relays, three messages", N=3, FAULTS=1)
RELAY_EMBEDDED = _relay("two relays, a window, nothing left", "EMBEDDED", FAULTS=1, WINDOWS=1)
JOURNAL = _journal("two reapers, two lost replies", FAULTS=2, CRASHES=2, OTHERS=2)
JOURNAL_RETENTION = _journal("two reapers, retention", FAULTS=2, ROLLS=2, RETENTION=2)
JOURNAL_ANEW = _journal("two reapers, a topic that is made anew", FAULTS=2, RENEWALS=1)
OFFERS = _offers("offers, two scribes, two lost replies", FAULTS=2)
OFFERS_GONE = _offers("offers, two scribes, retention", ROLLS=2, OTHERS=0, RETENTION=1)

TOKEN = _token("a token, a lost reply", FAULTS=1)
TOKEN_REAPER = _token("a token, a reaper beside the taker", OWNERS=2)

#: More than four million states each, the most first.
LONG = (STAGING_NEXT, STAGING_BACK, STAGING, READER, SCHEDULE, WINDOW_OLD, WINDOW_LOST)

#: The longest first: two run side by side.
VERIFICATIONS = (
    *LONG,
    STAGING_ONCE,
    LEASE,
    LEASE_SPLIT,
    LEASE_DEAD,
    LEASE_WRITTEN,
    PUSH,
    TOTALS,
    WINDOW,
    WINDOW_KEPT,
    WINDOW_KNOCK,
    SCHEDULE_DEAD,
    SCHEDULE_BACK,
    SCHEDULE_CREATED,
    LEASE_PURGE,
    LEASE_FLOOR,
    WINDOW_ALONE,
    SLOT_EXTENDED,
    SLOT_BACK,
    SLOT,
    SLOT_SOURCE,
    SLOT_ONE,
    REPLICA,
    REPLICA_LOOK,
    HANDOVER_LEASE,
    HANDOVER_ONE,
    HANDOVER,
    HANDOVER_BACK,
    HANDOVER_FAR,
    TOPIC_READ,
    TOPIC_SEGMENTS,
    GROUP,
    TOPIC_WRITERS,
    TOPIC_END_READ,
    GROUP_RESETS,
    TOPIC_END_WRITER,
    TOPIC_END,
    LENDING_RESET,
    LENDING_TAKES,
    LENDING,
    RELAY_TAKES,
    RELAY,
    RELAY_EMBEDDED,
    RELAY_THREE,
    JOURNAL,
    JOURNAL_RETENTION,
    JOURNAL_ANEW,
    TOKEN_REAPER,
    TOKEN,
    OFFERS,
    OFFERS_GONE,
    LIST,
)

#: One lost reply is enough to miss most rules of pushing, and found sooner.
_PUSH_SMALL = Run("push", "", ("FAULTS=1", "CRASHES=1"))
_PUSH_NO_FAULT = Run("push", "", ("FAULTS=0", "CRASHES=0"))
_PUSH_BOUNDS = {
    "settle_seal": PUSH,
    "gap_stop": _PUSH_NO_FAULT,
    "seal_last": _PUSH_NO_FAULT,
    "age": _PUSH_NO_FAULT,
    "seen_after": _PUSH_NO_FAULT,
}

#: Where a rule of leases is missed the soonest; the others in the smallest bounds, which have no failures.
_LEASE_BOUNDS = {
    "handout_after": _lease("", FAULTS=1),
    "next_decides": _lease("", FAULTS=1),
    "own_op": _lease("", FAULTS=1),
    "clock_first": _lease("", EXPIRIES=1),
    "believe_live": _lease("", EXPIRIES=1),
    "lease_seen": _lease("", EXPIRIES=1, EXTENSIONS=1),
    "fresh_return": _lease("", FAULTS=1, ROLLBACKS=1, EXTENSIONS=1),
    "purge_fence": _lease("", PURGES=1),
    "hold_seen": _lease("", WRITTEN=1, EXPIRIES=1, EXTENSIONS=1),
    "letter_first": LEASE_DEAD,
    "mark_longer": LEASE_DEAD,
    "floor_at_run": _lease("", N=3, EXPIRIES=1),
    "mark_in_row": _lease("", N=3, EXPIRIES=1),
    "tell_all": LEASE_FLOOR,
}

#: Likewise for windows: most need a lost reply, those of clocks and reads none.
_WINDOW_BOUNDS = {
    "window_end": _window(""),
    "check_after": _window(""),
    "window_first": _window(""),
    "end_first": _window(""),
    "read_after": _window(""),
    "cut_at_newest": _window("", KEEPS=1),
    "lease_whole": _window("", KEEPS=1),
    # With all rules these bounds have 18 million states; they were searched by hand.
    "lease_kept": _window("", FAULTS=1, WINDOWS=2, KEEPS=1),
    "window_in_open": _window("", FAULTS=1, WINDOWS=2, POPPERS=1),
    "force_first": _window("", FAULTS=1, WINDOWS=2, POPPERS=1),
    "pusher_cuts": WINDOW_ALONE,
    "purge_cut": WINDOW_KNOCK,
}

_STAGING_BOUNDS = {
    "unfinished": STAGING_NEXT,
    # Either of the two keeps a published pipe: one is missed only where the other is taken away, too.
    "look_again": Run("staging", "", ("FAULTS=1", "CRASHES=1", "NO_LISTED_STAYS")),
    "listed_stays": STAGING_BACK,
    "told_by_list": STAGING_BACK,
    "forgotten": STAGING_ONCE,
}


_HANDOVER_BOUNDS = {
    "one_op": HANDOVER_ONE,
    "cancel_free": HANDOVER_ONE,
    "return_first": HANDOVER_LEASE,
    # Either of the two keeps a published pipe, while no entry comes back.
    "look_twice": _handover("", "NO_LIVE_STAYS"),
    "live_stays": HANDOVER_BACK,
    "far_first": HANDOVER_FAR,
}

_SCHEDULE_BOUNDS = {"due_stays": SCHEDULE_BACK, "row_stays": SCHEDULE_CREATED}

_SLOT_BOUNDS = {
    "win_known": SLOT,
    "fresh_win": SLOT,
    "in_order": SLOT_BACK,
    "older_end": _slot("", "SAME"),
    "mark_attempt": SLOT,
    "floor_attempt": SLOT_ONE,
    "lapsed_back": SLOT_EXTENDED,
    "note_lease": SLOT_BACK,
}

#: Most rules of topics are missed with one lost reply; where not, or not with these actors, it stands here.
_TOPIC_BOUNDS = {
    "link_id": _topic("", CLOSES=0, WRITERS=1),
    "settle_gone": _topic("", RETENTION=1),
    "writers_seen": _topic("", FAULTS=0, WRITERS=2),
    "writers_carried": _topic("", FAULTS=0, WRITERS=2),
    "final_head": _topic("", FAULTS=0, WRITERS=2),
    "retire_first": _topic("", FAULTS=0, RETENTION=1, READERS=1),
    "successor_stands": _topic("", FAULTS=0, RETENTION=1),
    "line_last": _topic("", FAULTS=0, RETENTION=1, CRASHES=1),
    "gone_head": _topic("", FAULTS=0, RETENTION=1, READERS=1),
    "log_gap": _topic("", FAULTS=0, MESSAGES=2, RETENTION=1, READERS=1),
    "gap_settled": _topic("", CLOSES=0, READERS=1),
    "end_retired": _topic("", FAULTS=0, END=1),
    "end_listed": _topic("", FAULTS=0, RETENTION=1, END=1),
}

_GROUP_SMALL = _group("", FAULTS=0, TAKES=2, RESETS=1)
_GROUP_BOUNDS = {"commit_next": _group("", FAULTS=1, TAKES=2, RESETS=1)}

#: Most rules of relays are missed by what a relay of before does late; where not, it stands here.
_RELAY_BOUNDS = {
    "settle_read": _relay("", FAULTS=1),
    "send_again": _relay("", FAULTS=1),
    "roll_settled": RELAY,
    "pipe_epoch": _relay("", ROLLS=1),
    "create_named": _relay("", "EMBEDDED"),
}

#: Most rules of the journal are missed with one lost reply and one crash; where not, it stands here.
_JOURNAL_BOUNDS = {
    "name_incarnation": _journal("", RENEWALS=1),
    "search_rest": _journal("", RETENTION=1),
}


def ablation(rule: Rule) -> Run:
    """Return the search in which a rule is taken away."""
    whole = {
        "push": _PUSH_BOUNDS.get(rule.name, _PUSH_SMALL),
        "lease": _LEASE_BOUNDS.get(rule.name, _lease("")),
        "totals": TOTALS,
        "staging": _STAGING_BOUNDS.get(rule.name, STAGING),
        "reader": READER,
        "replica": REPLICA_LOOK,
        "schedule": _SCHEDULE_BOUNDS.get(rule.name, SCHEDULE_DEAD),
        "handover": _HANDOVER_BOUNDS.get(rule.name, _handover("")),
        "slot": _SLOT_BOUNDS.get(rule.name, _slot("")),
        "list": LIST,
        "topic": _TOPIC_BOUNDS.get(rule.name, _topic("")),
        "relay": _RELAY_BOUNDS.get(rule.name, _relay("")),
        "token": TOKEN if rule.name == "revive_seen" else _token(""),
        "journal": _JOURNAL_BOUNDS.get(rule.name, _journal("")),
        "offers": _offers("", RETENTION=1),
        "group": _GROUP_BOUNDS.get(rule.name, _GROUP_SMALL),
        "lending": _lending("", FAULTS=int(rule.name == "lent_settled")),
        "window": _WINDOW_BOUNDS.get(rule.name, _window("", FAULTS=1)),
    }[rule.file]
    return Run(rule.file, rule.text, whole.bounds, without=rule.name)


ABLATIONS = tuple(ablation(rule) for rule in RULES)
