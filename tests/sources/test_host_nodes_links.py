"""Links in a machine's `/dev`, which say `/dev/…` and mean that one."""

from pathlib import Path

import pytest

from liken_events.sources.host_nodes import MOST_LINKS, HostNodes
from tests.fakes.host_dev import NULL, TUN, ZERO, HostDev, first_look, following, need_nodes, sees

KVM, NET = "/dev/kvm", "/dev/net/tun"


@pytest.fixture
def dev(tmp_path: Path) -> HostDev:
    """One in which nodes can be made."""
    need_nodes(tmp_path)
    return HostDev(tmp_path / "dev")


@pytest.fixture
def bare_dev(tmp_path: Path) -> HostDev:
    """One for a test that makes no nodes."""
    return HostDev(tmp_path / "dev")


@pytest.mark.parametrize(
    ("target", "node"),
    [
        ("real", "real"),
        ("/dev/real", "real"),
        ("./sub/../real", "real"),
        ("../dev/real", "real"),
        ("../../..//dev/./real", "real"),
        ("sub/real", "sub/real"),
        ("/dev/sub/real", "sub/real"),
    ],
)
async def test_a_link_is_followed_as_on_the_host(dev: HostDev, target: str, node: str) -> None:
    dev.directory("sub")
    dev.char(node)
    dev.link("kvm", target)
    assert await first_look(dev, KVM) == HostNodes(present={KVM: NULL})


async def test_a_directory_may_be_a_link_of_the_host_s(dev: HostDev) -> None:
    """Followed by this process's own `/dev`, `/dev/net` would be the container's."""
    dev.directory("other")
    dev.link("net", "/dev/other")
    async with following(dev.root, (NET,), ("/dev/net/x*",)) as nodes:
        await sees(nodes)
        dev.char("other/tun", TUN)
        await sees(nodes, {NET: TUN})
        dev.char("other/x1")
        await sees(nodes, {NET: TUN, "/dev/net/x1": NULL})


@pytest.mark.parametrize("target", ["missing", "/dev/null", "/dev/a/b/c", "file/x"])
async def test_a_link_to_nothing_is_nothing(bare_dev: HostDev, target: str) -> None:
    bare_dev.file("file")
    bare_dev.link("kvm", target)
    assert await first_look(bare_dev, KVM) == HostNodes()


OUTSIDE = "a link that leads out of /dev"


@pytest.mark.parametrize(
    "target", ["/proc/self/fd/0", "/etc/passwd", "../etc/passwd", "/", "..", "/device", "/dev/.."]
)
async def test_a_link_out_of_dev_is_strange(bare_dev: HostDev, target: str) -> None:
    bare_dev.link("kvm", target)
    assert await first_look(bare_dev, KVM) == HostNodes(strange={KVM: OUTSIDE})


@pytest.mark.parametrize("target", ["/dev", ".", "/dev/."])
async def test_a_link_to_dev_itself_is_a_directory(bare_dev: HostDev, target: str) -> None:
    bare_dev.link("kvm", target)
    assert await first_look(bare_dev, KVM) == HostNodes(strange={KVM: "a directory"})


@pytest.mark.parametrize("target", ["kvm", "/dev/kvm", "back", "self/kvm"])
async def test_links_that_lead_to_each_other_are_strange(bare_dev: HostDev, target: str) -> None:
    bare_dev.link("back", KVM)
    bare_dev.link("self", ".")
    bare_dev.link("kvm", target)
    assert await first_look(bare_dev, KVM) == HostNodes(
        strange={KVM: "a link that leads to no end"}
    )


async def test_so_many_links_are_followed_and_no_more(dev: HostDev) -> None:
    dev.char("link0")
    for number in range(MOST_LINKS + 1):
        dev.link(f"link{number + 1}", f"link{number}")
    last, beyond = f"/dev/link{MOST_LINKS}", f"/dev/link{MOST_LINKS + 1}"
    assert await first_look(dev, last, beyond) == HostNodes(
        present={last: NULL}, strange={beyond: "a link that leads to no end"}
    )


async def test_a_link_whose_node_comes_later_in_another_directory_is_heard_of(
    dev: HostDev,
) -> None:
    dev.directory("serial")
    dev.directory("sub")
    dev.link("serial/stick", "../ttyUSB0")
    async with following(dev.root, ("/dev/serial/stick",), ("/dev/serial/s*",)) as nodes:
        await sees(nodes)
        dev.char("ttyUSB0")
        await sees(nodes, {"/dev/serial/stick": NULL})
        dev.link("new", "/dev/sub/node")
        dev.move("new", "serial/stick")
        await sees(nodes)
        dev.char("sub/node", ZERO)
        await sees(nodes, {"/dev/serial/stick": ZERO})
        dev.remove("sub/node")
        await sees(nodes)
