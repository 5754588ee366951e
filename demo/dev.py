# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``make dev``: the operator of this working tree in place of the one that the cluster runs.

It has that one's settings and rights, by a token of its ServiceAccount: what the chart grants and
its policies refuse holds here, too. At the end the cluster's own operator comes back.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from demo.cluster import KindCluster, LocalCluster
from demo.install import NAMESPACE
from demo.progress import ending_with_a_reason

OPERATOR: Final = "ullage-operator"
TOKEN_LASTS: Final = "24h"
DEPLOYMENT: Final = (f"deployment/{OPERATOR}", "--namespace", NAMESPACE)


def as_operator(kubeconfig: str, token: str) -> str:
    """A kubeconfig of the same cluster whose user is the operator, JSON."""
    config = yaml.safe_load(kubeconfig)
    context = next(
        context for context in config["contexts"] if context["name"] == config["current-context"]
    )
    context["context"]["user"] = OPERATOR
    config["users"] = [{"name": OPERATOR, "user": {"token": token}}]
    return json.dumps(config)


def settings_of(deployment: Mapping[str, object]) -> dict[str, str]:
    """Variables of the operator in the cluster; what its pod alone has is left out."""
    spec = json.loads(json.dumps(deployment))["spec"]["template"]["spec"]
    stated = spec["containers"][0]["env"]
    return {
        variable["name"]: variable["value"]
        for variable in stated
        if variable.get("value") and not variable["name"].startswith("ULLAGE_HTTP_")
    }


def develop(cluster: LocalCluster | KindCluster) -> int:
    """Run kopf with this tree's operator until it ends; returns its exit status.

    Raises:
        CommandFailed: Ullage is not installed there.
    """
    found = cluster.kubectl("get", *DEPLOYMENT, "--output", "json")
    deployment = json.loads(found.stdout)
    token = cluster.kubectl(
        "create", "token", OPERATOR, "--namespace", NAMESPACE, "--duration", TOKEN_LASTS
    ).stdout.strip()
    command = [
        str(Path(sys.executable).with_name("kopf")), "run", "--dev", "--standalone",
        "--all-namespaces", "--module", "ullage.app.dev",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ullage-dev-") as folder:
        path = Path(folder, "kubeconfig")
        path.touch(mode=0o600)
        path.write_text(as_operator(cluster.kubeconfig.read_text(), token))
        environment = {**os.environ, **settings_of(deployment), "ULLAGE_KUBECONFIG": str(path)}
        cluster.kubectl("scale", *DEPLOYMENT, "--replicas=0")
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # kopf ends by it, and this one after kopf
        try:
            return subprocess.run(command, env=environment, check=False).returncode
        finally:
            cluster.kubectl("scale", *DEPLOYMENT, f"--replicas={deployment['spec']['replicas']}")


def main() -> None:
    """Take the place of the cluster's operator until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="make dev", description=__doc__)
    parser.add_argument("--cluster", choices=("local", "kind"), default="local")
    options = parser.parse_args()
    cluster = LocalCluster() if options.cluster == "local" else KindCluster()
    with ending_with_a_reason():
        sys.exit(develop(cluster))


if __name__ == "__main__":
    main()
