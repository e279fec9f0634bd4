"""The rules that specs are checked by: each of them can complain."""

import json
from typing import Any

import pytest

from tests.fakes.cdi_rules import VERSIONS, complaints, needed_version

Body = dict[str, Any]


def good(**changes: Any) -> Body:
    node = {"path": "/dev/ttyUSB0", "type": "c", "major": 188, "minor": 0, "permissions": "rw"}
    devices = [{"name": "3f-usb", "containerEdits": {"deviceNodes": [node]}}]
    return {"cdiVersion": "0.5.0", "kind": "liken.sh/device", "devices": devices} | changes


def device(**changes: Any) -> Body:
    body = good()
    body["devices"][0] |= changes
    return body


def edits(version: str = "0.5.0", **content: Any) -> Body:
    return device(containerEdits=content) | {"cdiVersion": version}


def node(**changes: Any) -> Body:
    body = good()
    body["devices"][0]["containerEdits"]["deviceNodes"][0] |= changes
    return body


def without(body: Body, key: str) -> Body:
    return {name: value for name, value in body.items() if name != key}


NODE = "spec, devices[0], containerEdits, deviceNodes[0]"
EDITS = "spec, devices[0], containerEdits"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ([], "spec: no object"),
        (without(good(), "cdiVersion"), "spec: 'cdiVersion' is missing"),
        (without(good(), "kind"), "spec: 'kind' is missing"),
        (without(good(), "devices"), "spec: 'devices' is missing"),
        (good(colour="red"), "spec: unknown field 'colour'"),
        (good(cdiVersion=5), "spec: 'cdiVersion' has the wrong type"),
        (good(kind=None), "spec: 'kind' has the wrong type"),
        (good(devices={}), "spec: 'devices' has the wrong type"),
        (good(devices=[]), "spec: no device"),
        (good(devices=["x"]), "spec, devices[0]: no object"),
        *(
            (good(kind=kind), f"spec: '{kind}' is no kind")
            for kind in ("liken.sh", "liken.sh/", "/device", "a/b/c", "-a/b", "a-/b", "1a/b")
        ),
        (good(cdiVersion="0.2.0"), "spec: the version 0.2.0 is not known"),
        (good(cdiVersion="2.0.0"), "spec: the version 2.0.0 is not known"),
        (device(colour="red"), "spec, devices[0]: unknown field 'colour'"),
        (device(name=7), "spec, devices[0]: 'name' has the wrong type"),
        (device(name=""), "spec, devices[0]: 'name' is missing"),
        *(
            (device(name=name), f"spec, devices[0]: '{name}' is no name")
            for name in ("a/b", "a=b", "-a", "a-", "é", "a b", "a\n")
        ),
        (
            good(devices=good()["devices"] * 2),
            "spec, devices[1]: '3f-usb' is there twice",
        ),
        (edits(), "spec, devices[0]: no edit"),
        (edits(deviceNodes=[]), "spec, devices[0]: no edit"),
        (edits(nodes=[1]), f"{EDITS}: unknown field 'nodes'"),
        (edits(deviceNodes={"path": "/x"}), f"{EDITS}: 'deviceNodes' has the wrong type"),
        (edits(deviceNodes=["/dev/x"]), f"{NODE}: no object"),
        (edits(deviceNodes=[{}]), f"{NODE}: 'path' is missing"),
        (edits(env=["A"]), f"{EDITS}, env[0]: no variable"),
        (edits(env=["=A"]), f"{EDITS}, env[0]: no variable"),
        (edits(env=[7]), f"{EDITS}, env[0]: no variable"),
        (edits(mounts=[{"hostPath": "/a"}]), f"{EDITS}, mounts[0]: 'containerPath' is missing"),
        (edits(hooks=[{"path": "/a"}]), f"{EDITS}, hooks[0]: 'hookName' is missing"),
        (good(containerEdits={"nodes": []}), "spec, containerEdits: unknown field 'nodes'"),
        (node(path=""), f"{NODE}: 'path' is missing"),
        (node(place="tty"), f"{NODE}: unknown field 'place'"),
        (node(type="d"), f"{NODE}: no type of a node: 'd'"),
        (node(type=None), f"{NODE}: 'type' has the wrong type"),
        (node(permissions="rx"), f"{NODE}: no permissions: 'rx'"),
        (node(major="188"), f"{NODE}: 'major' has the wrong type"),
        (node(major=True), f"{NODE}: 'major' has the wrong type"),
        (node(minor=1.5), f"{NODE}: 'minor' has the wrong type"),
        (node(minor=2**63), f"{NODE}: 'minor' has the wrong type"),
        (node(uid=-1), f"{NODE}: 'uid' has the wrong type"),
        (node(gid=2**32), f"{NODE}: 'gid' has the wrong type"),
        (node(fileMode="0666"), f"{NODE}: 'fileMode' has the wrong type"),
    ],
)
def test_each_rule_complains_of_what_breaks_it_and_of_nothing_else(
    body: object, complaint: str
) -> None:
    assert complaints(json.dumps(body)) == [complaint]


