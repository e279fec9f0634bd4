import pytest

from liken_events.cluster.claim_names import BadName, check_names, is_claim_name, is_namespace

NEITHER = [
    "", ".", "..", "/", "a/b", "../a", "-a", "a-", ".a", "a.", "a..b", "a.-b", "A", "a_b", "a b",
    "a\n", "\n", "ä", "a\0", "a%2f", "a?x", "a#x", "\udcff", "a" * 254, "１",
]  # fmt: skip


@pytest.mark.parametrize("text", NEITHER)
def test_what_cannot_be_a_name_is_refused(text: str) -> None:
    assert not is_namespace(text)
    assert not is_claim_name(text)


@pytest.mark.parametrize("text", ["a", "0", "a-b", "kube-system", "a" * 63])
def test_a_label_is_a_namespace_and_a_name(text: str) -> None:
    assert is_namespace(text)
    assert is_claim_name(text)
    check_names(text, text)


@pytest.mark.parametrize("text", ["a.b", "web-0.cam-x7f2k", "a" * 64, "a" * 253])
def test_a_claim_s_name_may_be_longer_and_have_dots(text: str) -> None:
    assert not is_namespace(text)
    assert is_claim_name(text)
    check_names("a", text)


@pytest.mark.parametrize(
    ("namespace", "name", "reason"),
    [
        ("Prod", "a", '"Prod" is no namespace: take '),
        ("", "a", '"" is no namespace: take '),
        ("a", "x\x1b[2J", r'"x\x1b[2J" is no name of a claim: take '),
        ("a", "x" * 300, f'"{"x" * 62}…" is no name of a claim: take '),
    ],
)
def test_a_bad_name_is_quoted_with_what_is_allowed(namespace: str, name: str, reason: str) -> None:
    with pytest.raises(BadName) as caught:
        check_names(namespace, name)
    assert caught.value.reason.startswith(reason)
    assert caught.value.reason.isprintable()
