"""The command line: parameters, settings, errors of one line, and the first lines."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

from nodeagent import AgentConfig, __version__
from nodeagent.cli import app, serving
from nodeagent.cli.lock_file import LockFile
from nodeagent.cli.params import Boolean, Duration, Headers, Size
from nodeagent.cli.reloading import Reloading
from nodeagent.cli.run import make_config, welcome_text
from nodeagent.config import ConfigError
from nodeagent.config.flags import flag_of
from nodeagent.log import TRACE

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
LOGGER = logging.getLogger("nodeagent")


class Served:
    """What would have been run."""

    def __init__(self) -> None:
        self.configs: list[AgentConfig] = []
        self.locks: list[LockFile | None] = []
        self.reloading: list[Reloading | None] = []
        self.code = 0

    def __call__(
        self,
        config: AgentConfig,
        lock: LockFile | None = None,
        reloading: Reloading | None = None,
    ) -> int:
        self.locks.append(lock)
        self.reloading.append(reloading)
        self.configs.append(config)
        return self.code

    @property
    def config(self) -> AgentConfig:
        (config,) = self.configs
        return config


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Runs no agent; the package's logger is put back afterwards."""
    handlers, level, propagate = list(LOGGER.handlers), LOGGER.level, LOGGER.propagate
    found = Served()
    monkeypatch.setattr("nodeagent.cli.run.serve", found)
    yield found
    LOGGER.handlers[:] = handlers
    LOGGER.setLevel(level)
    LOGGER.propagate = propagate


@pytest.mark.parametrize(("given", "seconds"), [("1m30s", 90), ("500ms", 0.5), (7, 7), (0.5, 0.5)])
def test_a_duration_is_seconds(given: Any, seconds: float) -> None:
    assert Duration().convert(given, None, None) == seconds


@pytest.mark.parametrize(("given", "count"), [("10Mi", 10 * 1024**2), ("1k", 1000), (7, 7)])
def test_a_size_is_bytes(given: Any, count: int) -> None:
    assert Size().convert(given, None, None) == count


def test_a_bad_duration_says_what_one_looks_like() -> None:
    with pytest.raises(click.BadParameter, match="'5x' is not a duration") as caught:
        Duration().convert("5x", None, None)
    assert "1m30s" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "headers"),
    [
        ("X-Token: abc", [("X-Token", "abc")]),
        ("X-Token:abc", [("X-Token", "abc")]),
        ("X-Token:", [("X-Token", "")]),
        ("a:hello,b:again,c:world", [("a", "hello"), ("b", "again"), ("c", "world")]),
        ("Accept: text/yaml, text/plain", [("Accept", "text/yaml, text/plain")]),
        ("X: http://x:1", [("X", "http://x:1")]),
        ("", []),
    ],
)
def test_headers_are_written_as_for_the_kubelet(given: str, headers: list[tuple[str, str]]) -> None:
    assert list(Headers().convert(given, None, None)) == headers


def test_a_header_without_a_name_is_refused_and_not_shown() -> None:
    with pytest.raises(click.BadParameter) as caught:
        Headers().convert("secret", None, None)
    assert str(caught.value) == "header 1 is not written 'Name: value'"


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("t", True),
        ("1", True),
        ("false", False),
        ("F", False),
        ("0", False),
        (True, True),
        (False, False),
    ],
)
def test_a_boolean_is_written_as_in_go(given: Any, value: bool) -> None:
    assert Boolean().convert(given, None, None) is value


