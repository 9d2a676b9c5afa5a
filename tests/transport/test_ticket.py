"""Tickets: what is formatted is parsed back, and every flaw has its own words."""

from __future__ import annotations

import string
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.errors import TicketError
from gpuwire.transport import Ticket, make_token
from gpuwire.transport.ticket import DEFAULT_PORT

FINGERPRINT = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNO-_"
BASE64URL = string.ascii_letters + string.digits + "-_"

names = st.from_regex(
    r"[a-z0-9]([a-z0-9\-]{0,20}[a-z0-9])?(\.[a-z][a-z0-9]{1,10}){0,3}", fullmatch=True
)
hosts = st.one_of(
    names,
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str),
    st.ip_addresses(v=6).map(lambda address: f"{address}%eth0"),
    st.just("gpu-böx.example"),
)
printable = st.characters(categories=["L", "M", "N", "P", "S"])
tickets = st.builds(
    Ticket,
    host=hosts,
    port=st.integers(1, 65_535),
    fingerprint=st.none() | st.text(BASE64URL, min_size=43, max_size=43),
    token=st.text(printable, max_size=80),
)


@settings(derandomize=True, deadline=None)
@given(tickets)
def test_what_is_formatted_is_parsed_back(ticket: Ticket) -> None:
    text = ticket.format()
    assert Ticket.parse(text) == ticket
    assert Ticket.parse(f"  {text}\n") == ticket
    if ticket.token:
        assert unquote(repr(ticket)).endswith("token=…)")


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.text(max_size=200).map(lambda tail: f"gpuwire://{tail}") | st.text(max_size=60))
def test_any_text_is_a_ticket_or_a_ticket_error(text: str) -> None:
    try:
        ticket = Ticket.parse(text)
    except TicketError:
        return
    assert Ticket.parse(ticket.format()) == ticket


def test_the_usual_forms() -> None:
    assert Ticket.parse(f"gpuwire://gpu-box:5000?fp={FINGERPRINT}&token=a%2Bb") == Ticket(
        "gpu-box", 5000, FINGERPRINT, "a+b"
    )
    assert Ticket.parse("gpuwire://10.0.0.1") == Ticket("10.0.0.1", DEFAULT_PORT)
    assert Ticket.parse("GPUWIRE://[fe80::1%25eth0]:9/?token=x") == Ticket(
        "fe80::1%eth0", 9, None, "x"
    )


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("", "empty"),
        ("gpu-box:4433", "does not begin with gpuwire://"),
        ("https://gpu-box:4433", "https://"),
        ("gpuwire://gpu box", "space"),
        ("gpuwire://", "no host"),
        ("gpuwire://:4433", "no host"),
        ("gpuwire://gpu-box:", "port is ''"),
        ("gpuwire://gpu-box:http", "port is 'http'"),
        ("gpuwire://gpu-box:0", "1 to 65535"),
        ("gpuwire://gpu-box:65536", "1 to 65535"),
        ("gpuwire://gpu-box:٤٤", "port is"),
        ("gpuwire://fe80::1", r"brackets: \[fe80::1\]"),
        ("gpuwire://[fe80::1", "not closed"),
        ("gpuwire://[gpu-box]:1", "no IPv6 address"),
        ("gpuwire://[::1]4433", "in place of a port"),
        ("gpuwire://me@gpu-box", "user name"),
        ("gpuwire://gpu-box/path", "path, /path"),
        ("gpuwire://gpu-box#x", "%23"),
        ("gpuwire://gpu%00box", "invisible"),
        ("gpuwire://gpu%2Fbox", "no host name"),
        ("gpuwire://gpu-box?fp=short", "5 characters"),
        (f"gpuwire://gpu-box?fp={FINGERPRINT[:-1]}*", "letters, digits, - or _"),
        ("gpuwire://gpu-box?fingerprint=x", "'fingerprint'"),
        ("gpuwire://gpu-box?token=a&token=b", "token twice"),
        ("gpuwire://gpu-box?token=", "token is empty"),
        ("gpuwire://gpu-box?token", "token is empty"),
        ("gpuwire://gpu-box?token=%FF", "percent signs"),
        ("gpuwire://gpu-box?" + "x" * 5_000, "longer than"),
    ],
)
def test_each_flaw_is_named(text: str, flaw: str) -> None:
    with pytest.raises(TicketError, match=flaw) as caught:
        Ticket.parse(text)
    assert "gpuwire://HOST:PORT?fp=FINGERPRINT&token=TOKEN" in caught.value.message


def test_an_error_never_repeats_the_token() -> None:
    with pytest.raises(TicketError) as caught:
        Ticket.parse("gpuwire://gpu-box:x?token=secret&fp=short")
    assert "secret" not in str(caught.value)
    assert caught.value.ticket == "gpuwire://gpu-box:x?token=…&fp=short"


def test_tokens_are_long_and_never_the_same() -> None:
    made = {make_token() for _ in range(100)}
    assert len(made) == 100
    assert all(len(token) == 43 and set(token) <= set(BASE64URL) for token in made)
