# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes (after Salus, MLSys 2020): memory of jobs on a shared device, and turns to launch.

A job's persistent memory stays on the device; its ephemeral memory is freed at every boundary
between steps. A lane is memory that the steps of its residents use one after the other; lanes run
concurrently. The sum of all persistent memory and all lanes never exceeds the device, and no lane
is smaller than the largest step of a resident (``safety``, tested after every operation).

`table.LaneTable` is the whole interface, without sockets and clocks; each operation takes the
current time and returns the changes in order (`records`):

=============  ====================================================================================
arrive         opened, joined, enlarged, queued or refused
leave          the job's process is gone and owns no memory; until then its lease stays with it
acquire        asks for one step: granted, waits, or refused
withdraw       the job asks no longer (its connection ended before the grant)
release        the step ended, a boundary: lanes resize, merge and split, the next one is granted
overdue        leases past their deadline; their lane is granted to nobody until release or leave
has_left       a resident was suspended, or could not be
is_back        a suspended job was resumed, or is stuck
recall         a suspended job wants its memory back; `acquire` of one wants a step, too
look           time alone: idle residents make room for the first job of the queue
record         the state to keep; `LaneTable.restored` goes on from it with the same leases
=============  ====================================================================================

The table delegates its decisions: memory grants and suspensions (`admission`, `suspension`,
`away`), lanes and their sizes (`memory` by the `rules`), larger steps (`larger_steps`), turns
(`turns` by the `policies`), the persistent record (`recorded`).

A scheduler that places jobs before their programs run assigns lanes itself (`assignment`), by the
same rules; the table then keeps to these lanes and merges or splits none of them.

A job that may be suspended gives up all its memory when a queued job needs it (`suspension`);
``Suspend`` and ``Resume`` among the changes are the orders. Its memory is reserved until it has
left, and again before it returns: a restore is never tried without the safety condition. A job
without the runtime has ``own_lane`` and acquires once.

Pure: it must never read a clock, hold a connection or measure memory.
"""
