"""Dockerfile, compose file and Kubernetes manifests: parsed, compared, built where possible."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from holdfast import __version__
from holdfast.settings import Settings, duration
from tests.cli.shell import ROOT, Shell

DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def documents(name: str) -> list[dict[str, Any]]:
    with (DEPLOY / name).open() as file:
        return list(yaml.safe_load_all(file))


def manifests() -> Iterator[dict[str, Any]]:
    kustomization = documents("kubernetes/kustomization.yaml")[0]
    for name in kustomization["resources"]:
        yield from documents(f"kubernetes/{name}")


def deployments() -> list[dict[str, Any]]:
    return [one for one in manifests() if one["kind"] == "Deployment"]


def test_the_image_is_built_in_two_stages_and_runs_without_root() -> None:
    found = instructions()
    stages = [rest for name, rest in found if name == "FROM"]
    assert len(stages) == 2
    last = found[max(at for at, (name, _) in enumerate(found) if name == "FROM") :]
    assert [rest for name, rest in last if name == "USER"] == ["10001"]
    assert not any("pip install" in rest for _, rest in last), "the tools stay behind"
    assert any(name == "HEALTHCHECK" for name, _ in last)
    assert all("--require-hashes" in rest or "--no-build-isolation" in rest
               for name, rest in found if name == "RUN" and "pip install" in rest)  # fmt: skip


def test_everything_that_the_image_copies_is_there() -> None:
    sent = set((ROOT / ".dockerignore").read_text().splitlines())
    for name, rest in instructions():
        sources = rest.split()[:-1]
        if name == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / source).exists() for source in sources), rest
            assert {f"!{source}" for source in sources} <= sent, "the context must have it"


@pytest.mark.chaos
def test_the_commands_of_the_build_stage_install_a_program_that_works(tmp_path: Path) -> None:
    """There is no Docker here, so run the commands of the first stage in a folder."""
    prefix = tmp_path / "opt"
    for name, rest in instructions():
        *sources, target = rest.split()
        # The second stage copies to absolute paths.
        if name == "COPY" and not target.startswith("/"):
            for source in sources:
                _copy(ROOT / source, tmp_path / target)
        if name == "RUN" and "useradd" not in rest:
            command = rest.replace("/opt/holdfast", str(prefix)).replace(
                "python -m", f"{sys.executable} -m"
            )
            subprocess.run(shlex.split(command), cwd=tmp_path, check=True, capture_output=True)
    version = subprocess.run(
        [prefix / "bin" / "holdfast", "--version"], capture_output=True, text=True
    )
    assert version.stdout == f"holdfast {__version__}\n"


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    elif target.exists() and target.is_dir():
        shutil.copy(source, target)


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_the_health_check_of_the_image_asks_the_process() -> None:
    server = HTTPServer(("127.0.0.1", 0), _Healthy)
    port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [sys.executable, str(DEPLOY / "healthcheck.py"), str(port)]
    assert subprocess.run(command).returncode == 0
    server.shutdown()
    server.server_close()
    assert subprocess.run(command).returncode == 1


def test_compose_starts_processes_after_a_healthy_database_with_timescale() -> None:
    [compose] = documents("compose.yaml")
    services = compose["services"]
    assert services["db"]["image"].startswith("timescale/")
    assert "pg_isready" in services["db"]["healthcheck"]["test"]
    for name in ("api", "worker"):
        service = services[name]
        assert service["depends_on"]["db"]["condition"] == "service_healthy"
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert duration(service["stop_grace_period"]) > Settings().grace
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in ports), "no port is open to the network"


def test_no_secret_is_in_a_file() -> None:
    [compose] = documents("compose.yaml")
    ignored = (ROOT / ".gitignore").read_text()
    for secret in compose["secrets"].values():
        assert secret["file"].startswith("secrets/")
    assert "deploy/secrets/" in ignored
    assert all(one["kind"] not in ("Secret", "CronJob") for one in manifests())


@pytest.mark.parametrize("name", ["work", "serve"])
def test_pods_have_probes_stop_gracefully_and_have_no_rights(name: str) -> None:
    [pod] = [one["spec"]["template"]["spec"] for one in deployments()
             if one["metadata"]["name"] == name]  # fmt: skip
    [container] = pod["containers"]
    settings = (DEPLOY / "kubernetes" / "holdfast.toml").read_text()
    grace = duration(re.search(r'grace = "(\w+)"', settings)[1])  # type: ignore[index]
    assert pod["terminationGracePeriodSeconds"] > grace.total_seconds() + 10
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    own = container["securityContext"]
    assert own["readOnlyRootFilesystem"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    paths = {
        kind: container[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("liveness", "readiness", "startup")
    }
    assert paths == {"liveness": "/healthz", "readiness": "/readyz", "startup": "/healthz"}
    names = {port["name"] for port in container["ports"]}
    assert container["livenessProbe"]["httpGet"]["port"] in names
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("name", ["work", "serve"])
def test_pods_run_commands_that_exist(name: str, tmp_path: Path) -> None:
    [arguments] = [one["spec"]["template"]["spec"]["containers"][0]["args"]
                   for one in deployments() if one["metadata"]["name"] == name]  # fmt: skip
    shell = Shell(tmp_path)
    settings = DEPLOY / "kubernetes" / "holdfast.toml"
    here = [str(settings) if "/etc/" in one else one for one in arguments]
    here = ["0" if one == "9464" else one for one in here]
    if name == "serve":
        here += ["--port", "0"]
    here[here.index("0.0.0.0")] = "127.0.0.1"
    with shell.running(*here) as running:
        assert "ready" in running.ready, running.log


def test_workers_scale_by_the_age_of_the_queue() -> None:
    [scaler] = [one for one in manifests() if one["kind"] == "HorizontalPodAutoscaler"]
    spec = scaler["spec"]
    assert spec["scaleTargetRef"]["name"] == "work"
    [metric] = spec["metrics"]
    assert metric["external"]["metric"]["name"] == "holdfast_oldest_ready_seconds"
    [adapter] = documents("monitoring/adapter.yaml")
    assert adapter["externalRules"][0]["name"]["as"] == "holdfast_oldest_ready_seconds"
    [work] = [one for one in deployments() if one["metadata"]["name"] == "work"]
    assert "replicas" not in work["spec"], "an apply would undo the autoscaler"


def test_kustomize_builds_the_manifests() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl")
    folder = DEPLOY / "kubernetes"
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    kinds = sorted(one["kind"] for one in built)
    assert kinds == [
        "ConfigMap",
        "Deployment",
        "Deployment",
        "HorizontalPodAutoscaler",
        "PodDisruptionBudget",
        "PodDisruptionBudget",
        "Service",
    ]
    images = {
        one["spec"]["template"]["spec"]["containers"][0]["image"]
        for one in built
        if one["kind"] == "Deployment"
    }
    assert images == {f"holdfast:{__version__}"}
