"""Rules for resource requests and limits, of containers and of the pod."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from nodeagent.api.aggregate import aggregate
from nodeagent.api.container import Container
from nodeagent.api.pod import PodSpec
from nodeagent.api.quantity import Quantity
from nodeagent.api.resources import ContainerResizePolicy, PodResourceClaim, ResourceRequirements
from nodeagent.api.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
    unsupported,
)
from nodeagent.api.validation.names import (
    check,
    check_if_set,
    check_one_of,
    label_fault,
    qualified_name_fault,
    subdomain_fault,
)

HUGEPAGES: Final = "hugepages-"
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_POD_LEVEL: Final = ("cpu", "memory")


def check_resources(
    path: str, resources: ResourceRequirements, claims: Iterable[str] = ()
) -> Iterator[FieldError]:
    """Judge the resources of a container; ``claims`` are the names that the pod declares."""
    for name, amount in resources.limits.items():
        yield from _check_resource(f"{path}.limits[{name}]", name, amount)
    for name, amount in resources.requests.items():
        here, limit = f"{path}.requests[{name}]", resources.limits.get(name)
        # A request that only repeats its limit (by default, it does) has been judged with it.
        if amount != limit:
            yield from _check_resource(here, name, amount)
            yield from _check_request(here, name, amount, limit)
    names = resources.limits.keys() | resources.requests.keys()
    if any(map(_is_hugepages, names)) and not names & {"cpu", "memory"}:
        yield forbidden(path, "huge pages need cpu or memory as well")
    yield from _check_claim_uses(f"{path}.claims", resources, frozenset(claims))


def _is_hugepages(name: str) -> bool:
    return name.startswith(HUGEPAGES)


def _is_extended(name: str) -> bool:
    """Tell whether a resource is one that a device plugin or an administrator named."""
    domain, slash, _ = name.rpartition("/")
    ours = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash) and not ours and not name.startswith("requests.")


def _check_resource(path: str, name: str, amount: Quantity) -> Iterator[FieldError]:
    yield from _check_name(path, name)
    yield from _check_amount(path, name, amount)


def _check_name(path: str, name: str) -> Iterator[FieldError]:
    if name in _STANDARD or _is_hugepages(name):
        return
    if not _is_extended(name):
        known = f"{', '.join(_STANDARD)}, {HUGEPAGES}<size>"
        yield invalid(path, name, f"must be one of {known}, or have a domain: example.com/gpu")
    elif fault := qualified_name_fault(name):
        yield invalid(path, name, fault)


def _check_amount(path: str, name: str, amount: Quantity) -> Iterator[FieldError]:
    if amount.nanos < 0:
        yield invalid(path, amount, "must not be negative")
    elif name not in _STANDARD and not amount.is_integer():
        yield invalid(path, amount, "must be a whole number")
    elif _is_hugepages(name):
        yield from _check_pages(path, name, amount)


def _check_pages(path: str, name: str, amount: Quantity) -> Iterator[FieldError]:
    """Require a whole number of huge pages."""
    try:
        size = Quantity(name.removeprefix(HUGEPAGES)).nanos
    except ValueError:
        size = 0
    if size <= 0:
        yield invalid(path, name, "must name a page size: hugepages-2Mi")
    elif amount.nanos % size:
        yield invalid(path, amount, "must be a multiple of the page size")


def _check_request(
    path: str, name: str, amount: Quantity, limit: Quantity | None
) -> Iterator[FieldError]:
    """Judge a request that differs from its limit, as it may only for what can be overcommitted."""
    if name in _STANDARD:
        if limit is not None and amount > limit:
            yield invalid(path, amount, f"must be at most the limit of {limit}")
    elif limit is None:
        yield required(path.replace(".requests[", ".limits["), f"{name} cannot be overcommitted")
    else:
        yield invalid(path, amount, f"must equal the limit of {limit}")


def _check_claim_uses(
    path: str, resources: ResourceRequirements, declared: frozenset[str]
) -> Iterator[FieldError]:
    seen: dict[str, set[str]] = {}
    for index, claim in enumerate(resources.claims):
        here = f"{path}[{index}]"
        yield from check(f"{here}.name", claim.name, label_fault)
        yield from check_if_set(f"{here}.request", claim.request, label_fault)
        if claim.name and claim.name not in declared:
            yield not_found(f"{here}.name", claim.name, "must be one of spec.resourceClaims")
        uses = seen.setdefault(claim.name, set())
        # The whole claim takes in every request of it.
        if claim.request in uses or "" in uses or (uses and not claim.request):
            yield duplicate(here, claim.name)
        uses.add(claim.request)


def check_claims(path: str, claims: tuple[PodResourceClaim, ...]) -> Iterator[FieldError]:
    """Judge the claims that a pod declares."""
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here = f"{path}[{index}]"
        yield from check(f"{here}.name", claim.name, label_fault)
        if claim.name in seen:
            yield duplicate(f"{here}.name", claim.name)
        seen.add(claim.name)
        name, template = claim.resource_claim_name, claim.resource_claim_template_name
        if (name is None) == (template is None):
            yield invalid(
                here, claim.name, "needs one of resourceClaimName, resourceClaimTemplateName"
            )
        yield from check_if_set(f"{here}.resourceClaimName", name, subdomain_fault)
        yield from check_if_set(f"{here}.resourceClaimTemplateName", template, subdomain_fault)


def check_resize_policy(
    path: str, policies: tuple[ContainerResizePolicy, ...], pod_restart_policy: str
) -> Iterator[FieldError]:
    """Judge which resources may change in place, and how."""
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        here = f"{path}[{index}]"
        yield from check_one_of(f"{here}.resourceName", policy.resource_name, _POD_LEVEL)
        allowed = ("NotRequired", "RestartContainer")
        yield from check_one_of(f"{here}.restartPolicy", policy.restart_policy, allowed)
        if policy.restart_policy == "RestartContainer" and pod_restart_policy == "Never":
            yield unsupported(f"{here}.restartPolicy", policy.restart_policy, allowed[:1])
        if policy.resource_name in seen:
            yield duplicate(f"{here}.resourceName", policy.resource_name)
        seen.add(policy.resource_name)


def check_overhead(path: str, overhead: Mapping[str, Quantity]) -> Iterator[FieldError]:
    """Judge what the pod costs beyond its containers."""
    for name, amount in overhead.items():
        yield from _check_resource(f"{path}[{name}]", name, amount)


def check_pod_resources(path: str, spec: PodSpec) -> Iterator[FieldError]:
    """Judge pod-level resources, on their own and against the containers."""
    resources = spec.resources
    if resources is None:
        return
    names = resources.limits.keys() | resources.requests.keys()
    for name in sorted(names):
        if name not in _POD_LEVEL and not _is_hugepages(name):
            allowed = (*_POD_LEVEL, f"{HUGEPAGES}<size>")
            yield unsupported(path, name, allowed)
    if resources.claims:
        yield forbidden(f"{path}.claims", "may not be set for pod-level resources")
    yield from check_resources(path, replace(resources, claims=()))
    wanted = aggregate(spec, "requests")
    for name, amount in resources.requests.items():
        if name in wanted and amount < wanted[name]:
            detail = f"must be at least what the containers request together, {wanted[name]}"
            yield invalid(f"{path}.requests[{name}]", amount, detail)
    yield from _check_container_limits("spec.containers", spec.containers, resources.limits)
    yield from _check_container_limits(
        "spec.initContainers", spec.init_containers, resources.limits
    )


def _check_container_limits(
    path: str, containers: tuple[Container, ...], most: Mapping[str, Quantity]
) -> Iterator[FieldError]:
    for index, container in enumerate(containers):
        for name, limit in container.resources.limits.items():
            if name in most and limit > most[name]:
                here = f"{path}[{index}].resources.limits[{name}]"
                yield invalid(here, limit, f"must be at most the pod's limit of {most[name]}")
