"""What one history is made of: how many actors, how much work, which faults.

Owns the drawing of a plan from a seed. Which kinds of fault occur at all is drawn first (swarm testing): a
history with two kinds of fault, both frequent, finds what one with all of them, each rare, does not.
"""

import math
import random
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from cluster import Odds
from ensemble import SeatOdds

from cassq.popping.timing import POLL_MAX_S
from cassq.pushing.lane import RESEND_S

LEASE_S = 0.5
SKEW_S = 0.05


@dataclass(frozen=True, slots=True)
class Blow:
    """One thing that happens to a process, a node, or the network.

    Attributes:
        at: seconds from the beginning.
        kind: crash, freeze, cut, session; node, which goes down; lost, which is wiped, and replaced after so
            long; or compact, from which on nodes forget deletions.
        target: whom, by place among those of its role; for a node its number.
        role: pusher, popper, reaper, node; operator, where 0 is the one who purges; reader, where -1 is the
            newest.
        seconds: how long, where it ends.
    """

    at: float
    kind: str
    role: str
    target: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Slip:
    """The one call of a process that fails.

    Attributes:
        role, target: whose, as of a blow.
        call: which of its calls to the database and the coordination service, from 1 on.
        how: refused; lost, on the way; unheard, but carried out; late, carried out once it is given up.
    """

    role: str
    target: int
    call: int
    how: Literal["refused", "lost", "unheard", "late"]


@dataclass(frozen=True, slots=True)
class Habits:
    """How likely a consumer does each of these with what it has popped; else it commits at once.

    Attributes:
        roll_back: gives some back, at once or with a delay.
        reject: gives some up for dead letters.
        forget: does nothing; the lease ends.
        dawdle: works until about the end of the lease, and commits then.
        extend: extends the lease, works on, and commits.
        dawdles: how much of a lease who dawdles lets pass.
        commits: how a popper may commit.
    """

    roll_back: float = 0.1
    reject: float = 0.0
    forget: float = 0.04
    dawdle: float = 0.06
    extend: float = 0.08
    dawdles: tuple[float, ...] = (0.9, 0.97, 1.0, 1.1, 1.4)
    commits: tuple[Literal["each", "grouped"], ...] = ("each", "each", "grouped")


@dataclass(frozen=True, slots=True)
class Plan:
    """One history, as it shall go.

    Attributes:
        seed: draws everything that the plan leaves open.
        messages: each pusher's.
        patiences_s: for so long it waits for a push.
        preempt: how likely a task loses its turn at a lock.
        batches: so many bulk writes each pusher does instead of pushing.
        haste: how likely a bulk writer gives a batch up after one error: it discards it, or goes on, at once.
        purges: how often an operator purges the queue meanwhile.
        flows: how likely a popper takes what comes for a flow, whatever the pace: then it leases windows.
        window_messages: numbers of a window.
        consumers: of each process that pops, with a popper each; they share what takes for them.
        reapers: processes that reap and do nothing else.
        readers: so many start drivers of one stream, each one after the other.
        reader_lease_s: the lease of that stream.
        faults_s: faults last so long at least, also when everything is pushed by then.
        lates_s: each pusher's time of day is late by this besides, by place.
        prompt_s: a message waits no longer than this for its first delivery; 0 where faults may delay it.
        operators: so many deal with dead letters, each so many times as `deals` says.
        put_back_s: for so long they wait for a push.
        cancels: so many messages a canceller tries to cancel.
        cancels_in_a_row: how many of them one after the other, without a pause.
        clients: so many lease from the processes that pop, and settle at any of them, by tokens.
        soon: how likely a pop is one by a future, which may be hurried or cancelled.
        ttl_s: the queue's time-to-live; 0 for none.
        own_ttl_s: that of every third push; 0 for none.
        on_expired: what becomes of messages that have waited for longer.
        priorities: pushes have one of so many.
        ageing_s: the queue's.
        types: pushes have one of so many, none among them, and poppers ask for some.
        steers: so often an operator pauses, resumes, or deletes and creates the queue while faults last.
        last_acts: what one does after that, with time for everybody to hear of it.
        slip: the one call that fails.
        lasting_s: pushers and poppers work on with what they have, to the end, and while nothing fails a
            message waits for this at most; 0 where they come and go.
        keys: pushes have one of so many keys, or none; 0: all have none.
        key_order: whether those of a key come in order.
        key_slots: keys fall into so many slots.
        held_max, take_min: so many messages wait for their keys, or are taken together.
        leads_s: pushes are due after one of these; none where there are none.
        spread: each differs from that by half of this part of it at most.
        dated: how likely a push names its due time instead of a delay.
        moves: so many times each of those who move messages by hand moves one.
        movers: how many they are.
        moved_leads_s: messages are due so long after that.
        reprioritised: so often they get another priority instead, where there are some.
        rests_s: who is rolled back rests for so long.
        soon_s, near_s, staged_s, look_after_s: what the schedule's constants of these names are meanwhile;
            its others are in proportion.
        periods_s: schedules say "every so many seconds"; none are set where there are none.
        schedules: so many are set, by one application.
        alterations: so often it sets one again, alters or deletes it.
        pauses: what a process that froze has missed is missed by its clock, too: "told" by its time of day as
            soon as it goes on; "heard" by pushers from the database, at whose looks they stop.
    """

    seed: int
    pushers: int = 1
    poppers: int = 2
    messages: int = 20
    batches: int = 0
    patiences_s: tuple[float, ...] = (0.2, 1, 30)
    push_age_s: float = 0.6
    grace_s: float = 0.6
    pipe_messages_max: int = 20
    push_width: int = 1
    pop_width: int = 4
    max_attempts: int = 1_000_000
    timeout_s: float = 0.25
    preempt: float = 0.1
    haste: float = 0.0
    purges: int = 0
    flows: float = 0.0
    window_messages: int = 10_000
    consumers: int = 1
    reapers: int = 1
    readers: int = 0
    reader_lease_s: float = 1.0
    faults_s: float = 0.0
    lates_s: tuple[float, ...] = (0.0,)
    prompt_s: float = 0.0
    operators: int = 0
    deals: int = 0
    put_back_s: float = 30.0
    cancels: int = 0
    cancels_in_a_row: int = 1
    clients: int = 0
    soon: float = 0.0
    ttl_s: float = 0.0
    own_ttl_s: float = 0.0
    on_expired: Literal["drop", "dead"] = "drop"
    priorities: int = 1
    ageing_s: float = 60.0
    types: int = 1
    keys: int = 0
    key_order: Literal["ordered", "exclusive"] = "ordered"
    key_slots: int = 16
    held_max: int = 2000
    take_min: int = 100
    leads_s: tuple[float, ...] = ()
    spread: float = 0.0
    dated: float = 0.2
    moves: int = 0
    movers: int = 1
    moved_leads_s: tuple[float, ...] = ()
    reprioritised: float = 0.4
    rests_s: tuple[float, ...] = (0, 0, 0.1)
    soon_s: float = 15.0
    near_s: int = 60
    staged_s: float = 600.0
    look_after_s: float = 60.0
    periods_s: tuple[int, ...] = ()
    schedules: int = 1
    alterations: int = 0
    steers: int = 0
    last_acts: tuple[str, ...] = ()
    slip: Slip | None = None
    lasting_s: float = 0.0
    pauses: Literal["", "told", "heard"] = ""
    is_generous: bool = False
    skews_ms: tuple[int, ...] = (0, 0, 0)
    wall_offsets_s: tuple[float, ...] = (0.0,)
    odds: Odds = field(default_factory=Odds)
    seat_odds: SeatOdds = field(default_factory=SeatOdds)
    habits: Habits = field(default_factory=Habits)
    blows: tuple[Blow, ...] = ()

    @property
    def day_s(self) -> float:
        """How long a day of Cassandra's takes, for hints and deletions: nothing is on its way for longer.

        A batch that one replica only gets is sent again for as long as a pusher does so.
        """
        resent_s = RESEND_S if self.odds.parts else 0.0
        asked_s = self.odds.late_s + self.odds.stall_s + self.timeout_s
        return 1.5 + asked_s + self.push_age_s + self.grace_s + resent_s

    @property
    def settings(self) -> dict[str, Any]:
        """The queue's settings."""
        return {
            "lease": timedelta(seconds=LEASE_S),
            "clock_skew_max": timedelta(seconds=SKEW_S),
            "push_age_max": timedelta(seconds=self.push_age_s),
            "push_grace": timedelta(seconds=self.grace_s),
            "pipe_messages_max": self.pipe_messages_max,
            "push_width": self.push_width,
            "pop_width": self.pop_width,
            "max_attempts": self.max_attempts,
            "ttl": timedelta(seconds=self.ttl_s),
            "on_expired": self.on_expired,
            "ageing": timedelta(seconds=self.ageing_s),
            "keys": self.key_order,
            "key_slots": self.key_slots,
        }

    def __str__(self) -> str:
        """Tell what differs from a plan without faults."""
        plain = asdict(Plan(self.seed))
        return ", ".join(f"{name}={value}" for name, value in asdict(self).items() if value != plain[name])


