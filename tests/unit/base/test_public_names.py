"""The short door: what ``nodeagent`` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import nodeagent


def test_the_public_names_are_those_of_dir() -> None:
    assert dir(nodeagent) == sorted(nodeagent.__all__)
    assert list(nodeagent.__all__) == sorted(nodeagent.__all__, key=str)


@pytest.mark.parametrize("name", nodeagent.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    found = getattr(nodeagent, name)
    assert isinstance(found, str) or found.__doc__


def test_public_names_lead_home() -> None:
    for name, home in nodeagent._HOMES.items():
        assert getattr(nodeagent, name) is getattr(sys.modules[home], name)
    assert set(nodeagent._HOMES) | {"__version__"} == set(nodeagent.__all__)


def test_any_other_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'nodeagent' has no attribute 'Nodeagent'"):
        _ = nodeagent.Nodeagent


def test_importing_the_package_loads_none_of_its_parts() -> None:
    code = (
        "import sys, nodeagent; nodeagent.__version__;"
        "print([m for m in sys.modules if m.startswith('nodeagent.')"
        " or m in ('anyio', 'msgspec', 'aiohttp', 'click', 'grpclib')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['nodeagent._version']"
