"""The files of deploy/ are what Kubernetes and spark-submit take, agree with each other, and are what the page shows.

Core objects are held against the schemas of Kubernetes' own API. No registry offers the definition of the operator's
``SparkApplication``: the schema below is written by hand, after its documents, and has only the fields that are used.
"""

from __future__ import annotations

import copy
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from anabranch.spark.anchors import REQUIRED_SETTINGS
from anabranch.state.copies.hot import DEFAULT_CAP_BYTES
from docs.documents import PROJECT

DEPLOY = PROJECT / "deploy"
PAGE = (PROJECT / "docs" / "deploy.md").read_text(encoding="utf-8")
KUBERNETES = ("1.33", "1.37")
"""The oldest and the newest version that the objects are held against."""
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
_BYTES = {"m": 2**20, "g": 2**30, "Mi": 2**20, "Gi": 2**30}


def read_objects(*files: Path) -> list[dict[str, Any]]:
    return [made for file in files for made in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
CORE = [made for made in read_objects(*MANIFESTS) if made["kind"] != "SparkApplication"]
(APPLICATION,) = read_objects(DEPLOY / "kubernetes" / "spark-application.yaml")

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
PODS = {
    "type": "object",
    "required": ["podTemplateSpec"],
    "additionalProperties": False,
    "properties": {"podTemplateSpec": {"type": "object"}},
}
WHEN = ("Always", "Never", "OnFailure")
SPARK_APPLICATION = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "spark.apache.org/v1"},
        "kind": {"const": "SparkApplication"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "required": ["pyFiles", "runtimeVersions", "sparkConf"],
            "additionalProperties": False,
            "properties": {
                "pyFiles": {"type": "string"},
                "driverArgs": {"type": "array", "items": {"type": "string"}},
                "sparkConf": TEXTS,
                "driverSpec": PODS,
                "executorSpec": PODS,
                "runtimeVersions": {
                    "type": "object",
                    "required": ["sparkVersion"],
                    "additionalProperties": False,
                    "properties": {"sparkVersion": {"type": "string"}},
                },
                "applicationTolerations": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "resourceRetainPolicy": {"enum": list(WHEN)},
                        "restartConfig": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {
                                "restartPolicy": {"enum": [*WHEN, "OnInfrastructureFailure"]},
                                "maxRestartAttempts": {"type": "integer"},
                                "restartBackoffMillis": {"type": "integer"},
                            },
                        },
                    },
                },
            },
        },
    },
}


def pod_templates() -> dict[str, dict[str, Any]]:
    """Return the operator's templates as objects that Kubernetes has a schema for."""
    return {
        part: {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": "template"},
            "template": APPLICATION["spec"][part]["podTemplateSpec"],
        }
        for part in ("driverSpec", "executorSpec")
    }


def read_settings() -> dict[str, str]:
    """Return the settings of spark-defaults.conf."""
    lines = (DEPLOY / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    return dict(line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))


def count_bytes(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\w+)", text).groups()  # type: ignore[union-attr]
    return int(number) * _BYTES[unit]


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("made", CORE, ids=lambda made: f"{made['kind']}-{made['metadata'].get('name', 'template')}")
def test_objects_are_what_kubernetes_takes(made: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(made, version, strict=True)


@pytest.mark.parametrize("part", ["driverSpec", "executorSpec"])
def test_templates_of_the_operator_are_what_kubernetes_takes(part: str) -> None:
    for version in KUBERNETES:
        kubernetes_validate.validate(pod_templates()[part], version, strict=True)


def test_the_operators_application_has_the_fields_that_its_documents_name() -> None:
    jsonschema.validate(APPLICATION, SPARK_APPLICATION)


def test_a_misspelled_field_would_be_found() -> None:
    pod = next(copy.deepcopy(made) for made in CORE if made["kind"] == "Pod")
    pod["spec"]["volumes"][0]["persistentVolumeClaims"] = pod["spec"]["volumes"][0].pop("persistentVolumeClaim")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, KUBERNETES[-1], strict=True)
    application = copy.deepcopy(APPLICATION)
    application["spec"]["mainApplicationFile"] = application["spec"].pop("pyFiles")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(application, SPARK_APPLICATION)


