#!/usr/bin/env python3
"""Makes the mutants: the interpreter with one mistake each. The kernel tests must notice every mutant.

Usage: mutate.py DEVICE ROLES LAUNCH TABLES INTERPRETER SHORT OUT_FOLDER, or mutate.py --names. Each mutant is a source
OUT_FOLDER/NAME.cc with the functions tutti_run_NAME and tutti_short_NAME; mutants.inc lists them. A text to be
replaced must occur exactly once. Otherwise the kernels have changed, and the mutants must change too.
"""

import pathlib
import re
import sys

# Name, detection ("data": a wrong result, or no result; "edges": the thread sanitizer), file, text, replacement.
MUTANTS = [
    ("none", "", "interpreter", "", ""),
    ("no_barrier_behind_moving", "data", "interpreter",
     '    device::meet<kMovedBarrier>(mover_count(), "the slice is moved");\n', ""),
    ("no_barrier_before_moving", "data", "interpreter",
     '    device::meet<kReadyBarrier>(device::thread_count(), "the slice is ready");\n', ""),
    ("moved_not_awaited", "data", "interpreter", "    if (moving != 0) await_moved(block, moving);\n", ""),
    ("no_barrier_behind_finding", "data", "interpreter", '    scouts_meet("the next slice is found");\n', ""),
    ("no_barrier_behind_polling", "data", "interpreter", '  scouts_meet("the ends are polled");\n', ""),
    ("no_barrier_behind_telling", "edges", "interpreter", '    scouts_meet("the peers are told");\n', ""),
    ("one_set_of_ends", "data", "interpreter", "ready_ends_of(block, 1 - count % 2)", "ready_ends_of(block, count % 2)"),
    ("next_number_too_low", "data", "interpreter", "return told + before.slots;", "return told;"),
    ("late_slice_handed_over", "data", "interpreter", "block.late == outlook.moving", "false"),
    ("half_a_slice_handed_over", "data", "interpreter", "    slice.sinks[i] = block.next.sinks[i];\n", ""),
    ("position_stands", "data", "interpreter", "    if (scout_index() == 0) block.at = block.ahead;\n", ""),
    ("another_call_overlooked", "data", "interpreter", "if ((word & flag::kAgreedMask) != expected)", "if (false)"),
    ("obstacle_of_the_slice_before", "data", "interpreter", "ready_ends_of(block, block.moved % 2)",
     "ready_ends_of(block, 1 - block.moved % 2)"),
    ("sent_numbers_not_stored", "data", "tables", "      to.next = from.next;\n", ""),
    ("references_not_stored", "data", "tables", "      to.last_reference = from.last_reference;\n", ""),
    ("received_numbers_not_stored", "data", "tables",
     "      block.program.receives[numbers[i]].next = block.tables.receives[i - sends].next;\n", ""),
    ("one_link_of_many", "data", "interpreter", "before.kind == ready.kind && before.link == ready.link", "before.kind == ready.kind"),
    ("abort_overlooked", "data", "launch", "    if (polls % kPollsPerLook == 0) why = look_around(block);\n", ""),
    ("credit_off_by_one", "data", "interpreter", "link.slot_mask + 1;", "link.slot_mask + 2;"),
    ("position_not_stored", "data", "launch",
     "  block.program.positions[block.lane_index] = block.at;\n", ""),
    ("done_bytes_forgotten", "data", "launch",
     "  block.ahead = block.at;\n  block.running", "  block.at.done_bytes = 0;\n  block.ahead = block.at;\n  block.running"),
    ("sequence_stands", "data", "launch", "state->sequence = ++after.sequence;", "++after.sequence;"),
    ("references_not_awaited", "data", "interpreter",
     "block.program.reference_bytes != UINT64_MAX;", "false;"),
    ("location_without_its_start", "data", "interpreter", "  const uint64_t start = registered[named >> kLocationShift];\n",
     "  const uint64_t start = 0;\n"),
    ("contributions_not_awaited", "data", "interpreter", " && step.contributes == 0) continue;", ") continue;"),
    ("credit_never_told", "data", "interpreter", "reports ? &link.credit->released : nullptr", "reports ? nullptr : nullptr"),
    ("room_for_one_slot", "data", "interpreter", "needed = number + ready.slots;", "needed = number + 1;"),
    ("one_number_a_message", "data", "interpreter", "link.next = number + ready.slots;", "link.next = number + 1;"),
    ("credit_passed_over", "data", "interpreter", "passed != 0;", "(passed == 0 ? 1 : link.next & link.credit_mask) == 0;"),
    ("one_lane_ends_all", "data", "launch", "== block.program.lane_count) return LaunchEnd::kDone;",
     "> 0) return LaunchEnd::kDone;"),
    ("companions_not_awaited", "data", "interpreter",
     "  const uint32_t count = end_count(step);\n",
     "  const uint32_t count = step.source_count + step.sink_count;\n"),
    ("companions_not_told", "data", "interpreter", "Told next = {end_count(block.step), ",
     "Told next = {static_cast<uint32_t>(block.step.source_count + block.step.sink_count), "),
    ("contribution_in_its_cell", "data", "interpreter", " && link.by_slot == 0", ""),
    ("not_collected", "data", "interpreter", "slice.collects = step.collects;", "slice.collects = 0;"),
    ("not_published", "data", "interpreter", "slice.published = step.published;", "slice.published = 0;"),
    ("lanes_gone_forgotten", "data", "launch", "state->lanes_out = state->lanes_gone;", "state->lanes_out = 0;"),
    ("lanes_gone_too_soon", "data", "launch", "block.unfinished == 0 && block.lane_index + blocks >= lanes",
     "block.lane_index + blocks >= lanes"),
    ("left_for_good", "data", "launch", "return block.unfinished != 0 && await_round(block);", "return false;"),
    ("one_lane_a_block", "data", "launch", "  if (block.lane_index < block.program.lane_count) return true;\n", ""),
    ("round_told_early", "edges", "launch", "if (block.stays == 0) device::store_relaxed(&state->left, left);",
     "device::store_relaxed(&state->left, left);"),
    ("report_in_one_slot", "data", "launch", "signals->report[report_slot(left)]", "signals->report[report_slot(left) & 0]"),
    ("report_told_late", "data", "launch",
     "  tell_report(block, after, left, !ended || block.end == LaunchEnd::kMismatch);\n"
     "  tell_end(block, left, ended);\n",
     "  tell_end(block, left, ended);\n"
     "  tell_report(block, after, left, !ended || block.end == LaunchEnd::kMismatch);\n"),
    ("no_fence_before_telling", "data", "interpreter", "    device::release_fence();\n", ""),
    ("count_without_its_stamp", "data", "launch", "static_cast<uint32_t>(left)}", "0u}"),
    ("no_alias_fence_before_moving", "data", "interpreter",
     "  if (is_multicast(step) && scout_index() < count) device::alias_fence();\n", ""),
    ("no_alias_fence_before_telling", "data", "interpreter", "    if (told.by_multicast) device::alias_fence();\n", ""),
    ("relaxed_release", "edges", "device", "  __atomic_store_n(to, value, __ATOMIC_RELEASE);\n  simulator::preempt();\n}\n"
     "TUTTI_DEVICE void store_release(uint32_t*", "  __atomic_store_n(to, value, __ATOMIC_RELAXED);\n"
     "  simulator::preempt();\n}\nTUTTI_DEVICE void store_release(uint32_t*"),
    ("relaxed_acquire", "edges", "device", "__atomic_load_n(from, __ATOMIC_ACQUIRE)",
     "__atomic_load_n(from, __ATOMIC_RELAXED)"),
    ("relaxed_leaving", "edges", "device", "__ATOMIC_ACQ_REL", "__ATOMIC_RELAXED"),
    ("flag_not_checked", "data", "short", "if (flag == block.mark) continue;", "continue;"),
    ("packet_in_two_stores", "data", "device", "  simulator::store_whole(to, std::bit_cast<simulator::Whole>(mail));\n",
     "  static_cast<Mail*>(to)->flag = mail.flag;\n  simulator::preempt();\n"
     "  simulator::store_whole(to, std::bit_cast<simulator::Whole>(mail));\n"),
    ("packet_in_two_loads", "data", "device", "  const Mail mail = std::bit_cast<Mail>(simulator::load_whole(from));\n",
     "  Mail mail = std::bit_cast<Mail>(simulator::load_whole(from));\n  simulator::preempt();\n"
     "  mail.flag = static_cast<const Mail*>(from)->flag;\n"),
    ("relayed_flag_of_the_last_call", "data", "short", "  const Mail mail{{data.words[0], data.words[1], data.words[2]}, block.mark};\n",
     "  const uint32_t relayed = step.ends[0].kind == EndKind::kReceive ? 1 : 0;\n"
     "  const Mail mail{{data.words[0], data.words[1], data.words[2]}, block.mark - relayed};\n"),
    ("relayed_before_it_came", "data", "short", "    if (flag == block.mark) continue;\n",
     "    if (flag == block.mark || step.sink_count > 1) continue;\n"),
    ("all_packets_full", "data", "short", "static_cast<uint64_t>(index) * block.table.data_bytes;",
     "static_cast<uint64_t>(index + 0 * block.epoch) * kFullPacketDataBytes;"),
    ("any_flag_will_do", "data", "short", "if (flag == block.mark) continue;", "if (flag != 0) continue;"),
    ("number_stands", "data", "launch", "state->short_calls = ++after.short_calls;", "(void)state->short_calls;"),
    ("one_half", "data", "short", "block.half = (number & 1) * kHalfMailboxBytes;", "block.half = 0;"),
    ("pushed_again", "data", "short", "block.at.step = 1;", "(void)block.at.step;"),
    ("no_barrier_behind_pushing", "data", "short", '  device::barrier("all is pushed");\n', ""),
    ("no_barrier_behind_pulling", "data", "short", '  device::barrier("all is pulled");\n', ""),
    ("greetings_not_awaited", "data", "short", "  const ShortStep& step = block.table.steps[number];\n  Operands operands;\n",
     "  const ShortStep& step = block.table.steps[number];\n  if (step.bytes == 0) return true;\n  Operands operands;\n"),
    ("flags_not_renewed", "data", "short", "b < block.table.unused_count;", "b + kPacketRanksMax < block.table.unused_count;"),
    ("flags_of_one_half_renewed", "data", "short", "block.epoch / 2 % kRenewalsOfHalf", "block.epoch % kRenewalsOfHalf"),
    ("finished_without_having_all", "data", "short", "const bool finished = why_stopped(block) == Stop::kNone;",
     "const bool finished = true;"),
]


