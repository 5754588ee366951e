# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a shown command may say, by program: by parsers, Makefile, chart and CRDs of the house."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from typer.main import get_command

from ullage.api.reasons import ConditionType
from ullage.cli.main import app
from unit.packaging.repository import ROOT, project


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ELSEWHERE: Final[Mapping[str, str]] = {
    "cd": "of the shell",
    "curl": "a program of others",
    "docker": "a program of others",
    "export": "of the shell",
    "nvidia-ctk": "NVIDIA's container toolkit",
    "openssl": "a program of others",
    "sha256sum": "a program of others",
    "skopeo": "a program of others",
    "systemctl": "of the node",
    "torchrun": "of torch",
}
"""Programs that nothing in this repository can check, each with the reason."""
BUILT_IN: Final = _words(
    "all cm configmap configmaps customresourcedefinitions crd crds daemonset daemonsets deploy "
    "deployment deployments event events job jobs lease leases namespace namespaces node nodes "
    "persistentvolumeclaim persistentvolumeclaims pod pods pvc resourcequota resourceslices "
    "runtimeclasses secret secrets service services statefulset "
    "workloads.kueue.x-k8s.io"
)
_SELECTS: Final = _words("-n --namespace -A --all-namespaces -l --selector --field-selector")
_PRINTS: Final = _words("-o --output -w --watch --show-labels")
_VERBS: Final[Mapping[str, frozenset[str]]] = {
    "annotate": _SELECTS | {"--overwrite"},
    "apply": _SELECTS | {"-f", "-k", "--server-side", "--dry-run", "--force-conflicts"},
    "create": _SELECTS
    | {"-f", "--dry-run", "--image", "--clusterrole", "--serviceaccount", "--cert", "--key"}
    | _PRINTS,
    "delete": _SELECTS | {"-f", "--force", "--wait", "--grace-period", "--ignore-not-found"},
    "describe": _SELECTS,
    "drain": frozenset({"--ignore-daemonsets", "--delete-emptydir-data", "--timeout"}),
    "explain": frozenset({"--recursive", "--api-version"}),
    "get": _SELECTS | _PRINTS | {"-f", "--sort-by", "--no-headers", "--raw"},
    "label": _SELECTS | {"--overwrite"},
    "exec": _SELECTS | {"-c", "--container"},
    "logs": _SELECTS | {"-f", "--follow", "--tail", "-c", "--container", "--previous"},
    "patch": _SELECTS | {"--type", "-p", "--patch", "--subresource"},
    "port-forward": _SELECTS,
    "proxy": frozenset(),
    "rollout": _SELECTS,
    "run": _SELECTS | {"--image", "--restart", "--command", "--image-pull-policy"},
    "scale": _SELECTS | {"--replicas"},
    "uncordon": frozenset(),
    "wait": _SELECTS | {"--for", "--timeout"},
}
"""Verbs of kubectl that pages use, with the options that they may use."""
_ALONE: Final = _words(
    "-A --all-namespaces -w --watch --overwrite --server-side --force --ignore-daemonsets "
    "--command --follow --previous --recursive --show-labels --delete-emptydir-data --no-headers "
    "--force-conflicts --ignore-not-found"
)
"""Options of kubectl without a value (``-f`` of logs besides)."""
_NAMES_KIND: Final = frozenset({"get", "delete", "describe", "patch", "scale", "wait", "explain"})
_HELM: Final[Mapping[str, frozenset[str]]] = {
    "install": _words("--namespace --create-namespace --set --values -f --version --wait"),
    "upgrade": _words(
        "--install --namespace --create-namespace --set --set-file --values -f --version "
        "--reuse-values --reset-then-reuse-values --wait --atomic --rollback-on-failure"
    ),
    "rollback": _words("--namespace --wait"),
    "history": _words("--namespace"),
    "uninstall": _words("--namespace --wait --no-hooks"),
    "push": frozenset(),
    "pull": _words("--version --untar"),
    "show": frozenset(),
    "list": _words("--namespace --all-namespaces"),
    "template": _words("--namespace --set --values -f"),
    "get": _words("--namespace"),
}


