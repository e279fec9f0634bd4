import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken_events.core.decode.mounts import Mount, Unreadable, mounts, swaps, unescape

HEADING = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
ROOT = "25 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (ROOT, Mount(point="/", fstype="ext4", source="/dev/sda2", number="8:2")),
        (
            "31 25 0:28 /@home /home rw shared:5 master:1 propagate_from:2 - btrfs /dev/sdb1 rw",
            Mount(point="/home", fstype="btrfs", source="/dev/sdb1", number="0:28"),
        ),
        (
            "40 25 253:1 / /data rw - xfs /dev/mapper/vault-data rw",
            Mount(point="/data", fstype="xfs", source="/dev/mapper/vault-data", number="253:1"),
        ),
        (
            r"41 25 8:17 / /mnt/my\040backup\134\011 rw - ext4 /dev/disk/by-label/a\043b rw",
            Mount(
                point="/mnt/my backup\\\t",
                fstype="ext4",
                source="/dev/disk/by-label/a#b",
                number="8:17",
            ),
        ),
        (
            "45 25 8:49 / / rw - ext4 /dev/sdd1",
            Mount(point="/", fstype="ext4", source="/dev/sdd1", number="8:49"),
        ),
        (
            "42 25 0:40 / /mnt/empty rw - tmpfs  rw",
            Mount(point="/mnt/empty", fstype="tmpfs", source="", number="0:40"),
        ),
        (
            "43 25 0:41 / /run/\udce9t\udce9 rw - tmpfs tmpfs rw",
            Mount(point="/run/\udce9t\udce9", fstype="tmpfs", source="tmpfs", number="0:41"),
        ),
        (
            "44 25 8:33 / /mnt/a-\r\x0b\x0c\x1c\x85\u2028b rw - vfat /dev/sdc1 rw",
            Mount(
                point="/mnt/a-\r\x0b\x0c\x1c\x85\u2028b",
                fstype="vfat",
                source="/dev/sdc1",
                number="8:33",
            ),
        ),
    ],
)
def test_a_line_of_the_mount_table_is_taken_to_pieces(line: str, expected: Mount) -> None:
    assert mounts(f"{line}\n") == (expected,)


def test_mounts_keep_the_order_of_the_kernel_and_are_not_made_one() -> None:
    text = f"{ROOT}\n{ROOT.replace('8:2', '8:3')}\n{ROOT}\n"
    assert [mount.number for mount in mounts(text)] == ["8:2", "8:3", "8:2"]


@pytest.mark.parametrize("text", ["", "\n"])
def test_a_table_without_mounts_is_readable(text: str) -> None:
    assert mounts(text) == ()


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "25 1 8:2 / / rw,relatime ext4 /dev/sda2 rw",
        "25 1 8:2 / - ext4 /dev/sda2 rw",
        "25 1 8:2 / / rw - ext4",
        "25 1 8 / / rw - ext4 /dev/sda2 rw",
        "25 1 8:2 / / rw -",
        " - ",
    ],
)
def test_one_line_that_cannot_be_read_makes_the_table_unreadable(line: str) -> None:
    with pytest.raises(Unreadable, match="mountinfo line"):
        mounts(f"{ROOT}\n{line}\n{ROOT}\n")


def test_the_error_quotes_an_odd_line_on_one_line() -> None:
    with pytest.raises(Unreadable) as caught:
        mounts("\x1b[31m" + "x" * 200)
    assert str(caught.value) == "mountinfo line " + repr("\x1b[31m" + "x" * 75)


def test_swap_areas_on_block_devices_are_found_and_swap_files_are_not() -> None:
    text = (
        HEADING
        + "/dev/sda3                               partition\t8388604\t\t0\t\t-2\n"
        + "/swapfile                               file\t\t2097148\t\t0\t\t-3\n"
        + "/dev/my\\040disk\\040(deleted)            partition\t2097148\t\t0\t\t-4\n"
        + "/dev/sdb3 partition\n"
        + "/swap\u00a0\x85file                       file\t\t2097148\t\t0\t\t-5\n"
    )
    assert swaps(text) == ("/dev/sda3", "/dev/my disk (deleted)", "/dev/sdb3")


@pytest.mark.parametrize("text", ["", HEADING, HEADING + "\n"])
def test_a_machine_without_swap_has_no_swap_areas(text: str) -> None:
    assert swaps(text) == ()


def test_a_swap_line_without_a_type_makes_the_table_unreadable() -> None:
    with pytest.raises(Unreadable, match="swaps line '/dev/sda3'"):
        swaps(HEADING + "/dev/sda3\n")


@pytest.mark.parametrize(
    ("escaped", "plain"),
    [
        (r"\040", " "),
        (r"a\040b\011c\012d\134e", "a b\tc\nd\\e"),
        (r"\134040", r"\040"),
        (r"\04", r"\04"),
        (r"\08", r"\08"),
        ("\\", "\\"),
        ("", ""),
    ],
)
def test_octal_escapes_are_undone_once(escaped: str, plain: str) -> None:
    assert unescape(escaped) == plain


def escape(text: str) -> str:
    """What the kernel writes for a name (`mangle_path` with these characters)."""
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\#" else char for char in text)


names = st.text(min_size=1, max_size=20)


paths = names.map(lambda name: f"/{name}")


@given(st.lists(st.tuples(paths, paths, names)))
def test_whatever_the_kernel_writes_is_read_again(found: list[tuple[str, str, str]]) -> None:
    table = "".join(
        f"25 1 8:{index} {escape(root)} {escape(point)} rw - ext4 {escape(source)} rw\n"
        for index, (root, point, source) in enumerate(found)
    )
    assert mounts(table) == tuple(
        Mount(point=point, fstype="ext4", source=source, number=f"8:{index}")
        for index, (_, point, source) in enumerate(found)
    )


@given(st.lists(st.tuples(names, st.sampled_from(["partition", "file"]))))
def test_whatever_swap_areas_the_kernel_lists_are_read_again(found: list[tuple[str, str]]) -> None:
    table = HEADING + "".join(f"{escape(name):<39} {kind}\t1\t0\t-2\n" for name, kind in found)
    assert swaps(table) == tuple(name for name, kind in found if kind == "partition")


@given(st.text() | st.text(st.sampled_from("0:1 -/\\e\n\t")))
def test_any_text_is_read_or_found_unreadable(text: str) -> None:
    for read in (mounts, swaps):
        with contextlib.suppress(Unreadable):
            assert len(read(text)) <= text.count("\n") + 1
