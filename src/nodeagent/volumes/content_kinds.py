"""What configMap, secret, downwardAPI and projected volumes are made of.

docs/behaviour/volumes.md, "Content", "Projected".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from nodeagent.api import (
    ClusterTrustBundleProjection,
    ConfigMapProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    Pod,
    PodCertificateProjection,
    ProjectedVolumeSource,
    SecretProjection,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
)
from nodeagent.model import SyncError
from nodeagent.volumes.atomic_writer import PayloadError, ProjectedFile
from nodeagent.volumes.content import (
    Files,
    aggregate_faults,
    config_map_files,
    downward_files,
    merge_sources,
    secret_files,
    trust_anchor_file,
)
from nodeagent.volumes.content_plugin import ContentPlugin, Gathered
from nodeagent.volumes.objects import (
    CLUSTER_TRUST_BUNDLE,
    CONFIG_MAP,
    NO_CLIENT,
    SECRET,
    ObjectSource,
    PodValues,
)
from nodeagent.volumes.plugin import SetUp

_OWNER_ONLY: Final = 0o600
_NO_MODE: Final = "no defaultMode used, not even the default value for it"


def content_plugins(objects: ObjectSource, values: PodValues) -> tuple[ContentPlugin, ...]:
    """The four kinds.

    Args:
        objects: gives objects, tokens and certificates.
        values: gives what pods may learn of themselves.
    """
    maker = _Gatherer(objects, values)
    return (
        ContentPlugin(
            "kubernetes.io/configmap",
            "configmap",
            lambda volume: volume.config_map is not None,
            maker.config_map,
            in_memory=False,
        ),
        ContentPlugin(
            "kubernetes.io/secret",
            "secret",
            lambda volume: volume.secret is not None,
            maker.secret,
            in_memory=True,
        ),
        ContentPlugin(
            "kubernetes.io/downward-api",
            "downwardAPI",
            lambda volume: volume.downward_api is not None,
            maker.downward,
            in_memory=True,
        ),
        ContentPlugin(
            "kubernetes.io/projected",
            "projected",
            lambda volume: volume.projected is not None,
            maker.projected,
            in_memory=True,
        ),
    )


def references(volume: Volume) -> Iterator[tuple[str, str]]:
    """Kind and name of each object that a volume's content follows; "" for any name."""
    if volume.config_map is not None:
        yield CONFIG_MAP, volume.config_map.name
    if volume.secret is not None:
        yield SECRET, volume.secret.secret_name
    for part in volume.projected.sources if volume.projected is not None else ():
        if part.config_map is not None:
            yield CONFIG_MAP, part.config_map.name
        if part.secret is not None:
            yield SECRET, part.secret.name
        if part.cluster_trust_bundle is not None:
            yield CLUSTER_TRUST_BUNDLE, part.cluster_trust_bundle.name or ""


@dataclass(frozen=True, slots=True)
class _Shape:
    """How the files of a volume look, whatever is in them."""

    mode: int
    token_owner: int | None
    token_mode: int


def _shape(default_mode: int | None, request: SetUp) -> _Shape:
    if default_mode is None:
        raise PayloadError(_NO_MODE)
    owner = request.ownership.fs_user
    alone = owner is not None or request.ownership.fs_group is not None
    return _Shape(default_mode, owner, _OWNER_ONLY if alone else default_mode)


Part = Callable[[], Files]


