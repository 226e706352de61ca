"""Events about pods without an API server, and the node's address."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from nodeagent.api import ObjectMeta, Pod
from nodeagent.journal import Journal
from nodeagent.node import JournalEvents, primary_address


def pod(name: str = "web") -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="default", uid=f"u-{name}"))


def test_every_event_is_in_the_journal() -> None:
    journal = Journal()
    events = JournalEvents(journal)
    events.event(pod(), "Normal", "Pulled", "image is present", "spec.containers{c}")
    events(pod(), "Warning", "FailedMount", "no such path")
    one, two = journal.select("u-web")
    assert (one.component, one.what, one.why) == ("event", "Pulled", "image is present")
    assert one.fields == {"type": "Normal", "field_path": "spec.containers{c}"}
    assert (two.what, two.fields) == ("FailedMount", {"type": "Warning", "field_path": ""})


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [
        (r.__dict__["fields"]["reason"], r.__dict__["fields"]["message"]) for r in caplog.records
    ]
    caplog.clear()
    return found


def test_a_warning_is_logged_when_it_is_new(caplog: pytest.LogCaptureFixture) -> None:
    """probes.md, BE4."""
    events = JournalEvents(Journal())
    for _ in range(3):
        events(pod(), "Warning", "BackOff", "back-off 10s")
    assert logged(caplog) == [("BackOff", "back-off 10s")]
    events(pod(), "Warning", "BackOff", "back-off 20s")
    events(pod(), "Warning", "FailedMount", "back-off 20s")
    events(pod("db"), "Warning", "BackOff", "back-off 20s")
    events.event(pod(), "Warning", "BackOff", "back-off 20s", "spec.containers{c}")
    assert len(logged(caplog)) == 4
    events(pod(), "Warning", "BackOff", "back-off 20s")
    assert logged(caplog) == []


def test_another_id_does_not_make_a_warning_news(caplog: pytest.LogCaptureFixture) -> None:
    """probes.md, BE4."""
    journal = Journal()
    events = JournalEvents(journal)
    for number in range(3):
        events(pod(), "Warning", "Unhealthy", f'exec "{number:064x}": no such file')
    (message,) = [message for _, message in logged(caplog)]
    assert message == f'exec "{0:064x}": no such file'
    assert len(journal.select("u-web")) == 1
    events(pod(), "Warning", "Unhealthy", f'exec "{4:064x}": not allowed')
    assert len(logged(caplog)) == 1


def test_normal_events_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "nodeagent")
    JournalEvents(Journal())(pod(), "Normal", "Started", "x")
    assert caplog.records == []


def test_of_a_pod_that_is_gone_nothing_is_remembered(caplog: pytest.LogCaptureFixture) -> None:
    events = JournalEvents(Journal())
    for name in ("web", "db"):
        events(pod(name), "Warning", "BackOff", "x")
    assert len(logged(caplog)) == 2
    events.forget_pod("u-web")
    for name in ("web", "db"):
        events(pod(name), "Warning", "BackOff", "x")
    assert len(logged(caplog)) == 1
    events.forget_pod("unknown")


def test_the_nodes_address_is_an_address() -> None:
    assert ip_address(primary_address()).version == 4


def test_that_there_is_no_cluster_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A machine that stands alone has no cluster's name servers, and nobody needs to know."""
    journal = Journal()
    events = JournalEvents(journal)
    events(pod(), "Warning", "MissingClusterDNS", "none")
    events.node_event("Warning", "MissingClusterDNS", "none")
    events.node_event("Warning", "ImageGCFailed", "no")
    assert logged(caplog) == [("ImageGCFailed", "no")]
    assert len(journal.select()) == 3
