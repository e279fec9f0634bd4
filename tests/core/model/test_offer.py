from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.model.device import Cause, Judgement, PublishedDevice, Reason
from liken_events.core.model.offer import Offer
from liken_events.core.model.publish import Policy, assemble
from liken_events.core.model.snapshot import Device, Key

NAMES = "abcdef"


def judgement(address: str, *names: str) -> Judgement:
    """A device that publishes parts of these names."""
    key = Key(bus="usb", address=address)
    parts = tuple(PublishedDevice(name=name, key=key, nodes=()) for name in names)
    return Judgement(device=Device(key=key, path=f"/devices/{address}"), published=parts)


def names(offer: Offer) -> list[str]:
    return [device.name for device in offer.inventory({}).offered]


def reasons(offer: Offer) -> dict[str, Reason]:
    return {
        item.device.key.address: item.withheld.reason
        for item in offer.inventory({}).judgements
        if item.withheld is not None
    }


def test_devices_come_and_go() -> None:
    offer = Offer(Policy())
    assert names(offer) == []
    offer.put(judgement("2", "b"))
    offer.put(judgement("1", "a", "c"))
    assert names(offer) == ["a", "b", "c"]
    offer.put(judgement("1", "d"))
    assert names(offer) == ["b", "d"]
    offer.remove(Key(bus="usb", address="1"))
    offer.remove(Key(bus="usb", address="1"))
    assert names(offer) == ["b"]
    assert set(offer.judged) == {Key(bus="usb", address="2")}


def test_who_leaves_makes_room_for_who_had_none() -> None:
    offer = Offer(Policy(limit=2))
    for address, name in (("1", "a"), ("2", "b"), ("3", "c")):
        offer.put(judgement(address, name))
    assert names(offer) == ["a", "b"]
    assert reasons(offer) == {"3": Reason.OVER_LIMIT}
    offer.remove(Key(bus="usb", address="1"))
    assert names(offer) == ["b", "c"]
    assert reasons(offer) == {}
    offer.put(judgement("4", "a"))
    assert names(offer) == ["a", "b"]
    assert reasons(offer) == {"3": Reason.OVER_LIMIT}


def test_a_name_goes_to_the_next_who_claims_it() -> None:
    offer = Offer(Policy())
    for address in ("3", "1", "2"):
        offer.put(judgement(address, "a"))
    assert reasons(offer) == {"2": Reason.SAME_NAME, "3": Reason.SAME_NAME}
    offer.remove(Key(bus="usb", address="1"))
    assert reasons(offer) == {"3": Reason.SAME_NAME}
    offer.put(judgement("2"))
    assert reasons(offer) == {}
    assert [device.key.address for device in offer.inventory({}).offered] == ["3"]


def test_causes_are_carried_along() -> None:
    offer, key = Offer(Policy()), Key(bus="usb", address="1")
    causes = {key: Cause(text="add 1", at=1.0)}
    assert offer.inventory(causes).causes == causes
    assert offer.inventory({}).causes == {}


steps = st.lists(
    st.tuples(
        st.sampled_from("1234"),
        st.none() | st.lists(st.sampled_from(NAMES), max_size=3, unique=True),
    ),
    max_size=12,
)


@given(steps, st.sampled_from([None, 0, 1, 2, 4]))
def test_it_says_what_the_plain_rule_says_of_the_same_judgements(
    changes: list[tuple[str, list[str] | None]], limit: int | None
) -> None:
    policy = Policy(limit=limit)
    offer = Offer(policy)
    known: dict[Key, Judgement] = {}
    for address, parts in changes:
        key = Key(bus="usb", address=address)
        if parts is None:
            known.pop(key, None)
            offer.remove(key)
        else:
            known[key] = judgement(address, *parts)
            offer.put(known[key])
        assert offer.judged == known
        assert offer.inventory({}) == assemble(known.values(), policy)
