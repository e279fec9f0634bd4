import pytest
import trio

from liken_events.cluster import SliceView
from liken_events.core.model.json import Json


def body(
    name: str = "s", version: str = "1", *, uid: str = "u", devices: int = 1
) -> dict[str, Json]:
    return {
        "metadata": {"name": name, "uid": uid, "resourceVersion": version},
        "spec": {"devices": [{"name": f"d{index}"} for index in range(devices)]},
    }


def known(view: SliceView) -> list[tuple[str, str]]:
    return [(item.name, item.version) for item in view.latest.get()]


def test_nothing_is_known_before_the_first_list() -> None:
    view = SliceView()
    assert view.latest.number == 0
    view.replace([])
    assert view.latest.get() == ()


def test_a_list_replaces_all_and_is_sorted_by_name() -> None:
    view = SliceView()
    view.replace([body("old", "3")], "3")
    view.replace([body("b", "4"), body("a", "5")], "9")
    assert known(view) == [("a", "5"), ("b", "4")]


def test_a_list_counts_also_if_its_versions_are_lower_than_before() -> None:
    view = SliceView()
    view.replace([body(version="1000")], "1000")
    view.replace([body(version="7")], "7")
    assert known(view) == [("s", "7")]
    view.observe(body(version="8"))
    assert known(view) == [("s", "8")]


def test_the_outcome_of_a_write_is_seen_before_the_watch_tells_of_it() -> None:
    view = SliceView()
    view.replace([body(version="1")], "1")
    view.put(body(version="2", devices=2))
    assert view.latest.get()[0].body == body(version="2", devices=2)


def test_an_event_that_is_older_than_our_own_write_changes_nothing() -> None:
    view = SliceView()
    view.replace([body(version="1")], "1")
    view.put(body(version="3", devices=3))
    number = view.latest.number
    view.observe(body(version="2", devices=2))
    assert known(view) == [("s", "3")]
    assert view.latest.number == number


def test_versions_are_compared_as_numbers() -> None:
    view = SliceView()
    view.replace([body(version="9")], "9")
    view.put(body(version="10"))
    view.observe(body(version="9"))
    assert known(view) == [("s", "10")]


def test_what_the_watch_told_of_a_write_stays_when_its_outcome_arrives_later() -> None:
    view = SliceView()
    view.replace([body(version="1")], "1")
    dropped_a_field = body(version="2", devices=1)
    view.observe(dropped_a_field)
    view.put(body(version="2", devices=2))
    assert view.latest.get()[0].body == dropped_a_field


def test_the_watch_corrects_the_outcome_of_a_write_at_the_same_version() -> None:
    view = SliceView()
    view.replace([], "1")
    view.put(body(version="2", devices=2))
    view.observe(body(version="2", devices=1))
    assert view.latest.get()[0].body == body(version="2", devices=1)


def test_a_slice_that_was_deleted_after_our_write_is_not_brought_back_by_its_outcome() -> None:
    view = SliceView()
    view.replace([body(version="1")], "1")
    view.observe(body(version="2"))
    view.drop("s", "3")
    view.put(body(version="2"))
    assert known(view) == []


def test_a_slice_that_we_deleted_is_not_brought_back_by_a_late_report_of_what_it_was() -> None:
    view = SliceView()
    view.replace([body(version="1")], "1")
    view.put(body(version="2"))
    view.drop("s", "2")
    view.observe(body(version="2"))
    assert known(view) == []
    view.observe(body(version="4", uid="anew"))
    assert known(view) == [("s", "4")]


def test_a_late_report_of_an_earlier_life_does_not_undo_a_newer_creation() -> None:
    view = SliceView()
    view.replace([body(version="10", uid="first")], "10")
    view.put(body(version="11", uid="first", devices=2))
    view.drop("s", "11")
    view.put(body(version="13", uid="second"))
    number = view.latest.number
    view.observe(body(version="11", uid="first", devices=2))
    view.drop("s", "12")
    assert known(view) == [("s", "13")]
    assert view.latest.number == number
    view.observe(body(version="14", uid="third"))
    assert view.latest.get()[0].uid == "third"


def test_after_a_restore_from_a_backup_lower_versions_of_another_uid_count() -> None:
    view = SliceView()
    view.replace([body(version="1000", uid="first")], "1000")
    view.listing()
    view.replace([body(version="7", uid="second")], "8")
    view.observe(body(version="9", uid="third"))
    assert view.latest.get()[0].uid == "third"


def test_a_slice_that_a_later_list_lacks_is_not_brought_back_by_an_earlier_write() -> None:
    view = SliceView()
    view.replace([], "5")
    view.put(body(version="4"))
    assert known(view) == []
    view.put(body(version="6"))
    assert known(view) == [("s", "6")]


def test_a_deletion_that_is_older_than_what_is_known_changes_nothing() -> None:
    view = SliceView()
    view.replace([body(version="1")], "1")
    view.put(body(version="5", uid="anew"))
    view.drop("s", "4")
    assert known(view) == [("s", "5")]
    view.drop("s", "6")
    assert known(view) == []