@pytest.mark.parametrize("given", ["", "yes", "on", "2", "truth"])
def test_anything_else_is_no_boolean(given: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a boolean"):
        Boolean().convert(given, None, None)


def test_every_flag_sets_a_setting_under_the_kubelets_name() -> None:
    assert flag_of("static_pod_path") == "--pod-manifest-path"
    assert flag_of("node_name") == "--hostname-override"
    assert flag_of("address") == "--address"
    assert flag_of("healthz_bind_address") == "--healthz-bind-address"
    settings = {field.name for field in fields(AgentConfig)}
    flags = {opt for p in app.cli.commands["run"].params for opt in p.opts}
    for param in app.cli.commands["run"].params:
        name = param.name
        if name in ("config_file", "config_dir", "feature_gates", "welcome", "verbosity"):
            continue
        if name in ("lock_file", "exit_on_lock_contention", "config_trial"):
            continue
        if name == "logging_format":
            continue
        assert name in settings
        assert flag_of(name) in flags
    assert {
        "--config",
        "--pod-manifest-path",
        "--container-runtime-endpoint",
        "--image-service-endpoint",
        "--root-dir",
        "--pod-logs-dir",
        "--hostname-override",
        "--node-ip",
        "--healthz-port",
        "--healthz-bind-address",
        "--read-only-port",
        "--file-check-frequency",
        "--sync-frequency",
        "--v",
        "--logging-format",
        "--stop-pods-on-exit",
    } <= flags


def test_without_flags_the_defaults_are_the_kubelets(served: Served) -> None:
    assert app.invoke(["run"]) == 0
    assert served.config == AgentConfig(
        healthz_port=10248,
        port=10250,
        root_dir="/var/lib/kubelet",
        pod_logs_dir="/var/log/pods",
    )


def test_every_flag_reaches_its_setting(served: Served) -> None:
    arguments = [
        "run",
        "--pod-manifest-path=/m/a",
        "--pod-manifest-path",
        "/m/b.yaml",
        "--container-runtime-endpoint=unix:///run/x.sock",
        "--image-service-endpoint=unix:///run/y.sock",
        "--root-dir=/r",
        "--pod-logs-dir=/l",
        "--hostname-override=n1",
        "--node-ip=10.0.0.7",
        "--healthz-port=1",
        "--healthz-bind-address=127.0.0.2",
        "--read-only-port=2",
        "--address=127.0.0.3",
        "--file-check-frequency=5s",
        "--sync-frequency=1m30s",
        "--runtime-request-timeout=3s",
        "--v=4",
        "--logging-format=json",
        "--stop-pods-on-exit",
        "--stop-pods-timeout=7s",
    ]
    assert app.invoke(arguments) == 0
    assert served.config == AgentConfig(
        static_pod_path=("/m/a", "/m/b.yaml"),
        container_runtime_endpoint="unix:///run/x.sock",
        image_service_endpoint="unix:///run/y.sock",
        root_dir="/r",
        pod_logs_dir="/l",
        node_name="n1",
        node_ip="10.0.0.7",
        healthz_port=1,
        healthz_bind_address="127.0.0.2",
        read_only_port=2,
        address="127.0.0.3",
        port=10250,
        file_check_frequency=5.0,
        sync_frequency=90.0,
        runtime_request_timeout=3.0,
        stop_pods_on_exit=True,
        stop_pods_timeout=7.0,
    )
    assert LOGGER.level == logging.DEBUG


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("--stop-pods-on-exit=true", True),
        ("--stop-pods-on-exit=false", False),
        ("--stop-pods-on-exit", True),
    ],
)
def test_a_boolean_flag_takes_a_value_or_none(served: Served, argument: str, value: bool) -> None:
    assert app.invoke(["run", argument, "--v=1"]) == 0
    assert served.config.stop_pods_on_exit is value


@pytest.mark.parametrize("argument", [["--v=5"], ["-v=5"], ["-v", "5"], ["-v5"]])
def test_verbosity_is_taken_as_kubernetes_programs_write_it(
    served: Served, argument: list[str]
) -> None:
    assert app.invoke(["run", *argument]) == 0
    assert logging.getLogger("nodeagent").level == TRACE


def test_empty_path_flags_mean_none_and_never_the_working_directory(served: Served) -> None:
    assert app.invoke(["run", "--pod-manifest-path=", "--config="]) == 0
    assert served.config.manifest_paths == ()


