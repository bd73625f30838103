#!/usr/bin/env python3
"""Budgets of the kernels, read from the machine code that ptxas made: no local memory in a loop that moves bytes,
its bytes in flight, registers, shared memory, barriers and fences.

Usage: sass_test.py FOLDER CUBIN... cuobjdump and nvdisasm are looked for in the folder and in PATH. Without them the
test is skipped: `./dev test` fetches both (dev.d/setup.sh).
"""

import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tap  # noqa: E402

# The functions of move.cuh that move bytes.
MOVERS = ("copy_as", "reduce_body", "multicast_packets")
# Of kernel tutti_run, as ptxas says; 512 threads of 128 registers fill a multiprocessor.
MOST_REGISTERS = 128
MOST_SHARED = {"tutti_run": 10752, "tutti_short": 16384}
MOST_STACK = {"tutti_run": 32, "tutti_short": 96}
# In the text of tutti_run: a slice passes two barriers of the movers and at most five of the scouts, an arrival among
# them, a lane and a launch the others: three of them let a table be loaded by all threads at once.
MOST_BARRIERS = 20
# Fences of release stores: one where an operation begins, one a slice, for all that it tells, the others at the end of
# a launch, which passes none where it stays and is done. Alias fences, of two instructions: one before a slice by multicast and one
# behind it, by the threads of its ends. No other function has any.
MOST_FENCES = {"MEMBAR.ALL.SYS": 6, "MEMBAR.ALL.GPU": 3, "MEMBAR.SC": 4}
# Packets of 16 bytes that a thread has on their way in these bodies. Sums of fp8 have 5 to 8, averages of integers 2.
PACKETS_IN_FLIGHT = 8
LONG_CALLS = ("copy_asINS0_6PacketE", "ElementIfEENS_9operators3Sum", "8Bfloat16EEENS_9operators3Sum",
              "7Float16EEENS_9operators3Sum", "ElementIdEENS_9operators3Sum", "multicast_packetsINS0_6CopiedE",
              *(f"ElementI{letter}EENS_9operators3SumELNS3_11AssociationE0ELb0E" for letter in "htjm"))
# Of tutti_short: a load for each source, and the stores that push and relay.
PACKET_ACCESSES = {"LDG.E.128.STRONG.SYS": 8, "STG.E.128.STRONG.SYS": 2}
# Sums of small floats are rounded by these instructions, not by integer arithmetic. sm_80 has none for fp8.
ROUNDS = {"7Float16": ("F2FP.PACK_AB", "F2FP.F16."), "8Bfloat16": ("F2FP.BF16.",)}
ROUNDS_FP8 = {"10Float8E4M3": ("F2FP.SATFINITE.E4M3.",), "10Float8E5M2": ("F2FP.SATFINITE.E5M2.",)}

LABEL = re.compile(r"^([.$\w]+):")
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
LOAD = re.compile(r"\bLDG\.E\.128\S*\s+R(\d+),")
REGISTER = re.compile(r"\bR(\d+)\b")
BRANCH = re.compile(r"\bBRA(?:\.\w+)*\s+(?:\S+,\s*)?`\(([.$\w]+)\)")
FUNCTION = re.compile(r"^(?:\.text\.|\$\w+\$)(_Z\w+|\w+)$")


class Function:
    """The instructions of one function, with the loops that backward branches close."""

    def __init__(self, name):
        self.name, self.code, self.labels = name, [], {}

    def loops(self):
        """[(first, last)] by index in code."""
        found = []
        for at, text in enumerate(self.code):
            target = BRANCH.search(text)
            if target and self.labels.get(target.group(1), at + 1) <= at:
                found.append((self.labels[target.group(1)], at))
        return [loop for loop in found if loop[1] > loop[0]]  # an endless loop behind the end is padding


def functions_of(text):
    """All functions of a disassembly; what the compiler adds for division counts as its own."""
    functions = [Function("")]
    for line in text.splitlines():
        label = LABEL.match(line)
        if label:
            name = label.group(1)
            if name.startswith(("$", ".text.")):
                functions.append(Function(name))
            functions[-1].labels[name] = len(functions[-1].code)
            continue
        instruction = INSTRUCTION.match(line)
        if instruction:
            functions[-1].code.append(instruction.group(2))
    return [function for function in functions if function.code]


def opcode(text):
    return re.sub(r"^@!?\w+\s+", "", text).split()[0]


def is_local(text):
    return opcode(text).startswith(("LDL", "STL"))


def mover_of(function):
    return next((name for name in MOVERS if f"{len(name)}{name}I" in function.name), None)


def check_loops(functions):
    """No loop of a mover loads or stores local memory."""
    movers = [function for function in functions if mover_of(function)]
    if len(movers) < 100:
        return f"only {len(movers)} functions that move bytes: has the form of the listing changed?"
    for function in movers:
        for first, last in function.loops():
            local = [text for text in function.code[first:last + 1] if is_local(text)]
            if local:
                return f"{function.name}: a loop of {last - first + 1} instructions has {len(local)} of local memory: {local[0]}"
    return ""