#: In so many of all histories machines are paused.
PAUSED = 0.06

#: A popper that waits looks by itself after so long at most, and then takes a moment.
SLOW_S = POLL_MAX_S + 0.5

#: Where nothing fails any more, and those who work last, a message waits no longer than this: until a popper
#: looks that nobody woke, which it does more seldom by as much as others wait, too.
LASTING_S = 2 * POLL_MAX_S

#: How likely each kind of fault is to occur in a history at all.
_KINDS = {
    "stall": 0.3,
    "never": 0.2,
    "reply_lost": 0.35,
    "refused": 0.15,
    "late": 0.35,
    "partial": 0.3,
    "torn": 0.3,
    "crash": 0.2,
    "freeze": 0.25,
}

#: How likely a request meets it then.
_ODDS = {
    "stall": (0.02, 0.15),
    "never": (0.01, 0.08),
    "reply_lost": (0.02, 0.15),
    "refused": (0.02, 0.1),
    "late": (0.02, 0.15),
    "partial": (0.02, 0.15),
    "torn": (0.1, 0.5),
    "crash": (0.001, 0.006),
    "freeze": (0.002, 0.01),
}


#: In so many histories a node is lost; as many in general are about a narrow theme.
LOST = 0.1
NARROWED = 0.25

#: In so many about bulk writes drivers are hasty.
HASTY = 0.37

#: In so many of those messages have keys.
KEYED = 0.4

#: What so many are about, by theme, with the word that their dice are named by; drawn apart, so that the
#: others are the histories of before.
SHARES = {
    "run readers": ("streams", 0.04),
    "late pushers": ("late pushers", 0.02),
    "dead letters": ("put back", 0.04),
    "cancellations": ("cancelled", 0.04),
    "futures": ("futures", 0.03),
    "expiry": ("expiring", 0.03),
    "priorities": ("urgent", 0.03),
    "types": ("typed", 0.03),
    "schedule": ("scheduled", 0.05),
    "recurring": ("again and again", 0.03),
    "moves": ("moved by hand", 0.05),
    "keys": ("keyed", 0.05),
    "tokens": ("by token", 0.04),
}

#: In so many an operator pauses and deletes the queue, or one call fails; drawn apart as well.
STEERED = 0.01
SLIPS = 0.03


def draw(seed: int, about: str = "") -> Plan:
    """Draw a history's plan.

    Args:
        about: one of `THEMES`, `NARROW` or `APART`; empty leaves it to the seed, which mostly chooses none.
    """
    for theme, (word, share) in SHARES.items():
        if not about and random.Random(f"{word} {seed}").random() < share:
            about = theme
    if not about:
        roll = random.Random(f"lasting {seed}").random()
        about = "operators" if roll < STEERED else "slips" if roll < STEERED + SLIPS else ""
    about = about or _draw_narrow(random.Random(f"narrow {seed}"))
    plan = _draw(seed, about)
    dice = random.Random(f"nodes {seed}")
    if dice.random() >= LOST or plan.prompt_s or plan.slip or any(blow.kind == "lost" for blow in plan.blows):
        return plan
    return replace(plan, blows=_with_a_loss(dice, plan.blows))


def _draw_narrow(dice: random.Random) -> str:
    """Draw which narrow theme a history is about: mostly none, else rather a new one."""
    if dice.random() >= NARROWED:
        return ""
    return dice.choices(list(NARROW), range(1, len(NARROW) + 1))[0]


