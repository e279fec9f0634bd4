"""The judgements of one machine, put together one by one.

Which devices are offered is a question about the whole machine: names must be unique, and a slice
holds so many and no more. Answering it anew for each event would cost what a machine of a thousand
devices costs.

This file keeps the answer and changes what a new judgement changes: the device itself, others that
claim the same name, and those that the limit lets in or pushes out. What it says always equals
what `publish.assemble` says of the same judgements, which is the rule in its plain form: a test
holds it to that.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from liken_events.core.model.device import Cause, Inventory, Judgement, PublishedDevice
from liken_events.core.model.publish import Policy, restrict
from liken_events.core.model.snapshot import Key


class Offer:
    """What a machine offers and holds back.

    Attributes:
        judged: the judgement of each device as it was put, before names and limit.
    """

    def __init__(self, policy: Policy) -> None:
        self.judged: dict[Key, Judgement] = {}
        self._policy = policy
        self._claims: dict[str, list[PublishedDevice]] = {}
        self._names: list[str] = []
        self._shown: list[Judgement] = []

    def put(self, judgement: Judgement) -> None:
        """Takes the judgement of a device, in place of an older one."""
        self._exchange(judgement.device.key, judgement)

    def remove(self, key: Key) -> None:
        """Takes a device out; nothing if it is not there."""
        if key in self.judged:
            self._exchange(key, None)

    def inventory(self, causes: Mapping[Key, Cause]) -> Inventory:
        """All that the machine offers and holds back now."""
        kept = self._names[: self._policy.limit]
        return Inventory(
            offered=tuple([self._claims[name][0] for name in kept]),
            judgements=tuple(self._shown),
            causes=dict(causes),
        )

    def _exchange(self, key: Key, new: Judgement | None) -> None:
        edge = self._edge()
        old = self.judged.pop(key, None)
        before = () if old is None else old.published
        after = () if new is None else new.published
        for device in before:
            self._withdraw(device)
        for device in after:
            self._claim(device)
        if new is not None:
            self.judged[key] = new
        doubtful = {device.name for device in (*before, *after)}
        doubtful.update(self._between(edge, self._edge()))
        concerned = {claim.key for name in doubtful for claim in self._claims.get(name, ())}
        for item in concerned | {key}:
            self._show(item)

    def _claim(self, device: PublishedDevice) -> None:
        claims = self._claims.setdefault(device.name, [])
        if not claims:
            insort(self._names, device.name)
        insort(claims, device, key=_key)

    def _withdraw(self, device: PublishedDevice) -> None:
        claims = self._claims[device.name]
        claims.remove(device)
        if not claims:
            del self._claims[device.name]
            del self._names[bisect_left(self._names, device.name)]

    def _owner(self, name: str) -> PublishedDevice:
        """The first device, in the order of the snapshot, has the name."""
        return self._claims[name][0]

    def _edge(self) -> str | None:
        """The first name that the limit leaves out; None if it leaves out none."""
        limit = self._policy.limit
        return None if limit is None or limit >= len(self._names) else self._names[limit]

    def _between(self, one: str | None, other: str | None) -> Iterable[str]:
        """The names that are kept with one of two edges only."""
        low, high = sorted((self._place(one), self._place(other)))
        return self._names[low:high]

    def _place(self, edge: str | None) -> int:
        return len(self._names) if edge is None else bisect_left(self._names, edge)

    def _show(self, key: Key) -> None:
        """Brings one judgement up to date with the whole."""
        place = bisect_left(self._shown, key, key=lambda judgement: judgement.device.key)
        known = place < len(self._shown) and self._shown[place].device.key == key
        judged = self.judged.get(key)
        edge = self._edge()
        self._shown[place : place + known] = (
            []
            if judged is None
            else [
                restrict(
                    judged,
                    self._policy,
                    owner=self._owner,
                    kept=lambda name: edge is None or name < edge,
                )
            ]
        )


def _key(device: PublishedDevice) -> Key:
    return device.key
