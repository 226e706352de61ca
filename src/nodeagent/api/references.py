"""Which objects of the Kubernetes API a pod depends on."""

from collections.abc import Collection, Iterator
from typing import Final

from nodeagent.api.container import Container
from nodeagent.api.pod import Pod, PodSpec
from nodeagent.api.volumes import ProjectedVolumeSource, Volume

SERVICE_ACCOUNTS: Final = "serviceaccounts"
STANDALONE: Final = frozenset({"configmaps", "secrets", SERVICE_ACCOUNTS})
"""What static pods may refer to on a node without an API server: the first two lie beside them,
and the name of a service account means nothing there."""


def api_reference(pod: Pod, allowed: Collection[str] = ()) -> str | None:
    """Return the first kind of API object that the pod refers to, or None.

    A static pod of a cluster may refer to none, because nobody may be there to ask. Downward API
    values are no references: they come from the pod itself. The answer names resources as
    Kubernetes does: ``secrets``, ``csidrivers (via CSI volumes)``.

    Args:
        pod: The pod.
        allowed: What does not count.
    """
    return next((what for what in _references(pod.spec) if what not in allowed), None)


def _references(spec: PodSpec) -> Iterator[str]:
    if spec.service_account_name or spec.service_account:
        yield SERVICE_ACCOUNTS
    if any(secret.name for secret in spec.image_pull_secrets):
        yield "secrets"
    containers = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    if any(map(_uses_secret, containers)) or any(map(_volume_uses_secret, spec.volumes)):
        yield "secrets"
    if any(map(_uses_config_map, containers)) or any(map(_volume_uses_config_map, spec.volumes)):
        yield "configmaps"
    if spec.resource_claims:
        yield "resourceclaims"
    for volume in spec.volumes:
        yield from _volume_references(volume)


def _uses_secret(container: Container) -> bool:
    if any(source.secret_ref is not None for source in container.env_from):
        return True
    sources = (variable.value_from for variable in container.env)
    return any(source is not None and source.secret_key_ref is not None for source in sources)


def _uses_config_map(container: Container) -> bool:
    if any(source.config_map_ref is not None for source in container.env_from):
        return True
    sources = (variable.value_from for variable in container.env)
    return any(source is not None and source.config_map_key_ref is not None for source in sources)


def _volume_uses_secret(volume: Volume) -> bool:
    if volume.secret is not None or volume.azure_file is not None:
        return True
    if volume.projected is not None and any(part.secret for part in volume.projected.sources):
        return True
    if volume.csi is not None and volume.csi.node_publish_secret_ref is not None:
        return True
    with_secret = (
        volume.cephfs,
        volume.cinder,
        volume.flex_volume,
        volume.iscsi,
        volume.rbd,
        volume.scale_io,
        volume.storageos,
    )
    return any(source is not None and source.secret_ref is not None for source in with_secret)


def _volume_uses_config_map(volume: Volume) -> bool:
    if volume.config_map is not None:
        return True
    return volume.projected is not None and any(
        part.config_map for part in volume.projected.sources
    )


def _volume_references(volume: Volume) -> Iterator[str]:
    if volume.csi is not None:
        yield "csidrivers (via CSI volumes)"
    if volume.glusterfs is not None:
        yield "endpoints (via glusterFS volumes)"
    if volume.persistent_volume_claim is not None:
        yield "persistentvolumeclaims"
    if volume.ephemeral is not None:
        yield "persistentvolumeclaims (via ephemeral volumes)"
    if volume.projected is not None:
        yield from _projected_references(volume.projected)


def _projected_references(source: ProjectedVolumeSource) -> Iterator[str]:
    for part in source.sources:
        if part.service_account_token is not None:
            yield "serviceaccounts (via projected volumes)"
        if part.cluster_trust_bundle is not None:
            yield "clustertrustbundles"
        if part.pod_certificate is not None:
            yield "podcertificates"