@pytest.mark.parametrize(
    ("body", "needed"),
    [
        (device(name="usb"), "0.3.0"),
        (device(name="usb", containerEdits={"mounts": [{"hostPath": "/a", "containerPath": "/a",
                                                        "type": "bind"}]}), "0.4.0"),
        (good(), "0.5.0"),
        (device(name="usb", containerEdits={"deviceNodes": [{"path": "/dev/x",
                                                             "hostPath": "/dev/y"}]}), "0.5.0"),
        (good(annotations={}), "0.6.0"),
        (device(annotations={"a": "b"}), "0.6.0"),
        (good(kind="liken.sh/dev.ice"), "0.6.0"),
        (edits(additionalGids=[5]), "0.7.0"),
        (edits(intelRdt={"closID": "x"}), "0.7.0"),
        (edits(netDevices=[{"hostInterfaceName": "a", "name": "b"}]), "1.1.0"),
    ],
)  # fmt: skip
def test_a_version_is_too_low_for_what_came_later(body: Body, needed: str) -> None:
    assert needed_version(body) == needed
    for version in VERSIONS:
        found = complaints(json.dumps(body | {"cdiVersion": version}))
        if VERSIONS.index(version) >= VERSIONS.index(needed):
            assert found == []
        else:
            said = f"spec: the version {version} is too low: its content needs {needed}"
            assert found == [said]


def test_an_old_runtime_does_not_know_what_came_later() -> None:
    assert complaints(json.dumps(good()), newest="0.5.0") == []
    newer = json.dumps(good(cdiVersion="0.6.0"))
    assert complaints(newer, newest="0.5.0") == ["spec: the version 0.6.0 is not known"]


@pytest.mark.parametrize("text", ["", "{", json.dumps(good())[:-1], '"\\udcae"', "\x00"])
def test_what_is_not_json_and_yaml_both_is_no_spec(text: str) -> None:
    (complaint,) = complaints(text)
    assert complaint.startswith("spec: cannot be parsed")


def test_every_fault_is_named() -> None:
    body = node(type="d", permissions="x")
    body["devices"].append({"name": "-", "containerEdits": {}})
    assert len(complaints(json.dumps(body))) == 4


def test_a_spec_that_has_everything_is_valid() -> None:
    mount = {"hostPath": "/a", "containerPath": "/b", "options": ["ro"], "type": "bind"}
    hook = {"hookName": "createContainer", "path": "/bin/x", "args": [], "env": [], "timeout": 1}
    content: Body = {
        "env": ["A=", "B=C=D"],
        "mounts": [mount],
        "hooks": [hook],
        "intelRdt": {"closID": "x"},
        "additionalGids": [5],
        "netDevices": [{"hostInterfaceName": "a", "name": "b"}],
    }
    body = node(hostPath="/dev/y", fileMode=438, uid=0, gid=2**32 - 1, permissions="rwm", type="u")
    body["devices"][0]["annotations"] = {}
    body |= {"annotations": {"a": "b"}, "containerEdits": content, "cdiVersion": "1.1.0"}
    assert complaints(json.dumps(body)) == []
    for permissions in ("", "m"):
        assert complaints(json.dumps(node(permissions=permissions))) == []
