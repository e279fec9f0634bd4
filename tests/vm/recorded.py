"""What is written down of a test: the machine as it was at its start, and all records since.

The guest tells each change of its files; the state at a moment is the first look and all changes
until then.

What becomes of it is said in `tests/data/hotplug/README.md`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from tests.vm.desk import Desk
from tests.vm.machine import newest_kernel


def recorded(desk: Desk) -> Iterator[dict[str, Any]]:
    """One record with the start of a test, and those that came since."""
    records = desk.control.records
    kernel = (newest_kernel() or "").rpartition("vmlinuz-")[2]
    yield {
        "kind": "start",
        "kernel": kernel,
        "base": desk.base,
        **state(records[: desk.start]),
    }
    yield from records[desk.start :]


def state(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What the files of the machine said after these records: directories and tables, each by its
    path."""
    sysfs: dict[str, Any] = {}
    tables: dict[str, str] = {}
    for record in records:
        if record["kind"] == "sysfs":
            for path, found in record["changed"].items():
                if found is None:
                    sysfs.pop(path, None)
                else:
                    sysfs[path] = found
        elif record["kind"] == "table":
            tables[record["path"]] = record["text"]
    return {"sysfs": sysfs, "tables": tables}
