"""What an answer to Status means: docs/behaviour/workers.md, "Runtime state"."""

from __future__ import annotations

from typing import cast

import pytest

from nodeagent.cri import RuntimeService
from nodeagent.model import HandlerFeatures, RuntimeFeatures
from nodeagent.node import RuntimeInfo
from nodeagent.proto.runtime import v1
from nodeagent.runtime_access import poll_status, runtime_features

pytestmark = pytest.mark.anyio

RUNTIME, NETWORK = "container runtime not ready", "container runtime network not ready"


class Answering:
    """A runtime of which only the conditions are asked."""

    def __init__(self, *conditions: v1.RuntimeCondition) -> None:
        self.conditions = list(conditions)

    async def status(self) -> v1.StatusResponse:
        return v1.StatusResponse(status=v1.RuntimeStatus(conditions=self.conditions))


def condition(kind: str, *, status: bool) -> v1.RuntimeCondition:
    reason, message = ("", "") if status else ("R", "M")
    return v1.RuntimeCondition(type=kind, status=status, reason=reason, message=message)


async def ask(*conditions: v1.RuntimeCondition) -> RuntimeInfo:
    return await poll_status(cast("RuntimeService", Answering(*conditions)))


async def test_g3_conditions_that_hold_say_nothing() -> None:
    both = [condition(kind, status=True) for kind in ("RuntimeReady", "NetworkReady", "Other")]
    assert await ask(*both) == RuntimeInfo()


async def test_g4_g8_a_condition_that_does_not_hold_says_why() -> None:
    assert await ask(
        condition("RuntimeReady", status=False), condition("NetworkReady", status=False)
    ) == RuntimeInfo(
        f"{RUNTIME}: RuntimeReady=false reason:R message:M",
        f"{NETWORK}: NetworkReady=false reason:R message:M",
    )


async def test_g4_g8_a_missing_condition_does_not_hold() -> None:
    assert await ask() == RuntimeInfo(f"{RUNTIME}: <nil>", f"{NETWORK}: <nil>")


def test_g13_handlers_and_features_are_read_from_the_status() -> None:
    reply = v1.StatusResponse(
        runtime_handlers=[
            v1.RuntimeHandler(
                name="runc", features=v1.RuntimeHandlerFeatures(recursive_read_only_mounts=True)
            ),
            v1.RuntimeHandler(name="", features=v1.RuntimeHandlerFeatures(user_namespaces=True)),
            v1.RuntimeHandler(name="kata"),
        ],
        features=v1.RuntimeFeatures(supplemental_groups_policy=True),
    )
    assert runtime_features(reply) == RuntimeFeatures(
        (
            HandlerFeatures("", user_namespaces=True),
            HandlerFeatures("kata"),
            HandlerFeatures("runc", recursive_read_only_mounts=True),
        ),
        supplemental_groups_policy=True,
    )
    assert runtime_features(v1.StatusResponse()) == RuntimeFeatures()
