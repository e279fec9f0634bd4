"""The end of the agent at each step of its work on files, and the start after it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from liken_events.core.model.claims import ClaimReference
from tests.fakes.agents import Build
from tests.fakes.cdi_rules import complaints
from tests.fakes.crashes import Killed, killed_before
from tests.fakes.keeping import BUS, OTHER, OTHER_NAME, STICK, STICK_NAME, TTY, Keeping, names_of
from tests.fakes.machines import machine

MOVED = [("/dev/bus/usb/001/040", "c", 189, 39), TTY]


@pytest.fixture
async def kept(build: Build, tmp_path: Path) -> Keeping:
    found = Keeping(build(machine([STICK, OTHER])), tmp_path)
    await found.holdings.restore()
    found.look()
    return found


async def restarted(kept: Keeping) -> Keeping:
    """The next run, with specs that a runtime can read and files that belong together."""
    new = kept.anew()
    await new.holdings.restore()
    assert await new.refresh()
    for name in kept.specs.files:
        assert name.startswith("liken.sh-")
        text = Path(kept.cdi, name).read_text()
        assert complaints(text, newest="0.5.0") == []
    references = [item.reference for item in new.holdings.prepared.values()]
    assert new.left == names_of(references)
    return new


async def at_each_step(
    prepare: Callable[[], Awaitable[Keeping]],
    work: Callable[[Keeping], Awaitable[object]],
    check: Callable[[Keeping], Awaitable[object]],
    least: int,
) -> None:
    """Ends `work` before each of its steps in turn, each time from a state that `prepare`
    makes, and checks the next run."""
    kept = await prepare()
    with killed_before(0) as steps:
        await work(kept)
    assert steps.taken >= least
    for step in range(1, steps.taken + 1):
        kept = await prepare()
        with pytest.raises(Killed), killed_before(step):
            await work(kept)
        await check(await restarted(kept))


async def test_an_end_in_the_middle_of_preparing(kept: Keeping) -> None:
    claim, held = kept.claim(STICK_NAME), await kept.prepared(OTHER_NAME)

    async def prepare() -> Keeping:
        new = await restarted(kept)
        assert await new.keeper.unprepare(claim) is None
        return new

    async def check(new: Keeping) -> None:
        assert held.uid in new.holdings.prepared
        assert isinstance(await new.keeper.prepare(claim), tuple)
        assert new.nodes_of(claim) == [BUS, TTY]
        assert new.left == names_of([claim, held])

    async def check_the_end(new: Keeping) -> None:
        assert await new.keeper.unprepare(claim) is None
        assert new.left == names_of([held])

    for then in (check, check_the_end):
        await at_each_step(prepare, lambda new: new.keeper.prepare(claim), then, 8)


async def test_an_end_in_the_middle_of_the_first_preparing_of_all(
    build: Build, tmp_path: Path
) -> None:
    tree = build(machine([STICK]))
    places = iter(range(100))
    claims: list[ClaimReference] = []

    async def prepare() -> Keeping:
        new = Keeping(tree, tmp_path / f"{next(places)}")
        claims.append(new.claim(STICK_NAME))
        new.look()
        return new

    async def check(new: Keeping) -> None:
        assert isinstance(await new.keeper.prepare(claims[-1]), tuple)
        assert new.left == names_of([claims[-1]])

    await at_each_step(prepare, lambda new: new.keeper.prepare(claims[-1]), check, 10)


async def test_an_end_in_the_middle_of_unpreparing(kept: Keeping) -> None:
    claim, held = kept.claim(STICK_NAME), await kept.prepared(OTHER_NAME)

    async def prepare() -> Keeping:
        new = await restarted(kept)
        assert isinstance(await new.keeper.prepare(claim), tuple)
        return new

    async def check(new: Keeping) -> None:
        assert await new.keeper.unprepare(claim) is None
        assert new.left == names_of([held])

    await at_each_step(prepare, lambda new: new.keeper.unprepare(claim), check, 2)


async def test_an_end_in_the_middle_of_a_refresh(kept: Keeping) -> None:
    claim = await kept.prepared(STICK_NAME)

    async def prepare() -> Keeping:
        if kept.nodes_of(claim) != [BUS, TTY]:
            kept.tree.renumber("1-9", 12)
        new = await restarted(kept)
        assert new.nodes_of(claim) == [BUS, TTY]
        kept.tree.renumber("1-9", 40)
        return new

    async def check(new: Keeping) -> None:
        assert new.nodes_of(claim) == MOVED
        [device] = new.holdings.prepared[claim.uid].devices
        assert device.nodes[0].path == MOVED[0][0]

    await at_each_step(prepare, lambda new: new.refresh(), check, 8)


async def test_an_end_in_the_middle_of_a_start(kept: Keeping) -> None:
    claim, orphan = await kept.prepared(STICK_NAME), await kept.prepared(OTHER_NAME)
    record = Path(kept.record_path(orphan))

    async def prepare() -> Keeping:
        record.unlink()
        Path(f"{kept.cdi}/.liken.sh-{claim.uid}.tmp").write_text("{")
        return kept.anew()

    async def check(new: Keeping) -> None:
        assert new.left == names_of([claim, orphan])

    await at_each_step(prepare, lambda new: new.holdings.restore(), check, 5)


async def test_an_end_in_the_middle_of_the_start_after_a_boot(kept: Keeping) -> None:
    claim = kept.claim(STICK_NAME)

    async def prepare() -> Keeping:
        old = kept.anew(boot="boot-0")
        assert isinstance(await old.keeper.prepare(claim), tuple)
        return kept.anew()

    async def check(new: Keeping) -> None:
        assert new.left == []

    await at_each_step(prepare, lambda new: new.holdings.restore(), check, 2)
