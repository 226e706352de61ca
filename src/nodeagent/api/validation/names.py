"""Rules for names, labels, paths and addresses.

Each ``*_fault`` function returns what is wrong with a text, or None; ``check_*`` functions
yield field errors.
"""

import ipaddress
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from nodeagent.api.validation.errors import FieldError, invalid, required, too_long, unsupported

MAX_LABEL: Final = 63
MAX_SUBDOMAIN: Final = 253
MAX_ANNOTATION_BYTES: Final = 256 * 1024

_LABEL_TEXT: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL: Final = re.compile(_LABEL_TEXT)
_DNS_SUBDOMAIN: Final = re.compile(rf"{_LABEL_TEXT}(?:\.{_LABEL_TEXT})*")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_UID: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?")
_PORT_NAME: Final = re.compile(r"[a-z0-9-]+")
_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_HTTP_TOKEN: Final = re.compile(r"[-A-Za-z0-9!#$%&'*+.^_`|~]+")
_ENV_NAME: Final = re.compile(r"[ -<>-~]+")
_PERCENT: Final = re.compile(r"[0-9]+%")

Fault = Callable[[str], "str | None"]


def label_fault(text: str) -> str | None:
    """Judge a DNS label (RFC 1123)."""
    if len(text) > MAX_LABEL:
        return f"must have at most {MAX_LABEL} characters"
    if not _DNS_LABEL.fullmatch(text):
        return (
            "must consist of lower-case letters, digits and '-', "
            "and start and end with a letter or digit"
        )
    return None


def subdomain_fault(text: str) -> str | None:
    """Judge a DNS subdomain (RFC 1123)."""
    if len(text) > MAX_SUBDOMAIN:
        return f"must have at most {MAX_SUBDOMAIN} characters"
    if not _DNS_SUBDOMAIN.fullmatch(text):
        return (
            "must consist of lower-case letters, digits, '-' and '.', "
            "and each part must start and end with a letter or digit"
        )
    return None


def uid_fault(text: str) -> str | None:
    """Judge a UID that someone wrote: it becomes part of file names, after a ``_``."""
    if len(text) > MAX_LABEL:
        return f"must have at most {MAX_LABEL} characters"
    if not _UID.fullmatch(text):
        return (
            "must consist of letters, digits, '-' and '.', and start and end with a letter or digit"
        )
    return None


def qualified_name_fault(text: str) -> str | None:
    """Judge a label key or another name with an optional domain in front: ``a.b/name``."""
    prefix, slash, name = text.rpartition("/")
    if slash and (fault := subdomain_fault(prefix)):
        return f"its prefix {fault}"
    if len(name) > MAX_LABEL:
        return f"its name must have at most {MAX_LABEL} characters"
    if not _QUALIFIED.fullmatch(name):
        return (
            "its name must consist of letters, digits, '-', '_' and '.', "
            "and start and end with a letter or digit"
        )
    return None


def label_value_fault(text: str) -> str | None:
    """Judge the value of a label; it may be empty."""
    if len(text) > MAX_LABEL:
        return f"must have at most {MAX_LABEL} characters"
    if text and not _QUALIFIED.fullmatch(text):
        return (
            "must be empty or consist of letters, digits, '-', '_' and '.', "
            "and start and end with a letter or digit"
        )
    return None


def port_name_fault(text: str) -> str | None:
    """Judge the name of a port (an IANA service name, RFC 6335)."""
    if len(text) > 15:
        return "must have at most 15 characters"
    if not _PORT_NAME.fullmatch(text):
        return "must consist of lower-case letters, digits and '-'"
    if not any(character.isalpha() for character in text):
        return "must have at least one letter"
    if "--" in text or text.startswith("-") or text.endswith("-"):
        return "must not start or end with '-', nor have two in a row"
    return None


def env_name_fault(text: str) -> str | None:
    """Judge the name of an environment variable."""
    return None if _ENV_NAME.fullmatch(text) else "must be printable ASCII without '='"


def config_key_fault(text: str) -> str | None:
    """Judge a key of a ConfigMap or Secret."""
    if len(text) > MAX_SUBDOMAIN:
        return f"must have at most {MAX_SUBDOMAIN} characters"
    if not _CONFIG_KEY.fullmatch(text):
        return "must consist of letters, digits, '-', '_' and '.'"
    if text == "." or text.startswith(".."):
        return "must not be '.' nor start with '..'"
    return None


def http_header_fault(text: str) -> str | None:
    """Judge the name of an HTTP header."""
    return None if _HTTP_TOKEN.fullmatch(text) else "must be a valid HTTP header name"


def backstep_fault(path: str) -> str | None:
    """Judge a path that may not lead upwards."""
    return "must not contain '..'" if ".." in path.split("/") else None


def inner_path_fault(path: str) -> str | None:
    """Judge a path that must stay inside a directory."""
    return "must be a relative path" if path.startswith("/") else backstep_fault(path)


def ip_fault(text: str) -> str | None:
    """Judge an IP address of either family."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "must be an IP address (for example 10.9.8.7 or 2001:db8::ffff)"
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return "must be an IP address without a zone"
    return None


def check(path: str, value: str, fault_of: Fault) -> Iterator[FieldError]:
    """Judge a value that must be set."""
    if not value:
        yield required(path)
    else:
        yield from check_if_set(path, value, fault_of)


def check_if_set(path: str, value: str | None, fault_of: Fault) -> Iterator[FieldError]:
    """Judge a value that may be missing."""
    if value and (fault := fault_of(value)):
        yield invalid(path, value, fault)


def check_set(path: str, value: str) -> Iterator[FieldError]:
    """Require a text, whatever it is."""
    if not value:
        yield required(path)


def check_one_of(path: str, value: str, allowed: Collection[str]) -> Iterator[FieldError]:
    """Require one of several texts."""
    if not value:
        yield required(path, f"supported values: {', '.join(allowed)}")
    elif value not in allowed:
        yield unsupported(path, value, allowed)


def check_one_of_if_set(
    path: str, value: str | None, allowed: Collection[str]
) -> Iterator[FieldError]:
    """Allow nothing, or one of several texts."""
    if value is not None and value not in allowed:
        yield unsupported(path, value, allowed)


def check_range(path: str, value: int, low: int, high: int | None = None) -> Iterator[FieldError]:
    """Require a number between two others, both included."""
    if value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        yield invalid(path, value, f"must be {bounds}")


def check_labels(path: str, labels: Mapping[str, str]) -> Iterator[FieldError]:
    """Judge keys and values of labels."""
    for key, value in labels.items():
        yield from check(f"{path}[{key}]", key, qualified_name_fault)
        yield from check_if_set(f"{path}[{key}]", value, label_value_fault)


def check_annotations(path: str, annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Judge the keys of annotations, and their size all together."""
    size = 0
    for key, value in annotations.items():
        # Upper case is allowed in annotation keys' prefixes.
        yield from check(f"{path}[{key}]", key.lower(), qualified_name_fault)
        size += len(key.encode(errors="surrogatepass")) + len(value.encode(errors="surrogatepass"))
    if size > MAX_ANNOTATION_BYTES:
        yield too_long(path, MAX_ANNOTATION_BYTES)
