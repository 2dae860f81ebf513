"""Bugs planted in leases of a group: in what is lent, in who is given up, and in what a token may change."""

from planting import Edit, Mutant, planted

_LENDING = "cassq.topics.lending"
_LENT = "cassq.topics.lent_partition"
_LEASES = "cassq.topics.group_leases"
_LINE = "cassq.topics.group_line"
_LESSORS = "tests/unit/topics/test_lessors_of_groups.py::"

_CHANGE = "self._storage.change_progress(self._group, lease.before, wanted)"


def _in_histories(name: str, module: str, old: str, new: str) -> Mutant:
    """Return a bug of one edit that histories of topics find."""
    return planted(name, module, old, new, about="topics")


def _changed_on(name: str, before: str, wanted: str) -> Mutant:
    """Return a bug in what the change that a token makes is conditional on; `row` is the one that stands."""
    read = "(row := self._storage.read_progress(self._group, lease.partition) or lease.before)"
    return Mutant(
        name,
        (
            Edit(
                _LEASES,
                _CHANGE,
                f"{read} and self._storage.change_progress(self._group, {before}, {wanted})",
            ),
            Edit(
                _LEASES, "from uuid import UUID\n", "from dataclasses import replace\nfrom uuid import UUID\n"
            ),
        ),
        about="topics",
    )


LENDING_MUTANTS: tuple[Mutant, ...] = (
    # What is lent
    _in_histories(
        "lend a partition twice",
        _LENT,
        "        if self.lent or not (self._ready or self.read(self._ready)):\n",
        "        if not (self._ready or self.read(self._ready)):\n",
    ),
    _in_histories(
        "lend on once a look found nothing committed",
        _LENT,
        "        if self.lent is None or after < self.lent.lease.next or self.is_lost:\n",
        "        if self.lent is None or self.is_lost:\n",
    ),
    # Who is given up
    _in_histories(
        "give a client up without letting its partition go",
        _LENDING,
        '"%s: a client had messages of partition %d for too long", share, held.partition)\n'
        "                share.drop(held)\n",
        '"%s: a client had messages of partition %d for too long", share, held.partition)\n'
        "                held.take_back()\n",
    ),
    Mutant(
        "count the time of a client from when it asked",
        (
            Edit(
                _LINE,
                "            self._clients[future] = None\n",
                "            self._clients[future] = None\n            future.asked_at = self._clock.now()\n",
            ),
            Edit(_LENDING, "self._context.clock.now() + client.lease_s", "client.asked_at + client.lease_s"),
        ),
        about="topics",
    ),
    planted(
        "let a partition go that a client has as one that nobody wants",
        _LENDING,
        "(not held.lent and (held.is_leaving or is_idle))",
        "held.is_leaving or is_idle",
        test=_LESSORS + "TestAMember::test_that_nobody_asks_keeps_what_a_client_has",
    ),
    # What a token changes
    _changed_on(
        "commit a lease in whatever epoch it is by now",
        "replace(lease.before, epoch=row.epoch)",
        "replace(wanted, epoch=row.epoch + wanted.epoch - lease.epoch)",
    ),
    _changed_on(
        "commit a lease whatever the offset is by now",
        "replace(lease.before, next=row.next)",
        "wanted",
    ),
    _in_histories(
        "believe that a commit of a lease is written",
        _LEASES,
        "            except OutcomeUnknownError:\n                pass",
        "            except OutcomeUnknownError:\n                return",
    ),
    Mutant(
        "release a lease without a new epoch",
        (
            Edit(
                _LEASES,
                'Progress(lease.partition, lease.epoch + 1, "", lease.first)',
                "lease.before",
            ),
            Edit(
                _LENDING,
                "(held := self._find(lease)) and self._share:\n            self._share.drop(held)\n",
                "held := self._find(lease):\n            held.take_back()\n",
            ),
        ),
        about="topics",
    ),
    planted(
        "take any token for one of this group",
        "cassq.model.group_lease",
        "or not hmac.compare_digest(seal, _seal(group, body))",
        "or not seal",
        test=_LESSORS + "TestTokens::test_are_of_one_group",
    ),
)