def faults(words: list[str], *, whole: bool, folder: Path) -> list[str]:
    """What is wrong with a command.

    Args:
        words: of the command, the program first.
        whole: it stands in a block, so nothing that it needs may be left out.
        folder: where files that it names are made, so that they exist.
    """
    program = words[0]
    if words[:2] == ["kubectl", "ullage"]:
        return list(_of_ullage(words[2:], whole, folder))
    if program == "ullage":
        return list(_of_ullage(words[1:], whole, folder))
    check = _CHECKS.get(program)
    if check is not None:
        return list(check(words[1:]))
    return [] if program in ELSEWHERE else [f"{program} is a program that no test knows"]


def _of_ullage(words: list[str], whole: bool, folder: Path) -> Iterator[str]:
    """Faults by the product's own parser."""
    words = [word.strip("[]") for word in words]
    for word in words:
        if re.fullmatch(r"[\w/-]+\.[a-z.]+", word):
            (folder / word).parent.mkdir(parents=True, exist_ok=True)
            (folder / word).touch()
    command: Any = get_command(app)
    context = command.make_context("ullage", [], resilient_parsing=True)
    while hasattr(command, "resolve_command"):
        _, words, _ = command.make_parser(context).parse_args(list(words))
        if not words:
            if whole:
                yield f"{context.command_path}: no command"
            return
        try:
            name, chosen, left = command.resolve_command(context, list(words))
        except Exception:  # an error of typer's own click
            chosen = None
        if chosen is None:
            yield f"{context.command_path} has no command {words[0]}"
            return
        command, words = chosen, left
        context = type(context)(command, info_name=name, parent=context)
    if whole:
        try:
            with command.make_context(context.info_name, list(words), parent=context.parent):
                pass  # leaving it closes the files that it opened
        except Exception as error:  # typer brings its own click, whose errors have no public name
            yield f"{context.command_path}: {getattr(error, 'message', error)}"
        return
    known = {name for parameter in command.params for name in parameter.opts}
    known |= {name for parameter in command.params for name in parameter.secondary_opts}
    for word in words:
        if word.startswith("-") and word.partition("=")[0] not in known | {"-"}:
            yield f"{context.command_path} has no option {word}"


@cache
def our_names() -> frozenset[str]:
    """What kubectl takes for our kinds: plural, singular, short names, categories."""
    found = set()
    for file in (ROOT / "crds").glob("*.yaml"):
        names = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["spec"][
            "names"
        ]
        own = {names["plural"], names["singular"], *names.get("shortNames", ())}
        found |= own | {f"{name}.ullage.dev" for name in (names["plural"], names["singular"])}
        found |= set(names.get("categories", ()))
    return frozenset(found)


def _of_kubectl(words: list[str]) -> Iterator[str]:
    options, rest = _options(words, _ALONE)
    if not rest or rest[0] == "...":
        return
    verb, *rest = rest
    allowed = _VERBS.get(verb)
    if allowed is None:
        yield f"kubectl has no verb {verb} that pages use"
        return
    wrong = {name for name, _ in options} - allowed - {"--namespace", "-n", "--context"}
    if wrong:
        yield f"kubectl {verb} has no option {', '.join(sorted(wrong))}"
    if verb in _NAMES_KIND and rest:
        yield from _kinds(rest)
    for name, value in options:
        condition = re.fullmatch(r"condition=(\w+)(=\w+)?", value) if name == "--for" else None
        if name == "--for" and condition is None and value != "delete":
            yield f"--for={value} is no condition"
        if condition and condition[1] not in {one.value for one in ConditionType} | {"Available"}:
            yield f"no object has the condition {condition[1]}"


def _kinds(rest: list[str]) -> Iterator[str]:
    named = rest[0].partition("/")[0]
    kinds = named.partition(".spec")[0].partition(".status")[0].split(",")
    for kind in kinds:
        if kind not in our_names() | BUILT_IN and not kind.isupper():
            yield f"{kind} is no kind"
    if len(kinds) > 1 and len(rest) > 1:
        yield f"{rest[0]} {rest[1]} asks for this name in every kind"


