"""Probes that run a command in the container."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import anyio

from nodeagent.api import Container, ExecAction
from nodeagent.duration import format_duration
from nodeagent.model.expansion import expand
from nodeagent.probes.outcome import MAX_TEXT, Outcome, Target, failure, success, unknown
from nodeagent.proto.runtime import v1
from nodeagent.rpc import DeadlineExceeded, RpcError

SLACK: Final = 2.0
"""Seconds beyond the timeout that the runtime gets to say that the time is up."""


class ExecRuntime(Protocol):
    """The one call of the runtime that is needed."""

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: int = 0
    ) -> v1.ExecSyncResponse:
        """Run a command to its end within ``timeout`` seconds.

        Raises:
            RpcError: it could not be run, or did not end in time.
        """
        ...


def probe_command(action: ExecAction, container: Container) -> list[str]:
    """The command with the variables that the spec itself gives a value.

    Their values count as they are written. A variable that comes from elsewhere is empty: what
    it is in the container is known to the container only.
    """
    values = {variable.name: variable.value for variable in container.env}
    return [expand(word, values.get) for word in action.command]


class ExecProbe:
    """Runs the command through the runtime; exit code 0 is success.

    The runtime enforces the timeout. One that does not answer even so (a command that has left
    a child behind, which holds its output open, does that to some runtimes) is given up
    shortly after.

    Args:
        runtime: where the containers are.
        slack: see :data:`SLACK`.
    """

    def __init__(self, runtime: ExecRuntime, slack: float = SLACK) -> None:
        self._runtime = runtime
        self._slack = slack

    async def aclose(self) -> None:
        """Nothing is kept open."""

    async def __call__(self, target: Target) -> Outcome:
        """Run the command once."""
        action = target.probe.exec
        assert action is not None
        seconds = target.timeout
        words = probe_command(action, target.container)
        done: v1.ExecSyncResponse | None = None
        try:
            with anyio.move_on_after(seconds + self._slack):
                done = await self._runtime.exec_sync(target.container_id, words, int(seconds))
        except DeadlineExceeded:
            pass
        except RpcError as error:
            return unknown(str(error))
        if done is None:
            command = " ".join(words)
            took = format_duration(seconds)
            return failure(f'command timed out: "{command}" timed out after {took}')
        text = (done.stdout + done.stderr)[:MAX_TEXT].decode(errors="replace")
        return success(text) if done.exit_code == 0 else failure(text)
