"""Which resolver settings a pod gets (docs/behaviour/runtime.md, "DNS"). Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nodeagent.api import Pod
from nodeagent.proto.runtime import v1

MAX_SERVERS: Final = 3
MAX_SEARCHES: Final = 32
MAX_SEARCH_LINE: Final = 2048
MAX_SEARCH: Final = 253

CLUSTER_FIRST: Final = "ClusterFirst"
CLUSTER_FIRST_WITH_HOST_NET: Final = "ClusterFirstWithHostNet"
DEFAULT: Final = "Default"
NONE: Final = "None"
_POLICIES: Final = (CLUSTER_FIRST, CLUSTER_FIRST_WITH_HOST_NET, DEFAULT, NONE)


@dataclass(frozen=True, slots=True)
class ResolverSettings:
    """Name servers, search domains, and options as they are written."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def message(self) -> v1.DnsConfig:
        """The settings as the runtime takes them."""
        return v1.DnsConfig(
            servers=list(self.servers), searches=list(self.searches), options=list(self.options)
        )


def no_resolver(node_ips: tuple[str, ...]) -> ResolverSettings:
    """What pods get as the node's settings when no resolver file is configured.

    Args:
        node_ips: the node's addresses, the primary family first.
    """
    local = "::1" if node_ips and ":" in node_ips[0] else "127.0.0.1"
    return ResolverSettings(servers=(local,), searches=(".",))


@dataclass(frozen=True, slots=True)
class DNSWarning:
    """Something about a pod's DNS that an event should say.

    Attributes:
        reason: of the event.
        message: for people.
        of_node: the node is to blame, so its own events say it too.
    """

    reason: str
    message: str
    of_node: bool = False


def parse_resolv_conf(text: str) -> ResolverSettings:
    """Read a resolver file: the last search line wins, options of all lines are merged."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: list[str] = []
    for line in text.splitlines():
        words = line.split("#")[0].split(";")[0].split()
        if not words:
            continue
        keyword, values = words[0], words[1:]
        if keyword == "nameserver" and values:
            servers.append(values[0])
        elif keyword == "search":
            searches = tuple(name for value in values if (name := value.rstrip(".")))
        elif keyword == "options":
            options.extend(values)
    return ResolverSettings(tuple(servers), searches, _merge_options((), options))


def resolver_trouble(path: str, host: ResolverSettings, cluster_domain: str) -> str:
    """Why the node's resolver file does not fit into that of a pod; "" when it does.

    Args:
        path: the file, for the text.
        host: what is in it.
        cluster_domain: the cluster's domain, whose search domains need room; "" for none.
    """
    limit = MAX_SEARCHES - (3 if cluster_domain else 0)
    if len(host.searches) > limit:
        return (
            f"Resolv.conf file '{path}' contains search line consisting of more than "
            f"{limit} domains!"
        )
    if any(len(search) > MAX_SEARCH for search in host.searches):
        return (
            f'Resolv.conf file "{path}" contains a search path which length is more than '
            f"allowed {MAX_SEARCH}!"
        )
    if len(" ".join(host.searches)) > MAX_SEARCH_LINE:
        return (
            f"Resolv.conf file '{path}' contains search line which length is more than "
            f"allowed {MAX_SEARCH_LINE} chars!"
        )
    return ""


def pod_dns(
    pod: Pod, host: ResolverSettings, cluster_dns: tuple[str, ...], cluster_domain: str
) -> tuple[ResolverSettings, list[DNSWarning]]:
    """The resolver settings of a pod, and what to warn about.

    Args:
        pod: its policy decides the base, its own settings are added.
        host: the node's settings.
        cluster_dns: the cluster's name servers; none makes cluster policies fall to Default.
        cluster_domain: the cluster's domain, "" for none.
    """
    warnings: list[DNSWarning] = []
    policy = pod.spec.dns_policy if pod.spec.dns_policy in _POLICIES else CLUSTER_FIRST
    if policy == CLUSTER_FIRST and pod.spec.host_network:
        policy = DEFAULT
    if policy in (CLUSTER_FIRST, CLUSTER_FIRST_WITH_HOST_NET) and not cluster_dns:
        warnings.append(
            DNSWarning(
                "MissingClusterDNS",
                "kubelet does not have ClusterDNS IP configured and cannot create Pod using "
                f'"{CLUSTER_FIRST}" policy. Falling back to "{DEFAULT}" policy.',
                of_node=True,
            )
        )
        policy = DEFAULT
    if policy == NONE:
        base = ResolverSettings()
    elif policy == DEFAULT:
        base = host
    else:
        base = _cluster(pod.metadata.namespace, host, cluster_dns, cluster_domain)
    return _limited(_with_own(pod, base), warnings)


def _cluster(
    namespace: str, host: ResolverSettings, servers: tuple[str, ...], domain: str
) -> ResolverSettings:
    own = (f"{namespace}.svc.{domain}", f"svc.{domain}", domain) if domain else ()
    # The root alone keeps a resolver from looking for a domain; here there are some.
    searches = dict.fromkeys((*own, *(s for s in host.searches if s != ".")))
    return ResolverSettings(servers, tuple(searches), ("ndots:5",))


def _with_own(pod: Pod, base: ResolverSettings) -> ResolverSettings:
    own = pod.spec.dns_config
    if own is None:
        return base
    options = [o.name if o.value in (None, "") else f"{o.name}:{o.value}" for o in own.options]
    return ResolverSettings(
        tuple(dict.fromkeys((*base.servers, *own.nameservers))),
        tuple(dict.fromkeys((*base.searches, *own.searches))),
        _merge_options(base.options, options),
    )


def _merge_options(base: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """Options by name; a later one of the same name takes the earlier one's place."""
    merged: dict[str, str] = {}
    for option in (*base, *added):
        merged[option.partition(":")[0]] = option
    return tuple(merged.values())


def _limited(
    settings: ResolverSettings, warnings: list[DNSWarning]
) -> tuple[ResolverSettings, list[DNSWarning]]:
    servers = settings.servers[:MAX_SERVERS]
    searches = tuple(s for s in settings.searches if len(s) <= MAX_SEARCH)[:MAX_SEARCHES]
    while len(" ".join(searches)) > MAX_SEARCH_LINE:
        searches = searches[:-1]
    if servers != settings.servers:
        warnings.append(_exceeded("Nameserver", "nameservers", "nameserver", servers))
    if searches != settings.searches:
        warnings.append(_exceeded("Search Line", "search paths", "search", searches))
    return ResolverSettings(servers, searches, settings.options), warnings


def _exceeded(limit: str, what: str, line: str, applied: tuple[str, ...]) -> DNSWarning:
    text = (
        f"{limit} limits were exceeded, some {what} have been omitted, "
        f"the applied {line} line is: {' '.join(applied)}"
    )
    return DNSWarning("DNSConfigForming", text)
