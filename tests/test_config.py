from pathlib import Path
from typing import Any

import pytest

from liken_events.config import (
    LONGEST_NODE_NAME,
    Config,
    ConfigError,
    check_roots,
    default_directory,
    load,
)
from liken_events.core.model.host_devices import KVM, HostDevice
from liken_events.options import BY_KEY, OPTIONS, Option, Raw

BY_KIND = {option.kind: option for option in OPTIONS}


def from_file(path: Path, text: str, environ: dict[str, str] | None = None) -> Config:
    file = path / "liken-events.toml"
    file.write_text(text)
    return load(file=str(file), environ=environ or {}, flags={})


def from_environment(**variables: str) -> Config:
    environ = {f"LIKEN_EVENTS_{key.upper()}": text for key, text in variables.items()}
    return load(file=None, environ=environ, flags={})


def from_flags(**flags: Raw | None) -> Config:
    return load(file=None, environ={}, flags=flags)


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(name, text) for name, texts in table.items() for text in texts]


def test_later_ways_beat_earlier_ones(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('node_name = "file"\ncluster = "directory"\nlog_level = "error"\n')
    environ = {"LIKEN_EVENTS_NODE_NAME": "environment", "LIKEN_EVENTS_CLUSTER": "kubernetes"}
    flags: dict[str, Raw | None] = {"node_name": "flag", "cluster": None}
    found = load(file=str(file), environ=environ, flags=flags)
    assert (found.node_name, found.cluster, found.log_level) == ("flag", "kubernetes", "error")


EXAMPLES: dict[str, tuple[str, str, Any]] = {
    "text": ('"worker-1"', "worker-1", "worker-1"),
    "choice": ('"directory"', "directory", "directory"),
    "path": ('"/a/../b"', "/a/../b", "/b"),
    "number": ("1.5", "1.5", 1.5),
    "list": ('["a", "b c"]', "a, b c,", ("a", "b c")),
    "switch": ("true", "true", True),
    "host_devices": (
        '[{resource = "a.b/c", path = "/dev/x"}, "a.b/d=/dev/y+/dev/z"]',
        "a.b/c=/dev/x, a.b/d=/dev/y+/dev/z,",
        (
            HostDevice(resource="a.b/c", paths=("/dev/x",)),
            HostDevice(resource="a.b/d", paths=("/dev/y", "/dev/z")),
        ),
    ),
    "protect": (
        '["/dev/sda", "/dev/disk/by-id/a b"]',
        "/dev/sda, /dev/disk/by-id/a b",
        ("/dev/sda", "/dev/disk/by-id/a b"),
    ),
    "alias": (
        '["1A6E:089a=18d1:9302"]',
        "1A6E:089a=18d1:9302",
        ("1A6E:089a=18d1:9302",),
    ),
}
"""A value of each kind, and of each setting that takes only some values of its kind."""


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_every_setting_can_be_given_in_all_three_ways(tmp_path: Path, option: Option) -> None:
    written, text, expected = EXAMPLES.get(option.key) or EXAMPLES[option.kind]
    if option.kind == "choice":
        written, text, expected = f'"{option.choices[-1]}"', option.choices[-1], option.choices[-1]
    flag: Raw = list(expected) if option.kind == "list" else expected
    if option.kind == "tables":
        flag = [str(item) for item in expected]
    if option.kind in {"number", "path"}:
        flag = text
    for found in (
        from_file(tmp_path, f"{option.key} = {written}\n"),
        from_environment(**{option.key: text}),
        from_flags(**{option.key: flag}),
    ):
        assert getattr(found, option.key) == expected


def test_settle_times_are_those_that_were_set() -> None:
    timing = from_flags(
        settle_quiet=1.0,
        settle_ceiling=2.0,
        settle_longest=3.0,
        settle_probing_usb=4.0,
        settle_probing_pci=5.0,
        settle_probing_disk=6.0,
    ).timing
    assert (timing.quiet, timing.ceiling, timing.longest) == (1, 2, 3)
    assert (timing.probing_usb, timing.probing_pci, timing.probing_disk) == (4, 5, 6)


def test_an_unknown_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="LIKEN_EVENTS_SETTLE_QUIT: there is no such setting"):
        from_environment(settle_quit="1")


@pytest.mark.parametrize(
    "name",
    [
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_METRICS",
        "PORT",
        "PORT_8080_TCP",
        "PORT_8080_TCP_ADDR",
        "PORT_53_UDP_PROTO",
        "PORT_9_SCTP",
        "METRICS_SERVICE_PORT_HTTP",
        "METRICS_PORT_9100_TCP_ADDR",
        "CONFIG",
    ],
)
def test_what_kubernetes_says_of_a_service_of_our_name_is_no_setting(name: str) -> None:
    found = load(file=None, environ={f"LIKEN_EVENTS_{name}": "tcp://10.0.0.1:80"}, flags={})
    assert found == from_flags()


