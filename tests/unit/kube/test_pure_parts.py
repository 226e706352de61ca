"""Lines, turns, and names of what is asked for: docs/behaviour/cluster.md, "Requests"."""

from __future__ import annotations

import itertools

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.kube import ApiError, paths
from nodeagent.kube.answers import error_of, one_line
from nodeagent.kube.lines import LineSplitter, LineTooLongError
from nodeagent.kube.requests import wanted
from nodeagent.kube.throttle import Throttle
from nodeagent.testing.virtual_time import VirtualTimeLoop

pytestmark = pytest.mark.anyio


@given(st.binary(max_size=200).map(lambda b: b.replace(b"x", b"\n")), st.lists(st.integers(0, 200)))
def test_kq9_lines_do_not_depend_on_how_they_come(data: bytes, cuts: list[int]) -> None:
    splitter = LineSplitter()
    found: list[bytes] = []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        found += splitter.feed(data[start:end])
    rest = splitter.rest()
    *lines, last = data.split(b"\n")
    assert found == [line for line in lines if line.strip()]
    assert rest == last


def test_kq9_a_line_without_end_is_refused() -> None:
    splitter = LineSplitter(limit=10)
    assert splitter.feed(b"0123456789\nabc") == [b"0123456789"]
    assert splitter.feed(b"defghij") == []
    with pytest.raises(LineTooLongError, match="more than 10 bytes"):
        splitter.feed(b"k")
    with pytest.raises(LineTooLongError):
        LineSplitter(limit=10).feed(b"01234567890\n")


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", paths.PODS, {}, "list pods"),
        ("GET", paths.PODS, {"watch": "true"}, "watch pods"),
        ("GET", paths.node("n1"), {}, "get nodes n1"),
        ("PATCH", paths.node("n1", "status"), {}, "patch nodes/status n1"),
        ("POST", paths.event("ns"), {}, "create events in namespace ns"),
        ("DELETE", paths.pod("ns", "web"), {}, "delete pods web in namespace ns"),
        ("POST", paths.CSRS, {}, "create certificatesigningrequests.certificates.k8s.io"),
        ("POST", paths.token("ns", "sa"), {}, "create serviceaccounts/token sa in namespace ns"),
        ("GET", "/api/v1/namespaces/ns", {}, "get namespaces ns"),
        ("GET", "/healthz", {}, "get /healthz"),
        ("GET", "/", {}, "get /"),
    ],
)
def test_kq6_what_is_asked_for_in_words(
    method: str, path: str, query: dict[str, str], expected: str
) -> None:
    assert str(wanted(method, path, query)) == expected


@given(st.integers(300, 599), st.binary(max_size=300), st.text(max_size=20))
def test_kq5_any_answer_gives_an_error_on_one_line(status: int, body: bytes, after: str) -> None:
    error = error_of(status, {"Retry-After": after}, body, wanted("GET", paths.PODS))
    assert isinstance(error, ApiError)
    assert 0 < len(error.message) <= 500
    assert error.message.isprintable()
    assert error.retry_after is None or 0 <= error.retry_after <= 3600


@given(st.text())
def test_a_text_becomes_one_line(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert line == line.strip()
    assert len(line) <= 500


@given(
    qps=st.integers(1, 100),
    burst=st.integers(1, 50),
    pauses=st.lists(st.floats(0, 2), max_size=60),
)
def test_kq11_never_more_than_the_bucket_gives(qps: int, burst: int, pauses: list[float]) -> None:
    """In any span of time there are at most ``burst`` and what the span has filled in."""
    times: list[float] = []

    async def take() -> None:
        throttle = Throttle(qps, burst)
        for pause in pauses:
            await anyio.sleep(pause)
            await throttle.acquire()
            times.append(anyio.current_time())

    anyio.run(take, backend_options={"loop_factory": VirtualTimeLoop})
    for first, begin in enumerate(times):
        for last in range(first, len(times)):
            assert last - first + 1 <= burst + (times[last] - begin) * qps + 1e-6


async def test_kq11_turns_come_in_order_and_cancelled_ones_are_given_back() -> None:
    throttle = Throttle(1, 1)
    order: list[int] = []

    async def take(number: int) -> None:
        await throttle.acquire()
        order.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(take, number)
    assert order == [0, 1, 2, 3]
    began = anyio.current_time()
    assert began == pytest.approx(3)
    with anyio.move_on_after(0.5):
        await throttle.acquire()
    await throttle.acquire()
    assert anyio.current_time() == pytest.approx(4)


async def test_kq11_no_limit_waits_for_nobody() -> None:
    throttle = Throttle(0, 0)
    for _ in range(1000):
        await throttle.acquire()
    assert anyio.current_time() == 0


@pytest.mark.parametrize("seconds", ["9" * 400, "-1", "null", '"soon"', "1e300"])
def test_kq6_a_wait_that_means_nothing_is_none(seconds: str) -> None:
    body = f'{{"kind":"Status","details":{{"retryAfterSeconds":{seconds}}}}}'.encode()
    found = error_of(429, {}, body, wanted("GET", "/api/v1/pods"))
    assert found.retry_after in (None, 3600.0)
    assert found.too_many_requests
