#!/usr/bin/env python3
"""Makes the mutants: the interpreter with one mistake each, which the tests of the kernels must notice.

Usage: mutate.py INTERPRETER DEVICE OUT_FOLDER, or mutate.py --names. Each mutant is a source OUT_FOLDER/NAME.cc with
one function tutti_run_NAME; mutants.inc lists them. A text that is to be changed and does not occur exactly once is
an error: then the kernels have changed and their mutants must too.
"""

import pathlib
import re
import sys

# Name, who notices ("data": a wrong result, or none; "edges": the thread sanitizer), file, text, what it becomes.
MUTANTS = [
    ("none", "", "interpreter", "", ""),
    ("no_barrier_before_telling", "data", "interpreter", '    device::barrier("the slice is moved");\n', ""),
    ("no_barrier_before_moving", "data", "interpreter", '    device::barrier("the ends are ready");\n', ""),
    ("credit_off_by_one", "data", "interpreter", "link.slot_mask + 1;", "link.slot_mask + 2;"),
    ("position_not_stored", "data", "interpreter",
     "  block.program.positions[block.lane_index] = block.at;\n", ""),
    ("done_bytes_forgotten", "data", "interpreter",
     "  block.at = block.program.positions[lane];\n",
     "  block.at = block.program.positions[lane];\n  block.at.done_bytes = 0;\n"),
    ("sequence_stands", "data", "interpreter", "++state->sequence;", "(void)state->sequence;"),
    ("references_not_awaited", "data", "interpreter",
     "  if (block.program.reference_bytes == UINT64_MAX) return;\n", "  return;\n"),
    ("credit_never_told", "data", "interpreter", "device::store_release(&link.credit->released, link.next);", "(void)0;"),
    ("one_lane_ends_all", "data", "interpreter", "== block.part.block_count) return Ring::kDone;",
     "> 0) return Ring::kDone;"),
    ("relaxed_release", "edges", "device", "  __atomic_store_n(to, value, __ATOMIC_RELEASE);\n  simulator::preempt();\n}\n"
     "TUTTI_DEVICE void store_release(uint32_t*", "  __atomic_store_n(to, value, __ATOMIC_RELAXED);\n"
     "  simulator::preempt();\n}\nTUTTI_DEVICE void store_release(uint32_t*"),
    ("relaxed_acquire", "edges", "device", "__atomic_load_n(from, __ATOMIC_ACQUIRE)",
     "__atomic_load_n(from, __ATOMIC_RELAXED)"),
    ("relaxed_leaving", "edges", "device", "__ATOMIC_ACQ_REL", "__ATOMIC_RELAXED"),
]


def mutate(text, old, new, name):
    if old and text.count(old) != 1:
        sys.exit(f"mutant {name}: its text occurs {text.count(old)} times, not once: {old!r}")
    return text.replace(old, new) if old else text


def source(name, device, interpreter):
    """One translation unit; moving bytes is not mutated and comes from the ordinary kernels."""
    dropped = re.compile(r'#pragma once\n|#include "engine/cuda/(?:device|move)\.(?:h|cuh)"\n')
    moves = ('#include "tests/kernels/host_kernels.h"\nnamespace tutti::cuda {\nstatic void move_slice(const Slice& slice) '
             "{ test::move_one_slice(slice); }\n}  // namespace tutti::cuda\n")
    parts = [dropped.sub("", device), moves, dropped.sub("", interpreter),
             f'extern "C" void tutti_run_{name}(tutti::cuda::Launch launch) {{ tutti::cuda::run_launch(launch); }}\n']
    return "\n".join(parts)


def main():
    if sys.argv[1] == "--names":
        print("\n".join(name for name, *_ in MUTANTS))
        return
    texts = {"interpreter": pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"),
             "device": pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")}
    folder = pathlib.Path(sys.argv[3])
    for name, _, where, old, new in MUTANTS:
        changed = dict(texts)
        changed[where] = mutate(texts[where], old, new, name)
        (folder / f"{name}.cc").write_text(source(name, changed["device"], changed["interpreter"]), encoding="utf-8")
    (folder / "mutants.inc").write_text(table(), encoding="utf-8")


def table():
    """Declarations of all mutants, and the rows of those that must be noticed: name, kernel, by edges alone."""
    lines = [f'extern "C" void tutti_run_{name}(tutti::cuda::Launch launch);' for name, *_ in MUTANTS]
    lines += ["namespace tutti::test {", "constexpr Mutant kMutants[] = {"]
    lines += [f'    {{"{name}", &tutti_run_{name}, {str(noticed == "edges").lower()}}},'
              for name, noticed, *_ in MUTANTS if noticed]
    return "\n".join(lines + ["};", "}  // namespace tutti::test", ""])


if __name__ == "__main__":
    main()
