"""podman takes the devices of claims from the specs that the agent wrote."""

import os
from pathlib import Path

import pytest

from liken_events.core.plan.cdi import device_id
from tests.fakes.agents import QUICK, STICK, STICK_NAME, Build, Launch
from tests.fakes.claims import Specs, claim_body, uid_of, write_claim
from tests.fakes.devices import tty, usb
from tests.fakes.machines import desktop, machine
from tests.fakes.podman import NoPodman, Podman

GPU = "pci-0000-00-02-0"


@pytest.fixture
def podman(tmp_path: Path) -> Podman:
    specs = tmp_path / "cluster" / "cdi"
    specs.mkdir(parents=True)
    try:
        return Podman(str(tmp_path / "podman"), str(specs))
    except NoPodman as error:
        pytest.skip(f"no podman: {error}")


async def test_a_container_sees_the_nodes_of_its_claim_and_no_others(
    build: Build, launch: Launch, podman: Podman, tmp_path: Path
) -> None:
    agent = launch(build(machine([*desktop().devices, STICK])), *QUICK)
    await agent.until_ready()
    specs = Specs(str(tmp_path / "cluster" / "cdi"))
    first, second = claim_body(STICK_NAME, GPU, name="a"), claim_body(GPU, name="b")
    for body in (first, second):
        write_claim(str(tmp_path / "cluster"), body)
        await agent.until(lambda body=body: specs.read(uid_of(body)))  # type: ignore[misc]
    stick, card = device_id(uid_of(first), STICK_NAME), device_id(uid_of(first), GPU)
    nodes = {"/dev/ttyUSB9": (188, 9), "/dev/bus/usb/001/012": (189, 11)}
    render = {"/dev/dri/renderD128": (226, 128)}
    assert podman.run(stick).nodes == nodes
    assert podman.run(stick, card).nodes == {**nodes, **render}
    assert podman.run(device_id(uid_of(second), GPU)).nodes == render


async def test_a_container_that_is_started_again_sees_what_the_device_is_now(
    build: Build, launch: Launch, podman: Podman, tmp_path: Path
) -> None:
    agent = launch(build(machine([STICK])), *QUICK)
    await agent.until_ready()
    specs = Specs(str(tmp_path / "cluster" / "cdi"))
    body = claim_body(STICK_NAME)
    uid = uid_of(body)
    write_claim(str(tmp_path / "cluster"), body)
    await agent.until(lambda: specs.read(uid))
    name = device_id(uid, STICK_NAME)

    agent.say(agent.tree.renumber("1-9", 44, {STICK.key: [tty("ttyUSB3", 3)]}))
    await agent.until(lambda: "/dev/ttyUSB3" in specs.paths(uid, STICK_NAME))
    assert podman.run(name).nodes == {
        "/dev/ttyUSB3": (188, 3),
        "/dev/bus/usb/001/044": (189, 43),
    }

    agent.say(agent.tree.unplug("1-9"))
    await agent.until(lambda: ("/dev/ttyUSB3",) in specs.nodes(uid, STICK_NAME))
    away = podman.run(name)
    assert away.status != 0
    assert 'failed to stat CDI host device "/dev/bus/usb/001/044"' in away.error

    stranger = usb("1-4:1.0", "0403:6001", "ff0000", "ftdi_sio", 5, nodes=[tty("ttyUSB3", 3)])
    agent.say(agent.tree.plug(stranger))
    await agent.until(lambda: "belongs-to" in " ".join(specs.paths(uid, STICK_NAME)))
    assert podman.run(name).status != 0

    os.unlink(tmp_path / "cluster" / "resourceclaims" / "default" / "c.yaml")
    await agent.until(lambda: specs.read(uid) is None)
    assert "unresolvable CDI devices" in podman.run(name).error