def test_flags_win_over_the_file_and_the_file_over_defaults(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "k.yaml").write_text(
        HEAD + "healthzPort: 1\nreadOnlyPort: 2\nsyncFrequency: 2m\nstaticPodPath: /file\n"
        "logging: {format: json, verbosity: 4}\nhairpinMode: none\n"
    )
    assert app.invoke(["run", f"--config={tmp_path}/k.yaml", "--healthz-port=9"]) == 0
    config = served.config
    assert (config.healthz_port, config.read_only_port, config.sync_frequency) == (9, 2, 120.0)
    assert config.manifest_paths == (Path("/file"),)
    assert LOGGER.level == logging.DEBUG
    told = capsys.readouterr().err
    assert '"event":"config_file"' in told
    assert "hairpinMode: has no meaning here: the network plugin decides it" in told
    served.configs.clear()
    # A flag counts also when it says what the default says.
    assert app.invoke(["run", f"--config={tmp_path}/k.yaml", "--sync-frequency=1m"]) == 0
    assert served.config.sync_frequency == 60.0
    assert app.invoke(["run", f"--config={tmp_path}/k.yaml", "--pod-manifest-path=/flag"]) == 0
    assert served.configs[-1].manifest_paths == (Path("/flag"),)


def test_a_lock_file_is_held_while_the_agent_runs(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.invoke(["run", "--lock-file=/run/x.lock", "--exit-on-lock-contention"]) == 0
    assert served.locks == [LockFile(Path("/run/x.lock"), give_way=True)]
    assert app.invoke(["run"]) == 0
    assert served.locks[1:] == [None]
    assert app.invoke(["run", "--exit-on-lock-contention"]) == 2
    told = "cannot exit on lock file contention: no lock file specified"
    assert told in capsys.readouterr().err


def test_the_exit_code_is_that_of_the_agent(served: Served) -> None:
    served.code = 1
    assert app.invoke(["run"]) == 1


REFUSED = [
    (["--healthz-port=x"], ["--healthz-port", "'x'", "a port"]),
    (["--healthz-port=70000"], ["--healthz-port=70000", "a port between 1 and 65535, or 0"]),
    (["--read-only-port=10248"], ["--read-only-port=10248", "is the healthz port already"]),
    (["--sync-frequency=5x"], ["--sync-frequency", "'5x'", "like 20s, 1m30s or 500ms"]),
    (["--sync-frequency=0s"], ["--sync-frequency=0s", "longer than 0 seconds"]),
    (["--file-check-frequency=-90s"], ["--file-check-frequency=-1m30s", "longer than 0 seconds"]),
    (["--stop-pods-timeout=0"], ["--stop-pods-timeout=0s", "longer than 0 seconds"]),
    (["--container-runtime-endpoint=tcp://x"], ["--container-runtime-endpoint=tcp://x", "unix:"]),
    (["--image-service-endpoint=x"], ["--image-service-endpoint=x", "unix:///path"]),
    (["--image-service-endpoint=embedded"], ["--image-service-endpoint=embedded", "unix:///"]),
    ([f"--container-runtime-endpoint=unix:///{'x' * 107}"], ["at most 107 bytes"]),
    ([f"--image-service-endpoint=unix:///{'x' * 107}"], ["at most 107 bytes"]),
    (["--hostname-override=a_b"], ["--hostname-override=a_b", "DNS subdomain"]),
    (["--node-ip=here"], ["--node-ip=here", "an IP address"]),
    (["--healthz-bind-address="], ["--healthz-bind-address=", "an IP address"]),
    (["--address=all"], ["--address=all", "an IP address"]),
    (["--embedded-scenario=s.yaml"], ["--embedded-scenario=s.yaml", "the embedded runtime only"]),
    (["--container-log-max-size=big"], ["--container-log-max-size", "'big'"]),
    (["--container-log-max-files=1"], ["--container-log-max-files=1", "at least 2"]),
    (
        ["--serialize-image-pulls", "--max-parallel-image-pulls=2"],
        ["--max-parallel-image-pulls=2", "one at a time"],
    ),
    (
        ["--image-gc-high-threshold=70"],
        ["--image-gc-low-threshold=80", "less than image-gc-high-threshold-percent (70)"],
    ),
    (
        ["--image-credential-provider-config=/etc/x"],
        ["--image-credential-provider-bin-dir=", "is needed with"],
    ),
    (["--root-dir="], ["--root-dir=", "a directory"]),
    (["--pod-logs-dir="], ["--pod-logs-dir=", "a directory"]),
    (["--http-check-frequency=0"], ["--http-check-frequency=0s", "longer than 0 seconds"]),
    (["--manifest-url=ftp://a/"], ["--manifest-url=ftp://a/", "must be a URL such as https://"]),
    (["--manifest-url=x://u:pw@a/"], ["--manifest-url=x://a/"]),
    (["--manifest-url-header=Bearer"], ["--manifest-url-header", "header 1 is not written"]),
    (["--manifest-url-header=A B: pw"], ["--manifest-url-header=A B: must be the name"]),
    (["--v=11"], ["--v", "11", "0<=x<=10"]),
    (["--v=x"], ["--v", "'x'"]),
    (["--logging-format=xml"], ["--logging-format", "'xml'", "'text', 'json'"]),
    (["--stop-pods-on-exit=maybe"], ["--stop-pods-on-exit", "'maybe'", "true or false"]),
    (["--no-such-flag"], ["--no-such-flag"]),
    (["--sync-frequency"], ["--sync-frequency", "requires an argument"]),
    (["surplus"], ["surplus"]),
    (["--config=/no/such.yaml"], ["--config=/no/such.yaml", "cannot be read: No such file"]),
]


@pytest.mark.parametrize(("arguments", "told"), REFUSED)
def test_a_bad_flag_is_one_line_with_flag_value_and_what_is_allowed(
    served: Served, capsys: pytest.CaptureFixture[str], arguments: list[str], told: list[str]
) -> None:
    assert app.invoke(["run", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("nodeagent: ")
    assert err.count("\n") == 1
    for part in told:
        assert part in err
    assert "pw" not in err
    assert served.configs == []


def test_the_manifest_url_and_its_headers_from_flags_and_file(
    served: Served, tmp_path: Path
) -> None:
    arguments = ["--manifest-url=http://a/x", "--manifest-url-header=A: 1,B:2"]
    assert app.invoke(["run", *arguments, "--manifest-url-header=A:3"]) == 0
    assert served.config.static_pod_url == "http://a/x"
    headers = [("A", "1"), ("B", "2"), ("A", "3")]
    assert list(served.config.static_pod_url_header) == headers
    path = tmp_path / "k.yaml"
    path.write_text(HEAD + "staticPodURL: http://b/\nstaticPodURLHeader: {C: ['4']}\n")
    assert app.invoke(["run", f"--config={path}"]) == 0
    assert served.configs[-1].static_pod_url == "http://b/"
    assert list(served.configs[-1].static_pod_url_header) == [("C", "4")]
    assert app.invoke(["run", f"--config={path}", *arguments]) == 0
    assert list(served.configs[-1].static_pod_url_header) == [("A", "1"), ("B", "2")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("syncFrequency: -5s\n", "syncFrequency: -5s must be longer than 0 seconds"),
        ("healthzPort: web\nregistryBurst: many\n", "registryBurst"),
        ("a: [\n", "line "),
        ("kind: Pod\n", "kind"),
    ],
)
def test_a_bad_file_is_one_line_with_file_field_and_what_is_allowed(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    path = tmp_path / "k.yaml"
    path.write_text(HEAD + text)
    assert app.invoke(["run", f"--config={path}"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"nodeagent: --config={path}: ")
    assert told in err
    assert err.count("\n") == 1
    assert served.configs == []


def test_settings_that_contradict_each_other_are_named_by_flag() -> None:
    with pytest.raises(click.UsageError) as caught:
        make_config({"healthz_port": 5, "read_only_port": 5})
    assert caught.value.message == "--read-only-port=5: is the healthz port already"
    assert isinstance(caught.value.__cause__, ConfigError)


def test_no_manifest_path_is_none() -> None:
    assert make_config({"static_pod_path": ()}).manifest_paths == ()
    assert make_config({}).manifest_paths == ()


def test_version_and_help_are_no_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["--version"]) == 0
    assert capsys.readouterr().out == f"nodeagent {__version__}\n"
    assert app.invoke(["run", "--help"]) == 0
    assert "--pod-manifest-path" in capsys.readouterr().out


def test_no_command_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke([]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "embedded-runtime" in told.err


def test_a_bad_scenario_is_one_line_with_its_file_and_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("faults: [{drop: true, count: 0}]")
    arguments = [f"--socket={tmp_path}/s.sock", "--backend=simulated", f"--scenario={path}"]
    assert app.invoke(["embedded-runtime", *arguments]) == 1
    assert capsys.readouterr().err == (
        f"nodeagent: the embedded runtime cannot start: scenario {path}:"
        " faults[0].count: must be at least 1, is 0\n"
    )


def test_an_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["walk"]) == 2
    assert capsys.readouterr().err == "nodeagent: No such command 'walk'.\n"


def test_an_interrupt_ends_with_its_code(monkeypatch: pytest.MonkeyPatch, served: Served) -> None:
    def interrupted(_config: AgentConfig, _lock: object, _reloading: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("nodeagent.cli.run.serve", interrupted)
    assert app.invoke(["run"]) == 130
    assert served.configs == []


def test_main_exits(served: Served) -> None:
    with pytest.raises(SystemExit) as caught:
        app.main(["run"])
    assert caught.value.code == 0
    assert len(served.configs) == 1


def make_welcome(**settings: Any) -> list[str]:
    given = {"static_pod_path": "/m", "container_runtime_endpoint": "embedded", **settings}
    return welcome_text(AgentConfig(**given)).splitlines()


def test_the_first_lines_say_what_runs_where_and_what_to_try() -> None:
    assert make_welcome(
        root_dir="/r",
        pod_logs_dir="/l",
        healthz_port=10248,
        read_only_port=10255,
        stop_pods_on_exit=True,
    ) == [
        f"nodeagent {__version__} runs the pods in /m",
        "  on the embedded process runtime (for development; containers are host processes)",
        "  state in /r, container logs in /l",
        "",
        "Try in another terminal:",
        "  curl '127.0.0.1:10248/healthz?verbose'",
        "  curl -s '127.0.0.1:10255/pods' | python3 -m json.tool",
        "  curl '127.0.0.1:10248/debug/journal?since=1m'",
        "  edit, break or delete a file in /m and watch this log",
        "Stop with Ctrl-C; the pods are stopped too.",
    ]


def test_the_first_lines_offer_nothing_that_is_not_there() -> None:
    lines = make_welcome(
        static_pod_path=(), container_runtime_endpoint="unix:///run/x.sock", root_dir="/r"
    )
    assert lines == [
        f"nodeagent {__version__} runs, without any manifest directory",
        "  on unix:///run/x.sock",
        "  state in /r, container logs in /var/log/pods",
        "",
        "Stop with Ctrl-C; the pods run on.",
    ]


def test_an_ipv6_address_can_be_pasted() -> None:
    lines = make_welcome(healthz_port=1, healthz_bind_address="::1")
    assert "  curl '[::1]:1/healthz?verbose'" in lines
    assert not any("/pods'" in line for line in lines)


def test_the_welcome_is_shown_when_asked_for(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.invoke(["run", "--welcome", "--pod-manifest-path=/m"]) == 0
    assert capsys.readouterr().out.startswith(f"nodeagent {__version__} runs the pods in /m\n")
    assert app.invoke(["run", "--pod-manifest-path=/m"]) == 0
    assert capsys.readouterr().out == ""


def test_a_start_error_is_one_line_and_exit_code_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from nodeagent.errors import StartError

    async def fail(_config: AgentConfig, _lock: object, _reloading: object) -> int:
        raise ExceptionGroup("inner", [StartError("nothing answers; try embedded")])

    monkeypatch.setattr("nodeagent.cli.serving._serve", fail)
    assert serving.serve(AgentConfig()) == 1
    assert capsys.readouterr().err == "nodeagent: nothing answers; try embedded\n"


def test_as_many_files_may_be_open_as_the_system_allows() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 900)); "
        "from nodeagent.cli.serving import _descriptors; print(_descriptors())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "900\n")


def test_too_few_descriptors_are_one_line(tmp_path: Path) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10)); "
        "from nodeagent.cli.app import main; sys.exit(main())"
    )
    flags = [f"--root-dir={tmp_path}", f"--pod-manifest-path={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-c", code, "run", *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    warning, told = done.stderr.splitlines()
    assert "flags_deprecated flags=--pod-manifest-path" in warning
    assert told == (
        "nodeagent: only 10 files may be open (ulimit -n), at least 64 are needed: raise the limit"
    )
