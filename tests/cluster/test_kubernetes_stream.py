import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from liken_events.cluster import Rejected, Unavailable
from liken_events.cluster import kubernetes_access as access
from liken_events.cluster import kubernetes_stream as stream_module
from liken_events.cluster.kubernetes_access import Client, Kubeconfig
from liken_events.cluster.kubernetes_stream import EventStream
from liken_events.core.model.json import Json
from tests.fakes.apifaults import SLICES, Hold, Lines, Raw
from tests.fakes.apirules import ApiError
from tests.fakes.apiserver import ApiServer
from tests.fakes.kubeconfig import write_kubeconfig
from tests.fakes.slices import slice_body
from tests.fakes.waiting import until

PATIENT = 60.0
HASTY = 0.05


@contextmanager
def connected(
    api: ApiServer, tmp_path: Path, certificate: str | None = None
) -> Iterator[Callable[[], EventStream]]:
    path = write_kubeconfig(tmp_path / "kubeconfig", api.url, certificate=certificate)
    client = Client(Kubeconfig(path=path), connections=1)
    streams = []

    def make() -> EventStream:
        query = {"watch": "1", "resourceVersion": str(api.state.version)}
        streams.append(EventStream(client, "resourceslices", SLICES, query))
        return streams[-1]

    yield make
    for stream in streams:
        stream.close()
    client.close()


@pytest.fixture
def make(api: ApiServer, tmp_path: Path) -> Iterator[Callable[[], EventStream]]:
    with connected(api, tmp_path) as streams:
        yield streams


def line(kind: str) -> bytes:
    return json.dumps({"type": kind}).encode() + b"\n"


def read_all(stream: EventStream, silence: float = PATIENT) -> list[Json]:
    stream.open(silence)
    kinds = []
    while (events := stream.read()) is not None:
        kinds += [event.get("type") for event in events]
    return kinds


def test_what_happens_is_read_as_it_happens(
    api: ApiServer, make: Callable[[], EventStream]
) -> None:
    stream = make()
    stream.open(PATIENT)
    api.state.create(slice_body("a"))
    events = stream.read()
    assert events is not None
    assert [event["type"] for event in events] == ["ADDED"]


def test_events_may_be_split_and_joined_in_any_way(
    api: ApiServer, make: Callable[[], EventStream]
) -> None:
    first = line("FIRST")
    chunks = (first[:5], first[5:] + line("SECOND") + b"\n", line("THIRD")[:-1], b"\n")
    api.fail(Lines(chunks=chunks))
    assert read_all(make()) == ["FIRST", "SECOND", "THIRD"]


def test_a_stream_that_ended_in_order_leaves_its_connection_to_the_next(
    api: ApiServer, make: Callable[[], EventStream]
) -> None:
    api.fail(Lines(chunks=(line("ONE"),)), times=3)
    assert [read_all(make()) for _ in range(3)] == [["ONE"]] * 3
    assert api.connections == 1


def test_silence_is_no_good_end(api: ApiServer, make: Callable[[], EventStream]) -> None:
    api.fail(Lines(chunks=(line("ONE"),), end="silence"))
    with pytest.raises(Unavailable, match="fell silent"):
        read_all(make(), HASTY)


def test_an_end_within_an_event_is_no_good_end(
    api: ApiServer, make: Callable[[], EventStream]
) -> None:
    api.fail(Lines(chunks=(line("ONE")[:8],)))
    with pytest.raises(Unavailable, match="within an event"):
        read_all(make())


def test_a_broken_connection_is_no_good_end(
    api: ApiServer, make: Callable[[], EventStream]
) -> None:
    api.fail(Lines(chunks=(line("ONE"),), end="break"))
    with pytest.raises(Unavailable, match="broke"):
        read_all(make())


@pytest.mark.parametrize("text", [b"<html>\n", b"[1]\n", b"\xff\n", b"7\n", b"{}}\n"])
def test_a_line_that_is_no_object_ends_it(
    api: ApiServer, make: Callable[[], EventStream], text: bytes
) -> None:
    api.fail(Lines(chunks=(text,)))
    with pytest.raises(Unavailable, match="no event"):
        read_all(make())


def test_an_event_without_end_does_not_fill_the_memory(
    api: ApiServer, make: Callable[[], EventStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "LONGEST_EVENT", 1000)
    api.fail(Lines(chunks=(b"x" * 600,) * 2, end="silence"))
    with pytest.raises(Unavailable, match="8 MiB"):
        read_all(make())


def test_a_refusal_is_told_and_its_connection_used_again(
    api: ApiServer, make: Callable[[], EventStream]
) -> None:
    api.fail(ApiError(400, "BadRequest", "no such field"))
    with pytest.raises(Rejected, match="no such field"):
        read_all(make())
    api.fail(Raw(body=b""))
    assert read_all(make()) == []
    assert api.connections == 1


def test_a_server_that_will_close_the_connection_is_bounded_as_any_other_answer(
    api: ApiServer, make: Callable[[], EventStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "ANSWER_SECONDS", HASTY)
    api.fail(Lines(chunks=(line("ONE"),), end="silence", headers={"Connection": "close"}))
    with pytest.raises(Unavailable, match="fell silent"):
        read_all(make())


@pytest.mark.parametrize("secure", [False, True])
async def test_closing_wakes_a_blocked_reader_at_once_and_ends_the_connection(
    tmp_path: Path, certificate: tuple[str, str], secure: bool
) -> None:
    served_with = certificate if secure else None
    trusted = certificate[0] if secure else None
    with ApiServer(certificate=served_with) as api, connected(api, tmp_path, trusted) as make:
        stream = make()
        ended = threading.Event()

        def follow() -> None:
            try:
                read_all(stream)
            except Unavailable:
                pass
            finally:
                ended.set()

        thread = threading.Thread(target=follow)
        thread.start()
        await until(lambda: api.open_watches)
        stream.close()
        await until(ended.is_set, seconds=2)
        thread.join()
        await until(lambda: api.open_watches == 0)


async def test_closing_while_the_server_does_not_answer_cleans_up_when_it_does(
    api: ApiServer, make: Callable[[], EventStream]
) -> None:
    hold = Hold()
    api.fail(hold)
    stream = make()
    thread = threading.Thread(target=stream.open, args=(PATIENT,))
    thread.start()
    await until(lambda: api.requests)
    stream.close()
    hold.released.set()
    thread.join()
    await until(lambda: api.open_watches == 0)


def test_closing_is_allowed_at_any_time_and_again(make: Callable[[], EventStream]) -> None:
    stream = make()
    stream.close()
    stream.open(PATIENT)
    stream.close()
    stream.close()