def most_on_their_way(code):
    """The most loads of 16 bytes that are under way at a time. The first use of a loaded register ends the load and all
    loads before it."""
    loads, most = [], 0
    for text in code:
        load = LOAD.search(text)
        used = {int(number) for number in REGISTER.findall(text)}
        for at in range(len(loads) - 1, -1, -1):
            if used & loads[at]:
                del loads[:at + 1]
                break
        if load:
            loads.append(set(range(int(load.group(1)), int(load.group(1)) + 4)))
            most = max(most, len(loads))
    return most


def packets_in(function):
    """The most packets that a loop has under way."""
    return max((most_on_their_way(function.code[first:last + 1]) for first, last in function.loops()), default=0)


def check_flight(functions, least):
    for part in LONG_CALLS:
        bodies = [function for function in functions if part in function.name and mover_of(function)]
        bodies = [function for function in bodies if "AssociationE1" not in function.name and "9Collected" not in function.name]
        if not bodies:
            return f"no body of {part}"
        for function in bodies:
            if packets_in(function) < least:
                return f"{function.name} has {packets_in(function)} packets on their way"
    return ""


def check_conversions(functions, rounds):
    """All loops that sum small floats have the instruction that rounds float32 to the type; the switch has its own."""
    for part, kinds in rounds.items():
        name = f"{part}EEENS_9operators3Sum"
        bodies = [function for function in functions if name in function.name and mover_of(function)]
        bodies = [function for function in bodies if function.loops() and "9Collected" not in function.name]
        if not bodies:
            return f"no body of {part}"
        for function in bodies:
            loops = [text for first, last in function.loops() for text in function.code[first:last + 1]]
            if not any(opcode(text).startswith(kinds) for text in loops):
                return f"{function.name} has none of {kinds}"
    return ""


def check_kernel(functions):
    kernel = next((function for function in functions if function.name == ".text.tutti_run"), None)
    if kernel is None:
        return "no kernel tutti_run"
    barriers = sum(opcode(text).startswith("BAR.") for text in kernel.code)
    if barriers > MOST_BARRIERS:
        return f"tutti_run has {barriers} barriers, of at most {MOST_BARRIERS}"
    for kind, most in MOST_FENCES.items():
        fences = sum(opcode(text).startswith(kind) for text in kernel.code)
        if fences > most:
            return f"tutti_run has {fences} of {kind}, of at most {most}"
    fenced = [function.name for function in functions if not function.name.startswith(".text.tutti_")
              and any(opcode(text).startswith("MEMBAR") for text in function.code)]
    return f"fences outside of the kernels: {fenced}" if fenced else ""


def check_packets(functions):
    """Short calls load and store packets whole: one access of 16 bytes for data and flag."""
    kernel = next((function for function in functions if function.name == ".text.tutti_short"), None)
    if kernel is None:
        return "no kernel tutti_short"
    for kind, least in PACKET_ACCESSES.items():
        count = sum(opcode(text) == kind for text in kernel.code)
        if count < least:
            return f"tutti_short has {count} of {kind}, of at least {least}"
    return ""


def check_resources(listing):
    """`listing`: what cuobjdump says of registers and memory."""
    found = re.findall(r"Function (tutti_run|tutti_short):\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", listing)
    if len(found) < 2:
        return "no figures of tutti_run and tutti_short"
    for name, registers, stack, shared, local in found:
        most = MOST_REGISTERS if name == "tutti_run" else MOST_REGISTERS // 2
        if int(registers) > most:
            return f"{name} uses {registers} registers, of at most {most}"
        if int(shared) > MOST_SHARED[name]:
            return f"{name} uses {shared} bytes of shared memory"
        if int(stack) > MOST_STACK[name] or int(local) > 0:
            return f"{name} uses a stack of {stack} bytes and {local} bytes of local memory"
    return ""


def find_tool(name, folder):
    return shutil.which(name, path=folder) or shutil.which(name)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    folder, *cubins = sys.argv[1:]
    tools = {name: find_tool(name, folder) for name in ("cuobjdump", "nvdisasm")}
    missing = [name for name, path in tools.items() if path is None]
    if missing:
        tap.run([("budgets read from SASS", lambda: skip(f"no {' and no '.join(missing)}: ./dev test fetches both"))])
    checks = []
    for cubin in cubins:
        name = pathlib.Path(cubin).stem
        functions = functions_of(run(tools["nvdisasm"], "-c", cubin))
        rounds = ROUNDS if name == "sm_80" else ROUNDS | ROUNDS_FP8
        checks += [(f"{name}: loops keep all values in registers", check_loops(functions)),
                   (f"{name}: small floats are rounded by instructions", check_conversions(functions, rounds)),
                   (f"{name}: threads have {PACKETS_IN_FLIGHT} packets on their way", check_flight(functions, PACKETS_IN_FLIGHT)),
                   (f"{name}: barriers and fences", check_kernel(functions)),
                   (f"{name}: packets are loaded and stored whole", check_packets(functions)),
                   (f"{name}: registers, shared memory and stack", check_resources(run(tools["cuobjdump"], "-res-usage", cubin)))]
    tap.run((name, lambda wrong=wrong: expect_nothing(wrong)) for name, wrong in checks)


def skip(reason):
    raise tap.Skip(reason)


def expect_nothing(wrong):
    if wrong:
        raise AssertionError(wrong)


if __name__ == "__main__":
    main()