def mutate(text, old, new, name):
    if old and text.count(old) != 1:
        sys.exit(f"mutant {name}: its text occurs {text.count(old)} times, not once: {old!r}")
    return text.replace(old, new) if old else text


def source(name, texts):
    """Returns one translation unit. Moving and computing are not mutated; the ordinary kernels have them."""
    dropped = re.compile(r'#pragma once\n|#include "engine/cuda/(?:device|launch|move|roles|tables)\.(?:h|cuh)"\n')
    moves = """#include "tests/kernels/host_kernels.h"
namespace tutti::cuda {
static void move_slice(const Slice& slice) { test::move_one_slice(slice); }
static PacketData reduce_words(const Calculation& job, const Operands& operands) {
  return test::reduce_some_words(job, operands);
}
}  // namespace tutti::cuda
"""
    kernels = "".join(f'extern "C" void tutti_{kernel}_{name}(tutti::cuda::Launch launch) {{ tutti::cuda::{run}(launch); }}\n'
                      for kernel, run in (("run", "run_launch"), ("short", "run_short_launch")))
    parts = {file: dropped.sub("", text) for file, text in texts.items()}
    return "\n".join([parts["device"], parts["roles"], parts["launch"], moves, parts["tables"], parts["interpreter"], parts["short"], kernels])


