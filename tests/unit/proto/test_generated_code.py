"""The committed stubs are what the protos say."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_protos", ROOT / "scripts" / "gen_protos.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_generated_code_is_what_the_protos_give(
    generator: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    code = generator.main(["--check"])
    printed = capsys.readouterr()
    assert (code, printed.out, printed.err) == (0, "", "")


def test_a_changed_a_missing_and_a_left_over_file_are_all_named(
    generator: ModuleType, tmp_path: Path
) -> None:
    fresh, committed = tmp_path / "fresh", tmp_path / "committed"
    for directory in (fresh, committed):
        directory.mkdir()
    (fresh / "same.py").write_text("1")
    (committed / "same.py").write_text("1")
    (fresh / "changed.py").write_text("1")
    (committed / "changed.py").write_text("2")
    (fresh / "missing.py").write_text("1")
    (committed / "left_over.py").write_text("1")
    assert generator.stale_files(fresh, committed) == ["changed.py", "left_over.py", "missing.py"]


def test_tools_of_another_version_are_refused_by_name(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        generator, "pinned_versions", lambda: dict.fromkeys(generator.PINS, "0.0.0")
    )
    assert generator.main(["--check"]) == 2
    assert "betterproto2 0.0.0 is needed" in capsys.readouterr().err


def test_every_message_service_call_and_enum_has_a_comment() -> None:
    bare = []
    for path in sorted((ROOT / "protos").rglob("*.proto")):
        before = ""
        for line in path.read_text("utf-8").splitlines():
            if re.match(r"\s*(message|enum|service|rpc) ", line) and "//" not in before:
                bare.append(f"{path.name}: {line.strip()}")
            before = line
    assert bare == []
