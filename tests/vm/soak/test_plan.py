"""The plan of a soak: the same for the same seed, and nothing is left out."""

from itertools import islice

from tests.vm.soak.plan import (
    DEVICES,
    LONGEST_PAUSE,
    LONGEST_ROUND,
    WEIGHTS,
    Round,
    first_round,
    rounds,
)


def plan(seed: int, seconds: float = 600.0, count: int = 20) -> list[Round]:
    return list(islice(rounds(seed, seconds), count))


def test_a_seed_gives_the_same_actions_again_and_another_seed_others() -> None:
    assert plan(1) == plan(1)
    assert plan(1) != plan(2)


def test_every_kind_of_action_comes() -> None:
    found = {action.kind for seed in range(5) for item in plan(seed) for action in item.actions}
    assert found == WEIGHTS.keys()


def test_agents_are_killed_in_the_first_rounds_alone() -> None:
    for seed in range(20):
        killing = [
            number
            for number, item in enumerate(plan(seed))
            if any(action.kind == "agent kill" for action in item.actions)
        ]
        assert max(killing, default=0) < 3


def test_what_is_plugged_in_or_claimed_is_so_once_and_nothing_is_left_at_a_bare_end() -> None:
    plugged: set[str] = set()
    claims: dict[str, str] = {}
    for item in [first_round(), *plan(4, count=200)]:
        for action in item.actions:
            match action.kind:
                case "plug":
                    assert action.device not in plugged
                    plugged.add(action.device)
                case "pull":
                    plugged.remove(action.device)
                case "replug" | "bind" | "unbind":
                    assert action.device in plugged
                case "claim":
                    assert action.device not in claims
                    claims[action.device] = action.uid
                case "release":
                    assert claims.pop(action.device) == action.uid
        assert not item.is_bare or not (plugged or claims)
    assert first_round().actions[0].device in DEVICES


def test_a_round_is_about_as_long_as_it_may_be() -> None:
    for item in plan(5, count=100):
        long = sum(action.pause for action in item.actions)
        assert long < LONGEST_ROUND + LONGEST_PAUSE
