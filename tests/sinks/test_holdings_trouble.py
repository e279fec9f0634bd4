"""What is held while the machine has run out of something, or files are not what they were."""

import builtins
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from liken_events.core.model.claims import Allocated, Claim, ClaimReference, Refused
from liken_events.core.model.prepared import Prepared
from liken_events.core.model.snapshot import Node
from liken_events.sinks import record_files
from liken_events.sinks.spec_files import boot_id
from liken_events.sinks.spec_writer import Conflict
from tests.fakes.agents import Build
from tests.fakes.claims import NODE
from tests.fakes.crashes import failing
from tests.fakes.devices import drm, pci, tty, usb
from tests.fakes.keeping import STICK_NAME, Keeping
from tests.fakes.machines import machine

STRANGER = usb("1-7:1.0", "0403:6001", "ff0000", "ftdi_sio", 30, nodes=[tty("ttyUSB9", 9)])
"""What the kernel gives the number of the stick that was pulled."""

UID = "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13"
Both = tuple[Keeping, Keeping]


def claim(device: str) -> Claim:
    return Claim(
        reference=ClaimReference(namespace="default", name="rival", uid=UID),
        allocated=(Allocated(request="r0", pool=NODE, device=device),),
    )


@contextmanager
def unreadable(error: int, root: Path | str) -> Iterator[None]:
    """Nothing of ours can be opened to be read, for a reason that is not the file's."""
    real = builtins.open

    def call(path: Any, *args: Any, **more: Any) -> Any:
        if isinstance(path, str) and path.startswith(str(root)) and path.endswith(".json"):
            raise OSError(error, os.strerror(error), path)
        return real(path, *args, **more)

    with mock.patch("builtins.open", call):
        yield


async def test_on_a_full_disk_no_spec_names_another_devices_number(both: Both) -> None:
    kept, _ = both
    reference = await kept.prepared(STICK_NAME)
    kept.tree.unplug("1-9")
    with failing("open", errno.ENOSPC, below=kept.cdi):
        assert not await kept.refresh()
        kept.tree.plug(STRANGER)
        assert not await kept.refresh()
        assert not os.path.exists(kept.spec_path(reference))
        assert [item.is_healthy for item in kept.holdings.health.get()] == [False]
        assert reference.uid in kept.holdings.prepared
    assert await kept.refresh()
    assert all(len(node) == 1 for node in kept.nodes_of(reference)), "paths without numbers"


async def test_a_spec_that_is_right_stays_where_the_record_cannot_be_written(both: Both) -> None:
    kept, _ = both
    reference = await kept.prepared(STICK_NAME)
    kept.tree.renumber("1-9", 40)
    with failing("open", errno.ENOSPC, below=f"{kept.records}/."):
        assert not await kept.refresh()
        assert kept.nodes_of(reference)[0] == ("/dev/bus/usb/001/040", "c", 189, 39)
    assert await kept.refresh()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_start_that_has_run_out_of_something_loses_no_claim(
    both: Both, error: int
) -> None:
    kept, _ = both
    reference = await kept.prepared(STICK_NAME)
    new = kept.anew()
    with unreadable(error, kept.root):
        await new.holdings.restore()
    assert new.left == kept.left
    await new.refresh()
    assert reference.uid in new.holdings.prepared


async def test_who_has_run_out_of_something_learns_of_a_claim_later(both: Both) -> None:
    old, new = both
    first = await old.prepared(STICK_NAME)
    with unreadable(errno.ENFILE, old.root):
        assert isinstance(await new.holdings.take_over(), Refused)
        assert not await new.refresh(), "it has to be done again"
    outcome = await new.holdings.hold(claim(STICK_NAME), NODE)
    assert outcome == Conflict(device=STICK_NAME, other=first)


async def test_who_could_not_look_at_the_records_looks_again(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = both
    monkeypatch.setattr(record_files, "LOCK_SECONDS", 0.05)
    await old.prepared(STICK_NAME)
    with old.files.records.alone():
        assert not await new.refresh()
    assert await new.refresh()


async def test_a_record_that_somebody_removed_is_written_again(both: Both) -> None:
    kept, _ = both
    reference = await kept.prepared(STICK_NAME)
    await kept.refresh()
    os.unlink(kept.record_path(reference))
    for _ in range(2):  # the first look finds that it is gone
        await kept.refresh()
    kept.tree.unplug("1-9")
    new = kept.anew()
    await new.holdings.restore()
    assert new.holdings.prepared[reference.uid].reference == reference


async def test_the_place_of_records_is_made_again(both: Both) -> None:
    """Where there is none nothing can be locked, and two would write one draft at a time."""
    kept, _ = both
    reference = await kept.prepared(STICK_NAME)
    shutil.rmtree(kept.records)
    await kept.refresh()
    assert os.path.isdir(kept.records)
    await kept.refresh()
    assert os.path.exists(kept.record_path(reference))


async def test_what_several_share_is_not_theirs_when_it_has_become_exclusive(
    build: Build, tmp_path: Path
) -> None:
    """A card that is bound to vfio-pci keeps its name, and is for one guest."""
    nodes = [drm("card0", 0), drm("renderD128", 128)]
    card = pci("0000:01:00.0", "1002:73bf", "030000", "amdgpu", nodes=nodes)
    name = "pci-0000-01-00-0"
    kept = Keeping(build(machine([card])), tmp_path)
    kept.look()
    sharing = [await kept.prepared(name), await kept.prepared(name)]
    kept.tree.unbind(card.key)
    await kept.refresh()
    group = Node(path="/dev/vfio/devices/vfio0", subsystem="vfio-dev", major=511, minor=0,
                 place="vfio-dev/vfio0")  # fmt: skip
    kept.tree.bind(card.key, "vfio-pci", [group])
    await kept.refresh()
    for reference in sharing:
        assert group.path not in [node[0] for node in kept.nodes_of(reference, name)]
    rival = await kept.holdings.hold(claim(name), NODE)
    assert not isinstance(rival, Prepared), "it is held, though by those who cannot use it"


def test_the_boots_id_that_cannot_be_read_is_no_other_boots(tmp_path: Path) -> None:
    place = tmp_path / "sys/kernel/random"
    place.mkdir(parents=True)
    (place / "boot_id").mkdir()
    with pytest.raises(OSError, match="boot_id"):
        boot_id(str(tmp_path))