def _with_a_loss(dice: random.Random, blows: tuple[Blow, ...]) -> tuple[Blow, ...]:
    """Have a node be lost: replaced soon, later, or not any more in this history."""
    lost = Blow(dice.random() * 2, "lost", "node", dice.randrange(3), dice.choice((0.3, 1.0, math.inf)))
    return tuple(sorted((*blows, lost), key=lambda blow: blow.at))


def _draw(seed: int, about: str) -> Plan:
    dice = random.Random(f"plan {seed}")
    odds: dict[str, float] = {}
    for kind, share in _KINDS.items():
        if dice.random() < share:
            low, high = _ODDS[kind]
            odds[kind] = low + dice.random() * (high - low)
    skews = tuple(dice.randrange(int(SKEW_S * 1000)) if dice.random() < 0.4 else 0 for _ in range(3))
    plan = Plan(
        seed,
        pushers=dice.choice((1, 1, 1, 2)),
        poppers=dice.choice((1, 2, 2, 3)),
        messages=dice.choice((3, 6, 12, 20)),
        push_age_s=dice.choice((0.15, 0.3, 0.6)),
        grace_s=dice.choice((0.15, 0.3, 0.6)),
        pipe_messages_max=dice.choice((4, 8, 20)),
        push_width=dice.choice((1, 1, 2)),
        pop_width=dice.choice((1, 4)),
        max_attempts=dice.choice((1_000_000, 1_000_000, 1, 2, 3)),
        timeout_s=dice.choice((0.1, 0.25, 0.7)),
        preempt=dice.choice((0.02, 0.1, 0.3)),
        purges=dice.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 3)),
        is_generous=dice.random() < 0.3,
        skews_ms=skews,
        wall_offsets_s=tuple(dice.choice((0.0, 0.0, -7200.0, 3600.0, 86400.0)) for _ in range(3)),
        odds=Odds(
            **odds,
            slow_replica=dice.choice((0.0, 0.3, 0.8)),
            missed=dice.choice((0.0, 0.5, 1.0)),
            stall_s=dice.choice((0.2, 0.7, 2.0)),
            late_s=dice.choice((0.2, 0.7, 2.0)),
        ),
        seat_odds=SeatOdds(
            refused=dice.choice((0.0, 0.0, 0.1)),
            wake_lost=dice.choice((0.0, 0.0, 0.5)),
            notice_s=dice.choice((0.1, 1.5)),
            doubted=dice.choice((0.0, 0.0, 0.1)),
        ),
    )
    habits = Habits(
        roll_back=dice.choice((0.0, 0.1, 0.3)),
        forget=dice.choice((0.0, 0.05, 0.3)),
        dawdle=dice.choice((0.0, 0.05, 0.3)),
        extend=dice.choice((0.0, 0.05, 0.3)),
    )
    flow = random.Random(f"flow {seed}")
    crew = random.Random(f"crew {seed}")
    plan = replace(
        plan,
        habits=habits,
        flows=flow.choice((0.0, 0.0, 0.5, 1.0)),
        window_messages=flow.choice((1, 3, 10_000)),
        consumers=crew.choice((1, 1, 2, 3)),
    )
    theme = dice.choice((*[""] * 4, *THEMES))
    paused = random.Random(f"pauses {seed}")
    if paused.random() < PAUSED:
        theme = paused.choice(("pauses", "standing pauses", "unseen pauses"))
    if about or theme:
        return {**THEMES, **NARROW, **APART}[about or theme](dice, plan)
    return replace(plan, blows=tuple(_draw_blows(dice, plan)))


def _about_leases(dice: random.Random, plan: Plan) -> Plan:
    """Few messages, in and out of leases that just end, while requests take their time."""
    return replace(
        plan,
        pushers=1,
        messages=dice.choice((1, 2, 4)),
        poppers=dice.choice((2, 3)),
        timeout_s=0.7,
        max_attempts=1_000_000,
        skews_ms=tuple(dice.randrange(int(SKEW_S * 1000)) for _ in range(3)),
        odds=Odds(
            stall=0.1 + 0.3 * dice.random(),
            stall_s=dice.choice((0.1, 0.3, 0.6)),
            never=dice.choice((0.0, 0.15)),
            torn=0.1,
        ),
        habits=Habits(roll_back=0.05, forget=0.1, dawdle=0.3, extend=0.5),
    )


def _about_splits(dice: random.Random, plan: Plan) -> Plan:
    """Runs that are torn apart: some of it goes back, some is committed, some forgotten."""
    return replace(
        plan,
        pushers=1,
        messages=dice.choice((8, 16, 30)),
        pipe_messages_max=40,
        push_age_s=0.6,
        poppers=dice.choice((1, 1, 2)),
        pop_width=4,
        max_attempts=1_000_000,
        habits=Habits(roll_back=0.3, forget=0.2, dawdle=0.1, extend=0.05),
        odds=Odds(late=dice.choice((0.0, 0.2)), late_s=dice.choice((0.5, 1.5)), ambush=0.3),
        blows=(),
    )


def _about_seals(dice: random.Random, plan: Plan) -> Plan:
    """Pushers and reapers that stop for about as long as a pipe may be pushed into."""
    age_s, grace_s = dice.choice((0.1, 0.15)), dice.choice((0.1, 0.15, 0.3))
    stops = [
        Blow(dice.random(), "freeze", dice.choice(("pusher", "pusher", "reaper")), 0, seconds)
        for seconds in (age_s + grace_s / 2, age_s + grace_s + 0.05, age_s + grace_s + 0.2, 2 * age_s)
    ]
    return replace(
        plan,
        pushers=1,
        messages=dice.choice((6, 12, 20)),
        poppers=dice.choice((1, 2)),
        push_age_s=age_s,
        grace_s=grace_s,
        timeout_s=0.7,
        pipe_messages_max=20,
        odds=replace(
            plan.odds, stall=0.15, stall_s=dice.choice((0.2, 0.4, 0.6)), freeze=0.015, torn=0.2, never=0.0
        ),
        blows=tuple(sorted(stops[: dice.randrange(5)], key=lambda blow: blow.at)),
    )


