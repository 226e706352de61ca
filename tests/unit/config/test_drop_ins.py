"""Drop-ins over a file: docs/configuration.md, "Drop-ins" and "Precedence"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api.json_load import load_json
from nodeagent.api.nodes import Mapping, to_plain
from nodeagent.config import ConfigError, ConfigFilesError, load_configuration
from nodeagent.config.kubelet_file import LoadedFile
from nodeagent.config.layers import drop_ins, layered, merge
from nodeagent.config.node_options import DEFAULT_EVICTION_HARD

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


class Files:
    """A file and its drop-ins."""

    def __init__(self, home: Path) -> None:
        self.file, self.directory = home / "kubelet.yaml", home / "kubelet.d"
        self.directory.mkdir()

    def put(self, name: str, text: str, *, head: str = HEAD) -> Path:
        path = self.directory / name if name else self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + text)
        return path

    def load(self) -> LoadedFile:
        return load_configuration(self.file if self.file.exists() else None, self.directory)

    def problems(self) -> tuple[str, ...]:
        with pytest.raises(ConfigFilesError) as caught:
            self.load()
        return caught.value.problems


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_the_order_of_names_decides(files: Files) -> None:
    files.put("", "maxPods: 10\npodsPerCore: 1\nregistryBurst: 7\n")
    files.put("20-b.conf", "maxPods: 30\n")
    files.put("10-a.conf", "maxPods: 20\npodsPerCore: 2\n")
    files.put("15/c.conf", "maxPods: 25\n")
    loaded = files.load()
    assert loaded.settings == {"max_pods": 30, "pods_per_core": 2, "registry_burst": 7}
    assert loaded.origins["maxPods"].name == "20-b.conf"
    assert loaded.origins["podsPerCore"].name == "10-a.conf"
    assert loaded.origins["registryBurst"] == files.file


def test_objects_merge_lists_are_replaced_and_null_removes(files: Files) -> None:
    files.put(
        "",
        "kubeReserved: {cpu: 100m, memory: 1Gi}\nclusterDNS: [10.0.0.1, 10.0.0.2]\nmaxPods: 10\n"
        "authentication: {webhook: {cacheTTL: 1m}}\n",
    )
    files.put(
        "a.conf",
        "kubeReserved: {cpu: 200m, memory: null}\nclusterDNS: [10.0.0.3]\nmaxPods: null\n"
        "authentication: {webhook: {enabled: false}}\n",
    )
    assert files.load().settings == {
        "kube_reserved": {"cpu": "200m"},
        "cluster_dns": ("10.0.0.3",),
        "authentication_token_webhook": False,
        "authentication_token_webhook_cache_ttl": 60.0,
    }


def test_a_zero_port_means_the_default_after_all_files(files: Files) -> None:
    files.put("", "port: 10251\n")
    files.put("a.conf", "port: 0\n")
    loaded = files.load()
    assert (loaded.settings, loaded.effective["port"]) == ({}, 10250)


def test_thresholds_of_a_drop_in_join_the_defaults(files: Files) -> None:
    files.put("", "maxPods: 10\n")
    files.put("a.conf", "evictionHard: {memory.available: 1Gi}\n")
    assert files.load().settings["eviction_hard"] == {
        **DEFAULT_EVICTION_HARD,
        "memory.available": "1Gi",
    }
    files.put("", "evictionHard: {pid.available: 5%}\n")
    wanted = {"pid.available": "5%", "memory.available": "1Gi"}
    assert files.load().settings["eviction_hard"] == wanted


def test_only_conf_files_count_and_others_are_told(files: Files) -> None:
    files.put("a.conf", "maxPods: 5\n")
    files.put("b.yaml", "maxPods: 6\n")
    files.put("README", "maxPods: 7\n")
    files.put("..data/c.conf", "maxPods: 8\n")
    loaded = files.load()
    assert loaded.settings == {"max_pods": 5}
    aside = files.directory / "b.yaml"
    assert loaded.warnings == (f"{aside}: left aside, drop-ins end in .conf",)


def test_relative_paths_of_drop_ins_stay_as_they_are(files: Files) -> None:
    files.put("", "staticPodPath: manifests\nresolvConf: resolv.conf\n")
    files.put("a.conf", "staticPodPath: others\n")
    assert files.load().settings == {
        "static_pod_path": Path("others"),
        "resolv_conf": files.file.parent / "resolv.conf",
    }
    files.put("a.conf", "podLogsDir: ./test\n")
    assert files.problems() == (
        f"{files.directory}/a.conf: podLogsDir: 'test' must be an absolute path",
    )


def test_problems_name_the_drop_in(files: Files) -> None:
    files.put("", "maxPods: -1\n")
    files.put("a.conf", "cpuManagerPolicy: x\nwebhook: 1\n")
    files.put("b.conf", "authentication: {webhook: {cacheTTL: long}}\nregistryBurst: []\n")
    assert files.problems() == (
        f"{files.directory}/b.conf: registryBurst: expected an integer, got a list (line 4)",
    )
    files.put("b.conf", "authentication: {webhook: {cacheTTL: long}}\n")
    no_duration = "'long' is not a duration (write it like 20s, 1m30s or 500ms)"
    assert set(files.problems()) == {
        "maxPods: -1 must not be negative",
        f"{files.directory}/a.conf: cpuManagerPolicy: 'x' is not one of none, static",
        f"{files.directory}/b.conf: authentication.webhook.cacheTTL: {no_duration}",
    }
    files.put("", "")
    files.put("a.conf", "webhook: 1\n")
    files.put("b.conf", "")
    assert files.load().warnings == (f"{files.directory}/a.conf: webhook: unknown field (line 3)",)


def test_a_drop_in_that_cannot_be_read_or_is_something_else_is_named(files: Files) -> None:
    path = files.put("a.conf", "maxPods: 1\n", head="kind: KubeletConfiguration\n")
    with pytest.raises(ConfigError) as caught:
        files.load()
    assert (caught.value.field, caught.value.value) == ("config_dir", path)
    assert caught.value.allowed.startswith("must be kind KubeletConfiguration of apiVersion ")
    files.put("a.conf", "maxPods: [\n")
    with pytest.raises(ConfigError, match=r"a\.conf: .*line 4"):
        files.load()
    path.unlink()
    files.directory.rmdir()
    with pytest.raises(ConfigError, match=r"config_dir=.*cannot be read: No such file"):
        files.load()


def test_drop_ins_alone_are_a_configuration_too(files: Files) -> None:
    files.put("a.conf", "maxPods: 5\n")
    assert files.load().settings == {"max_pods": 5}


def test_the_order_is_that_of_names_step_by_step(tmp_path: Path) -> None:
    for name in ("b.conf", "a/z.conf", "a.conf", "a-b.conf", "c/a/1.conf"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    taken, _ = drop_ins(tmp_path)
    names = [str(path.relative_to(tmp_path)) for path in taken]
    assert names == ["a/z.conf", "a-b.conf", "a.conf", "b.conf", "c/a/1.conf"]


KEYS = st.sampled_from(["a", "b", "c"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=3)


def rfc7386(target: Any, patch: Any) -> Any:
    """MergePatch as section 2 of the RFC states it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = rfc7386(result.get(name), value)
    return result


def tree(value: Any) -> Mapping:
    root = load_json(msgspec.json.encode(value).decode(), 1).root
    assert isinstance(root, Mapping)
    return root


@given(OBJECTS, st.lists(OBJECTS, max_size=3))
def test_merging_is_a_json_merge_patch(base: dict[str, Any], patches: list[dict[str, Any]]) -> None:
    layers, wanted = layered(tree(base), Path("base")), base
    for number, patch in enumerate(patches):
        layers = merge(layers, tree(patch), Path(str(number)))
        wanted = rfc7386(wanted, patch)
    assert to_plain(layers.root) == wanted


@given(OBJECTS, OBJECTS)
def test_every_value_knows_its_file(base: dict[str, Any], patch: dict[str, Any]) -> None:
    layers = merge(layered(tree(base), Path("base")), tree(patch), Path("patch"))

    def look(value: Any, old: Any, new: Any, path: str) -> None:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                below = f"{path}.{name}" if path else name
                look(inner, _of(old, name), _of(new, name), below)
        elif path:
            wanted = "base" if new is None else "patch"
            if not isinstance(value, dict):
                assert layers.origin(path) == Path(wanted), path

    look(to_plain(layers.root), base, patch, "")


def _of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
