"""What the tests of validation share: judging one change to a valid pod."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nodeagent.api import Pod
from nodeagent.api.codec import convert
from nodeagent.api.defaults import set_defaults
from nodeagent.api.validation import validate_pod


@pytest.fixture(scope="session")
def judge() -> Callable[..., list[str]]:
    """Return what is wrong with a valid pod after some of its fields were set, in JSON names."""

    def errors_of(
        spec: Mapping[str, Any] | None = None,
        container: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[str]:
        app = {"name": "app", "image": "busybox:1", **(container or {})}
        pod = {
            "metadata": {"name": "web-node-1", "namespace": "default", **(metadata or {})},
            "spec": {"nodeName": "node-1", "containers": [app], **(spec or {})},
        }
        return [str(error) for error in validate_pod(set_defaults(convert(pod, Pod)))]

    return errors_of