WRONG_IN_A_FILE = {
    "text": ["1", "true", '""', "[]"],
    "choice": ['"nowhere"', "1", '""', '["auto"]'],
    "path": ["1", '""', '"a\\u0000b"'],
    "number": ["0", "-1", '"1"', "true", "nan", "inf", "1e12", "[]"],
    "list": ['"a"', "1", "[1]", "true"],
    "tables": ['"a"', "1", "[1]", "true", '{resource = "a.b/c", path = "/dev/x"}', "[[]]"],
    "switch": ['"true"', "1", "0"],
}


@pytest.mark.parametrize(
    ("kind", "written"),
    [(kind, text) for kind, texts in WRONG_IN_A_FILE.items() for text in texts],
)
def test_a_value_of_the_wrong_type_is_refused_by_file_and_key(
    tmp_path: Path, kind: Any, written: str
) -> None:
    key = BY_KIND[kind].key
    with pytest.raises(ConfigError, match=rf"liken-events.toml: '{key}': expected .*, found "):
        from_file(tmp_path, f"{key} = {written}\n")


WRONG_AS_TEXT = {
    "text": [""],
    "choice": ["", "nowhere"],
    "path": ["", "a\0b"],
    "number": ["", "0", "-1", "one", "nan", "inf"],
    "switch": ["", "yes", "2"],
}


@pytest.mark.parametrize(("kind", "text"), pairs(WRONG_AS_TEXT))
def test_a_text_that_means_no_value_is_refused_by_variable_or_flag(kind: Any, text: str) -> None:
    option = BY_KIND[kind]
    with pytest.raises(ConfigError, match=f"^{option.variable}: expected "):
        from_environment(**{option.key: text})
    with pytest.raises(ConfigError, match=f"^{option.flag}: expected "):
        from_flags(**{option.key: text})


@pytest.mark.parametrize(("text", "value"), [("TRUE", True), ("1", True), ("False", False)])
def test_a_switch_in_the_environment_may_be_a_word_or_a_digit(text: str, value: bool) -> None:
    assert from_environment(divide_pool=text).divide_pool is value


def test_an_empty_list_takes_back_what_the_file_says(tmp_path: Path) -> None:
    found = from_file(tmp_path, 'ignore = ["a"]', {"LIKEN_EVENTS_IGNORE": ""})
    assert found.ignore == ()


WRONG_AS_A_WHOLE = {
    "alias": ("a:b", "'a:b' is not of the form"),
    "instance": ("a/b", "'a/b' cannot be part of"),
    "node_name": ("A_B", "'A_B' is no name"),
    "protect": ("sda", "'sda' is no path under /dev"),
}


@pytest.mark.parametrize("key", WRONG_AS_A_WHOLE)
def test_a_value_that_cannot_be_is_refused_by_file_variable_or_flag(
    tmp_path: Path, key: str
) -> None:
    text, complaint = WRONG_AS_A_WHOLE[key]
    is_list = BY_KEY[key].kind == "list"
    with pytest.raises(ConfigError, match=rf"^.*/liken-events.toml: '{key}': {complaint}"):
        from_file(tmp_path, f"{key} = {[text] if is_list else repr(text)}")
    with pytest.raises(ConfigError, match=f"^{BY_KEY[key].variable}: {complaint}"):
        from_environment(**{key: text})
    with pytest.raises(ConfigError, match=f"^{BY_KEY[key].flag}: {complaint}"):
        from_flags(**{key: [text] if is_list else text})


@pytest.mark.parametrize(
    "path",
    [
        "",
        "sda",
        "dev/sda",
        "/",
        "/dev",
        "/dev/",
        "/home",
        "/device/sda",
        "/dev/../home",
        "//dev/sda",
        "UUID=0a1b",
        "/dev/a\0b",
    ],
)
def test_what_is_protected_has_to_be_below_dev(path: str) -> None:
    with pytest.raises(ConfigError, match=r"^--protect: '.*' is no path under /dev$"):
        from_flags(protect=["/dev/sda", path])


def test_what_is_protected_need_not_be_there() -> None:
    found = from_flags(protect=["/dev/disk/by-id/a-disk-that-comes-later"])
    assert found.protect == ("/dev/disk/by-id/a-disk-that-comes-later",)
    check_roots(found)


@pytest.mark.parametrize("name", ["Worker", "a_b", "-a", "a-", "a b", "ä", "a" * 300, ".a"])
def test_a_name_that_no_node_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="--node-name"):
        from_flags(node_name=name)


@pytest.mark.parametrize("name", ["n1", "ip-10-0-0-1.eu.internal", "a" * LONGEST_NODE_NAME])
def test_a_node_name_is_taken_as_it_is(name: str) -> None:
    assert from_flags(node_name=name).node_name == name


