"""The flags of ``nodeagent run`` in groups, with their defaults and fields. Loaded for help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Final, TypeAlias

import click

from nodeagent.config.flag_layer import kinds
from nodeagent.config.kubelet_fields import ACTS, FIELDS, Field
from nodeagent.config.kubelet_flags import OTHERS, field_of_flag

OTHER_GROUP: Final = "Other"
NO_EFFECT: Final = "Taken for the sake of the kubelet's command lines, without effect"

GROUPS: Final[Mapping[str, str]] = {
    "Configuration": "config config-dir feature-gates root-dir lock-file exit-on-lock-contention",
    "Where pods come from": "pod-manifest-path manifest-url manifest-url-header "
    "file-check-frequency http-check-frequency sync-frequency checkpoint-patience",
    "Container runtime": "container-runtime-endpoint image-service-endpoint embedded-scenario "
    "runtime-request-timeout pod-logs-dir container-log-max-size container-log-max-files "
    "seccomp-default cpu-cfs-quota cpu-cfs-quota-period pod-max-pids allowed-unsafe-sysctls "
    "protect-kernel-defaults cgroup-driver cgroup-root cgroups-per-qos",
    "Images": "serialize-image-pulls max-parallel-image-pulls registry-qps registry-burst "
    "image-credential-provider-config image-credential-provider-bin-dir image-gc-high-threshold "
    "image-gc-low-threshold minimum-image-ttl-duration",
    "Dead containers": "minimum-container-ttl-duration maximum-dead-containers "
    "maximum-dead-containers-per-container",
    "Cluster": "kubeconfig bootstrap-kubeconfig cert-dir rotate-certificates "
    "rotate-server-certificates register-node register-with-taints node-labels kube-api-qps "
    "kube-api-burst event-qps event-burst node-status-update-frequency "
    "node-lease-duration-seconds node-status-max-images cloud-provider provider-id "
    "enable-controller-attach-detach",
    "The node and its network": "hostname-override node-ip pod-cidr cluster-dns cluster-domain "
    "resolv-conf make-iptables-util-chains",
    "Resources": "max-pods pods-per-core kube-reserved system-reserved kube-reserved-cgroup "
    "system-reserved-cgroup reserved-cpus enforce-node-allocatable "
    "local-storage-capacity-isolation eviction-hard eviction-soft eviction-soft-grace-period "
    "eviction-minimum-reclaim eviction-pressure-transition-period "
    "eviction-max-pod-grace-period",
    "Ports, and who may ask": "healthz-port healthz-bind-address read-only-port enable-server "
    "address port tls-cert-file tls-private-key-file tls-cipher-suites tls-min-version "
    "client-ca-file anonymous-auth authentication-token-webhook "
    "authentication-token-webhook-cache-ttl authorization-mode "
    "authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl "
    "streaming-connection-idle-timeout enable-debugging-handlers",
    "Logs": "v vmodule logging-format",
    "Stopping": "stop-pods-on-exit stop-pods-timeout",
}
"""Flags by what they are about."""

_TOLD: Final[Mapping[str, str]] = {
    "seccomp-default": "Containers that name no seccomp profile have the runtime's.",
    "cpu-cfs-quota": "Enforce CPU limits.",
    "resolv-conf": "The node's resolver file; empty: none.",
    "allowed-unsafe-sysctls": "Kernel parameters that pods may set beside the safe ones.",
    "vmodule": "Verbosity by part of the agent, 'pleg=5,pods.*=4'.",
    "runonce": "There is no such mode any more: true is refused.",
    "rotate-server-certificates": "Ask the API server for the certificate of the API port.",
}
_TYPES: Final[Mapping[str, str]] = {
    "bool": "BOOL",
    "int": "INTEGER",
    "float": "NUMBER",
    "map": "NAME=VALUE,...",
    "list": "TEXT,...",
    "thresholds": "SIGNAL<AMOUNT,...",
    "vmodule": "PATTERN=INTEGER,...",
    "memory": "NODE:NAME=AMOUNT,...;...",
}


def told_of_flag(flag: str) -> str:
    """What a flag of the table does, in a line."""
    field = FIELDS[field_of_flag()[flag]]
    text = _TOLD.get(flag, "")
    if field.effect != ACTS:
        text = f"{field.effect}: {field.note}" if field.note else "Not acted on yet."
    return text[:1].upper() + text[1:]


Rows: TypeAlias = "list[tuple[str, str]]"
"""A flag with its type, and what it does, for each of several flags."""


def grouped(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, Rows]]:
    """The title of each group of flags, and its rows; without flags that have no effect."""
    rows = dict(_rows(command, ctx))
    left = [flag for flag in rows if not _no_effect(flag)]
    for title, flags in GROUPS.items():
        chosen = [flag for flag in flags.split() if flag in left]
        if chosen:
            yield title, [rows[flag] for flag in chosen]
        left = [flag for flag in left if flag not in chosen]
    yield OTHER_GROUP, [rows[flag] for flag in left]


def ignored() -> list[str]:
    """The flags without any effect, by name."""
    return sorted({*(flag for flag in field_of_flag() if _no_effect(flag)), *OTHERS})


def write_flags(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write all flags in groups; those without any effect come last."""
    for title, rows in grouped(command, ctx):
        with formatter.section(title):
            formatter.write_dl(rows)
    with formatter.section(NO_EFFECT):
        indent = " " * formatter.current_indent
        listed = ", ".join(f"--{flag}" for flag in ignored())
        lines = wrap(listed, formatter.width - len(indent), break_on_hyphens=False)
        formatter.write("".join(f"{indent}{line}\n" for line in lines))
        formatter.write_text("'nodeagent config explain --flags' says why of each.")


def _no_effect(flag: str) -> bool:
    path = field_of_flag().get(flag, "")
    return bool(path) and FIELDS[path].effect != ACTS


def _rows(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, tuple[str, str]]]:
    seen = set()
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None or not isinstance(param, click.Option):
            continue
        flag = next(opt for opt in param.opts if opt.startswith("--"))[2:]
        seen.add(flag)
        path = field_of_flag().get(flag, "")
        yield flag, (record[0], _with_facts(record[1], FIELDS.get(path)))
    for flag, path in field_of_flag().items():
        if flag not in seen:
            kind = _TYPES.get(kinds()[path], "TEXT")
            told = _with_facts(told_of_flag(flag), FIELDS[path])
            yield flag, (f"--{flag} {kind}", told)


def _with_facts(text: str, field: Field | None) -> str:
    """Help with the default, if it does not say it, and with the field."""
    if field is None:
        return text
    facts = f"[field: {field.path}]"
    if "default" not in text.lower() and field.default not in (None, ""):
        facts = f"[default: {_default(field.default)}] {facts}"
    return f"{text} {facts}".strip()


def _default(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{name}<{amount}" for name, amount in value.items())
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)
