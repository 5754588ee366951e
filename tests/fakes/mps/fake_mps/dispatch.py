# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Between a command line and the protocol that understands it: the scripted rules and the log.

A command that blocks gives an answer that is not done yet; a hung daemon gives one that never is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from fake_mps import v2, v3
from fake_mps.machine import Machine
from fake_mps.model import Answer
from fake_mps.script import CommandRule


def run_line(machine: Machine, line: str, uid: int = 0) -> Answer:
    """Carry out one line as typed into the command loop of v2."""
    return run_words(machine, line.split(), uid)


def run_words(machine: Machine, words: Sequence[str], uid: int = 0) -> Answer:
    """Carry out one command given as words, as in the argv modules of v3."""
    line = " ".join(words)
    machine.tick()
    machine.logs.control(f"Cmd:{line}")
    if machine.hung:
        return Answer()
    rule = _matching(machine, line)
    answer = _carry_out(machine, words, uid) if rule is None else _ruled(machine, rule, words, uid)
    machine.tick()
    return answer


def _carry_out(machine: Machine, words: Sequence[str], uid: int) -> Answer:
    if not words:
        answer = Answer()
        answer.finish("")
        return answer
    if machine.options.protocol == 3:
        return v3.carry_out(machine, words, uid)
    return v2.carry_out(machine, words)


def _matching(machine: Machine, line: str) -> CommandRule | None:
    for number, rule in enumerate(machine.script.commands):
        used = machine.rule_uses.get(number, 0)
        if fnmatchcase(line, rule.match) and (rule.times < 0 or used < rule.times):
            machine.rule_uses[number] = used + 1
            return rule
    return None


def _ruled(machine: Machine, rule: CommandRule, words: Sequence[str], uid: int) -> Answer:
    answer = Answer()
    if rule.crash:
        machine.crashed = True
    if rule.crash or rule.hang:
        return answer
    machine.timers.after(rule.delay_s, _late(machine, rule, words, uid, answer))
    return answer


def _late(
    machine: Machine, rule: CommandRule, words: Sequence[str], uid: int, answer: Answer
) -> Callable[[], None]:
    def run() -> None:
        if rule.reply is not None:
            answer.finish(rule.reply)
            return
        inner = _carry_out(machine, words, uid)
        if inner.text is not None:
            answer.finish(inner.text, inner.exit_code)
        else:
            inner.on_done = lambda: answer.finish(inner.text or "", inner.exit_code)

    return run
