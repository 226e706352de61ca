"""What kubernetes-asyncio fills in, and what it raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from nodeagent.kube.access import AccessError
from nodeagent.kube.library import Library


def settings() -> SimpleNamespace:
    """What kubernetes-asyncio fills in: like its ``Configuration``, which however changes the
    loggers of the whole process."""
    return SimpleNamespace(
        host="",
        api_key={},
        ssl_ca_cert=None,
        cert_file=None,
        key_file=None,
        verify_ssl=True,
        tls_server_name=None,
        proxy=None,
    )


@contextmanager
def plain_errors(library: Library) -> Iterator[None]:
    """Whatever malformed input makes the library raise becomes one sentence."""
    try:
        yield
    except library.error as error:
        raise AccessError(str(error)) from error
    except OSError as error:
        msg = f"{error.filename}: {error.strerror}"
        raise AccessError(msg) from error
    except (TypeError, ValueError, AttributeError, KeyError, AssertionError) as error:
        msg = f"malformed ({type(error).__name__})"
        raise AccessError(msg) from error
