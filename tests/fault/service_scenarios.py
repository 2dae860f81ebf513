"""What befalls services and their clients, on any store."""

import random

from crew import SEED
from service_crew import MEMORY_MIB, SERVICES, ServiceCrew

from cassq.verification.ledger import Kind


def services_are_killed(team: ServiceCrew, rounds: int) -> None:
    """Kill a service at random while clients come, leave and misbehave; now and then kill a client, too."""
    dice = random.Random(SEED)
    team.start_services()
    team.start("pusher", 2)
    team.start("popper", 3)
    team.start("stranger", 1)
    team.await_more(Kind.ACKNOWLEDGED, "pusher")
    team.await_more(Kind.COMMITTED, "popper")
    for _ in range(rounds):
        team.await_any(Kind.DELIVERED, "popper", dice.randrange(1, 60))
        number = dice.randrange(SERVICES)
        team.kill_service(number)
        # The others go on meanwhile.
        team.await_any(Kind.COMMITTED, "popper")
        team.await_any(Kind.ACKNOWLEDGED, "pusher")
        if dice.random() < 0.3:
            victim = dice.choice([*team.of("popper"), *team.of("pusher")])
            team.start(victim.role)
            team.kill(victim)
        team.serve(number)
        team.await_any(Kind.HOLDING, "stranger")
    team.await_any(Kind.EXTENDED, "popper")
    _finish(team)


def _finish(team: ServiceCrew) -> None:
    end = team.reckon()
    memory = [round(each) for each in team.memory_mib]
    ways = {line.words for line in end.lines if line.kind is Kind.HOLDING}
    story = f"CASSQ_FAULT_SEED={team.seed}: {end.verdict}; {end.stats}; {memory} MiB; strangers: {ways}"
    print(story)  # noqa: T201 - shown by pytest when the test fails, and by -s
    broken = end.broken()
    assert not broken, f"{'; '.join(broken)}; {story}"
    assert max(memory) < MEMORY_MIB, story
