import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from liken_events.cluster import claim_watch
from liken_events.cluster.claim_file import ClaimFile, has_ended
from liken_events.cluster.claim_files import ClaimFiles
from liken_events.cluster.claim_watch import RETRY_SECONDS
from liken_events.cluster.plain_yaml import emit
from liken_events.core.model.claims import ClaimReference
from liken_events.inotify import DirectoryWatch
from liken_events.latest import Latest
from tests.cluster.claim_bodies import OTHER_UID, UID, claim_body
from tests.fakes.faults import no_descriptors


class Followed:
    """A tree, and what its watch was seen to tell."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = root / "resourceclaims"
        self.files = ClaimFiles(str(root))
        self.claims: Latest[tuple[ClaimFile, ...]] = Latest()

    def write(self, text: str, where: str = "default/camera.yaml") -> None:
        (self.top / where).parent.mkdir(parents=True, exist_ok=True)
        (self.top / where).write_text(text)

    @property
    def uids(self) -> dict[str, str]:
        return {f"{file.namespace}/{file.name}": file.uid for file in self.claims.get()}

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits, and sees every value on the way."""
        with trio.fail_after(10):
            while not condition():
                await self.claims.wait_newer(self.claims.number)

    async def until_uids(self, uids: dict[str, str]) -> None:
        await self.until(lambda: self.uids == uids)

    async def is_quiet(self) -> None:
        number = self.claims.number
        with trio.move_on_after(0.02):
            await self.claims.wait_newer(number)
        assert self.claims.number == number


@asynccontextmanager
async def followed(root: Path) -> AsyncIterator[Followed]:
    seen = Followed(root)

    async def watch(task_status: trio.TaskStatus[None]) -> None:
        await seen.files.watch(seen.claims, task_status=task_status)

    async with trio.open_nursery() as nursery:
        await nursery.start(watch)
        yield seen
        nursery.cancel_scope.cancel()


CAMERA = {"default/camera": UID}


async def test_what_is_there_is_told_at_first(tmp_path: Path) -> None:
    ClaimFiles(str(tmp_path)).write(claim_body())
    async with followed(tmp_path) as seen:
        assert (seen.uids, seen.claims.number) == (CAMERA, 1)
        await seen.is_quiet()


async def test_that_nothing_is_there_is_told_too(tmp_path: Path) -> None:
    async with followed(tmp_path / "missing") as seen:
        assert (seen.uids, seen.claims.number) == ({}, 1)


async def test_every_change_is_told(tmp_path: Path) -> None:
    writer = ClaimFiles(str(tmp_path))
    async with followed(tmp_path) as seen:
        writer.write(claim_body())
        await seen.until_uids(CAMERA)
        writer.write(claim_body(name="other", uid=OTHER_UID))
        await seen.until_uids({**CAMERA, "default/other": OTHER_UID})
        writer.write(claim_body(namespace="n2", uid=OTHER_UID))
        await seen.until_uids({**CAMERA, "default/other": OTHER_UID, "n2/camera": OTHER_UID})
        writer.remove("default", "other")
        await seen.until_uids({**CAMERA, "n2/camera": OTHER_UID})
        seen.write(emit(claim_body("b")))
        await seen.until(lambda: seen.claims.get()[0].body == claim_body("b"))
        shutil.rmtree(seen.top / "n2")
        await seen.until_uids(CAMERA)


async def test_what_concerns_no_claim_is_no_news(tmp_path: Path) -> None:
    writer = ClaimFiles(str(tmp_path))
    writer.write(claim_body())
    async with followed(tmp_path) as seen:
        with writer.locked():
            pass
        seen.write("x", "default/.camera.yaml.swp")
        seen.write("x", "default/notes.txt")
        (seen.top / "empty").mkdir()
        seen.write(emit(claim_body()))
        await seen.until(lambda: not seen.claims.get()[0].problem)
        number = seen.claims.number
        (seen.top / "empty").rmdir()
        await seen.is_quiet()
        assert seen.claims.number == number