@pytest.mark.parametrize(
    "name", ["a/b", "..", "-a", ".a", "_a", "a b", "ä", "a" * 64, "a\0b", "a\n"]
)
def test_a_name_of_an_instance_that_is_no_part_of_a_file_name_is_refused(name: str) -> None:
    complaint = r"--instance: '.*' cannot be part of a socket's name \(at most 63 letters"
    with pytest.raises(ConfigError, match=complaint):
        from_flags(instance=name)


@pytest.mark.parametrize(
    "name", ["a", "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13", "A.b_c-1", "a" * 63]
)
def test_a_name_of_an_instance_is_taken_as_it_is(name: str) -> None:
    assert from_flags(instance=name).instance == name
    assert load(file=None, environ={"LIKEN_EVENTS_INSTANCE": name}, flags={}).instance == name


@pytest.mark.parametrize(
    ("environ", "uid", "expected"),
    [
        ({"HOME": "/home/me"}, 0, "/var/lib/liken-events"),
        ({"HOME": "/home/me"}, 1000, "/home/me/.local/state/liken-events"),
        ({"HOME": "/home/me", "XDG_STATE_HOME": "/state"}, 1000, "/state/liken-events"),
    ],
)
def test_the_directory_of_slices_is_the_system_s_or_the_user_s_own(
    environ: dict[str, str], uid: int, expected: str
) -> None:
    assert default_directory(environ, uid) == expected


def test_the_defaults_are_the_machine_s_own_roots() -> None:
    found = from_flags()
    assert (found.sys_root, found.dev_root, found.proc_root) == ("/sys", "/dev", "/proc")
    assert found.node_name
    check_roots(found)


@pytest.mark.parametrize("key", ["sys_root", "dev_root", "proc_root", "pci_ids"])
def test_a_path_that_leads_nowhere_is_refused_by_its_flag(tmp_path: Path, key: str) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(ConfigError, match=f"--{key.replace('_', '-')}: {missing} is no "):
        check_roots(from_flags(**{key: missing}))


def test_a_directory_that_is_no_sysfs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--sys-root: .* is no sysfs tree"):
        check_roots(from_flags(sys_root=str(tmp_path)))
    (tmp_path / "bus").mkdir()
    check_roots(from_flags(sys_root=str(tmp_path)))


def test_without_a_word_about_host_devices_there_is_kvm() -> None:
    assert from_flags().host_devices == (KVM,)


def test_there_may_be_no_host_devices(tmp_path: Path) -> None:
    assert from_file(tmp_path, "host_devices = []").host_devices == ()
    assert from_file(tmp_path, 'host_devices = ["none"]').host_devices == ()
    assert from_environment(host_devices="none").host_devices == ()
    assert from_environment(host_devices="").host_devices == ()
    assert from_flags(host_devices=["none"]).host_devices == ()


FORM = "this is not of the form RESOURCE=PATH"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[[host_devices]]\npath = "/dev/x"', "'entry 1': 'resource' has to be a text"),
        (
            'host_devices = ["a.b/c=/dev/x", {resource = "", path = "/dev/y"}]',
            "'entry 2': the resource has to be a domain, '/' and a name, such as ate.dev/kvm",
        ),
        (
            '[[host_devices]]\nresource = "a.b/c"\npath = "/dev/x"\npermisions = "r"',
            "'a.b/c': there is no key 'permisions'",
        ),
        (
            '[[host_devices]]\nresource = "a.b/c"\npath = "/etc/passwd"',
            "'a.b/c': '/etc/passwd' is no path under /dev",
        ),
        (
            '[[host_devices]]\nresource = "a\\u001b"\npath = "/dev/x"\ncount = "1"',
            r"'a\x1b': 'count' has to be a whole number",
        ),
        ('host_devices = ["kvm"]', f"'kvm': {FORM}"),
        ('host_devices = ["none", "a.b/c=/dev/x"]', f"'none': {FORM}"),
        (
            'host_devices = ["a.b-c/d=/dev/x", "a.b/c-d=/dev/y"]',
            "a.b-c/d and a.b/c-d would share the socket a.b-c-d.sock",
        ),
        ('host_devices = ["a.b/c=/dev/x", "a.b/c=/dev/y"]', "a.b/c is given twice"),
    ],
)
def test_a_host_device_that_cannot_be_is_refused_by_file_key_and_name(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        from_file(tmp_path, text)
    assert str(caught.value) == f"{tmp_path}/liken-events.toml: 'host_devices': {complaint}"


def test_a_host_device_is_refused_by_variable_or_flag() -> None:
    with pytest.raises(ConfigError, match=f"^LIKEN_EVENTS_HOST_DEVICES: 'kvm': {FORM}"):
        from_environment(host_devices="kvm")
    with pytest.raises(ConfigError, match=f"^--host-devices: '': {FORM}"):
        from_flags(host_devices=[""])
