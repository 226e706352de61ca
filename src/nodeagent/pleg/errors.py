"""What keeps PLEG from knowing a pod."""

from __future__ import annotations

from nodeagent.model import PodUID, SyncError


class InspectionError(SyncError):
    """A pod could not be inspected, so nobody knows its present state.

    Attributes:
        uid: the pod.
        rpc: the runtime call that failed or did not answer, ``ContainerStatus``.
        cause: what the runtime said.
    """

    def __init__(self, uid: PodUID, rpc: str, cause: str) -> None:
        super().__init__(f"{rpc or 'inspection'}: {cause}", reason="InspectionFailed")
        self.uid = uid
        self.rpc = rpc
        self.cause = cause

    def again(self) -> InspectionError:
        """An equal error for one more waiter: an exception is raised once."""
        return InspectionError(self.uid, self.rpc, self.cause)
