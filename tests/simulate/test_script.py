"""Scripts: each step does what its title says, and what it changes is known beforehand."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
import trio
import trio.testing

from liken_events.core.decode.uevent import decode
from liken_events.core.model.publish import inventory
from liken_events.core.model.snapshot import Snapshot
from liken_events.simulate.recordings import desk
from liken_events.simulate.script import (
    Played,
    Step,
    desk_script,
    generic_script,
    play,
    script_for,
)
from liken_events.simulate.tree import MachineTree
from liken_events.simulate.uevents import InProcessFeed, Uevent
from liken_events.sources.sysfs import Roots, Scanner
from tests.fakes import machines
from tests.fakes.agents import Build

MACHINES = (machines.desktop, machines.server, machines.homelab, machines.empty_vm)


def offered(tree: MachineTree) -> set[str]:
    """Names that the agent would offer after reading the tree."""
    roots = Roots(sys=tree.sys, dev=tree.dev, proc=tree.proc, pci_ids=tree.pci_ids)
    return {device.name for device in inventory(Scanner(roots).scan()).offered}


async def played(
    tree: MachineTree, steps: Sequence[Step], feed: InProcessFeed | None = None
) -> list[Played]:
    done: list[Played] = []

    async def on_step(step: Played) -> None:
        done.append(step)

    with trio.fail_after(30):
        await play(tree, feed or InProcessFeed(lambda _: None), on_step, steps=steps)
    return done


async def test_the_desk_script_changes_what_a_person_would_expect(build: Build) -> None:
    tree = build(desk())

    done = await played(tree, desk_script())

    stick, disk = ("usb-1-1-2-1-0",), ("usb-2-2-1-0",)
    radio = ("usb-1-14-1-0", "usb-1-14-1-1")
    assert [(step.title, step.expected) for step in done] == [
        ("the Zigbee stick is pulled out", stick),
        ("the Zigbee stick is plugged in", stick),
        ("its plug is loose: it is back under a new number", stick),
        ("a program takes the stick from its driver", stick),
        ("the program ends, and the driver is back", stick),
        ("the USB disk is mounted, so the machine needs it", disk),
        ("the USB disk is unmounted", disk),
        ("the UPS is pulled out", ("usb-1-3-1-0",)),
        ("the Bluetooth radio is pulled out", radio),
        ("the Bluetooth radio is plugged in", radio),
        ("the webcam is pulled out", ("usb-1-4-1-0",)),
    ]
    assert [step.index for step in done] == list(range(len(done)))


async def test_what_a_step_expects_is_what_a_scan_finds_changed(build: Build) -> None:
    tree = build(desk())
    seen = [offered(tree)]

    async def on_step(step: Played) -> None:
        before, after = seen[-1], offered(tree)
        assert before ^ after <= set(step.expected)
        assert set(step.expected) <= before | after
        seen.append(after)

    await play(tree, InProcessFeed(lambda _: None), on_step, steps=desk_script())

    assert len(seen) == len(desk_script()) + 1


@pytest.mark.parametrize("machine", MACHINES)
async def test_a_generic_script_moves_each_offered_device_and_leaves_the_offer_as_it_was(
    machine: Callable[[], Snapshot], build: Build
) -> None:
    tree = build(machine())
    before = offered(tree)

    done = await played(tree, generic_script(machine()))

    assert {name for step in done for name in step.expected} == before
    assert offered(tree) == before
    assert all(step.expected for step in done)


def test_the_desk_has_a_script_of_its_own_and_other_machines_get_one_made() -> None:
    titles = [step.title for step in script_for(desk())]

    assert titles == [step.title for step in desk_script()]
    assert len(script_for(machines.homelab())) == 27
    assert script_for(machines.empty_vm()) == ()


def test_titles_name_the_device_in_printable_words() -> None:
    titles = [step.title for step in generic_script(machines.homelab())]

    assert len({*titles}) == len(titles)
    assert "FTDI Dual RS232-HS (usb 1-4:1.0) is pulled out" in titles
    assert all(title.isprintable() for title in titles)


async def test_uevents_reach_the_feed_in_order_and_name_the_device(build: Build) -> None:
    tree = build(desk())
    taken: list[bytes] = []

    await played(tree, desk_script()[:1], InProcessFeed(taken.append))

    triggers = [decode(data) for data in taken]
    assert len(triggers) == 7
    assert all(trigger is not None for trigger in triggers)
    assert taken[-1].startswith(b"remove@/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1.2\0")


async def test_a_step_is_over_before_the_next_one_begins(build: Build) -> None:
    tree = build(desk())
    log: list[str] = []

    def step(name: str) -> Step:
        def change(_: MachineTree) -> list[Uevent]:
            log.append(f"{name} begins")
            return []

        return Step(title=name, change=change)

    async def on_step(done: Played) -> None:
        await trio.testing.wait_all_tasks_blocked()
        log.append(f"{done.title} is seen")

    steps = [step("one"), step("two")]
    await play(tree, InProcessFeed(lambda _: None), on_step, steps=steps)

    assert log == ["one begins", "one is seen", "two begins", "two is seen"]


async def test_the_time_of_a_step_is_that_of_its_last_uevent(build: Build) -> None:
    tree = build(desk())
    times: list[float] = []
    feed = InProcessFeed(lambda _: times.append(trio.current_time()))

    (done,) = await played(tree, desk_script()[:1], feed)

    assert len(times) == 7
    assert times[-1] <= done.sent <= trio.current_time()


async def test_a_burst_may_be_spread_over_time(build: Build) -> None:
    tree = build(desk())
    times: list[float] = []
    feed = InProcessFeed(lambda _: times.append(trio.current_time()))

    async def on_step(_: Played) -> None: ...

    await play(tree, feed, on_step, steps=desk_script()[:1], spread=0.06)

    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(gaps) == 6
    assert min(gaps) >= 0.01
