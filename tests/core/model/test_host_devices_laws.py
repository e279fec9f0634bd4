"""Laws of host devices, for any that can be configured."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from liken_events.core.model.host_devices import (
    COUNT,
    MOST_UNITS,
    SOCKET_LENGTH,
    BadHostDevice,
    HostDevice,
    checked,
    find_unit,
    from_text,
    units,
)
from liken_events.core.model.names import printable

ID = re.compile(r"[A-Za-z0-9_.:-]{1,63}")

labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
resources = st.builds(
    lambda domain, name: f"{'.'.join(domain)}/{name}",
    st.lists(labels, min_size=1, max_size=3),
    st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True),
).filter(lambda resource: not resource.startswith("requests."))
parts = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="/*?[+,"), min_size=1
).filter(lambda part: part not in (".", ".."))
paths = st.lists(parts, min_size=1, max_size=3).map(lambda found: "/dev/" + "/".join(found))
plain = st.builds(
    HostDevice,
    resource=resources,
    paths=st.lists(paths, min_size=1, max_size=3, unique=True).map(tuple),
    count=st.integers(1, 50) | st.sampled_from([COUNT, MOST_UNITS]),
)
PATTERN = HostDevice(resource="a.b/c", paths=("/dev/*", "/dev/a/*"))
nodes = st.frozensets(
    st.tuples(st.sampled_from(["/dev/", "/dev/a/"]), st.text(min_size=1))
    .map("".join)
    .filter(lambda path: "/" not in path.removeprefix("/dev/a/").removeprefix("/dev/")),
    max_size=6,
)
numbers = st.sampled_from(["-1", "+1", "01", "٣", "1 ", "", "4096", "10000", "9" * 5000])


@given(resources, resources)
def test_a_socket_is_short_and_the_resource_s_own(one: str, other: str) -> None:
    first, second = (HostDevice(resource=name, paths=("/dev/kvm",)) for name in (one, other))
    assert checked(first) == first
    assert len(first.socket.encode()) <= SOCKET_LENGTH
    assert "/" not in first.socket
    if one.replace("/", "-") != other.replace("/", "-"):
        assert first.socket != second.socket


@settings(max_examples=30)
@given(plain)
def test_each_unit_is_found_by_its_id_and_no_id_is_another_s(device: HostDevice) -> None:
    assert checked(device) == device
    found = units(device, device.paths)
    assert len({unit.id for unit in found}) == device.count
    assert all(ID.fullmatch(unit.id) for unit in found)
    for unit in {found[0], found[-1], found[len(found) // 2]}:
        assert find_unit(device, unit.id, device.paths) == unit
    gone = units(device, device.paths[1:])
    assert [unit.id for unit in gone] == [unit.id for unit in found]
    assert not any(unit.is_healthy for unit in gone)


@settings(max_examples=50)
@given(plain.filter(lambda device: device.count <= 50), st.text(), numbers)
def test_no_other_text_is_an_id(device: HostDevice, text: str, number: str) -> None:
    known = {unit.id: unit for unit in units(device, device.paths)}
    base = next(iter(known)).removesuffix("-0")
    tried = [text, f"{base}-{text}", f"{base}-{number}", f"{base}{number}", *known]
    for name in [*tried, *(f"{name}{text}" for name in known)]:
        assert find_unit(device, name, device.paths) == known.get(name)


@given(nodes, nodes, st.text())
def test_a_node_keeps_its_unit_whatever_else_comes_and_goes(
    present: frozenset[str], known: frozenset[str], text: str
) -> None:
    found = units(PATTERN, present, known)
    assert [unit.paths for unit in found] == [(path,) for path in sorted(present | known)]
    by_id = {unit.id: unit for unit in found}
    assert len(by_id) == len(found)
    for unit in found:
        assert ID.fullmatch(unit.id)
        assert unit.is_healthy == (unit.paths[0] in present)
        assert find_unit(PATTERN, unit.id, present, known) == unit
        alone = units(PATTERN, unit.paths)
        assert [item.id for item in alone] == [unit.id]
    assert find_unit(PATTERN, text, present, known) == by_id.get(text)


@given(plain)
def test_what_is_shown_can_be_typed(device: HostDevice) -> None:
    shown = from_text(str(device))
    assert (shown.resource, shown.paths) == (device.resource, device.paths)


@given(st.text() | st.tuples(resources, st.text()).map("=/dev/".join))
def test_any_text_is_a_host_device_or_refused_in_one_line(text: str) -> None:
    said = ""
    try:
        device = from_text(text)
    except BadHostDevice as error:
        said = str(error)
    else:
        assert checked(device) == device
    assert printable(said) == said
