"""What an event says of itself (docs/behaviour/events.md, "Objects")."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.unit.node.event_fakes import Said, StillClock

from nodeagent.api import Pod, codec
from nodeagent.journal import Journal
from nodeagent.node.event_recorder import EventRecorder, event_name
from nodeagent.node.events import JournalEvents
from nodeagent.testing import make_pod


@dataclass
class Lab:
    said: Said
    clock: StillClock
    journal: Journal
    events: EventRecorder

    def last(self) -> dict[str, Any]:
        written: dict[str, Any] = json.loads(codec.encode(self.said.events[-1]))
        return written


@pytest.fixture
def lab() -> Lab:
    said, clock, journal = Said(), StillClock(), Journal()
    return Lab(said, clock, journal, EventRecorder(JournalEvents(journal), "node-1", clock, said))


def pod() -> Pod:
    found = make_pod("web", namespace="shop", uid="u-1")
    meta = msgspec.structs.replace(found.metadata, resource_version="17")
    return msgspec.structs.replace(found, metadata=meta)


def test_ev1_ev2_ev3_an_event_about_a_container(lab: Lab) -> None:
    lab.events.event(pod(), "Normal", "Pulled", "it is there", "spec.containers{main}")
    assert lab.last() == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web.17979cfe3d85cd15", "namespace": "shop"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "shop",
            "name": "web",
            "uid": "u-1",
            "resourceVersion": "17",
            "fieldPath": "spec.containers{main}",
        },
        "reason": "Pulled",
        "message": "it is there",
        "source": {"component": "kubelet", "host": "node-1"},
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "count": 1,
        "type": "Normal",
        "reportingComponent": "kubelet",
        "reportingInstance": "node-1",
    }


def test_ev4_the_node_is_known_by_its_name_only(lab: Lab) -> None:
    lab.events.node_event("Normal", "Starting", "Starting kubelet.")
    written = lab.last()
    assert written["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "node-1",
        "uid": "node-1",
    }
    assert written["metadata"] == {"name": "node-1.17979cfe3d85cd15", "namespace": "default"}


def test_ev2_two_events_never_have_one_name(lab: Lab) -> None:
    for _ in range(3):
        lab.events(pod(), "Normal", "Started", "x")
    lab.clock.nanoseconds -= 10**9
    lab.events(pod(), "Normal", "Started", "x")
    assert len({event.metadata.name for event in lab.said.events}) == 4


@pytest.mark.parametrize("about", ["x" * 251, "Not-A-DNS-name"])
def test_ev2_a_name_that_would_be_refused_is_a_random_one(about: str) -> None:
    name = event_name(about, 255)
    assert about not in name
    assert len(name) == 36
    assert name != event_name(about, 255)


def test_ev2_the_time_is_written_in_hex() -> None:
    assert event_name("web", 255) == "web.ff"


def test_ev5_the_journal_has_every_event_too(lab: Lab) -> None:
    lab.events.event(pod(), "Warning", "Failed", "no", "spec.containers{main}")
    lab.events.node_event("Warning", "ImageGCFailed", "no")
    assert [record.what for record in lab.journal.select()] == ["Failed", "ImageGCFailed"]
    assert len(lab.said.events) == 2


def test_ev5_without_an_api_server_the_journal_has_all_there_is() -> None:
    journal = Journal()
    events = EventRecorder(JournalEvents(journal), "node-1", StillClock())
    events(pod(), "Warning", "Failed", "no")
    events.node_event("Warning", "ImageGCFailed", "no")
    events.forget_pod("u-1")
    events(pod(), "Warning", "Failed", "no")
    assert [record.what for record in journal.select()] == ["Failed", "ImageGCFailed", "Failed"]


def test_ev64_the_beginning_is_told_of_the_node(lab: Lab) -> None:
    lab.events.node_event("Normal", "Starting", "Starting kubelet.")
    assert (lab.last()["reason"], lab.last()["type"]) == ("Starting", "Normal")