def _options(words: list[str], alone: frozenset[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Options with their values, and the other words; what follows ``--`` is another program's."""
    options, rest = [], []
    given = iter(words)
    for word in given:
        if word == "--":
            break
        if not word.startswith("-"):
            rest.append(word)
            continue
        name, equals, value = word.partition("=")
        followed = rest[:1] == ["logs"] and name == "-f"
        if not equals and name not in alone and not followed:
            value = next(given, "")
        options.append((name, value))
    return options, rest


def _of_make(words: list[str]) -> Iterator[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w$()/.-]+):", text, re.M)) | {".venv/.ready"}
    for word in words:
        name, equals, _ = word.partition("=")
        if (
            equals
            and f"$({name})" not in text
            and f"$(or $({name})" not in text
            and f"(or {name}" not in text
        ):
            yield f"the Makefile reads no {name}"
        if not equals and word not in targets:
            yield f"the Makefile has no target {word}"


def _of_helm(words: list[str]) -> Iterator[str]:
    alone = _words(
        "--create-namespace --install --reuse-values --reset-then-reuse-values --wait --atomic "
        "--rollback-on-failure --no-hooks --untar --all-namespaces"
    )
    options, rest = _options(words, alone)
    verb, *rest = rest
    if verb not in _HELM:
        yield f"helm has no command {verb} that pages use"
        return
    for name, value in options:
        if name not in _HELM[verb]:
            yield f"helm {verb} has no option {name}"
        if name in ("--set", "--set-file"):
            yield from (f"the chart has no value {key}" for key in _unknown_keys(value))
    for word in rest[1:] if verb in ("install", "upgrade", "template") else ():
        if word.startswith("charts/") and not (ROOT / word / "Chart.yaml").is_file():
            yield f"{word} is no chart"


@cache
def values_schema() -> Mapping[str, Any]:
    """Schema of the main chart's values."""
    text = (ROOT / "charts/ullage/values.schema.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def _unknown_keys(said: str) -> Iterator[str]:
    for pair in said.split(","):
        key = pair.partition("=")[0]
        if not _known(values_schema(), key.split(".")):
            yield key


def _known(node: Mapping[str, Any], path: list[str]) -> bool:
    if "$ref" in node:
        name = str(node["$ref"]).rpartition("/")[2]
        return _known(values_schema()["definitions"][name], path)
    if not path:
        return True
    if "properties" not in node:
        return node.get("type") == "object" and node.get("additionalProperties") is not False
    here = path[0].partition("[")[0]
    return here in node["properties"] and _known(node["properties"][here], path[1:])


def _of_python(words: list[str]) -> Iterator[str]:
    if words[:1] != ["-m"] or len(words) < 2:
        yield f"python {' '.join(words[:1])}: only modules are shown"
        return
    module = words[1]
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        yield f"there is no module {module}"
        return
    # A package's __main__ shares its options among the package's files.
    place = Path(spec.origin)
    files = place.parent.rglob("*.py") if place.name in ("__init__.py", "__main__.py") else [place]
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    for word in words[2:]:
        name = word.partition("=")[0]
        if name.startswith("--") and f'"{name}"' not in source:
            yield f"{module} has no option {name}"


def _of_pip(words: list[str]) -> Iterator[str]:
    for word in words[1:]:
        extra = re.fullmatch(r"(?:ullage|\.)(?:\[(\w+)\])?", word)
        if extra is None:
            yield f"{word} is none of our packages"
        elif extra[1] and extra[1] not in project()["optional-dependencies"]:
            yield f"there is no extra {extra[1]}"


def _of_localcluster(words: list[str]) -> Iterator[str]:
    table = (ROOT / "localcluster/README.md").read_text(encoding="utf-8")
    source = "".join(
        file.read_text(encoding="utf-8") for file in (ROOT / "localcluster").glob("*.go")
    )
    if f'"{words[0]}"' not in source or f"`{words[0]}" not in table:
        yield f"localcluster/run has no command {words[0]}"


_CHECKS: Final[Mapping[str, Callable[[list[str]], Iterator[str]]]] = {
    "kubectl": _of_kubectl,
    "helm": _of_helm,
    "make": _of_make,
    "python": _of_python,
    "pip": _of_pip,
    "localcluster/run": _of_localcluster,
}
