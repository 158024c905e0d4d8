"""Several steps of greedy decoding between two looks of the host at what was chosen.

Recorded steps are bound in a chain: each reads its tokens where the step before wrote its choices, so that the host
launches them one after the other and looks once. Where nothing is recorded the host looks at each step, which on the
processor costs nothing, and stops at an end. See docs/decisions/0113-greedy-steps.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from service.engine.core.arrays import Candidates, Ids
from service.runtime.call import Call, Shape


def run_greedily(
    call: Call, shape: Shape, inputs: Mapping[str, Ids], ends: Ids, num_steps: int, end_ids: Collection[int]
) -> list[Candidates]:
    """The choices of up to `num_steps` steps of `call`, whose `inputs` are those of the first; see `Call.run`."""
    if call.graph.recorded is None:
        return _run_until(call, shape, inputs, num_steps, end_ids)
    calls = [call]
    while len(calls) < num_steps:
        calls.append(calls[-1].next_call())
    for step, each in enumerate(calls):
        each.prepare(shape, {**inputs, "write_indices": inputs["write_indices"] + step}, ends)
    call.graph.memory.synchronize()
    for each in calls:
        each.launch(shape, is_recorded=True, waits=each is calls[-1])
    return [each.read(shape).candidates for each in calls]


def _run_until(
    call: Call, shape: Shape, inputs: Mapping[str, Ids], num_steps: int, end_ids: Collection[int]
) -> list[Candidates]:
    """Step by step, until one chooses one of `end_ids`."""
    steps = list[Candidates]()
    while len(steps) < num_steps:
        ids, log_probs = call.run(shape, inputs).candidates
        steps.append(Candidates(ids.copy(), log_probs.copy()))
        if not set(end_ids).isdisjoint(ids[:, 0].tolist()):
            break
        inputs = {**inputs, "input_ids": steps[-1].ids, "write_indices": inputs["write_indices"] + 1}
    return steps