def _about_commits(dice: random.Random, plan: Plan) -> Plan:
    """Commits at the very end of a lease, whose answers take their time, and a second popper that waits."""
    return replace(
        _about_leases(dice, plan),
        messages=dice.choice((3, 6)),
        poppers=2,
        odds=Odds(stall=0.4, stall_s=0.6, torn=0.1),
        habits=Habits(roll_back=0.0, forget=0.0, dawdle=0.9, extend=0.0, dawdles=(0.9,), commits=("each",)),
    )


def _about_extensions(dice: random.Random, plan: Plan) -> Plan:
    """Extensions that are sent just before a lease ends, and land about when somebody else takes it over."""
    return replace(
        _about_leases(dice, plan),
        messages=dice.choice((2, 4)),
        poppers=3,
        is_generous=True,
        odds=Odds(stall=0.5, stall_s=dice.choice((0.1, 0.3)), torn=0.0),
        habits=Habits(roll_back=0.0, forget=0.0, dawdle=0.0, extend=0.95),
        blows=(),
    )


def _about_groups(dice: random.Random, plan: Plan) -> Plan:
    """Commits in groups, of several runs and at the very end of a lease."""
    return replace(
        _about_splits(dice, plan),
        pop_width=1,
        consumers=dice.choice((1, 2)),
        odds=Odds(stall=dice.choice((0.0, 0.3)), stall_s=dice.choice((0.1, 0.6)), refused=0.1),
        habits=Habits(roll_back=0.2, forget=0.1, dawdle=0.3, extend=0.1, commits=("grouped",)),
    )


def _about_purges(dice: random.Random, plan: Plan) -> Plan:
    """An operator who purges while messages are out, come back and go on being pushed."""
    return replace(
        _about_splits(dice, plan),
        purges=dice.choice((1, 2, 3)),
        habits=Habits(roll_back=0.3, forget=0.3, dawdle=0.2, extend=0.1),
    )


def _about_cancellations(dice: random.Random, plan: Plan) -> Plan:
    """Somebody who cancels what was pushed, mostly the oldest in a row, while pushers and poppers die."""
    cancelling = replace(
        plan,
        messages=dice.choice((6, 12, 20)),
        purges=0,
        max_attempts=dice.choice((1_000_000, 1_000_000, 2, 3)),
        pipe_messages_max=dice.choice((4, 8, 20)),
        cancels=dice.choice((3, 8, 20)),
        cancels_in_a_row=dice.choice((1, 3, 8)),
        habits=Habits(roll_back=dice.choice((0.1, 0.3)), forget=0.2, dawdle=0.2, extend=0.1),
    )
    blows = tuple(_draw_blows(dice, cancelling))
    if dice.random() < 0.4:
        blows += (Blow(dice.random() * 1.2, "crash", "pusher", 0, 0.0),)
    return replace(cancelling, blows=tuple(sorted(blows, key=lambda blow: blow.at)))


def _about_futures(dice: random.Random, plan: Plan) -> Plan:
    """Consumers that pop by futures, in processes that die, and hurry or cancel them as messages come."""
    popping = replace(
        plan,
        messages=dice.choice((6, 12, 20)),
        consumers=dice.choice((1, 2, 3)),
        purges=0,
        soon=dice.choice((0.3, 0.9)),
    )
    return replace(popping, blows=tuple(_draw_blows(dice, popping)))


def _about_tokens(dice: random.Random, plan: Plan) -> Plan:
    """Clients that lease by tokens: each call goes to any process, may get lost there, and is sent again."""
    struck = replace(
        plan,
        pushers=1,
        messages=dice.choice((4, 8, 16)),
        poppers=dice.choice((2, 2, 3)),
        consumers=1,
        clients=dice.choice((1, 2, 3)),
        max_attempts=dice.choice((1_000_000, 1_000_000, 3)),
        purges=0,
        flows=0.0,
        faults_s=dice.choice((2.0, 4.0)),
        skews_ms=tuple(dice.choice((0, int(SKEW_S * 1000) - 1)) for _ in range(3)),
        rests_s=dice.choice(((0, 0, 0.1), (0.0, 0.5))),
        odds=replace(
            plan.odds,
            stall=dice.choice((0.0, 0.1, 0.3)),
            stall_s=dice.choice((0.1, 0.3, 0.6)),
            late=dice.choice((0.0, 0.1, 0.3)),
            late_s=dice.choice((0.3, 1.0)),
            torn=dice.choice((0.0, 0.2)),
        ),
    )
    if dice.random() < 0.5:
        return replace(struck, blows=tuple(_draw_blows(dice, struck)))
    # Answers that take about as long as what is left of a lease, and nothing else.
    slow = Odds(stall=0.2 + 0.3 * dice.random(), stall_s=dice.choice((0.3, 0.6)), late=struck.odds.late)
    return replace(struck, timeout_s=0.7, messages=dice.choice((2, 4)), clients=3, odds=slow, blows=())


def _about_priorities(dice: random.Random, plan: Plan) -> Plan:
    """Messages of several priorities in small pipes, of which poppers have room for few."""
    urgent = replace(
        plan,
        messages=dice.choice((12, 20, 40)),
        pushers=dice.choice((1, 2)),
        pipe_messages_max=dice.choice((2, 5, 20)),
        pop_width=dice.choice((1, 2, 4)),
        push_width=dice.choice((1, 2)),
        priorities=dice.choice((2, 3, 10)),
        ageing_s=dice.choice((0.0, 0.2, 60.0)),
        **dice.choice(({}, {}, {"ttl_s": 1.0}, {"own_ttl_s": 1.0, "purges": 0})),
    )
    return replace(urgent, blows=tuple(_draw_blows(dice, urgent)))


def _about_types(dice: random.Random, plan: Plan) -> Plan:
    """Messages of several types, which some consumers ask for, and dead letters that are put back."""
    typed = replace(
        plan,
        messages=dice.choice((12, 20, 40)),
        pushers=dice.choice((1, 2)),
        pipe_messages_max=dice.choice((2, 5, 20)),
        pop_width=dice.choice((1, 2, 4)),
        consumers=dice.choice((1, 2, 3)),
        types=dice.choice((2, 3, 5)),
        priorities=dice.choice((1, 1, 3)),
        **dice.choice(({}, {"max_attempts": 2, "operators": 1, "deals": 4})),
    )
    return replace(typed, blows=tuple(_draw_blows(dice, typed)))