def test_what_objects_name_is_there() -> None:
    named = {(made["kind"], made["metadata"]["name"]) for made in CORE if "name" in made["metadata"]}
    assert all(made["metadata"].get("namespace", "flows") == "flows" for made in [*CORE, APPLICATION])
    specs = [made["spec"] for made in CORE if made["kind"] == "Pod"]
    specs += [made["template"]["spec"] for made in pod_templates().values()]
    for spec in specs:
        volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
        for container in spec["containers"]:
            assert all(mount["name"] in volumes for mount in container.get("volumeMounts", ()))
            assert all(("Secret", given["secretRef"]["name"]) in named for given in container["envFrom"])
        for volume in volumes.values():
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in named
    account = APPLICATION["spec"]["sparkConf"]["spark.kubernetes.authenticate.driver.serviceAccountName"]
    assert ("ServiceAccount", account) in named


def test_settings_are_the_same_everywhere_and_the_page_says_what_each_is_for() -> None:
    settings = read_settings()
    assert settings.items() <= APPLICATION["spec"]["sparkConf"].items()
    assert REQUIRED_SETTINGS.items() <= settings.items()
    assert [name for name in settings if f"`{name}`" not in PAGE] == []


def test_timeouts_and_memory_fit_each_other() -> None:
    settings = read_settings()
    seconds = {name: int(value.removesuffix("s")) for name, value in settings.items() if re.fullmatch(r"\d+s", value)}
    assert seconds["spark.network.timeoutInterval"] < seconds["spark.network.timeout"]
    assert seconds["spark.executor.heartbeatInterval"] < seconds["spark.network.timeout"]
    (shared,) = [
        count_bytes(volume["emptyDir"]["sizeLimit"])
        for volume in pod_templates()["executorSpec"]["template"]["spec"]["volumes"]
    ]
    assert shared > DEFAULT_CAP_BYTES
    # Two gigabytes of Python for each core, as the file says, beside what is shared.
    overhead = count_bytes(settings["spark.executor.memoryOverhead"])
    assert overhead >= shared + int(settings["spark.executor.cores"]) * 2 * 2**30


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.relative_to(DEPLOY).as_posix())
def test_scripts_can_be_read_by_bash_and_run(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize(
    ("script", "leading"),
    [
        ("standalone/submit.sh", ["spark://master:7077"]),
        ("yarn/submit.sh", []),
        ("kubernetes/submit.sh", ["k8s://https://kubernetes.example:6443", "registry.example/low-voltage:1"]),
    ],
)
def test_scripts_hand_spark_files_that_are_there_and_the_flow_its_arguments(
    script: str, leading: list[str], tmp_path: Path
) -> None:
    submit = tmp_path / "spark-submit"
    submit.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    submit.chmod(0o755)
    given = ["--input", "/a b", "--output", "o", "--checkpoint", "c"]
    command = [str(DEPLOY / script), *leading, *given]
    environment = {"PATH": os.environ["PATH"], "SPARK_SUBMIT": str(submit)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    handed = done.stdout.splitlines()
    assert handed[-len(given) :] == given
    flow = handed[-len(given) - 1]
    assert flow == "local:///opt/flows/flow.py" or Path(flow) == DEPLOY / "flow.py"
    files = [part for word in handed for part in word.split("=") if part.startswith(str(DEPLOY))]
    assert files and all(Path(file).is_file() for file in files)


def test_every_file_is_named_on_the_page() -> None:
    files = [path.relative_to(PROJECT).as_posix() for path in DEPLOY.rglob("*") if path.is_file()]
    assert [file for file in files if "__pycache__" not in file and f"](../{file})" not in PAGE] == []


def test_the_page_says_what_was_not_tried() -> None:
    for heading in ("YARN", "Kubernetes", "Apache's operator", "The image"):
        section = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
        assert section is not None and "*Untried*" in section[1], heading