async def test_a_file_in_a_namespace_made_a_moment_ago_is_not_missed(tmp_path: Path) -> None:
    async with followed(tmp_path) as seen:
        expected: dict[str, str] = {}
        for number in range(10):
            seen.write(emit(claim_body(namespace=f"n{number}")), f"n{number}/camera.yaml")
            expected[f"n{number}/camera"] = UID
            await seen.until_uids(expected)
            seen.write(
                emit(claim_body(namespace=f"n{number}", name="late")), f"n{number}/late.yaml"
            )
            expected[f"n{number}/late"] = UID
            await seen.until_uids(expected)


async def test_a_file_written_in_place_ends_no_claim(tmp_path: Path) -> None:
    """Half of it is read, and all of it once that is there, within one tick of the clock."""
    text = emit(claim_body("a"))
    async with followed(tmp_path) as seen:
        seen.write(text)
        await seen.until_uids(CAMERA)
        reference = seen.claims.get()[0].reference
        path = seen.top / "default" / "camera.yaml"
        for device in ("b", "c", "d"):
            new = emit(claim_body(device))
            with path.open("w") as file:
                file.write(new[:90])
                file.flush()
                await seen.until(lambda: seen.claims.get()[0].problem != "")
                assert seen.uids == CAMERA
                assert not has_ended(reference, seen.claims.get())
                file.write(new[90:])
            await seen.until(lambda: seen.claims.get()[0].body == claim_body(device))  # noqa: B023
            assert seen.claims.get()[0].problem == ""


async def test_a_mistake_of_an_editor_is_told_and_ends_no_claim(tmp_path: Path) -> None:
    async with followed(tmp_path) as seen:
        seen.write(emit(claim_body()))
        await seen.until_uids(CAMERA)
        seen.write("metadata: [")
        await seen.until(lambda: seen.claims.get()[0].problem != "")
        assert seen.claims.get()[0].body == claim_body()
        seen.write(emit(claim_body(uid=OTHER_UID)))
        await seen.until_uids({"default/camera": OTHER_UID})


async def test_a_file_that_an_editor_replaces_ends_no_claim(tmp_path: Path) -> None:
    async with followed(tmp_path) as seen:
        seen.write(emit(claim_body("a")))
        await seen.until_uids(CAMERA)
        seen.write(emit(claim_body("b")), "default/.new")
        (seen.top / "default" / ".new").rename(seen.top / "default" / "camera.yaml")
        await seen.until(lambda: seen.claims.get()[0].body == claim_body("b"))
        assert seen.claims.number <= 4


async def test_the_whole_tree_may_go_and_come_back(tmp_path: Path) -> None:
    root = tmp_path / "cluster"
    async with followed(root) as seen:
        for uid in (UID, OTHER_UID):
            ClaimFiles(str(root)).write(claim_body(uid=uid))
            await seen.until_uids({"default/camera": uid})
            shutil.rmtree(root)
            await seen.until_uids({})
        ClaimFiles(str(root)).write(claim_body())
        await seen.until_uids(CAMERA)
        os.rename(seen.top / "default", tmp_path / "away")
        await seen.until_uids({})
        os.rename(tmp_path / "away", seen.top / "default")
        await seen.until_uids(CAMERA)
        seen.write(emit(claim_body(name="other")), "default/other.yaml")
        await seen.until_uids({**CAMERA, "default/other": UID})


async def test_a_namespace_that_is_replaced_at_once_is_followed(tmp_path: Path) -> None:
    async with followed(tmp_path) as seen:
        for turn in range(5):
            uid = (UID, OTHER_UID)[turn % 2]
            shutil.rmtree(seen.top / "default", ignore_errors=True)
            seen.write(emit(claim_body(uid=uid)))
            await seen.until_uids({"default/camera": uid})


async def test_a_hundred_namespaces_are_followed_and_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    writer = ClaimFiles(str(tmp_path))
    for number in range(100):
        writer.write(claim_body(namespace=f"n{number}"))
    async with followed(tmp_path) as seen:
        assert len(seen.uids) == 100
        shutil.rmtree(seen.top)
        await seen.until_uids({})
        await wait_all_tasks_blocked()
        assert len(os.listdir("/proc/self/fd")) <= before + 1
        writer.write(claim_body())
        await seen.until_uids(CAMERA)