def _about_keys(dice: random.Random, plan: Plan) -> Plan:
    """Messages with keys, one of each at a time: poppers die, freeze and lose their slots."""
    keyed = replace(
        plan,
        messages=dice.choice((12, 20, 40)),
        pushers=dice.choice((1, 2)),
        poppers=dice.choice((2, 3)),
        consumers=dice.choice((1, 2, 3)),
        pipe_messages_max=dice.choice((2, 5, 20)),
        keys=dice.choice((1, 2, 4)),
        key_slots=dice.choice((1, 2)),
        held_max=dice.choice((1, 3, 2000)),
        take_min=dice.choice((1, 3, 100)),
        key_order=dice.choice(("ordered", "exclusive")),
        priorities=dice.choice((1, 1, 3)),
        types=dice.choice((1, 1, 3)),
        max_attempts=1_000_000,
        push_width=dice.choice((1, 2)),
    )
    blows = tuple(_draw_blows(dice, keyed))
    return replace(keyed, blows=blows, **dice.choice(({}, {}, {"ttl_s": 1.0}, {"ttl_s": 2.0, "purges": 0})))


def _about_expiry(dice: random.Random, plan: Plan) -> Plan:
    """Messages that wait for too long: those who pop stop, die, and let leases end again and again."""
    expiring = replace(
        plan,
        messages=dice.choice((6, 12, 20)),
        poppers=dice.choice((1, 1, 2)),
        max_attempts=dice.choice((1_000_000, 1_000_000, 3)),
        reapers=dice.choice((1, 2)),
        **dice.choice(({"ttl_s": 1.0}, {"own_ttl_s": 1.0}, {"ttl_s": 1.0, "own_ttl_s": 2.5})),
        on_expired=dice.choice(("drop", "drop", "dead")),
        faults_s=dice.choice((1.5, 2.5, 4.0)),
        # Who cancels what was purged is told that it is, so that both at once would count twice.
        **dice.choice(({"purges": 0}, {"purges": 1}, {"purges": 0, "cancels": 6, "cancels_in_a_row": 4})),
        habits=Habits(
            roll_back=dice.choice((0.1, 0.4)), forget=dice.choice((0.1, 0.5)), dawdle=0.2, extend=0.1
        ),
    )
    stops = [
        Blow(dice.random(), dice.choice(("crash", "freeze", "cut")), "popper", place, 0.5 + 2 * dice.random())
        for place in range(expiring.poppers)
        for _ in range(dice.choice((0, 1, 2)))
    ]
    blows = [*_draw_blows(dice, expiring), *stops]
    return replace(expiring, blows=tuple(sorted(blows, key=lambda blow: blow.at)))


def _about_schedule(dice: random.Random, plan: Plan) -> Plan:
    """Messages that are due later, by constant and random leads, while those who keep the schedule stop."""
    leads_s = dice.choice(
        (
            (0.0, 0.05, 0.5, 1.4, 1.6),
            (0.0, 2.0, 4.0),
            (1.6, 3.0, 3.0, 5.0),
            (2.0, 3.0, 7.0, 12.0),
            (0.2, 3.0, 6.0, 20.0),
            (3.0, 5.0, 2 * 3600.0),
        )
    )
    scheduled = replace(
        plan,
        leads_s=leads_s,
        spread=dice.choice((0.0, 0.2, 1.0)),
        soon_s=1.5,
        near_s=dice.choice((2, 6)),
        staged_s=dice.choice((0.3, 0.3, 1.0, 600.0)),
        look_after_s=dice.choice((0.2, 1.0, 6.0)),
        messages=dice.choice((6, 12, 20)),
        pushers=dice.choice((1, 1, 2)),
        poppers=dice.choice((1, 2)),
        pipe_messages_max=dice.choice((4, 20)),
        push_width=1,
        max_attempts=dice.choice((1_000_000, 1_000_000, 2)),
        faults_s=dice.choice((4.0, 8.0)),
        reapers=dice.choice((0, 1, 2)),
        **dice.choice(({"purges": 0}, {"purges": 0, "cancels": 8}, {"purges": dice.choice((1, 3))})),
    )
    if dice.random() < 0.3:
        # Where nothing fails nothing may be late.
        return replace(
            scheduled,
            purges=0,
            max_attempts=1_000_000,
            is_generous=False,
            leads_s=dice.choice((leads_s, leads_s, (7.0, 20.0))),
            wall_offsets_s=plan.wall_offsets_s[:1],
            **dice.choice(({}, {"push_age_s": 4.0, "grace_s": 4.0})),
            prompt_s=LASTING_S + 0.5,  # the first of them is heard of by a look at the record
            odds=Odds(slow_replica=plan.odds.slow_replica),
            seat_odds=SeatOdds(),
            habits=Habits(roll_back=0.0, forget=0.0, dawdle=0.0, extend=0.0),
            blows=(),
        )
    odds = replace(
        plan.odds,
        freeze=dice.choice((0.0, 0.005, 0.02)),
        crash=dice.choice((0.0, 0.0, 0.003, 0.01)),
        parts=dice.choice((0.0, 0.0, 0.0, 0.1)),
    )
    struck = replace(
        scheduled,
        odds=odds,
        types=dice.choice((1, 1, 3)),
        priorities=dice.choice((1, 1, 3)),
        **dice.choice(
            ({}, {}, {}, {"own_ttl_s": 1.0, "purges": 0, "on_expired": dice.choice(("drop", "dead"))})
        ),
    )
    return replace(struck, blows=tuple(_draw_stops(dice, struck)))


