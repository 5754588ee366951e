# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Training jobs on real kubelets: they run, finish, fail, restart and stop as their spec says."""

import json

from e2e.stack import Stack, busy_template, eventually, share, training_job


def test_a_job_runs_to_completion_and_reports_progress(stack: Stack, namespace: str) -> None:
    template = busy_template(pause_s=0.2)
    stack.apply(training_job("short", namespace, template, work={"steps": 10}))
    running = stack.job_reaches("short", namespace, "Running")
    assert running["nodes"] in ("node-1", "node-2")
    stack.finish("short-0", namespace)
    waits = ("wait", "--for=condition=Complete", "trainingjobs.ullage.dev/short", "--timeout=600s")
    stack.cluster.kubectl(*waits, "--namespace", namespace)
    done = stack.job(name="short", namespace=namespace)
    conditions = {c["type"]: c for c in done["conditions"]}
    assert conditions["Finished"]["reason"] == "Completed"
    assert done["completionTime"]
    assert done["progress"]["percent"] == 100
    assert done["nodes"] == running["nodes"]
    stack.books_balance()


def test_a_job_sees_the_environment_that_frameworks_expect(stack: Stack, namespace: str) -> None:
    script = "import os, json; print(json.dumps(dict(os.environ)))"
    template = busy_template(container={"command": ["python3", "-c", script]})
    stack.apply(training_job("env", namespace, template, replicas=2))
    stack.job_reaches("env", namespace, "Succeeded")
    seen = json.loads(stack.logs("env-1", namespace))
    assert seen["RANK"] == "1"
    assert seen["WORLD_SIZE"] == "2"
    assert seen["MASTER_ADDR"].startswith("env-0.env-workers")
    assert seen["JAX_COORDINATOR_ADDRESS"].endswith(":29500")
    assert seen["ULLAGE_PERCENT"] == "40"


def test_members_of_a_gang_reach_each_other_by_name(stack: Stack, namespace: str) -> None:
    script = """
import os, socket, sys, time
rank, master = int(os.environ["RANK"]), os.environ["MASTER_ADDR"]
port = int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("", port)) as server:
        peer, _ = server.accept()
        print("heard", peer.recv(16).decode())
else:
    for _ in range(1200):
        try:
            with socket.create_connection((master, port), timeout=2) as peer:
                peer.sendall(b"hello")
            sys.exit(0)
        except OSError:
            time.sleep(0.25)
    sys.exit(1)
"""
    template = busy_template(container={"command": ["python3", "-c", script]})
    stack.apply(training_job("pair", namespace, template, replicas=2))
    stack.job_reaches("pair", namespace, "Succeeded")
    assert "heard hello" in stack.logs("pair-0", namespace)


def test_a_failing_job_restarts_as_often_as_allowed_and_then_fails(
    stack: Stack, namespace: str
) -> None:
    job = training_job("fails", namespace, busy_template(1, 3), failurePolicy={"maxRestarts": 1})
    stack.apply(job)
    failed = stack.job_reaches("fails", namespace, "Failed", within_s=120)
    assert failed["restarts"] == 1
    finished = next(c for c in failed["conditions"] if c["type"] == "Failed")
    assert finished["reason"] == "RestartLimit"
    assert "3" in finished["message"]
    stack.books_balance()


def test_an_exit_code_that_is_not_to_be_retried_fails_at_once(stack: Stack, namespace: str) -> None:
    policy = {"maxRestarts": 5, "retryExitCodes": [7]}
    stack.apply(training_job("code", namespace, busy_template(1, 3), failurePolicy=policy))
    failed = stack.job_reaches("code", namespace, "Failed")
    assert failed.get("restarts", 0) == 0


def test_a_pod_deleted_behind_our_back_comes_back_uncounted(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("lost", namespace))
    stack.job_reaches("lost", namespace, "Running")
    before = stack.get("pods", "lost-0", namespace)
    assert before is not None
    stack.delete("pod", "lost-0", namespace, "--wait=false")

    def back() -> bool:
        pod = stack.get("pods", "lost-0", namespace)
        new = pod is not None and pod["metadata"]["uid"] != before["metadata"]["uid"]
        return new and stack.job("lost", namespace)["phase"] == "Running"

    eventually(back, within_s=90, what="the job runs again in a new pod")
    assert stack.job("lost", namespace).get("restarts", 0) == 0
    stack.books_balance()


def test_a_suspended_job_gives_its_share_back_and_resumes(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("pausing", namespace, checkpoint={"graceSeconds": 5}))
    stack.job_reaches("pausing", namespace, "Running")
    stack.patch("trainingjobs.ullage.dev", "pausing", namespace, {"spec": {"suspend": True}})
    stack.job_reaches("pausing", namespace, "Suspended")
    assert stack.pods(namespace) == []
    stack.books_balance()
    stack.patch("trainingjobs.ullage.dev", "pausing", namespace, {"spec": {"suspend": False}})
    stack.job_reaches("pausing", namespace, "Running")


def test_a_finished_job_is_removed_after_its_time_to_live(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("brief", namespace, busy_template(1), ttlSecondsAfterFinished=3))
    eventually(
        lambda: stack.get("trainingjobs.ullage.dev", "brief", namespace) is None,
        within_s=90,
        what="the job is removed",
    )
    eventually(lambda: not stack.pods(namespace), within_s=30, what="its pods are gone too")


def test_a_job_deleted_while_it_is_placed_leaves_nothing(stack: Stack, namespace: str) -> None:
    for round_ in range(4):
        name = f"gone-{round_}"
        stack.apply(training_job(name, namespace, replicas=2, gpu=share(20)))
        eventually(lambda: bool(stack.pods(namespace)), within_s=20, what="first pod", every_s=0.05)
        stack.delete("trainingjob.ullage.dev", name, namespace)
    eventually(lambda: not stack.pods(namespace), within_s=60, what="no pods are left")
    stack.books_balance()


def test_equal_names_in_two_namespaces_do_not_meet(stack: Stack, namespace: str) -> None:
    other = f"{namespace}-b"
    stack.create_namespace(other)
    try:
        stack.apply(
            training_job("twin", namespace, busy_template(8), gpu=share(20)),
            training_job("twin", other, busy_template(8), gpu=share(20)),
        )
        stack.job_reaches("twin", namespace, "Succeeded")
        stack.job_reaches("twin", other, "Succeeded")
    finally:
        stack.clean(other)
