"""What is read off a kernel's source, and what is refused there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.client.wgsl import Buffer, interface, without_comments
from gpuwire.errors import ArgumentError

MAIN = "@compute @workgroup_size(64) fn main() {}"
X = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;"


def test_buffers_in_the_order_of_their_bindings_however_they_are_written() -> None:
    source = f"""
    // @group(0) @binding(7) var<storage, read_write> commented: array<f32>;
    /* @group(0) @binding(8) var<storage> too: array<f32>; /* nested */ // */
    @binding( 2 ) @group(0u)
    var < storage , read_write , > c : array<f32>;
    @group(0) @binding(0x0) var<storage> a: array<f32>; @group(0)@binding(1,)var<storage,read>b:i32;
    var<workgroup> tile: array<f32, 64>; var<private> p: f32; const binding = 3;
    {MAIN}
    """
    assert interface(source, "main", None).buffers == (
        Buffer("a", False),
        Buffer("b", False),
        Buffer("c", True),
    )


@pytest.mark.parametrize(
    ("attribute", "given", "size"),
    [
        ("@workgroup_size(64)", None, (64, 1, 1)),
        ("@workgroup_size(8u, 0x4, 2i,)", None, (8, 4, 2)),
        ("@workgroup_size(8, 8)", (8, 8), (8, 8, 1)),
        ("@workgroup_size(WIDTH)", 32, (32, 1, 1)),
        ("@workgroup_size(8, WIDTH)", (8, 4), (8, 4, 1)),
    ],
)
def test_workgroup_sizes(attribute: str, given: int | tuple[int, ...] | None, size: object) -> None:
    source = f"{X} @compute {attribute} fn main() {{}}"
    assert interface(source, "main", given).workgroup_size == size


def test_entry_points_are_told_from_other_functions() -> None:
    source = (
        X + "fn main() {} @workgroup_size(1) @compute fn first() {}" + MAIN[:29] + "fn two() {}"
    )
    assert interface(source, "first", None).workgroup_size == (1, 1, 1)
    assert interface(source, "two", None).workgroup_size == (64, 1, 1)
    with pytest.raises(ArgumentError, match="it has first, two"):
        interface(source, "main", None)


@pytest.mark.parametrize(
    ("body", "reads", "words"),
    [
        ("", False, 0),
        ("// params[3].x", False, 0),
        ("let a = params[0].x;", True, 1),
        ("let a = params[1u].y + params [ 0 ] . z;", True, 6),
        ("let a = params[2];", True, 9),
        ("let a = params[i];", True, 0),
        ("let b = myparams[9].x;", False, 0),
    ],
)
def test_parameters_that_the_source_reads(body: str, reads: bool, words: int) -> None:
    found = interface(X + MAIN.replace("{}", "{" + body + "\n}"), "main", None)
    assert (found.reads_params, found.least_words) == (reads, words)


def test_loops_and_folding_are_seen() -> None:
    plain = interface(X + MAIN, "main", None)
    assert not plain.loops and not plain.folds
    source = X + MAIN.replace("()", "(@builtin(num_workgroups) n: vec3<u32>)")
    assert interface(source.replace("{}", "{ loop { break; } }"), "main", None).loops
    assert interface(source, "main", None).folds


@pytest.mark.parametrize(
    ("source", "size", "text"),
    [
        (MAIN.replace("@compute ", ""), None, "no entry point 'main'"),
        ("", None, "it has none"),
        (X.replace("(0) @b", "(1) @b") + MAIN, None, "@group"),
        (X + X + MAIN, None, "of its own"),
        (X.replace("binding(0)", "binding(1)") + MAIN, None, "no gap"),
        (X.replace("binding(0)", "binding(N)") + MAIN, None, "plain numbers"),
        (X.replace("@group(0) ", "") + MAIN, None, "plain numbers"),
        (X.replace("storage, read_write", "uniform") + MAIN, None, "as uniform"),
        (X.replace("<storage, read_write>", "") + MAIN, None, "texture or sampler"),
        (X + MAIN, 32, "the source says"),
        (X + MAIN.replace("64", "WIDTH"), None, "pass workgroup_size"),
        (X + MAIN.replace("64", "WIDTH"), (1, 2, 3, 4), "one to three"),
        (X + MAIN.replace("64", "WIDTH"), 0, "1 or more"),
        (X + MAIN.replace("64", "0"), None, "1 or more"),
    ],
)
def test_an_interface_that_cannot_be_bound(source: str, size: int | None, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        interface(source, "main", size)


PIECES = st.lists(
    st.sampled_from(["//", "/*", "*/", "\n", "a", "/", "*", " ", "@group(0)"]), max_size=30
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(PIECES)
def test_comments_go_as_the_language_says_and_lines_stay(pieces: list[str]) -> None:
    source = "".join(pieces)
    found = without_comments(source)
    assert found.count("\n") <= source.count("\n")
    assert found.replace(" ", "") == _by_the_book(source).replace(" ", "")


def _by_the_book(source: str) -> str:
    """WGSL, "Comments": read from left to right, one character at a time."""
    kept, place, depth = [], 0, 0
    while place < len(source):
        two = source[place : place + 2]
        if depth:
            kept.append("\n" if source[place] == "\n" else "")
            depth += {"/*": 1, "*/": -1}.get(two, 0)
            place += 2 if two in ("/*", "*/") else 1
        elif two == "//":
            end = source.find("\n", place)
            place = len(source) if end < 0 else end
        elif two == "/*":
            depth, place = 1, place + 2
        else:
            kept.append(source[place])
            place += 1
    return "".join(kept)