def _about_recurring(dice: random.Random, plan: Plan) -> Plan:
    """Schedules that are set, altered and deleted, while those who keep them stop."""
    recurring = replace(
        plan,
        periods_s=dice.choice(((1,), (1, 2), (2, 3), (1, 5))),
        schedules=dice.choice((1, 1, 2)),
        alterations=dice.choice((0, 2, 6, 12)),
        messages=dice.choice((2, 6)),
        pushers=1,
        poppers=dice.choice((1, 2)),
        max_attempts=1_000_000,
        purges=0,
        reapers=dice.choice((0, 1, 2)),
        faults_s=dice.choice((4.0, 8.0)),
    )
    if dice.random() < 0.15:
        # Where nothing fails nothing is missed, and nothing late.
        return replace(
            recurring,
            is_generous=False,
            wall_offsets_s=plan.wall_offsets_s[:1],
            prompt_s=LASTING_S + 0.5,
            odds=Odds(slow_replica=plan.odds.slow_replica),
            seat_odds=SeatOdds(),
            habits=Habits(roll_back=0.0, forget=0.0, dawdle=0.0, extend=0.0),
            blows=(),
        )
    struck = replace(
        recurring,
        soon_s=dice.choice((1.5, 1.5, 3.0)),
        near_s=dice.choice((2, 6)),
        # Whoever looks after what is staged may do so at any time: that it waits only spares work.
        staged_s=dice.choice((-4.0, 0.3, 1.0, 600.0)),
        look_after_s=dice.choice((0.1, 0.2, 1.0, 6.0)),
        odds=replace(
            plan.odds,
            freeze=dice.choice((0.0, 0.005, 0.02)),
            crash=dice.choice((0.0, 0.0, 0.003, 0.01)),
            late=dice.choice((0.0, plan.odds.late, 0.15)),
        ),
    )
    return replace(struck, blows=tuple(_draw_stops(dice, struck)))


def _about_moves(dice: random.Random, plan: Plan) -> Plan:
    """Single messages that get another due time or priority, while others take, return and cancel them."""
    if dice.random() < 0.5:
        base = replace(_about_schedule(dice, plan), own_ttl_s=0.0)
    else:
        base = replace(
            _about_priorities(dice, plan),
            ttl_s=0.0,
            own_ttl_s=0.0,
            soon_s=1.5,
            near_s=dice.choice((2, 6)),
            staged_s=dice.choice((0.3, 1.0, 600.0)),
            look_after_s=dice.choice((0.2, 1.0, 6.0)),
            faults_s=dice.choice((3.0, 6.0)),
            reapers=dice.choice((1, 2)),
            **dice.choice(({"purges": 0}, {"purges": 0, "cancels": 8}, {"purges": 1})),
        )
    moving = replace(
        base,
        moves=dice.choice((6, 12, 20)),
        movers=dice.choice((1, 2, 2, 3)),
        priorities=dice.choice((1, 3, 3, 10)),
        moved_leads_s=dice.choice(
            ((0.0, 0.5, 2.0), (0.0, 0.0, 1.0), (2.0, 3.0, 5.0), (0.0, 3.0, 8.0), (0.0, 3.0, 2 * 3600.0))
        ),
        rests_s=dice.choice(((0.0, 0.1), (0.0, 0.5, 1.5), (1.0, 3.0))),
        reprioritised=dice.choice((0.2, 0.5)),
        max_attempts=dice.choice((1_000_000, 1_000_000, 2, 3)),
        # Who moves what a consumer dawdles over finds that its lease has ended.
        habits=replace(base.habits, roll_back=dice.choice((0.1, 0.4, 0.7)))
        if base.prompt_s
        else Habits(
            roll_back=dice.choice((0.2, 0.5, 0.8)),
            forget=dice.choice((0.0, 0.1, 0.3)),
            dawdle=dice.choice((0.0, 0.2)),
            extend=dice.choice((0.0, 0.1)),
        ),
    )
    if base.prompt_s:
        return moving
    struck = [
        Blow(dice.random() * moving.faults_s, dice.choice(("crash", "freeze", "cut")), "operator", place, 0.5)
        for place in range(1, 1 + moving.movers)
        for _ in range(dice.choice((0, 0, 1)))
    ]
    return replace(moving, blows=tuple(sorted((*base.blows, *struck), key=lambda blow: blow.at)))


def _draw_stops(dice: random.Random, plan: Plan) -> list[Blow]:
    """Draw what happens all the time that faults last, to those who keep the schedule most often."""
    blows: list[Blow] = []
    for _ in range(dice.choice((0, 1, 2, 4, 8))):
        kind = dice.choice(("crash", "freeze", "freeze", "cut", "session", "node", "compact"))
        roles = ("pusher", "popper", "popper", *["reaper"] * 2 * min(1, plan.reapers))
        role = "node" if kind in {"node", "compact"} else dice.choice(roles)
        number = {"pusher": plan.pushers, "popper": plan.poppers, "node": 3, "reaper": plan.reapers}[role]
        seconds = dice.choice((0.1, 0.4, 1.0, 3.0))
        blows.append(Blow(dice.random() * plan.faults_s, kind, role, dice.randrange(number), seconds))
    return sorted(blows, key=lambda blow: blow.at)


def _about_totals(dice: random.Random, plan: Plan) -> Plan:
    """Pipes of one or two messages, all over at about the same time, and more than one who reaps them."""
    return replace(
        plan,
        messages=dice.choice((8, 12)),
        poppers=2,
        pipe_messages_max=dice.choice((1, 2)),
        max_attempts=1_000_000,
        reapers=3,
        odds=Odds(stall=0.1, stall_s=dice.choice((0.1, 0.3)), slow_replica=0.3),
        habits=Habits(roll_back=0.0, forget=0.0, dawdle=0.0, extend=0.0),
        blows=(),
    )


def _about_windows(dice: random.Random, plan: Plan) -> Plan:
    """A flow into one popper, which holds a window while pushes get lost, time out, and pipes are sealed."""
    flowing = replace(
        plan,
        pushers=1,
        messages=dice.choice((12, 20, 30)),
        poppers=dice.choice((1, 1, 2)),
        push_age_s=dice.choice((0.3, 0.6, 1.2)),
        pipe_messages_max=40,
        push_width=1,
        timeout_s=dice.choice((0.1, 0.25)),
        flows=dice.choice((0.7, 1.0)),
    )
    return replace(flowing, blows=tuple(_draw_blows(dice, flowing)))


def _about_standing_windows(dice: random.Random, plan: Plan) -> Plan:
    """A popper that stops in the middle of a request, with a window in its hands, and one after it."""
    return replace(
        _about_windows(dice, plan),
        poppers=2,
        consumers=1,
        timeout_s=0.7,
        window_messages=dice.choice((2, 5)),
        odds=Odds(freeze=0.04, stall=0.05, stall_s=0.6),
        seat_odds=SeatOdds(notice_s=0.1),
        habits=Habits(roll_back=0.0, forget=0.1, dawdle=0.3, extend=0.0, dawdles=(0.9, 1.0)),
        blows=(),
    )


