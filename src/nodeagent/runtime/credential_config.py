"""The configuration of credential provider plugins (docs/behaviour/images.md, "Providers")."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from nodeagent.api.decode import decode_node
from nodeagent.api.splitting import load_documents
from nodeagent.duration import parse_duration
from nodeagent.errors import StartError

_GROUP: Final = "kubelet.config.k8s.io"
_CONFIG_VERSIONS: Final = tuple(f"{_GROUP}/{v}" for v in ("v1", "v1beta1", "v1alpha1"))
_PROTOCOL: Final = "credentialprovider.kubelet.k8s.io"
_PROTOCOL_VERSIONS: Final = tuple(f"{_PROTOCOL}/{v}" for v in ("v1", "v1beta1", "v1alpha1"))
_NAME: Final = re.compile(r"[^\s/\\]+")
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_CACHE_TYPES: Final = ("ServiceAccount", "Token")


class _EnvVar(msgspec.Struct, frozen=True):
    name: str = ""
    value: str = ""


class TokenAttributes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a plugin is given a token of the pod's service account."""

    service_account_token_audience: str = ""
    cache_type: str = ""
    require_service_account: bool | None = None
    required_service_account_annotation_keys: tuple[str, ...] = ()
    optional_service_account_annotation_keys: tuple[str, ...] = ()