def main():
    if sys.argv[1] == "--names":
        print("\n".join(name for name, *_ in MUTANTS))
        return
    files = ("device", "roles", "launch", "tables", "interpreter", "short")
    texts = {file: pathlib.Path(path).read_text(encoding="utf-8") for file, path in zip(files, sys.argv[1:])}
    folder = pathlib.Path(sys.argv[7])
    for name, _, where, old, new in MUTANTS:
        changed = dict(texts)
        changed[where] = mutate(texts[where], old, new, name)
        (folder / f"{name}.cc").write_text(source(name, changed), encoding="utf-8")
    (folder / "mutants.inc").write_text(table(), encoding="utf-8")


def table():
    """Declares all mutants, and lists the mutants to notice: name, kernels, noticed only by edges."""
    lines = [f'extern "C" void tutti_{kernel}_{name}(tutti::cuda::Launch launch);'
             for name, *_ in MUTANTS for kernel in ("run", "short")]
    lines += ["namespace tutti::test {", "constexpr Mutant kMutants[] = {"]
    lines += [f'    {{"{name}", &tutti_run_{name}, &tutti_short_{name}, {str(noticed == "edges").lower()}}},'
              for name, noticed, *_ in MUTANTS if noticed]
    return "\n".join(lines + ["};", "}  // namespace tutti::test", ""])


if __name__ == "__main__":
    main()