def _about_bulk_writes(dice: random.Random, plan: Plan) -> Plan:
    """Two drivers of one writer that stage and publish, among nodes that forget what they missed."""
    writing = replace(
        plan,
        pushers=2,
        batches=dice.choice((1, 2, 3)),
        poppers=dice.choice((1, 2)),
        pipe_messages_max=dice.choice((2, 4)),
        max_attempts=1_000_000,
        purges=0,
        odds=replace(
            plan.odds,
            reply_lost=dice.choice((0.0, 0.1)),
            late=dice.choice((0.0, 0.15, 0.4)),
            slow_replica=dice.choice((0.3, 0.8)),
            missed=1.0,
        ),
        habits=Habits(roll_back=0.0, forget=0.0, dawdle=0.0, extend=0.0),
    )
    blows = tuple(_draw_blows(dice, writing))
    # Where the drivers' times of day are hours apart what they stage is refused, or never old.
    offsets_s = dice.choice(((0.0,), (0.0,), (-0.5, 0.0, 1.0)))
    writing = replace(writing, blows=blows, wall_offsets_s=offsets_s)
    drivers = random.Random(f"drivers {plan.seed}")
    if drivers.random() >= 1 - HASTY:
        writing = _with_haste(drivers, writing)
    steering = random.Random(f"what steers {plan.seed}")
    return _with_keys(steering, writing) if steering.random() < KEYED else writing


def _with_keys(dice: random.Random, plan: Plan) -> Plan:
    """Have messages of bulk writes keys and priorities, so that each attempt fills pipes of several lists."""
    return replace(
        plan,
        keys=dice.choice((1, 2, 4)),
        key_slots=dice.choice((1, 2)),
        key_order=dice.choice(("ordered", "exclusive")),
        held_max=dice.choice((1, 2000)),
        take_min=dice.choice((1, 100)),
        priorities=dice.choice((1, 2)),
    )


def _with_haste(dice: random.Random, plan: Plan) -> Plan:
    """Have drivers give up soon, while what they decided is still on its way."""
    return replace(
        plan,
        pushers=dice.choice((2, 2, 3)),
        batches=dice.choice((2, 3, 4)),
        haste=dice.choice((0.5, 1.0)),
        reapers=0,  # who looks at the record meanwhile has what is on its way land too soon
        blows=tuple(blow for blow in plan.blows if blow.role != "reaper"),
        odds=replace(plan.odds, outage=dice.choice((0.1, 0.3)), ambush=0.7, never=0.0),
    )


def _about_pauses(dice: random.Random, plan: Plan) -> Plan:
    """Machines that are paused: their elapsed time stands still, and their time of day tells how long."""
    about = dice.choice((_about_leases, _about_seals, _about_windows, _about_commits))
    return replace(_with_freezes(dice, about(dice, plan)), pauses="told")


def _with_freezes(dice: random.Random, plan: Plan) -> Plan:
    return replace(plan, odds=replace(plan.odds, freeze=dice.choice((0.005, 0.02, 0.04))))


def _about_standing_pauses(dice: random.Random, plan: Plan) -> Plan:
    """A popper whose machine is paused with a window in its hands."""
    return replace(_about_standing_windows(dice, plan), pauses="told")


def _about_unseen_pauses(dice: random.Random, plan: Plan) -> Plan:
    """Pushers whose machine is paused just before they look at the record: the database alone tells."""
    seals = _about_seals(dice, plan)
    return replace(
        seals,
        pipe_messages_max=40,
        push_age_s=0.6,
        push_width=1,
        messages=20,
        pauses="heard",
        odds=Odds(torn=seals.odds.torn, slow_replica=seals.odds.slow_replica, missed=seals.odds.missed),
        blows=(),
    )


def _about_parts(dice: random.Random, plan: Plan) -> Plan:
    """Pushes that one replica has, others who decide what became of them, and a node that is lost."""
    flowing = _about_windows(dice, plan)
    lost = Blow(0.3 + dice.random(), "lost", "node", dice.randrange(3), dice.choice((0.3, math.inf)))
    stops = [Blow(dice.random(), "crash", "popper", 0), Blow(dice.random(), "freeze", "popper", 0, 1.5)]
    return replace(
        flowing,
        poppers=2,
        flows=1.0,
        timeout_s=0.1,
        odds=Odds(parts=dice.choice((0.1, 0.3)), missed=1.0, freeze=0.03),
        patiences_s=(1.0,),
        blows=tuple(sorted((lost, *stops[: dice.randrange(3)]), key=lambda blow: blow.at)),
    )


def _about_run_readers(dice: random.Random, plan: Plan) -> Plan:
    """Drivers of one stream that stop, die, lose their name and come again, beside a popper."""
    reading = replace(
        plan,
        pushers=1,
        messages=dice.choice((12, 20, 40)),
        poppers=dice.choice((0, 1, 1)),
        consumers=1,
        max_attempts=1_000_000,
        purges=0,
        faults_s=dice.choice((1.5, 3.0)),
        readers=dice.choice((1, 2, 2)),
        reader_lease_s=dice.choice((0.5, 1.5, 4.0)),
        is_generous=False,
        pauses=dice.choice(("", "", "told")),
        odds=replace(plan.odds, freeze=dice.choice((0.0, 0.01, 0.03)), crash=dice.choice((0.0, 0.003))),
        habits=Habits(roll_back=0.2, forget=0.1, dawdle=0.2, extend=0.1),
    )
    struck = [
        Blow(dice.random() * 2, dice.choice(("crash", "freeze", "session")), "reader", -1, dice.random())
        for _ in range(dice.choice((0, 1, 2, 4)))
    ]
    others = _draw_blows(dice, replace(reading, poppers=1))
    blows = [blow for blow in others if reading.poppers or blow.role != "popper"]
    return replace(reading, blows=tuple(sorted([*blows, *struck], key=lambda blow: blow.at)))


