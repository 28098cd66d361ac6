"""The Helm chart: lint, schema, strict validation of every manifest, and agreement with what the services read."""

from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "helm/leyden"
VARIANTS: list[dict[str, Any]] = [
    {},
    {"engine": {"kind": "vllm", "vllmArgs": ["--max-model-len=4096"]}, "agents": {"existingClaim": "my-agents"}},
    {"redisUrl": "redis+cluster://redis:6379", "brokerUrl": "redis://bell:6379/0"},
]


def manifests(values: dict[str, Any]) -> list[dict[str, Any]]:
    with helm.Chart.load(CHART) as chart:
        rendered = chart.render(values, name="ley", namespace="default")
    texts = [text for path, text in rendered.items() if path.endswith(".yaml")]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    spec = document.get("spec", {})
    return spec.get("template", {}).get("spec", spec).get("containers", [])


def test_lint_is_clean() -> None:
    report = helm.lint(CHART, strict=True)
    assert report["errors"] == []
    assert [message for message in report["messages"] if message["severity"] >= 2] == []


@pytest.mark.parametrize("values", VARIANTS)
@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_every_manifest_is_valid(values: dict[str, Any], version: str) -> None:
    documents = manifests(values)
    kinds = [document["kind"] for document in documents]
    assert kinds.count("Deployment") == 6 and kinds.count("Service") == 3 and kinds.count("Pod") == 1
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("values", VARIANTS)
def test_every_container_is_confined(values: dict[str, Any]) -> None:
    for document in manifests(values):
        for container in containers(document):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize(
    "values",
    [
        {"redisURL": "redis://x"},
        {"storeUrl": "file:///data"},
        {"engine": {"kind": "tgi"}},
        {"brokerUrl": "redis+cluster://redis:6379"},
        {"worker": {"concurrency": 0}},
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any]) -> None:
    with helm.Chart.load(CHART) as chart, pytest.raises(helm.HelmError):
        chart.validate_schema(chart.merge_values(values))


@pytest.mark.parametrize("values", [VARIANTS[0], VARIANTS[-1]])
def test_every_setting_is_one_that_its_service_reads(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    from leyden_runtime.settings import load_settings

    seen = set()
    for document in manifests(values):
        for container in containers(document):
            name = container["name"].replace("-", "_")
            if name == "test":
                continue
            module = importlib.import_module(f"leyden_{name}.settings")
            kind = getattr(module, "".join(part.title() for part in name.split("_")) + "Settings")
            with monkeypatch.context() as patch:
                for entry in container["env"]:
                    # Kubernetes puts a pod's name and address in place of these.
                    value = (
                        entry.get("value", "x" * 40).replace("$(POD_NAME)", "pod-0").replace("$(POD_IP)", "10.0.0.1")
                    )
                    patch.setenv(entry["name"], value)
                settings = load_settings(kind)
            ports = [port["containerPort"] for port in container["ports"]]
            assert settings.port in ports
            seen.add(name)
    assert len(seen) == 7


def test_each_image_in_the_chart_is_a_target_of_the_dockerfile() -> None:
    lines = (ROOT / "infra/images/Dockerfile").read_text().splitlines()
    targets = {line.split(" AS ")[1] for line in lines if line.startswith("FROM")}
    images = {c["image"] for document in manifests({}) for c in containers(document)}
    names = {image.split("/leyden-")[1].split(":")[0] for image in images}
    assert names == targets - {"base"}


def test_otlp_over_grpc_has_one_port_from_the_service_to_the_process() -> None:
    found = [one for one in manifests({}) if one.get("metadata", {}).get("name") == "ley-collector"]
    (container,) = (one for document in found for one in containers(document))
    (service,) = (document for document in found if document["kind"] == "Service")
    (inside,) = (port["containerPort"] for port in container["ports"] if port["name"] == "grpc")
    (outside,) = (port for port in service["spec"]["ports"] if port["name"] == "grpc")
    (told,) = (one["value"] for one in container["env"] if one["name"] == "LEYDEN_COLLECTOR_GRPC_PORT")
    assert (inside, outside["port"], outside["targetPort"], told) == (4317, 4317, "grpc", "4317")
