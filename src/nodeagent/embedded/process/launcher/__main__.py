"""Run the zygote: ``python -S -E -P __main__.py FD``, FD being a socket of the server."""

from __future__ import annotations

import os
import sys


def _register_bare_packages() -> None:
    """Make this package importable without running the code of the packages around it."""
    path = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is heavy
    name = "nodeagent.embedded.process.launcher"
    while name:
        module = type(sys)(name)
        module.__path__ = [path]
        sys.modules[name] = module
        name, path = name.rpartition(".")[0], os.path.dirname(path)  # noqa: PTH120


if __name__ == "__main__":
    _register_bare_packages()
    from nodeagent.embedded.process.launcher.zygote import serve

    serve(int(sys.argv[1]))