def test_a_slice_of_another_uid_counts_whatever_its_version_is() -> None:
    view = SliceView()
    view.replace([body(version="8", uid="first")])
    view.observe(body(version="3", uid="second"))
    assert view.latest.get()[0].uid == "second"


def test_dropping_what_is_not_known_tells_nobody() -> None:
    view = SliceView()
    view.replace([], "1")
    number = view.latest.number
    view.drop("s")
    view.drop("s", "2")
    assert view.latest.number == number


def test_hearing_the_same_again_tells_nobody() -> None:
    view = SliceView()
    view.replace([body(version="1")], "1")
    number = view.latest.number
    view.observe(body(version="1"))
    assert view.latest.number == number


@pytest.mark.parametrize("version", ["17-12-44", "", "9" * 30])
def test_versions_that_are_no_numbers_are_taken_as_they_come(version: str) -> None:
    view = SliceView()
    view.replace([body(version="abc")], "abc")
    view.put(body(version=version, devices=2))
    assert view.latest.get()[0].body == body(version=version, devices=2)
    view.drop("s", version)
    assert known(view) == []


def test_what_was_written_while_a_list_was_read_outlives_the_older_list() -> None:
    view = SliceView()
    view.replace([body("old", "1"), body("gone", "2")], "2")
    view.listing()
    view.put(body("old", "4", devices=2))
    view.put(body("new", "5"))
    view.drop("gone", "2")
    view.replace([body("old", "1"), body("gone", "2"), body("theirs", "3")], "3")
    assert known(view) == [("new", "5"), ("old", "4"), ("theirs", "3")]
    view.observe(body("gone", "2"))
    assert known(view) == [("new", "5"), ("old", "4"), ("theirs", "3")], "it stays deleted"


def test_a_list_that_was_read_after_what_was_written_meanwhile_is_right() -> None:
    view = SliceView()
    view.replace([body("s", "1"), body("deleted", "2"), body("again", "3")], "3")
    view.listing()
    view.put(body("s", "4", devices=2))
    view.drop("deleted", "2")
    view.drop("again", "3")
    view.replace([body("again", "9", uid="anew")], "9")
    assert known(view) == [("again", "9")]


def test_what_was_written_before_a_list_was_asked_for_is_replaced() -> None:
    """As after a restore from a backup, from which on versions are lower."""
    view = SliceView()
    view.replace([body(version="1000")], "1000")
    view.put(body(version="1001"))
    view.put(body("new", "1002"))
    view.listing()
    view.replace([body(version="7")], "8")
    assert known(view) == [("s", "7")]


@pytest.mark.parametrize("version", ["", "abc"])
def test_without_a_version_that_can_be_compared_a_list_replaces_all(version: str) -> None:
    view = SliceView()
    view.replace([body(version="1")], version)
    view.listing()
    view.put(body(version="2"))
    view.replace([body(version="1")], version)
    assert known(view) == [("s", "1")]


async def is_doubted(view: SliceView) -> bool:
    with trio.move_on_after(0.01):
        await view.wait_doubted()
        return True
    return False


async def test_what_outlived_a_list_and_is_never_told_of_by_the_watch_is_doubted_once() -> None:
    """A server that was restored meanwhile knows nothing of it, at any version."""
    view = SliceView()
    view.replace([body(version="1000"), body("gone", "999")], "1000")
    view.listing()
    view.put(body(version="1001"))
    view.drop("gone", "999")
    view.replace([body(version="7"), body("gone", "6")], "8")
    assert known(view) == [("s", "1001")]
    view.bookmark()
    assert await is_doubted(view)
    view.listing()
    view.replace([body(version="7"), body("gone", "6")], "8")
    assert known(view) == [("gone", "6"), ("s", "7")]
    view.bookmark()
    assert not await is_doubted(view)


@pytest.mark.parametrize("uid", ["u", "anew"])
async def test_what_outlived_a_list_is_not_confirmed_by_a_report_of_an_older_version(
    uid: str,
) -> None:
    """The server was restored meanwhile, and somebody changed the slice or made it anew."""
    view = SliceView()
    view.replace([body(version="1000")], "1000")
    view.listing()
    view.put(body(version="1001"))
    view.replace([body(version="7")], "8")
    view.observe(body(version="9", uid=uid))
    view.bookmark()
    assert await is_doubted(view)
    view.listing()
    view.replace([body(version="9", uid=uid)], "9")
    assert known(view) == [("s", "9")]


async def test_what_the_watch_confirms_is_not_doubted() -> None:
    view = SliceView()
    view.replace([body("gone", "1")], "2")
    view.listing()
    view.put(body(version="4"))
    view.drop("gone", "1")
    view.replace([body("gone", "1")], "2")
    view.drop("gone", "3")
    view.observe(body(version="4"))
    view.bookmark()
    assert not await is_doubted(view)


async def test_a_doubt_is_kept_until_somebody_heeds_it_and_then_forgotten() -> None:
    view = SliceView()
    view.doubt()
    view.doubt()
    with trio.fail_after(1):
        await view.wait_doubted()
    with trio.move_on_after(0.01) as scope:
        await view.wait_doubted()
    assert scope.cancelled_caught
    view.doubt()
    with trio.fail_after(1):
        await view.wait_doubted()