class _Gatherer:
    """Reads what volumes are made of."""

    def __init__(self, objects: ObjectSource, values: PodValues) -> None:
        self._objects = objects
        self._values = values

    async def config_map(self, request: SetUp) -> Gathered:
        """A ConfigMap."""
        source = request.volume.config_map or ConfigMapVolumeSource()
        mode = _shape(source.default_mode, request).mode
        namespace = request.pod.metadata.namespace
        found = await self._objects.get_config_map(namespace, source.name)
        optional = bool(source.optional)
        return Gathered(
            (found,),
            partial(config_map_files, found, source.name, source.items, mode, optional=optional),
        )

    async def secret(self, request: SetUp) -> Gathered:
        """A Secret."""
        source = request.volume.secret or SecretVolumeSource()
        mode = _shape(source.default_mode, request).mode
        name = source.secret_name
        found = await self._objects.get_secret(request.pod.metadata.namespace, name)
        optional = bool(source.optional)
        return Gathered(
            (found,), partial(secret_files, found, name, source.items, mode, optional=optional)
        )

    async def downward(self, request: SetUp) -> Gathered:
        """Fields of the pod."""
        source = request.volume.downward_api or DownwardAPIVolumeSource()
        mode = _shape(source.default_mode, request).mode
        files = self._downward(request.pod, source.items, mode)
        return Gathered((files,), lambda: files)

    async def projected(self, request: SetUp) -> Gathered:
        """Several sources; what cannot be had is told all at once."""
        source = request.volume.projected or ProjectedVolumeSource()
        shape = _shape(source.default_mode, request)
        gathered: list[tuple[object, Part]] = []
        faults: list[str] = []
        unknown = 0
        for index, part in enumerate(source.sources):
            try:
                gathered.append(await self._part(request, shape, part, index))
            except SyncError as error:
                if str(error) == NO_CLIENT:
                    raise
                faults.append(str(error))
                unknown += 1
            except PayloadError as error:
                faults.append(str(error))
        if faults:
            text = aggregate_faults(faults)
            # What is wrong for certain is wrong, whatever the rest would be.
            raise SyncError(text) if unknown == len(faults) else PayloadError(text)
        inputs = tuple(read for read, _ in gathered)
        return Gathered(inputs, partial(merge_sources, [files for _, files in gathered]))

    def _part(
        self, request: SetUp, shape: _Shape, part: VolumeProjection, index: int
    ) -> Awaitable[tuple[object, Part]]:
        if part.config_map is not None:
            return self._config_map_part(request, shape, part.config_map)
        if part.secret is not None:
            return self._secret_part(request, shape, part.secret)
        if part.service_account_token is not None:
            return self._token_part(request, shape, part.service_account_token)
        if part.cluster_trust_bundle is not None:
            return self._bundle_part(shape, part.cluster_trust_bundle)
        if part.pod_certificate is not None:
            return self._certificate_part(request, shape, part.pod_certificate, index)
        items = part.downward_api.items if part.downward_api is not None else ()
        return self._downward_part(request, shape, items)

    async def _config_map_part(
        self, request: SetUp, shape: _Shape, part: ConfigMapProjection
    ) -> tuple[object, Part]:
        found = await self._objects.get_config_map(request.pod.metadata.namespace, part.name)
        optional = bool(part.optional)
        return found, partial(
            config_map_files, found, part.name, part.items, shape.mode, optional=optional
        )

    async def _secret_part(
        self, request: SetUp, shape: _Shape, part: SecretProjection
    ) -> tuple[object, Part]:
        found = await self._objects.get_secret(request.pod.metadata.namespace, part.name)
        optional = bool(part.optional)
        return found, partial(
            secret_files, found, part.name, part.items, shape.mode, optional=optional
        )

    async def _token_part(
        self, request: SetUp, shape: _Shape, part: ServiceAccountTokenProjection
    ) -> tuple[object, Part]:
        seconds = part.expiration_seconds
        token = await self._objects.token(request.pod, part.audience, seconds)
        file = ProjectedFile(token.value.encode(), shape.token_mode, shape.token_owner)
        return file, lambda: {part.path: file}

    async def _bundle_part(
        self, shape: _Shape, part: ClusterTrustBundleProjection
    ) -> tuple[object, Part]:
        found = await self._objects.trust_anchors(part)
        optional = bool(part.optional)
        return found, partial(
            trust_anchor_file, found, part.path, shape.mode, by_name=part.name, optional=optional
        )

    async def _certificate_part(
        self, request: SetUp, shape: _Shape, part: PodCertificateProjection, index: int
    ) -> tuple[object, Part]:
        found = await self._objects.pod_credentials(request.pod, request.volume.name, index, part)
        secret = ProjectedFile(found.key, shape.token_mode, shape.token_owner)
        files = {
            part.credential_bundle_path: replace(secret, data=found.key + found.chain),
            part.key_path: secret,
            part.certificate_chain_path: replace(secret, data=found.chain),
        }
        files.pop("", None)
        return found, lambda: files

    async def _downward_part(
        self, request: SetUp, shape: _Shape, items: tuple[DownwardAPIVolumeFile, ...]
    ) -> tuple[object, Part]:
        files = self._downward(request.pod, items, shape.mode)
        return files, lambda: files

    def _downward(self, pod: Pod, items: tuple[DownwardAPIVolumeFile, ...], mode: int) -> Files:
        return downward_files(pod, items, mode, self._values)
