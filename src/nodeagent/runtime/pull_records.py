"""Who may use an image that is there: records of pulls (KEP-2535).

docs/behaviour/images.md, "Verification". The files have the kubelet's names and form, so
that they survive a change from one to the other.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import anyio
import msgspec
from anyio import to_thread
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import Counter as CounterMetric

from nodeagent.api.times import format_time, parse_time
from nodeagent.clock import Clock
from nodeagent.log import Log
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError
from nodeagent.runtime.credentials import Credential
from nodeagent.runtime.keyring import repository
from nodeagent.runtime.pull_rights import Access, Rights, VerificationPolicy
from nodeagent.runtime.services import ImageStore
from nodeagent.state_file import remove_leftovers, write_atomically

log = Log("runtime.pull_records")

T = TypeVar("T")

_API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
_DIR_MODE: Final = 0o700


class _Intent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    kind: str = "ImagePullIntent"
    api_version: str = _API_VERSION
    image: str


class PulledRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An image that the agent has pulled.

    Attributes:
        last_updated_time: RFC 3339.
        image_ref: the runtime's id of the image.
        credential_mapping: who has access, by the full name of the repository.
    """

    kind: str = "ImagePulledRecord"
    api_version: str = _API_VERSION
    last_updated_time: str = ""
    image_ref: str
    credential_mapping: dict[str, Access] = {}


class RecordMetrics:
    """Metrics of the records.

    Args:
        registry: where they are registered; None for a private one.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.intents = Gauge(
            "kubelet_imagemanager_ondisk_pullintents", "Pull intents on disk", registry=registry
        )
        self.records = Gauge(
            "kubelet_imagemanager_ondisk_pulledrecords",
            "Records of pulled images on disk",
            registry=registry,
        )
        self.checks = CounterMetric(
            "kubelet_imagemanager_image_mustpull_checks",
            "Checks whether a pod may use an image that is there",
            ["result"],
            registry=registry,
        )


@dataclass(slots=True, kw_only=True)
class PullRecords:
    """The records, in memory and on disk.

    Args:
        directory: where they lie (``image_manager``).
        images: the image service, for what was being pulled when the last agent ended.
        policy: which images need no right.
        clock: wall time, for what is written.
        metrics: gauges and counters.
    """

    directory: Path
    images: ImageStore
    policy: VerificationPolicy
    clock: Clock
    metrics: RecordMetrics
    _records: dict[str, PulledRecord] = field(default_factory=dict)
    _intents: Counter[str] = field(default_factory=Counter)
    _unreadable: set[str] = field(default_factory=set)
    _complete: bool = True
    _loaded: bool = False
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def may_use(self, image: str, ref: str, rights: Rights) -> bool:
        """Whether a pod may use an image that is there without a pull.

        Args:
            image: as the spec names it.
            ref: the runtime's id of the image.
            rights: gives what the pod has for this image; called only when it counts.
        """
        async with self._lock:
            await self._load()
        name = repository(image)
        record = self._records.get(ref)
        broken = not self._complete or _file_name(ref) in self._unreadable
        ours = record is not None or broken or self._intents[image] > 0
        if self.policy.exempts(name, pulled_by_us=ours):
            return self._checked("credentialPolicyAllowed")
        access = record.credential_mapping.get(name) if record is not None else None
        if record is None or access is None or access == Access():
            return self._checked("error" if broken else "mustAuthenticate")
        if access.node_pods_accessible:
            return self._checked("credentialRecordFound")
        credentials, accounts = await rights()
        if not access.admits(credentials, accounts):
            return self._checked("mustAuthenticate")
        await self._learn(ref, name, credentials)
        return self._checked("credentialRecordFound")

    def _checked(self, result: str) -> bool:
        self.metrics.checks.labels(result).inc()
        return result.startswith("credential")

    async def _learn(self, ref: str, name: str, credentials: Sequence[Credential]) -> None:
        """Note under which names and with which content the pod's secrets hold now."""
        async with self._lock:
            record = self._records.get(ref)
            if record is None:
                return
            access = after = record.credential_mapping.get(name, Access())
            for credential in credentials:
                if access.admits((credential,), ()):
                    after = after.with_credential(credential)
            if set(after.kubernetes_secrets) == set(access.kubernetes_secrets):
                return
            try:
                await self._save(ref, {**record.credential_mapping, name: after})
            except OSError as error:
                log.warning("pull_record_not_written", image=name, cause=error.strerror)

    async def intend(self, image: str) -> None:
        """Note that an image is about to be pulled.

        Raises:
            OSError: it cannot be written; nothing may be pulled then.
        """
        async with self._lock:
            await self._load()
            if not self._intents[image]:
                data = msgspec.json.encode(_Intent(image=image))
                await self._write("pulling", _file_name(image), data)
            self._intents[image] += 1
            self._count()

    async def pulled(self, image: str, ref: str, credential: Credential) -> None:
        """Note that an image was pulled, and with what.

        Raises:
            OSError: it cannot be written; the intent stays.
        """
        async with self._lock:
            name = repository(image)
            old = self._records.get(ref) or PulledRecord(image_ref=ref)
            before = old.credential_mapping.get(name, Access())
            after = before.with_credential(credential)
            if before != after or ref not in self._records:
                mapping = {**old.credential_mapping, name: after}
                await self._save(ref, mapping)
            await self._settle(image)

    async def failed(self, image: str) -> None:
        """Note that a pull came to nothing."""
        async with self._lock:
            await self._settle(image)

    async def prune(self, present: Mapping[str, object]) -> None:
        """Drop the records of images that are gone.

        Args:
            present: the ids of all images that are there.
        """
        async with self._lock:
            await self._load()
            for ref in [ref for ref in self._records if ref not in present]:
                del self._records[ref]
                await self._remove("pulled", _file_name(ref))
            self._count()

    async def _settle(self, image: str) -> None:
        self._intents[image] -= 1
        if self._intents[image] <= 0:
            del self._intents[image]
            await self._remove("pulling", _file_name(image))
        self._count()

    async def _save(self, ref: str, mapping: dict[str, Access]) -> None:
        record = PulledRecord(
            last_updated_time=format_time(self.clock.now()),
            image_ref=ref,
            credential_mapping=mapping,
        )
        await self._write("pulled", _file_name(ref), msgspec.json.encode(record))
        self._records[ref] = record
        self._unreadable.discard(_file_name(ref))

    async def _write(self, kind: str, name: str, data: bytes) -> None:
        await to_thread.run_sync(_write, self.directory / kind / name, data)

    async def _remove(self, kind: str, name: str) -> None:
        try:
            await to_thread.run_sync(_unlink, self.directory / kind / name)
        except OSError as error:
            log.warning("pull_record_left", file=name, cause=error.strerror)

    def _count(self) -> None:
        self.metrics.intents.set(len(self._intents))
        self.metrics.records.set(len(self._records))

    async def _load(self) -> None:
        """Read all records once, and settle what the last agent did not."""
        if self._loaded:
            return
        await to_thread.run_sync(_tidy, self.directory)
        found = await to_thread.run_sync(read_records, self.directory)
        self._records, self._unreadable = found.records, set(found.unreadable)
        self._complete = found.complete
        for image in found.intents:
            await self._resolve(image)
        self._loaded = True
        self._count()

    async def _resolve(self, image: str) -> None:
        """An image whose pull was cut: when it is there, nobody is known to have a right to it."""
        try:
            reply = await self.images.image_status(v1.ImageSpec(image=image))
        except RpcError as error:
            log.warning("pull_intent_kept", image=image, cause=str(error))
            self._intents[image] += 1
            return
        try:
            if reply.image is not None and reply.image.id not in self._records:
                await self._save(reply.image.id, {})
        except OSError as error:
            log.warning("pull_intent_kept", image=image, cause=error.strerror)
            self._intents[image] += 1
            return
        await self._remove("pulling", _file_name(image))


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """What lies on disk.

    Attributes:
        records: by image id.
        intents: images that were being pulled.
        unreadable: names of record files that cannot be read.
        complete: the directories could be read: what is not in here is not on disk.
    """

    records: dict[str, PulledRecord]
    intents: tuple[str, ...]
    unreadable: tuple[str, ...]
    complete: bool

    def times(self) -> Iterator[tuple[str, float]]:
        """When each record was last written, by image id, in seconds since 1970."""
        for record in self.records.values():
            with contextlib.suppress(ValueError):
                yield record.image_ref, parse_time(record.last_updated_time).timestamp()


