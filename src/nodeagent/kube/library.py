"""The parts of kubernetes-asyncio that are used: what reads kubeconfig files.

Importing the package as a whole loads a class for every type of the Kubernetes API, which are
35 MB that an agent with types of its own never uses.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Final

_NAME: Final = "kubernetes_asyncio"
_lock: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Library:
    """What is used of kubernetes-asyncio.

    Attributes:
        kubeconfig_loader: ``KubeConfigLoader``.
        in_cluster_loader: ``InClusterConfigLoader``.
        exec_provider: ``ExecProvider``.
        error: ``ConfigException``, which all of them raise.
    """

    kubeconfig_loader: Any
    in_cluster_loader: Any
    exec_provider: Any
    error: type[Exception]


@cache
def library() -> Library:
    """Load the parts. Blocking: call it in a thread, or before the loop starts."""
    with _lock:
        if _NAME in sys.modules:
            return _import()
        try:
            return _import_alone()
        except (ImportError, AttributeError):
            # A version that is built otherwise: then it costs what it costs.
            return _import()


def _import_alone() -> Library:
    """Import the parts below packages that hold nothing, and leave no trace of these.

    Somebody who imports kubernetes-asyncio later, in the same process, gets all of it.
    """
    spec = importlib.util.find_spec(_NAME)
    if spec is None or not spec.submodule_search_locations:
        msg = f"no package {_NAME}"
        raise ImportError(msg)
    root = spec.submodule_search_locations[0]
    client = _empty_package(f"{_NAME}.client", f"{root}/client")
    # Named in annotations and used by functions that are not called.
    vars(client).update(ApiClient=object, Configuration=object)
    sys.modules[_NAME] = _empty_package(_NAME, root)
    sys.modules[client.__name__] = client
    try:
        return _import()
    finally:
        for name in [name for name in sys.modules if name.split(".", 1)[0] == _NAME]:
            del sys.modules[name]


def _empty_package(name: str, path: str) -> ModuleType:
    package = ModuleType(name)
    package.__path__ = [path]
    return package


def _import() -> Library:
    kube_config = importlib.import_module(f"{_NAME}.config.kube_config")
    in_cluster = importlib.import_module(f"{_NAME}.config.incluster_config")
    exec_provider = importlib.import_module(f"{_NAME}.config.exec_provider")
    config_exception = importlib.import_module(f"{_NAME}.config.config_exception")
    return Library(
        kube_config.KubeConfigLoader,
        in_cluster.InClusterConfigLoader,
        exec_provider.ExecProvider,
        config_exception.ConfigException,
    )
