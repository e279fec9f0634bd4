"""`claim`, `claims` and `release`, with an agent and without."""

import json
import os
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from liken_events.commands import claims as commands
from liken_events.core.model.claims import Claim, ClaimReference, read_claim
from liken_events.simulate.tree import MachineTree
from tests.fakes.agents import NODE, QUICK, STICK, STICK_NAME, Agent, Build, Launch
from tests.fakes.claims import Specs, claim_body, uid_of, write_claim
from tests.fakes.devices import tty
from tests.fakes.machines import desktop, machine
from tests.fakes.typed import Ran, at, typed

GPU, KEYBOARD = "pci-0000-00-02-0", "usb-1-3-1-0"


class Shell:
    """What is typed on one machine."""

    def __init__(self, tree: MachineTree, cluster: str) -> None:
        self.tree = tree
        self.cluster = cluster
        self.specs = Specs(f"{cluster}/cdi")
        self._flags = [
            *at(tree),
            f"--cdi-dir={cluster}/cdi",
            f"--record-dir={cluster}/records",
            "--cluster=directory",
            f"--cluster-dir={cluster}",
            f"--node-name={NODE}",
        ]

    def type(self, *words: str, **more: Any) -> Ran:
        """Types a command."""
        return typed(*words, *self._flags, **more)

    async def ask(self, *words: str, **more: Any) -> Ran:
        """The same beside something else that runs."""
        return await trio.to_thread.run_sync(partial(self.type, *words, **more))

    def states(self) -> dict[str, Any]:
        """What `claims` says, by claim."""
        return {item["claim"]: item for item in json.loads(self.type("claims", "-o", "json").out)}

    def file(self, name: str) -> Path:
        """A claim's file."""
        return Path(self.cluster, "resourceclaims", "default", f"{name}.yaml")