def read_records(directory: Path) -> FoundRecords:
    """Read all files. Blocking; what cannot be read is logged."""
    records: dict[str, PulledRecord] = {}
    unreadable: list[str] = []
    complete = True
    intents: list[str] = []
    try:
        for name, record in _decoded(directory / "pulled", PulledRecord):
            if record is None or _file_name(record.image_ref) != name:
                unreadable.append(name)
            else:
                records[record.image_ref] = record
        intents = [i.image for _, i in _decoded(directory / "pulling", _Intent) if i is not None]
    except OSError as error:
        log.warning("pull_records_unreadable", directory=str(directory), cause=error.strerror)
        complete = False
    return FoundRecords(records, tuple(intents), tuple(unreadable), complete)


def _decoded(directory: Path, kind: type[T]) -> Iterator[tuple[str, T | None]]:
    try:
        names = sorted(p.name for p in directory.iterdir() if p.name.startswith("sha256-"))
    except FileNotFoundError:
        return
    for name in names:
        try:
            yield name, msgspec.json.decode((directory / name).read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            log.warning("pull_record_unreadable", file=str(directory / name), cause=str(error))
            yield name, None


def _tidy(directory: Path) -> None:
    for kind in ("pulling", "pulled"):
        remove_leftovers(directory / kind)


def _file_name(subject: str) -> str:
    return f"sha256-{hashlib.sha256(subject.encode()).hexdigest()}"


def _write(path: Path, data: bytes) -> None:
    for directory in (path.parent.parent, path.parent):
        directory.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
    write_atomically(path, data)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
