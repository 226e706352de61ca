"""What a call of a driver needs to know, read from those who know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nodeagent.api import Pod
from nodeagent.api.objects import Secret
from nodeagent.api.storage import CSIDriver, SecretReference
from nodeagent.csi.client import Abilities, Publication
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import KubeError
from nodeagent.kube.paths import namespaced
from nodeagent.model import SyncError
from nodeagent.volumes.csi_volume import TOKENS, CsiVolume, capability, pod_info, tokens_text
from nodeagent.volumes.objects import ObjectSource
from nodeagent.volumes.plugin import Stage, VolumeError

FindDriver = Callable[[str], CSIDriver | None]
"""How a driver wants to be treated; None when nobody said. Raises ``VolumeError`` while that is
not known."""


class CallMaker:
    """Puts calls together.

    Args:
        client: gives secrets of any namespace.
        objects: gives tokens of pods.
    """

    def __init__(self, client: KubeClient, objects: ObjectSource) -> None:
        self._client = client
        self._objects = objects

    async def staging(
        self,
        volume: CsiVolume,
        abilities: Abilities,
        group: int | None,
        context: Mapping[str, str],
        path: str,
    ) -> Publication:
        """What is needed to stage a volume."""
        stage = Stage.MAP_DEVICE if volume.block else Stage.DEVICE
        return Publication(
            volume_id=volume.handle,
            staging_path=path,
            capability=capability(volume, abilities, group),
            publish_context=context,
            volume_context=volume.attributes,
            secrets=await self._secret(volume.stage_secret, stage),
        )

    async def publishing(
        self,
        pod: Pod,
        volume: CsiVolume,
        driver: CSIDriver | None,
        abilities: Abilities,
        group: int | None,
        context: Mapping[str, str],
        path: str,
    ) -> Publication:
        """What is needed to show a volume to a pod."""
        attributes = dict(volume.attributes)
        secrets = await self._secret(
            volume.publish_secret, Stage.MAP if volume.block else Stage.SET_UP
        )
        if driver is not None and driver.spec.pod_info_on_mount:
            attributes.update(pod_info(pod, volume))
        if driver is not None and driver.spec.token_requests:
            text = await self._tokens(pod, driver)
            into = secrets if driver.spec.service_account_token_in_secrets else attributes
            into[TOKENS] = text
        return Publication(
            volume_id=volume.handle,
            staging_path=path,
            capability=capability(volume, abilities, group),
            publish_context=context,
            volume_context=attributes,
            secrets=secrets,
        )

    async def expanding(self, volume: CsiVolume, abilities: Abilities, path: str) -> Publication:
        """What is needed to let a volume grow."""
        return Publication(
            volume_id=volume.handle,
            staging_path=path,
            capability=capability(volume, abilities, None),
            publish_context={},
            volume_context={},
            secrets=await self._secret(volume.expand_secret, Stage.SET_UP),
        )

    async def _secret(self, ref: SecretReference | None, stage: Stage) -> dict[str, str]:
        if ref is None:
            return {}
        path = namespaced(ref.namespace, "secrets", ref.name)
        try:
            found = await self._client.get(path, Secret)
        except KubeError as error:
            text = (
                f"failed to find the secret {ref.name} in the namespace {ref.namespace} "
                f"with error: {error}"
            )
            raise VolumeError(text, stage=stage) from error
        return {key: value.decode(errors="surrogateescape") for key, value in found.data.items()}

    async def _tokens(self, pod: Pod, driver: CSIDriver) -> str:
        tokens = {}
        for wanted in driver.spec.token_requests:
            try:
                tokens[wanted.audience] = await self._objects.token(
                    pod, wanted.audience, wanted.expiration_seconds
                )
            except SyncError as error:
                text = f"failed to get service account token for the driver: {error}"
                raise VolumeError(text) from error
        return tokens_text(tokens)