@pytest.fixture
def shell(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A machine without an agent; commands do not wait long for one."""
    monkeypatch.setattr(commands, "PREPARE_SECONDS", 0.05)
    return Shell(build(machine([*desktop().devices, STICK])), str(tmp_path / "cluster"))


async def running(shell: Shell, launch: Launch, monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setattr(commands, "PREPARE_SECONDS", 10.0)
    agent = launch(shell.tree, *QUICK)
    await agent.until_ready()
    return agent


async def test_a_claim_is_made_prepared_listed_and_released(
    shell: Shell, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(shell, launch, monkeypatch)
    ran = await shell.ask("claim", STICK_NAME)
    assert (ran.status, ran.err) == (0, "")
    uid = shell.states()[f"default/{STICK_NAME}"]["uid"]
    assert ran.out == f"liken.sh/device={uid}-{STICK_NAME}\n"
    nodes = ["/dev/bus/usb/001/012", "/dev/ttyUSB9"]
    assert shell.specs.paths(uid, STICK_NAME) == nodes
    listed = (await shell.ask("claims")).out.splitlines()
    assert listed[0].split() == ["CLAIM", "STATE", "DEVICE", "NODES,", "OR", "WHY", "NOT"]
    assert listed[1].split() == [f"default/{STICK_NAME}", "prepared", STICK_NAME, *nodes]
    assert (await shell.ask("release", STICK_NAME)) == Ran(status=0, out="", err="")
    assert shell.specs.files == []
    assert (await shell.ask("claims")).out == "no claims; 'liken-events claim DEVICE' makes one\n"


async def test_several_devices_make_one_claim(
    shell: Shell, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(shell, launch, monkeypatch)
    ran = await shell.ask("claim", "1-9:1.0", GPU, "--name", "cam")
    assert ran.status == 0
    assert [line.rpartition("=")[2][37:] for line in ran.out.splitlines()] == [STICK_NAME, GPU]
    assert [item["device"] for item in shell.states()["default/cam"]["devices"]] == [
        GPU,
        STICK_NAME,
    ]
    assert (await shell.ask("release", "default/cam")).status == 0


async def test_a_claim_waits_for_hardware_and_says_so(
    shell: Shell, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await running(shell, launch, monkeypatch)
    monkeypatch.setattr(commands, "PREPARE_SECONDS", 0.05)
    agent.say(shell.tree.unplug("1-9"))
    ran = await shell.ask("claim", STICK_NAME)
    reason = f"{STICK_NAME} is not on this machine now"
    assert ran.status == 1
    assert ran.err == f"liken-events: the claim default/{STICK_NAME} waits: {reason}\n"
    assert shell.states()[f"default/{STICK_NAME}"]["reason"] == reason
    agent.say(shell.tree.plug(STICK))
    await agent.until(lambda: shell.states()[f"default/{STICK_NAME}"]["state"] == "prepared")


async def test_how_a_device_fares_is_seen_at_once(
    shell: Shell, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await running(shell, launch, monkeypatch)
    await shell.ask("claim", STICK_NAME, "--name=s")
    os.kill(agent.pid, signal.SIGKILL)  # what is shown does not depend on it
    await agent.until(lambda: agent.status is not None)
    shell.tree.unplug("1-9")
    (device,) = shell.states()["default/s"]["devices"]
    assert (device["presence"], device["nodes"]) == ("away", [])
    assert "not on this machine now" in device["trouble"]
    shell.tree.plug(replace(STICK, nodes=(tty("ttyUSB3", 3),)))
    (device,) = shell.states()["default/s"]["devices"]
    assert device["presence"] == "there"
    assert "came back as" in device["trouble"]
    assert shell.states()["default/s"]["state"] == "unhealthy"
    assert "unhealthy" in shell.type("claims", columns=100).out


def test_without_an_agent_a_claim_is_made_and_waits(shell: Shell) -> None:
    ran = shell.type("claim", STICK_NAME)
    assert ran.status == 1
    assert ran.out.startswith("liken.sh/device=")
    assert "the agent has not prepared it: is 'liken-events run' running?" in ran.err
    assert shell.type("release", STICK_NAME).status == 0
    assert not shell.file(STICK_NAME).exists()


def test_the_file_is_the_object_that_an_api_server_would_hold(shell: Shell) -> None:
    shell.type("claim", STICK_NAME, GPU, "--name", "two")
    body = yaml.safe_load(shell.file("two").read_text("utf-8"))
    assert (body["apiVersion"], body["kind"]) == ("resource.k8s.io/v1", "ResourceClaim")
    metadata = body["metadata"]
    reference = ClaimReference(namespace="default", name="two", uid=metadata["uid"])
    found = read_claim(body, reference, "liken.sh")
    assert isinstance(found, Claim)
    assert [(item.request, item.pool, item.device) for item in found.allocated] == [
        ("device-0", NODE, STICK_NAME),
        ("device-1", NODE, GPU),
    ]
    named = [item["name"] for item in body["spec"]["devices"]["requests"]]
    assert named == ["device-0", "device-1"]


REFUSED = {
    ("claim", "foo"): "no device that can be claimed is called 'foo'; 'liken-events inventory'",
    ("claim", "7-7:1.0"): "no device that can be claimed is called '7-7:1.0'",
    ("claim", "0000:00:02.0"): "'0000:00:02.0' is several devices: name one of pci-0000-00-02-0, ",
    ("claim", STICK_NAME, STICK_NAME): "one of the devices is named twice",
    ("claim", "usb-1-1-1-0"): "usb-1-1-1-0 cannot be claimed: bus-structure: ",
    ("claim", STICK_NAME, "--name", "../x"): 'no claim was made: "../x" is no name of a claim',
    ("claim", STICK_NAME, "--name", "A"): 'no claim was made: "A" is no name of a claim',
    ("release", "nope"): "there is no claim default/nope; 'liken-events claims' lists them",
    ("release", "../../etc/x"): '"../../etc" is no namespace',
    ("claim", STICK_NAME, "--cluster", "kubernetes"): "--cluster kubernetes: ",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_cannot_be_is_one_sentence_and_nothing_is_left(
    shell: Shell, words: tuple[str, ...]
) -> None:
    ran = shell.type(*words[:1], *words[1:]) if "--cluster" not in words else typed(
        *words, *at(shell.tree), environ={"HOME": shell.cluster, "KUBECONFIG": ""}
    )  # fmt: skip
    assert ran.status in (1, 2)
    assert ran.out == ""
    assert REFUSED[words] in ran.err
    assert len(ran.err.splitlines()) == 1
    assert shell.states() == {}


def test_a_device_that_belongs_to_a_claim_is_refused_to_another(shell: Shell) -> None:
    shell.type("claim", STICK_NAME)
    for words in (("claim", STICK_NAME), ("claim", STICK_NAME, "--name=other")):
        ran = shell.type(*words)
        assert (ran.status, ran.out) == (1, "")
        assert f"{STICK_NAME} is held by the claim default/{STICK_NAME}; " in ran.err
        assert f"'liken-events release default/{STICK_NAME}' ends it" in ran.err
    shell.type("claim", GPU, "--name=a")
    assert shell.type("claim", GPU, "--name=b").out.endswith(f"-{GPU}\n")  # it can be shared
    taken = shell.type("claim", GPU, "--name=b")
    assert "exists already" in taken.err


def test_claims_that_others_wrote_are_listed_with_what_is_wrong(shell: Shell) -> None:
    write_claim(shell.cluster, claim_body(KEYBOARD, name="theirs", namespace="other"))
    write_claim(shell.cluster, claim_body(name="none"))
    bare = claim_body(name="bare")
    del bare["status"]
    write_claim(shell.cluster, bare)
    shell.file("broken").write_text("{", "utf-8")
    states = shell.states()
    assert {name: item["state"] for name, item in states.items()} == {
        "default/bare": "waiting",
        "default/broken": "broken",
        "default/none": "waiting",
        "other/theirs": "waiting",
    }
    assert states["default/bare"]["reason"] == "the claim default/bare has no allocation"
    assert "cannot be understood" in states["default/broken"]["reason"]
    for columns in (None, 80):
        shown = shell.type("claims", columns=columns).out
        assert all(name in shown for name in states)


async def test_a_claim_that_lost_to_another_names_it(
    shell: Shell, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await running(shell, launch, monkeypatch)
    first, second = claim_body(STICK_NAME, name="a"), claim_body(STICK_NAME, name="b")
    write_claim(shell.cluster, first)
    await agent.until(lambda: shell.specs.read(uid_of(first)))
    write_claim(shell.cluster, second)
    reason = f"{STICK_NAME} is prepared for the claim default/a"
    assert shell.states()["default/b"]["reason"] == reason
    await agent.until(lambda: agent.logged("claim.waiting", reason=reason))
    os.unlink(shell.file("a"))
    await agent.until(lambda: shell.specs.read(uid_of(second)))


async def test_a_release_that_nobody_carries_out_says_so(
    shell: Shell, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await running(shell, launch, monkeypatch)
    await shell.ask("claim", STICK_NAME)
    assert await agent.stop() == 0
    monkeypatch.setattr(commands, "PREPARE_SECONDS", 0.05)
    ran = await shell.ask("release", STICK_NAME)
    assert ran.status == 1
    assert "is still there: 'liken-events run' gives its devices back" in ran.err
    assert shell.specs.files != []
    second = launch(shell.tree, *QUICK)
    await second.until(lambda: shell.specs.files == [])


def test_records_of_another_user_are_not_guessed_at(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> list[str]:
        raise PermissionError(13, "Permission denied", "/run/liken-events")

    monkeypatch.setattr("liken_events.sinks.spec_files.os.listdir", refuse)
    ran = shell.type("claims")
    assert ran.status == 1
    assert ran.err == (
        "liken-events: /run/liken-events cannot be read: Permission denied; "
        "ask as the agent's user\n"
    )


async def test_prepared_claims_of_a_cluster_are_listed_too(
    shell: Shell, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where claims are no files, those that are prepared here are still known."""
    agent = await running(shell, launch, monkeypatch)
    await shell.ask("claim", STICK_NAME, "--name=s")
    os.kill(agent.pid, signal.SIGKILL)
    await agent.until(lambda: agent.status is not None)
    shutil.rmtree(f"{shell.cluster}/resourceclaims")
    assert shell.states()["default/s"]["state"] == "prepared"


def test_who_only_reads_claims_makes_no_directory(shell: Shell) -> None:
    assert shell.states() == {}
    ran = shell.type("release", "usb")
    assert (ran.status, ran.out) == (1, "")
    assert "there is no claim default/usb" in ran.err
    assert not os.path.exists(shell.cluster)
    assert shell.type("claim", "1-3:1.0").status == 1  # it is made, and no agent prepares it
    assert os.path.exists(shell.file(KEYBOARD))
