"""Devices that claims hold, as the agent comes to hold them, and any such device at all.

The first half makes them from a device by the agent's own judgement. The second half is for
hypothesis: names, nodes and sights that need not fit together.
"""

from hypothesis import strategies as st

from liken_events.core.model.claims import Allocated, ClaimReference
from liken_events.core.model.device import Judgement
from liken_events.core.model.names import device_name
from liken_events.core.model.prepared import (
    Prepared,
    PreparedDevice,
    Presence,
    Sight,
    resolve,
)
from liken_events.core.model.publish import Policy, judge
from liken_events.core.model.shapes import PARTS
from liken_events.core.model.snapshot import Device, Key, Node
from liken_events.core.model.storage import Dependence
from tests.core import generated

UID = "3f1c2a9e-7d5b-4f0a-9c1e-2b8d6a4e0f13"
REFERENCE = ClaimReference(namespace="default", name="c", uid=UID)


def judged(device: Device) -> Judgement:
    """What becomes of a device on a machine that stands on no disk."""
    return judge(device, Dependence(), Policy())


def held(device: Device, suffix: str = "") -> PreparedDevice:
    """A published device as a claim holds it that was prepared just now."""
    allocated = Allocated(request="r0", pool="n1", device=device_name(device.key, suffix))
    found = resolve(allocated, judged(device))
    assert isinstance(found, PreparedDevice), found
    return found


def prepared(*devices: PreparedDevice, uid: str = UID) -> Prepared:
    """A claim that holds these devices."""
    reference = ClaimReference(namespace="default", name="c", uid=uid)
    return Prepared(
        reference=reference, devices=tuple(sorted(devices, key=lambda device: device.name))
    )


def there(*nodes: Node) -> Sight:
    """A device that is there and delivers these nodes."""
    return Sight(presence=Presence.THERE, nodes=nodes, found="10c4:ea60")


AWAY = Sight(presence=Presence.AWAY)

keys = st.builds(
    Key, bus=generated.buses, address=generated.addresses.filter(lambda text: "\0" not in text)
)
"""No name of a directory has a NUL."""

names = st.builds(device_name, keys, st.sampled_from(PARTS))
uids = st.uuids().map(str)
nodes = st.sampled_from(
    [node for node in generated.NODES if not {"\udcae", "\0"} & set(node.path)]
)
"""sysfs is read with U+FFFD in place of what is no UTF-8, so no path holds a surrogate; and none
holds a NUL."""

some_nodes = st.lists(nodes, max_size=4, unique_by=lambda node: node.path).map(tuple)
prepared_devices = st.builds(
    PreparedDevice,
    name=names,
    key=keys,
    vendor=st.none() | generated.texts,
    product=st.none() | generated.texts,
    is_shared=st.booleans(),
    given=some_nodes,
    nodes=some_nodes,
)
claims_held = st.builds(
    lambda devices, uid: prepared(*devices, uid=uid),
    st.lists(prepared_devices, min_size=1, max_size=4, unique_by=lambda device: device.name),
    uids,
)


@st.composite
def sights(draw: st.DrawFn) -> Sight:
    """What a look may find: nodes if and only if they are the device's own."""
    presence = draw(st.sampled_from(Presence))
    if presence in (Presence.THERE, Presence.DETACHED):
        return Sight(presence=presence, nodes=draw(some_nodes.filter(bool)), found="1:2")
    return Sight(presence=presence, found=draw(st.sampled_from(["", "1:2"])))