def _about_late_pushers(dice: random.Random, plan: Plan) -> Plan:
    """Pushers of which one's clock is late, without a fault: nobody waits until all of the list is read."""
    late_s = dice.choice((SKEW_S / 2, 0.3, 1.0))
    return replace(
        plan,
        pushers=2,
        poppers=1,
        consumers=1,
        messages=dice.choice((12, 20)),
        push_age_s=60.0,
        grace_s=20.0,
        pipe_messages_max=dice.choice((2, 4)),
        push_width=1,
        max_attempts=1_000_000,
        purges=0,
        faults_s=6.0,
        wall_offsets_s=plan.wall_offsets_s[:1],  # else clocks are late by hours
        lates_s=(0.0, late_s),
        prompt_s=2 * late_s + SLOW_S,
        odds=Odds(slow_replica=plan.odds.slow_replica),
        seat_odds=SeatOdds(),
        habits=Habits(roll_back=0.0, forget=0.0, dawdle=0.0, extend=0.0),
        blows=(),
    )


def _about_dead_letters(dice: random.Random, plan: Plan) -> Plan:
    """Operators who put dead letters back and discard others, at once, while consumers give up most."""
    dying = replace(
        plan,
        pushers=1,
        messages=dice.choice((3, 6, 12)),
        poppers=dice.choice((1, 2)),
        max_attempts=dice.choice((1, 1, 2)),
        faults_s=dice.choice((2.0, 3.0)),
        operators=dice.choice((1, 2, 2, 3)),
        deals=dice.choice((4, 8, 16)),
        put_back_s=dice.choice((0.2, 0.2, 1.0, 30.0)),
        odds=replace(
            plan.odds,
            crash=dice.choice((0.0, 0.003, 0.02)),
            freeze=dice.choice((0.0, 0.01, 0.03)),
            reply_lost=dice.choice((0.0, 0.15)),
            late=dice.choice((0.0, 0.15)),
        ),
        habits=replace(plan.habits, roll_back=0.7, forget=dice.choice((0.0, 0.2)), extend=0.0),
    )
    struck = [
        Blow(dice.random() * 2, dice.choice(("crash", "freeze", "cut")), "operator", 1, dice.random())
        for _ in range(dice.choice((0, 0, 1, 2)))
    ]
    blows = [*_draw_blows(dice, dying), *struck]
    return replace(
        dying,
        blows=tuple(sorted(blows, key=lambda blow: blow.at)),
        habits=replace(dying.habits, reject=dice.choice((0.0, 0.1, 0.2))),
    )


def _about_operators(dice: random.Random, plan: Plan) -> Plan:
    """An operator who pauses, resumes, deletes and creates the queue while others work and faults last."""
    steered = replace(
        plan,
        pushers=dice.choice((1, 2)),
        messages=dice.choice((6, 12)),
        patiences_s=(0.2, 1, 3),
        max_attempts=1_000_000,
        purges=0,
        faults_s=dice.choice((1.0, 2.5)),
        steers=dice.choice((0, 2, 6)),
        last_acts=dice.choice((("pause",), ("delete",), ("pause", "delete"), ("delete", "delete"))),
        lasting_s=LASTING_S,
        odds=replace(plan.odds, late_s=min(plan.odds.late_s, 0.7)),
        seat_odds=replace(plan.seat_odds, notice_s=0.1),
    )
    return replace(steered, blows=tuple(_draw_blows(dice, steered)))


def _about_slips(dice: random.Random, plan: Plan) -> Plan:
    """One call of anybody's fails, once, and all must go on as if it had not."""
    role = dice.choice(("pusher", "popper", "popper", "reaper"))
    numbers = {"pusher": 1, "popper": dice.choice((1, 1, 2)), "reaper": 1}
    call = int(math.exp(dice.random() * math.log(120)))
    how = dice.choice(("refused", "lost", "unheard", "late"))
    return replace(
        plan,
        pushers=numbers["pusher"],
        poppers=numbers["popper"],
        messages=dice.choice((6, 12)),
        max_attempts=1_000_000,
        purges=0,
        faults_s=0.5,
        last_acts=dice.choice(((), (), ("pause",), ("delete",))),
        slip=Slip(role, dice.randrange(numbers[role]), call, how),
        lasting_s=LASTING_S,
        odds=Odds(slow_replica=plan.odds.slow_replica, late_s=0.7),
        seat_odds=SeatOdds(),
        habits=Habits(roll_back=0.0, forget=0.0, dawdle=0.0, extend=0.0),
        blows=(),
    )


#: What a history may be about.
THEMES = {"leases": _about_leases, "splits": _about_splits, "seals": _about_seals}

#: What a history is about that looks for one kind of bug, oldest first. The n-th is drawn n times as often as
#: the first, so that what is new is looked at most.
NARROW = {
    "commits": _about_commits,
    "extensions": _about_extensions,
    "groups": _about_groups,
    "totals": _about_totals,
    "purges": _about_purges,
    "windows": _about_windows,
    "standing windows": _about_standing_windows,
    "bulk writes": _about_bulk_writes,
    "pauses": _about_pauses,
    "standing pauses": _about_standing_pauses,
    "unseen pauses": _about_unseen_pauses,
    "parts": _about_parts,
}

#: What a history is about whose share is drawn apart.
APART = {
    "run readers": _about_run_readers,
    "late pushers": _about_late_pushers,
    "dead letters": _about_dead_letters,
    "cancellations": _about_cancellations,
    "futures": _about_futures,
    "tokens": _about_tokens,
    "expiry": _about_expiry,
    "priorities": _about_priorities,
    "types": _about_types,
    "schedule": _about_schedule,
    "recurring": _about_recurring,
    "moves": _about_moves,
    "keys": _about_keys,
    "operators": _about_operators,
    "slips": _about_slips,
}


def _draw_blows(dice: random.Random, plan: Plan) -> list[Blow]:
    kinds = [kind for kind in ("crash", "freeze", "cut", "session", "node", "compact") if dice.random() < 0.3]
    blows: list[Blow] = []
    for _ in range(dice.choice((0, 1, 2, 4)) if kinds else 0):
        kind = dice.choice(kinds)
        role = (
            "node" if kind in {"node", "compact"} else dice.choice(("pusher", "popper", "popper", "reaper"))
        )
        number = {"pusher": plan.pushers, "popper": plan.poppers, "node": 3}.get(role, 1)
        seconds = dice.choice((0.1, 0.4, 1.0, plan.push_age_s + plan.grace_s + 0.2))
        blows.append(Blow(dice.random() * 1.5, kind, role, dice.randrange(number), seconds))
    return sorted(blows, key=lambda blow: blow.at)