async def test_what_cannot_be_read_for_a_while_is_looked_at_again(
    clock: MockClock, tmp_path: Path
) -> None:
    ClaimFiles(str(tmp_path)).write(claim_body())
    with ExitStack() as stack:
        stack.enter_context(no_descriptors())
        async with followed(tmp_path) as seen:
            assert seen.uids == {"/": ""}
            assert "Too many open files" in seen.claims.get()[0].problem
            await trio.sleep(3 * RETRY_SECONDS)
            assert seen.claims.number == 1
            stack.close()
            await seen.until_uids(CAMERA)
            assert trio.current_time() <= 4 * RETRY_SECONDS
            seen.write(emit(claim_body(name="other")), "default/other.yaml")
            await seen.until_uids({**CAMERA, "default/other": UID})


async def test_running_out_while_following_ends_no_claim(clock: MockClock, tmp_path: Path) -> None:
    ClaimFiles(str(tmp_path)).write(claim_body())
    async with followed(tmp_path) as seen:
        with no_descriptors():
            (seen.top / "default" / "camera.yaml").rename(seen.top / "default" / "moved.yaml")
            await seen.until(lambda: len(seen.claims.get()) == 2)
            assert seen.uids == {"/": "", **CAMERA}
            reference = ClaimReference(namespace="default", name="camera", uid=UID)
            assert not has_ended(reference, seen.claims.get())
        await seen.until(lambda: seen.uids == {"default/moved": ""})
        assert has_ended(reference, seen.claims.get())


async def test_a_loop_in_place_of_a_namespace_is_waited_out(
    clock: MockClock, tmp_path: Path
) -> None:
    async with followed(tmp_path) as seen:
        ClaimFiles(str(tmp_path)).write(claim_body(namespace="other"))
        (seen.top / "default").symlink_to("default")
        await seen.until_uids({"default/": "", "other/camera": UID})
        await trio.sleep(3 * RETRY_SECONDS)
        (seen.top / "default").unlink()
        for name in ("camera", "late"):
            seen.write(emit(claim_body(name=name)), f"default/{name}.yaml")
            await seen.until(lambda: seen.uids.get(f"default/{name}") == UID)  # noqa: B023
            await trio.sleep(3 * RETRY_SECONDS)


class Refused:
    """inotify refuses this directory with this error, the first few times."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, name: str, number: int, times: int
    ) -> None:
        self.left = times
        real = DirectoryWatch

        def watch(directory: str) -> DirectoryWatch:
            if directory.endswith(name) and self.left:
                self.left -= 1
                raise OSError(number, "refused", directory)
            return real(directory)

        monkeypatch.setattr(claim_watch, "DirectoryWatch", watch)


@pytest.mark.parametrize("name", ["/resourceclaims", "/default"])
async def test_a_directory_that_may_not_be_watched_is_looked_at_until_it_may(
    clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    writer = ClaimFiles(str(tmp_path))
    writer.write(claim_body())
    refused = Refused(monkeypatch, name, errno.EACCES, 3)
    async with followed(tmp_path) as seen:
        assert seen.uids == CAMERA
        await trio.sleep(RETRY_SECONDS / 2)
        writer.write(claim_body(name="other"))
        await seen.until_uids({**CAMERA, "default/other": UID})
        await trio.sleep(3 * RETRY_SECONDS)
        assert refused.left == 0
        started = trio.current_time()
        writer.remove("default", "other")
        writer.write(claim_body(namespace="new"))
        await seen.until_uids({**CAMERA, "new/camera": UID})
        assert trio.current_time() == started, "it hears, and need not look"


async def test_an_error_that_nothing_explains_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Refused(monkeypatch, "/resourceclaims", errno.EINVAL, 1)
    with pytest.raises(ExceptionGroup) as caught, trio.fail_after(5):
        await ClaimFiles(str(tmp_path)).watch(Latest())
    assert caught.group_contains(OSError, match="refused")
