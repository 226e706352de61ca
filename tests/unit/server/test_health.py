"""Health checks and the three ways to show them."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from nodeagent.model import PodUID
from nodeagent.pleg import PlegHealth
from nodeagent.pleg.health import DegradedPod, Trouble
from nodeagent.pods.stop_failures import StopFailure
from nodeagent.server import Check, CheckResult, HealthChecks, Level, checks
from nodeagent.server.health import healthy, render_json, render_text

OK = CheckResult()
LIMPS = CheckResult(Level.DEGRADED, "one pod hangs")
BAD = CheckResult(Level.FAILED, "it is down")


def result(found: CheckResult) -> Callable[[], CheckResult]:
    return lambda: found


def check(name: str, found: CheckResult, *probes: str) -> Check:
    return Check(name, result(found), frozenset(probes)) if probes else Check(name, result(found))


class View:
    """What is known of an API server."""

    def __init__(self) -> None:
        self.answered_at: float | None = None
        self.away_since: float | None = None
        self.cause = ""
        self.refusals: dict[tuple[str, str], str] = {}


@pytest.mark.anyio
async def test_an_api_server_that_is_away_is_named_and_fails_nothing() -> None:
    view = View()
    check = checks.api_server(view)
    assert check.run().cause == "the API server was not asked yet"
    view.away_since, view.cause = anyio.current_time(), "connection refused"
    await anyio.sleep(90)
    found = check.run()
    assert found.level is Level.DEGRADED
    assert found.cause == (
        "the API server has not answered for 1m30s, and never did: connection refused; pods run on"
    )
    assert found.details == ({"since": 90.0, "error": "connection refused"},)
    view.answered_at = 0.0
    assert "never" not in check.run().cause
    view.away_since = None
    assert check.run() == OK


@pytest.mark.anyio
async def test_what_an_api_server_refuses_is_named() -> None:
    view = View()
    view.answered_at = 0.0
    text = 'pods is forbidden: User "x" cannot list resource "pods"'
    view.refusals = {("get", "pods"): text, ("patch", "nodes/status"): "no"}
    found = checks.api_server(view).run()
    assert found.level is Level.DEGRADED
    assert found.cause == f"the API server does not let this node get pods: {text} and 1 more"
    assert [d["resource"] for d in found.details] == ["pods", "nodes/status"]


class Registration:
    """What is known of a node."""

    def __init__(self, trouble: str, *, registered: bool) -> None:
        self.registered = registered
        self.trouble = trouble


def test_a_machine_that_is_no_node_yet_says_why() -> None:
    def cause(trouble: str, *, registered: bool = False) -> str:
        found = checks.node(Registration(trouble, registered=registered)).run()
        assert (found.level is Level.OK) == registered
        return found.cause

    assert cause("nodes is forbidden") == "not registered: nodes is forbidden"
    assert cause("") == "not registered: not asked yet"
    assert cause("old", registered=True) == ""


def test_credentials_that_cannot_be_used_are_named_and_fail_nothing() -> None:
    assert checks.credentials(str).run().level is Level.OK
    found = checks.credentials(lambda: "kubeconfig x: no YAML").run()
    assert (found.level, found.cause) == (Level.DEGRADED, "kubeconfig x: no YAML")


def test_only_a_failed_check_makes_the_whole_unhealthy() -> None:
    assert healthy([])
    assert healthy([("a", OK), ("b", LIMPS)])
    assert not healthy([("a", OK), ("b", BAD)])


def test_health_is_one_word() -> None:
    assert render_text("healthz", [("ping", OK), ("pleg", LIMPS)], verbose=False) == "ok"


def test_verbose_gives_one_line_per_check_and_the_verdict() -> None:
    text = render_text("healthz", [("ping", OK), ("pleg", LIMPS)], verbose=True)
    assert text == "[+]ping ok\n[+]pleg ok, degraded: one pod hangs\nhealthz check passed\n"


def test_verbose_tells_what_was_left_out() -> None:
    text = render_text(
        "healthz", [("ping", OK)], verbose=True, excluded=["log"], unknown=["a", "b\nc"]
    )
    assert text == (
        "[+]ping ok\n[+]log excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "a","b c"\n'
        "healthz check passed\n"
    )


def test_a_log_that_nobody_can_read_fails_after_two_minutes() -> None:
    trouble = {"cause": "", "patience": 0.0}

    def told(patience: float) -> str:
        trouble["patience"] = patience
        return str(trouble["cause"])

    check = checks.logging(told)
    assert check.run().level is Level.OK
    trouble["cause"] = "No space left on device"
    assert check.run() == CheckResult(
        Level.FAILED, "nothing was logged for 2m0s: No space left on device"
    )
    assert trouble["patience"] == 120
    assert checks.device_plugin().run().level is Level.OK


@pytest.mark.parametrize("verbose", [True, False])
def test_a_failure_names_its_cause_also_when_nobody_asked(verbose: bool) -> None:
    text = render_text("readyz", [("ping", OK), ("runtime", BAD)], verbose=verbose)
    assert text == "[+]ping ok\n[-]runtime failed: it is down\nreadyz check failed\n"


def test_a_cause_of_several_lines_stays_on_its_line() -> None:
    found = CheckResult(Level.FAILED, "first\n  second\r\nthird")
    assert render_text("livez", [("x", found)], verbose=False) == (
        "[-]x failed: first second third\nlivez check failed\n"
    )


def test_json_names_check_state_cause_and_culprits() -> None:
    culprits = ({"pod": "d/web", "rpc": "ContainerStatus", "since": 4.5}, {"pod": "d/db"})
    found = CheckResult(Level.DEGRADED, "cannot inspect", culprits)
    assert render_json("healthz", [("ping", OK), ("pleg", found)]) == {
        "probe": "healthz",
        "state": "ok",
        "checks": [
            {"check": "ping", "state": "ok", "cause": ""},
            {
                "check": "pleg",
                "state": "degraded",
                "cause": "cannot inspect",
                "pod": "d/web",
                "rpc": "ContainerStatus",
                "since": 4.5,
                "culprits": list(culprits),
            },
        ],
    }
    assert render_json("healthz", [("x", BAD)])["state"] == "failed"


def test_each_probe_has_its_checks() -> None:
    found = HealthChecks(
        [check("all", OK, "healthz", "livez", "readyz"), check("a", OK), check("r", BAD, "readyz")]
    )
    assert found.names == ("all", "a", "r")
    assert [n for n, _ in found.of("healthz")] == ["all", "a"]
    assert [n for n, _ in found.of("livez")] == ["all"]
    assert [n for n, _ in found.of("readyz")] == ["all", "a", "r"]
    assert [n for n, _ in found.of("readyz", ["a", "r"])] == ["all"]
    assert found.one("r") == [("r", BAD)]
    assert found.one("none") == []


def test_trouble_is_what_fails_of_the_checks_that_are_named() -> None:
    degraded = CheckResult(Level.DEGRADED, "slow")
    bad = [check("b", CheckResult(Level.FAILED, "gone")), check("c", CheckResult(Level.FAILED))]
    found = HealthChecks([check("a", OK), *bad, check("d", degraded)])
    assert found.trouble(("a", "b", "d", "none")) == "b: gone"
    assert found.trouble(("c", "b")) == "c: ; b: gone"
    assert found.trouble(("a", "d", "none")) == ""


def test_a_broken_check_is_a_failed_one_and_hides_no_other() -> None:
    def broken() -> CheckResult:
        raise KeyError("gone")

    found = HealthChecks([check("a", OK), Check("b", broken)])
    (_, b) = found.of("healthz")[1]
    assert b == CheckResult(Level.FAILED, "the check itself failed: KeyError('gone')")
    assert found.one("b") == [("b", b)]


def test_ping_is_always_well_and_decides_every_probe() -> None:
    ping = checks.ping()
    assert (ping.name, ping.run()) == ("ping", OK)
    assert ping.probes == {"healthz", "livez", "readyz"}


@pytest.mark.anyio
async def test_the_sync_loop_is_asked_with_loop_time() -> None:
    asked = []

    def says(now: float) -> str | None:
        asked.append(now)
        return None if len(asked) == 1 else "sync Loop took longer than expected"

    await anyio.sleep(10)
    found = checks.sync_loop(says, lambda: anyio.current_time() - 5)
    assert found.run() == OK
    assert found.run() == CheckResult(
        Level.FAILED, "sync Loop took longer than expected", ({"since": 5.0},)
    )
    assert asked == [anyio.current_time()] * 2
    assert "livez" in found.probes


def pleg_check(health: PlegHealth) -> CheckResult:
    found = checks.pleg(result_of(health))
    assert found.name == "pleg"
    assert "livez" not in found.probes
    return found.run()


def result_of(health: PlegHealth) -> Callable[[], PlegHealth]:
    return lambda: health


@pytest.mark.anyio
async def test_pleg_is_well_degraded_or_failed() -> None:
    assert pleg_check(PlegHealth(ok=True)) == OK
    assert pleg_check(PlegHealth(ok=False, cause="pleg has yet to be successful")) == CheckResult(
        Level.FAILED, "PLEG is not healthy: pleg has yet to be successful"
    )


@pytest.mark.anyio
async def test_a_listing_that_hangs_is_named_with_its_call_and_age() -> None:
    await anyio.sleep(500)
    since = anyio.current_time() - 200
    found = pleg_check(
        PlegHealth(ok=False, cause="too old", rpc="ListPodSandbox", since=since),
    )
    assert found == CheckResult(
        Level.FAILED, "PLEG is not healthy: too old", ({"rpc": "ListPodSandbox", "since": 200.0},)
    )


@pytest.mark.anyio
async def test_every_pod_that_cannot_be_inspected_is_named() -> None:
    await anyio.sleep(500)
    now = anyio.current_time()
    pods = (
        DegradedPod(PodUID("u1"), "d/web", Trouble("ContainerStatus", now - 9)),
        DegradedPod(PodUID("u2"), "", Trouble("PodSandboxStatus", now - 1.5, "refused")),
    )
    health = PlegHealth(
        ok=True,
        cause="cannot inspect pod d/web",
        pod="u1",
        rpc="ContainerStatus",
        since=now - 9,
        degraded=pods,
    )
    found = pleg_check(health)
    assert found.level is Level.DEGRADED
    assert found.details == (
        {"pod": "d/web", "rpc": "ContainerStatus", "since": 9.0, "error": ""},
        {"pod": "u2", "rpc": "PodSandboxStatus", "since": 1.5, "error": "refused"},
    )


@pytest.mark.anyio
async def test_runtime_errors_fail_and_a_missing_network_degrades() -> None:
    await anyio.sleep(100)

    def since() -> float:
        return anyio.current_time() - 12

    asked = ({"rpc": "Status", "since": 12.0},)
    assert checks.runtime(list, since).run() == OK
    found = checks.runtime(lambda: ["a", "b", "a"], since).run()
    assert found == CheckResult(Level.FAILED, "[a, b]", asked)
    assert checks.runtime(lambda: ["a"], since).run() == CheckResult(Level.FAILED, "a", asked)
    assert checks.network(str, since).run() == OK
    found = checks.network(lambda: "no CNI", since).run()
    assert found == CheckResult(Level.DEGRADED, "no CNI", asked)


@pytest.mark.anyio
async def test_pods_that_cannot_be_stopped_degrade_and_are_named() -> None:
    now = anyio.current_time()
    first = StopFailure("default/web", "container main: busy", now - 125, 5)
    second = StopFailure("default/db", "sandbox s: gone", now - 3, 1)
    assert checks.stopping(list).run() == OK
    one = checks.stopping(lambda: [second]).run()
    assert one.level is Level.DEGRADED
    assert one.cause == "cannot stop pod default/db: sandbox s: gone (1 try in 3s)"
    two = checks.stopping(lambda: [first, second]).run()
    assert two.cause == (
        "cannot stop pod default/web: container main: busy (5 tries in 2m5s) and 1 more"
    )
    assert two.details[0] == {
        "pod": "default/web",
        "since": 125.0,
        "error": "container main: busy",
    }


def test_silent_sources_make_the_agent_not_ready() -> None:
    found = checks.sources(lambda: ["file", "api", "http"], lambda name: name == "file")
    assert found.probes == {"readyz"}
    assert found.run() == CheckResult(Level.FAILED, "has not spoken yet: api, http")
    assert checks.sources(lambda: ["file"], lambda _: True).run() == OK


def test_bad_manifests_degrade_and_are_named() -> None:
    assert checks.manifests(dict).run() == OK
    one = checks.manifests(lambda: {"a.yaml": "a.yaml: bad"}).run()
    assert (one.level, one.cause) == (Level.DEGRADED, "a.yaml: bad")
    two = checks.manifests(lambda: {"a.yaml": "a.yaml: bad", "b.yaml": "worse"}).run()
    assert two.cause == "a.yaml: bad and 1 more file"
    assert two.details[1] == {"file": "b.yaml", "error": "worse"}
    three = checks.manifests(lambda: {"a": "A", "b": "B", "c": "C"}).run()
    assert three.cause == "A and 2 more files"


def test_what_cannot_be_saved_degrades_and_is_named() -> None:
    assert checks.storage(dict).run() == OK
    found = checks.storage(lambda: {"runtime.json": "No space left on device"}).run()
    assert found.level is Level.DEGRADED
    assert found.cause == (
        "cannot be saved: runtime.json: No space left on device; pods run on, "
        "and what changes now may be forgotten"
    )
    assert found.details == ({"file": "runtime.json", "error": "No space left on device"},)
