"""The configuration file: what TOML can say in several ways, and what is wrong with a file."""

from pathlib import Path

import pytest

from liken_events.config import Config, ConfigError, load
from liken_events.core.model.host_devices import KVM, HostDevice


def from_file(path: Path, text: str) -> Config:
    file = path / "liken-events.toml"
    file.write_text(text, "utf-8")
    return load(file=str(file), environ={}, flags={})


@pytest.mark.parametrize(
    "text",
    [
        "settle_quiet = 1",
        "settle-quiet = 1",
        "[settle]\nquiet = 1",
        "settle.quiet = 1.0",
    ],
)
def test_a_setting_in_a_file_may_be_written_in_a_table(tmp_path: Path, text: str) -> None:
    found = from_file(tmp_path, text)
    assert found.settle_quiet == 1.0
    assert found.timing.quiet == 1.0


@pytest.mark.parametrize(
    ("key", "hint"), [("settle_quit", "settle_quiet"), ("protct", "protect"), ("zzzzzz", "")]
)
def test_an_unknown_key_is_named_with_the_one_that_was_meant(
    tmp_path: Path, key: str, hint: str
) -> None:
    with pytest.raises(ConfigError, match=f"liken-events.toml: unknown key '{key}'") as caught:
        from_file(tmp_path, f"{key} = 1\n")
    assert ("did you mean" in str(caught.value)) == bool(hint)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"node_name = \n", "is no TOML"),
        (b"\xff\xfe", "is no TOML"),
        (b"a = 1\na = 2\n", "is no TOML"),
        (b"ignore = " + b"[" * 20_000, "is no TOML: too many levels"),
        (b".".join([b"a"] * 20_000) + b" = 1", "is no TOML: too many levels"),
        (b"settle_quiet = 1" + b"0" * 5000, "is no TOML: Exceeds the limit"),
        (b"settle_quiet = 0x" + b"f" * 5000, "'settle_quiet': expected .*, found a huge number"),
        (b"ignore = [0x" + b"f" * 5000 + b"]", "'ignore': expected .*, found a huge number"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    file = tmp_path / "broken.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"broken.toml: {complaint}"):
        load(file=str(file), environ={}, flags={})


def test_a_file_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert from_file(tmp_path, '\ufeffnode_name = "n1"\n').node_name == "n1"


@pytest.mark.parametrize(
    "text",
    [
        "settle_quiet = 1\n[settle]\nquiet = 2",
        "settle-quiet = 1\nsettle_quiet = 1",
        "settle_probing_usb = 1\n[settle]\nprobing.usb = 1",
    ],
)
def test_a_setting_that_is_given_twice_is_refused(tmp_path: Path, text: str) -> None:
    complaint = r"liken-events.toml: 'settle_\w+' is given twice, once in another spelling$"
    with pytest.raises(ConfigError, match=complaint):
        from_file(tmp_path, text)


@pytest.mark.parametrize("name", ["setle", "settle.quick", "kubernetes"])
def test_a_table_that_no_setting_is_in_is_refused_empty_or_not(tmp_path: Path, name: str) -> None:
    for content in ("", "x = 1"):
        with pytest.raises(ConfigError, match=f"unknown key '{name.replace('.', '_')}"):
            from_file(tmp_path, f"[{name}]\n{content}")


@pytest.mark.parametrize("name", ["settle", "settle.probing", "cluster", "kubelet"])
def test_a_table_that_settings_may_be_in_may_be_empty(tmp_path: Path, name: str) -> None:
    assert from_file(tmp_path, f"[{name}]\n# quiet = 1\n") == load(file=None, environ={}, flags={})


def test_an_empty_table_is_no_value_of_a_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"toml: 'protect': expected a list of texts, found {}"):
        from_file(tmp_path, "[protect]\n")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(file=str(tmp_path), environ={}, flags={})


def test_host_devices_are_tables_in_a_file(tmp_path: Path) -> None:
    found = from_file(
        tmp_path,
        """
        [[host_devices]]
        resource = "ate.dev/kvm"
        path = "/dev/kvm"

        [[host_devices]]
        resource = "a.b/net"
        paths = ["/dev/net/tun", "/dev/vhost-net"]
        count = 16
        permissions = "r"
        """,
    )
    net = HostDevice(
        resource="a.b/net",
        paths=("/dev/net/tun", "/dev/vhost-net"),
        count=16,
        permissions="r",
    )
    assert found.host_devices == (KVM, net)


@pytest.mark.parametrize(
    "text",
    [
        '[[host-devices]]\nresource = "ate.dev/tun"\npath = "/dev/net/tun"',
        '[[host.devices]]\nresource = "ate.dev/tun"\npath = "/dev/net/tun"',
        'host_devices = ["ate.dev/tun=/dev/net/tun"]',
    ],
)
def test_host_devices_may_be_written_in_other_ways(tmp_path: Path, text: str) -> None:
    assert from_file(tmp_path, text).host_devices == (
        HostDevice(resource="ate.dev/tun", paths=("/dev/net/tun",)),
    )
