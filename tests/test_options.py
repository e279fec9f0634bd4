from dataclasses import fields

import pytest

from liken_events.config import Config, load
from liken_events.options import BY_KEY, OPTIONS, Option, Raw


def test_every_setting_is_an_option_and_every_option_a_setting() -> None:
    assert {option.key for option in OPTIONS} == {field.name for field in fields(Config)}
    assert len(BY_KEY) == len(OPTIONS)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_an_option_is_explained(option: Option) -> None:
    assert option.help
    assert not option.help.endswith(".")
    assert bool(option.choices) == (option.kind == "choice")
    assert bool(option.metavar) == (option.kind in {"text", "path", "number", "list", "tables"})


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_a_default_is_a_value_that_could_have_been_set(option: Option) -> None:
    default = getattr(Config(), option.key)
    if default == "":
        return  # found out on the machine
    flag: Raw = str(default) if option.kind == "number" else default
    if option.kind == "tables":
        flag = [str(item) for item in default]
    assert getattr(load(file=None, environ={}, flags={option.key: flag}), option.key) == default


def test_an_option_has_the_same_name_in_all_three_ways() -> None:
    assert BY_KEY["settle_quiet"].flag == "--settle-quiet"
    assert BY_KEY["settle_quiet"].variable == "LIKEN_EVENTS_SETTLE_QUIET"