class _Provider(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str = ""
    match_images: tuple[str, ...] = ()
    default_cache_duration: str | None = None
    api_version: str = ""
    args: tuple[str, ...] = ()
    env: tuple[_EnvVar, ...] = ()
    token_attributes: TokenAttributes | None = None


class _Config(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    providers: tuple[_Provider, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """One plugin.

    Attributes:
        name: the plugin's name, that of its program.
        program: the program.
        match_images: patterns of images that it is asked about.
        cache_duration: seconds that its answers are kept when they do not say.
        api_version: version of the protocol.
        args: arguments of the program.
        env: variables that it gets in addition.
        token: how it is given a service account's token; None when it is not.
    """

    name: str
    program: Path
    match_images: tuple[str, ...]
    cache_duration: float
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    token: TokenAttributes | None = None


@dataclass(frozen=True, slots=True)
class ProvidersConfig:
    """All plugins, in order, and a hash of the files that name them."""

    providers: tuple[ProviderSettings, ...] = ()
    hash: str = ""


def load_providers(config: Path, bin_dir: Path) -> ProvidersConfig:
    """Read the configuration: a file, or a directory of them. Blocking.

    Raises:
        StartError: something is wrong; names the file, what, and what is allowed.
    """
    if not bin_dir.is_dir():
        msg = f"--image-credential-provider-bin-dir={bin_dir}: no such directory"
        raise StartError(msg)
    found: dict[str, ProviderSettings] = {}
    digest = hashlib.sha256()
    for path in _files(config):
        data = _read(path)
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
        for settings in _providers(path, data, bin_dir):
            if settings.name in found:
                msg = f"{path}: there are two credential providers {settings.name}"
                raise StartError(msg)
            found[settings.name] = settings
    return ProvidersConfig(tuple(found.values()), f"sha256:{digest.hexdigest()}")


def _files(config: Path) -> Sequence[Path]:
    try:
        if not config.is_dir():
            return [config]
        files = sorted(p for p in config.iterdir() if p.suffix in _SUFFIXES and p.is_file())
    except OSError as error:
        raise StartError(_unreadable(config, error)) from error
    if not files:
        msg = f"{config} holds no credential provider configuration ({', '.join(_SUFFIXES)})"
        raise StartError(msg)
    return files


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StartError(_unreadable(path, error)) from error


def _unreadable(path: Path, error: OSError) -> str:
    return f"the credential provider configuration {path} cannot be read: {error.strerror}"


def _providers(path: Path, data: bytes, bin_dir: Path) -> Iterator[ProviderSettings]:
    config = _decode(path, data)
    faults = [
        *_config_faults(config),
        *(
            f"providers[{i}].{fault}"
            for i, provider in enumerate(config.providers)
            for fault in _faults(provider)
        ),
    ]
    if faults:
        msg = f"{path}: {'; '.join(faults)}"
        raise StartError(msg)
    for provider in config.providers:
        program = bin_dir / provider.name
        if not os.access(program, os.X_OK) or not program.is_file():
            msg = f"{path}: the credential provider {provider.name} has no program {program}"
            raise StartError(msg)
        yield ProviderSettings(
            name=provider.name,
            program=program.absolute(),
            match_images=provider.match_images,
            cache_duration=parse_duration(provider.default_cache_duration or "0"),
            api_version=provider.api_version,
            args=provider.args,
            env=tuple((variable.name, variable.value) for variable in provider.env),
            token=provider.token_attributes,
        )


def _decode(path: Path, data: bytes) -> _Config:
    documents = load_documents(data)
    if len(documents) != 1:
        msg = f"{path}: must hold one document, has {len(documents)}"
        raise StartError(msg)
    document = documents[0]
    if document.error is not None or document.root is None:
        cause = document.error.message if document.error is not None else "is empty"
        msg = f"{path}: {cause}"
        raise StartError(msg)
    decoded = decode_node(document.root, _Config)
    problems = (*decoded.errors, *decoded.warnings)
    if decoded.value is None or problems:
        msg = f"{path}: {'; '.join(map(str, problems))}"
        raise StartError(msg)
    return decoded.value


def _config_faults(config: _Config) -> Iterator[str]:
    if config.kind != "CredentialProviderConfig" or config.api_version not in _CONFIG_VERSIONS:
        yield f"must be kind CredentialProviderConfig of apiVersion {_CONFIG_VERSIONS[0]}"
    if not config.providers:
        yield "providers: at least 1 is required"


def _faults(provider: _Provider) -> Iterator[str]:
    name = provider.name
    if not name:
        yield "name: required"
    elif name in (".", "..") or not _NAME.fullmatch(name):
        yield f"name: {name!r} is not the name of a program in the plugin directory"
    if provider.api_version not in _PROTOCOL_VERSIONS:
        yield f"apiVersion: {provider.api_version!r} is not one of {', '.join(_PROTOCOL_VERSIONS)}"
    if not provider.match_images:
        yield "matchImages: at least 1 is required"
    for i, pattern in enumerate(provider.match_images):
        if not pattern or "://" in pattern or re.search(r"\s", pattern):
            yield f"matchImages[{i}]: {pattern!r} is not a host with an optional port and path"
    yield from _duration_faults(provider.default_cache_duration)
    for i, variable in enumerate(provider.env):
        if not variable.name or "=" in variable.name:
            yield f"env[{i}].name: {variable.name!r} is not the name of a variable"
    if provider.token_attributes is not None:
        yield from _token_faults(provider.token_attributes, provider.api_version)


def _duration_faults(text: str | None) -> Iterator[str]:
    if text is None:
        yield "defaultCacheDuration: required"
        return
    try:
        if parse_duration(text) < 0:
            yield f"defaultCacheDuration: {text} is negative"
    except ValueError as error:
        yield f"defaultCacheDuration: {error}"


def _token_faults(token: TokenAttributes, api_version: str) -> Iterator[str]:
    at = "tokenAttributes"
    if api_version != _PROTOCOL_VERSIONS[0]:
        yield f"{at}: needs apiVersion {_PROTOCOL_VERSIONS[0]}"
    if not token.service_account_token_audience:
        yield f"{at}.serviceAccountTokenAudience: required"
    if token.cache_type not in _CACHE_TYPES:
        yield f"{at}.cacheType: {token.cache_type!r} is not one of {', '.join(_CACHE_TYPES)}"
    if token.require_service_account is None:
        yield f"{at}.requireServiceAccount: required"
    required = token.required_service_account_annotation_keys
    if required and not token.require_service_account:
        yield f"{at}.requiredServiceAccountAnnotationKeys: need requireServiceAccount"
    keys = (*required, *token.optional_service_account_annotation_keys)
    if len(set(keys)) != len(keys):
        yield f"{at}: an annotation key stands there twice"
