# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whom the agents ask for interruption notices, and from which network."""

from __future__ import annotations

from chart.rendered import Helm, Rendered, environment
from ullage_node.settings import NoticeProvider, load_settings

AGENT = ("DaemonSet", "ullage-node")


def test_no_one_is_asked_by_default(rendered: Rendered) -> None:
    settings = load_settings(environment(rendered.container(*AGENT, "plugin")))
    assert settings.notices.provider is NoticeProvider.NONE
    pod = rendered.one(*AGENT)["spec"]["template"]["spec"]
    assert "hostNetwork" not in pod
    assert "dnsPolicy" not in pod


def test_values_reach_the_agent(helm: Helm) -> None:
    notices = {"provider": "EC2", "url": "http://127.0.0.1:1338", "pollSeconds": 0.5}
    bodies = helm.values({"node": {"notices": notices, "hostNetwork": True}})
    heard = load_settings(environment(bodies.container(*AGENT, "plugin"))).notices
    assert (heard.provider, heard.url, heard.poll_seconds) == (
        NoticeProvider.EC2,
        "http://127.0.0.1:1338",
        0.5,
    )
    pod = bodies.one(*AGENT)["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    assert pod["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "hostNetwork" not in bodies.one("Deployment", "ullage-operator")["spec"]["template"]
