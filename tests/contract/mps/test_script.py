# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The script: mistakes are errors, rules and events do what they say."""

from __future__ import annotations

import pytest

from fakes.mps import CommandRule, Event, Factory, Rig, Script, read_script


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ({"gpu": []}, "gpu"),
        ({"gpus": [{"sms": 1}]}, "sms"),
        ({"starts": [{"init_s": "soon"}]}, "init_s"),
        ({"starts": []}, "starts"),
        ({"killed_client": "maybe"}, "maybe"),
        ({"events": [{"at_s": 1, "do": "explode"}]}, "explode"),
        ({"protocols": 3}, "protocols"),
        ({"commands": [{}]}, "match"),
        ({"v3_client_rows": "other"}, "other"),
    ],
)
def test_a_mistake_in_a_script_is_named(raw: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        read_script(raw)


def test_a_rule_delays_replaces_or_hangs_a_command_as_often_as_it_says() -> None:
    rules = (
        CommandRule(match="get_server_list", reply="???", times=1),
        CommandRule(match="get_default_*", delay_s=3.0),
        CommandRule(match="ps", hang=True),
    )
    rig = Rig(Script(commands=rules))
    assert rig.run("get_server_list") == "???"
    assert rig.run("get_server_list") == ""
    late, never = rig.ask("get_default_active_thread_percentage"), rig.ask("ps")
    assert not late.done
    rig.pass_time(3.0)
    assert late.text == "100.0"
    assert not never.done


def test_events_happen_at_their_time() -> None:
    rig = Rig(Script(events=(Event(at_s=5.0, do="fault"), Event(at_s=9.0, do="crash_server"))))
    client = rig.client()
    rig.pass_time(4.9)
    assert client.inbox[-1]["event"] == "attached"
    rig.pass_time(0.1)
    assert client.inbox[-1]["error"] == "CUDA_ERROR_LAUNCH_FAILED"
    rig.pass_time(4.0)
    assert rig.run("get_server_list") == ""


def test_a_hung_daemon_answers_nothing() -> None:
    rig = Rig()
    rig.machine.do("hang_control")
    assert not rig.ask("get_server_list").done


def test_a_daemon_can_be_made_to_crash_and_a_script_replaced_while_it_runs(
    scripted: Factory,
) -> None:
    mps = scripted(commands=[{"match": "ps", "crash": True}])
    daemon = mps.start()
    assert mps.call(typed="ps\n")[0] == 1
    assert daemon.wait(20) == -9
    mps.write_script({})
    mps.start()
    assert mps.ask("ps").startswith("PID")
    mps.write_script({"commands": [{"match": "ps", "reply": "garbage"}]})
    assert mps.ask("ps") == "garbage"


def test_a_killed_server_process_is_noticed(scripted: Factory) -> None:
    import os
    import signal

    mps = scripted()
    mps.start()
    client = mps.client()
    client.report()
    os.kill(int(mps.server()), signal.SIGKILL)
    assert client.report()["error"] == "CUDA_ERROR_MPS_RPC_FAILURE"
    assert mps.ask("get_server_list") == ""
    assert mps.client().report()["event"] == "attached"
