#!/usr/bin/env python3
"""Translates PTX, as nvcc makes it of the library's kernels, to C++ that runs on the simulated device.

Usage: translate.py PTX OUT_FOLDER PARTS: writes ptx.h and ptx_0.cc .. ptx_(PARTS-1).cc; see machine.h for what they call.
Beside them ptx_mutants.cc and mutants.inc, for tests/kernels/mutants_test.cc: kernels of PTX with one mistake each.
A function of the PTX becomes a function `f_NAME(block, result, arguments...)`, an entry `entry_NAME(argument)`. Registers
are untyped bits, as in PTX; an instruction reads them by its own type. Only what the kernels use is known: any other
instruction, modifier or operand is an error that names it.
"""

import pathlib
import re
import sys

BITS = {"pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16, "b32": 32,
        "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "e4m3x2": 16, "e5m2x2": 16, "b64": 64, "u64": 64,
        "s64": 64, "f64": 64, "b128": 128}
SPECIAL = {"%tid.x": "ptx::thread_index()", "%ntid.x": "ptx::thread_count()", "%ctaid.x": "ptx::block_index()"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
BINARY = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "div": "/", "rem": "%"}
SHARED_START = 1024  # so that no address of shared memory looks like null
# What the simulator must know and no instruction says: device.h writes it as a comment.
POLL = re.compile(r"//\s*simulator: poll (\S+), (\S+)")
POLL_ENDED = re.compile(r"//\s*simulator: poll ended")
# Name, function, text, replacement: the first place in the function, which must be there.
COPY = "_ZN5tutti4cuda7copy_asINS0_6PacketEEEvRKNS0_5SliceE"
MUTANTS = [
    ("none", "tutti_run", r"", ""),
    ("barrier_dropped_behind_moving", "tutti_run", r"(call\.uni\s+_ZN5tutti4cuda10move_slice[\s\S]*?)bar\.sync\s+2,[^;]*;", r"\1"),
    ("arrival_dropped", "tutti_run", r"bar\.arrive\s+1,[^;]*;", ""),
    ("moved_never_told", "tutti_run", r"st\.release\.cta\.shared\.u32[^;]*;", ""),
    ("words_swapped", COPY, r"(st\.global\.v4\.u32 \[[^\]]+\], \{)(%r\d+), (%r\d+),", r"\1\3, \2,"),
    ("store_misaligned", COPY, r"(st\.global\.v4\.u32 \[%rd\d+)\]", r"\1+4]"),
    ("store_out_of_bounds", COPY, r"(st\.global\.v4\.u32 \[%rd\d+)\]", r"\1+16]"),
    ("relayed_packet_in_two_stores", "tutti_short", r"(ld\.relaxed\.sys\.global\.b128 [\s\S]*?)mov\.b128 whole, "
     r"\{(%r\d+), (%r\d+), (%r\d+), (%r\d+)\}; st\.relaxed\.sys\.global\.b128 \[(%rd\d+)\], whole;",
     r"\1st.relaxed.sys.global.v2.u32 [\6+8], {\4, \5}; st.relaxed.sys.global.v2.u32 [\6], {\2, \3};"),
    ("packet_in_two_loads", "tutti_short", r"ld\.relaxed\.sys\.global\.b128 whole, \[(%rd\d+)\]; "
     r"mov\.b128 \{(%r\d+), (%r\d+), (%r\d+), (%r\d+)\}, whole;",
     r"ld.relaxed.sys.global.v2.u32 {\2, \3}, [\1]; ld.relaxed.sys.global.v2.u32 {\4, \5}, [\1+8];"),
]


class Unknown(Exception):
    """PTX that the translator does not know."""


def bits_type(bits):
    """The C++ type of a register's bits."""
    return f"uint{bits}_t" if bits < 128 else "ptx::Uint128"


def c_type(kind):
    """The C++ type that computes with values of a PTX type."""
    bits = BITS[kind]
    if bits == 128:
        return bits_type(bits)
    if kind == "pred":
        return "bool"
    if kind in ("f32", "f64"):
        return "float" if kind == "f32" else "double"
    return f"{'' if kind[0] == 's' else 'u'}int{bits}_t"


def is_float(kind):
    return kind in ("f32", "f64")


class Function:
    """One function: its parameters, registers and, after translate(), its C++."""

    def __init__(self, module, name, is_entry, results, parameters, body):
        self.module, self.name, self.is_entry, self.body = module, name, is_entry, body
        self.results, self.parameters = results, parameters
        self.memory = {name: "param" for name, _ in results + parameters}  # what is no register: its state space
        self.registers = {}  # name -> bits
        self.lines = []

    def signature(self, name=None):
        pointers = [f"unsigned char* {p}" for p, _ in self.results] + [f"const unsigned char* {p}" for p, _ in self.parameters]
        return f"void {name or 'f_' + self.name}({', '.join(['const ptx::Block& block'] + pointers)})"

    # ---- operands ----

    def place(self, operand):
        """The C++ name of a register."""
        if operand not in self.registers:
            raise Unknown(f"register {operand}")
        return operand.lstrip("%").replace("$", "_")

    def value(self, operand, kind):
        """An expression: the operand as a value of the type."""
        bits, ctype = BITS[kind], c_type(kind)
        if operand in SPECIAL:
            return f"({ctype}){SPECIAL[operand]}"
        if operand in self.registers:
            place, width = self.place(operand), self.registers[operand]
            if kind == "pred" or width == 1:
                if kind != "pred" or width != 1:
                    raise Unknown(f"predicate {operand} as {kind}")
                return place
            if width < bits:
                raise Unknown(f"{operand} of {width} bits as {kind}")
            return f"__builtin_bit_cast({ctype}, ({bits_type(bits)}){place})" if is_float(kind) else f"({ctype}){place}"
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", operand) or re.fullmatch(r"0[dD][0-9a-fA-F]{16}", operand):
            whole = f"0x{operand[2:]}ull"
            return f"__builtin_bit_cast({ctype}, ({bits_type(bits)}){whole})" if is_float(kind) else f"({ctype}){whole}"
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", operand):
            if kind == "pred":
                return "true" if int(operand, 0) else "false"
            return f"({ctype}){hex(int(operand, 0) & (2**64 - 1))}ull"
        if bits in (32, 64) and not is_float(kind):
            return f"({ctype}){self.address_of(operand)[1]}"
        raise Unknown(f"operand {operand} as {kind}")

    def address_of(self, symbol):
        """(state space, expression) of a variable's address."""
        if symbol in self.memory:
            return self.memory[symbol], f"(uint64_t){symbol}"
        if symbol in self.module.shared:
            return "shared", f"{self.module.shared[symbol]}ull"
        raise Unknown(f"symbol {symbol}")

    def address(self, operand):
        """An expression for [base+offset]."""
        match = re.fullmatch(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
        if not match:
            raise Unknown(f"address {operand}")
        base, offset = match.groups()
        base = self.value(base, "b64" if self.registers.get(base, 64) == 64 else "b32") if base in self.registers \
            else self.address_of(base)[1]
        return f"(uint64_t)({base}) + (uint64_t){int(offset or '0', 0)}ll"

    def assign(self, destination, kind, expression):
        """Writes a value of the type into a register, which may be wider."""
        if destination == "_":
            return f"(void)({expression});"
        place, width = self.place(destination), self.registers[destination]
        if (width == 1) != (kind == "pred") or width < BITS[kind]:
            raise Unknown(f"{kind} into {destination} of {width} bits")
        if kind == "pred":
            return f"{place} = {expression};"
        if is_float(kind):
            return f"{place} = __builtin_bit_cast({bits_type(BITS[kind])}, ({c_type(kind)})({expression}));"
        return f"{place} = ({bits_type(width)})({c_type(kind)})({expression});"

    # ---- instructions ----

    def instruction(self, text):
        guard = ""
        match = re.match(r"@(!?)(%\w+)\s+(.*)", text, re.S)
        if match:
            guard = f"if ({match.group(1)}{self.place(match.group(2))}) "
            text = match.group(3)
        opcode, _, rest = text.partition(" ")
        parts = opcode.split(".")
        operands = split_operands(rest)
        handler = getattr(self, "do_" + parts[0], None) or self.module.plain.get(parts[0])
        if handler is None:
            raise Unknown(f"instruction {opcode}")
        code = handler(parts, operands)
        return f"{guard}{{ {code} }}" if guard else code

    def arithmetic(self, parts, operands):
        kind = parts[-1]
        rounded = [m for m in parts[1:-1] if m not in ("rn", "lo")]
        if rounded or is_float(kind) != ("rn" in parts) or BITS.get(kind, 8) == 8:
            if parts[0] == "mul" and parts[1:-1] == ["wide"]:
                wide = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}[kind]
                a, b = (f"({c_type(wide)}){self.value(o, kind)}" for o in operands[1:])
                return self.assign(operands[0], wide, f"{a} * {b}")
            raise Unknown(f"instruction {'.'.join(parts)}")
        a, b = (self.value(o, kind) for o in operands[1:])
        if parts[0] in ("div", "rem"):
            if not is_float(kind):
                return self.assign(operands[0], kind, f"ptx::{parts[0]}ide({a}, {b})")
        elif not is_float(kind):  # wraps
            a, b = (f"(uint64_t)({v})" for v in (a, b))
        return self.assign(operands[0], kind, f"{a} {BINARY[parts[0]]} {b}")

    do_add = do_sub = do_mul = do_div = do_rem = arithmetic

    def bitwise(self, parts, operands):
        kind = only_type(parts)
        return self.assign(operands[0], kind, f"{self.value(operands[1], kind)} {BINARY[parts[0]]} {self.value(operands[2], kind)}")

    do_and = do_or = do_xor = bitwise

    def do_not(self, parts, operands):
        kind = only_type(parts)
        return self.assign(operands[0], kind, ("!" if kind == "pred" else "~") + self.value(operands[1], kind))

    def do_mad(self, parts, operands):
        if parts[1:] == ["wide", "u32"]:
            a, b = (f"(uint64_t)({self.value(o, 'u32')})" for o in operands[1:3])
            return self.assign(operands[0], "u64", f"{a} * {b} + {self.value(operands[3], 'u64')}")
        if parts[1] != "lo" or is_float(parts[2]):
            raise Unknown(f"instruction {'.'.join(parts)}")
        a, b, c = (f"(uint64_t)({self.value(o, parts[2])})" for o in operands[1:])
        return self.assign(operands[0], parts[2], f"{a} * {b} + {c}")

    def shift(self, parts, operands):
        kind = only_type(parts)
        name = "shift_left" if parts[0] == "shl" else "shift_right"
        return self.assign(operands[0], kind, f"ptx::{name}({self.value(operands[1], kind)}, {self.value(operands[2], 'u32')})")

    do_shl = do_shr = shift

    def unary(self, parts, operands):
        kind = only_type([p for p in parts if p != "rn"])
        return self.assign(operands[0], kind, f"ptx::{parts[0]}({self.value(operands[1], kind)})")

    do_neg = do_abs = do_rcp = unary

    def extreme(self, parts, operands):
        if parts[1:] == ["NaN", "f32"]:
            a, b = (self.value(o, "f32") for o in operands[1:])
            return self.assign(operands[0], "f32", f"ptx::{parts[0]}_nan({a}, {b})")
        kind = only_type(parts)
        if is_float(kind):
            raise Unknown(f"instruction {'.'.join(parts)}")
        a, b = (self.value(o, kind) for o in operands[1:])
        return self.assign(operands[0], kind, f"{a} {'<' if parts[0] == 'min' else '>'} {b} ? {a} : {b}")

    do_min = do_max = extreme

    def do_setp(self, parts, operands):
        if len(parts) != 3:
            raise Unknown(f"instruction {'.'.join(parts)}")
        compare, kind = parts[1:]
        a, b = (self.value(o, kind) for o in operands[1:])
        if compare in ("nan", "num"):
            return self.assign(operands[0], "pred", f"{'!' if compare == 'num' else ''}ptx::unordered({a}, {b})")
        if is_float(kind) and compare.endswith("u"):
            return self.assign(operands[0], "pred", f"ptx::unordered({a}, {b}) || {a} {COMPARE[compare[:-1]]} {b}")
        if is_float(kind) and compare == "ne":
            return self.assign(operands[0], "pred", f"!ptx::unordered({a}, {b}) && {a} != {b}")
        if compare not in COMPARE:
            raise Unknown(f"instruction {'.'.join(parts)}")
        return self.assign(operands[0], "pred", f"{a} {COMPARE[compare]} {b}")

    def do_selp(self, parts, operands):
        kind = only_type(parts)
        a, b = (self.value(o, kind) for o in operands[1:3])
        return self.assign(operands[0], kind, f"{self.value(operands[3], 'pred')} ? {a} : {b}")

    def do_mov(self, parts, operands):
        kind = only_type(parts)
        if operands[0].startswith("{"):
            names = vector(operands[0])
            part = BITS[kind] // len(names)
            whole = self.value(operands[1], kind)
            return " ".join(self.assign(n, f"b{part}", f"({bits_type(BITS[kind])}){whole} >> {part * i}") for i, n in enumerate(names))
        if operands[1].startswith("{"):
            names = vector(operands[1])
            part = BITS[kind] // len(names)
            joined = " | ".join(f"({bits_type(BITS[kind])}){self.value(n, f'b{part}')} << {part * i}" for i, n in enumerate(names))
            return self.assign(operands[0], kind, joined)
        return self.assign(operands[0], kind, self.value(operands[1], kind))

    def do_cvt(self, parts, operands):
        *how, to, kind = parts[1:]
        if to in ("f16", "bf16", "f16x2", "bf16x2", "e4m3x2", "e5m2x2") or kind in ("f16", "bf16", "e4m3x2", "e5m2x2"):
            name = f"convert_{'_'.join(how + [to, kind])}"
            values = ", ".join(self.value(o, kind) for o in operands[1:])
            return self.assign(operands[0], to, f"ptx::{name}({values})")
        if how not in ([], ["rn"]) or is_float(to) != (how == ["rn"]) or (is_float(kind) and not is_float(to)):
            if not (is_float(to) and is_float(kind) and BITS[to] > BITS[kind] and how == []):
                raise Unknown(f"instruction {'.'.join(parts)}")
        return self.assign(operands[0], to, self.value(operands[1], kind))

    def do_cvta(self, parts, operands):
        space, kind = parts[-2:]
        address = self.value(operands[1], kind)
        if space == "shared":
            address = f"block.{'to_shared' if parts[1] == 'to' else 'from_shared'}({address})"
        elif space not in ("local", "global", "param"):
            raise Unknown(f"instruction {'.'.join(parts)}")
        return self.assign(operands[0], kind, address)

    def do_bfi(self, parts, operands):
        kind = only_type(parts)
        a, b = (self.value(o, kind) for o in operands[1:3])
        at, count = (self.value(o, "u32") for o in operands[3:])
        return self.assign(operands[0], kind, f"ptx::insert_bits({a}, {b}, {at}, {count})")

    def do_bfe(self, parts, operands):
        kind = only_type(parts)
        if kind[0] != "u":
            raise Unknown(f"instruction {'.'.join(parts)}")
        at, count = (self.value(o, "u32") for o in operands[2:])
        return self.assign(operands[0], kind, f"ptx::extract_bits({self.value(operands[1], kind)}, {at}, {count})")

    def do_prmt(self, parts, operands):
        a, b, c = (self.value(o, only_type(parts)) for o in operands[1:])
        return self.assign(operands[0], "b32", f"ptx::permute({a}, {b}, {c})")

    def do_shf(self, parts, operands):
        if parts[2:] != ["wrap", "b32"]:
            raise Unknown(f"instruction {'.'.join(parts)}")
        a, b, c = (self.value(o, "u32") for o in operands[1:])
        return self.assign(operands[0], "b32", f"ptx::funnel_{'left' if parts[1] == 'l' else 'right'}({a}, {b}, {c})")

    # ---- memory ----

    def access(self, parts):
        """(order, space, vector length, type) of a load or a store."""
        order, space, length = "weak", "generic", 1
        for part in parts[1:-1]:
            if part in ("relaxed", "acquire", "release"):
                order = part
            elif part in ("global", "shared", "local", "param"):
                space = part
            elif part in ("v2", "v4"):
                length = int(part[1])
            elif part not in ("sys", "gpu", "cta", "u64") or order == "weak":
                raise Unknown(f"instruction {'.'.join(parts)}")
        in_place = order == "weak" or (space, "cta" in parts) in (("global", False), ("shared", True))
        if not in_place or (parts[-1] == "b128" and (order != "relaxed" or length > 1)):
            raise Unknown(f"instruction {'.'.join(parts)}")
        if order != "weak" and space == "shared":
            order += "_shared"
        return order, "generic" if space == "global" else space, length, parts[-1]

    def do_ld(self, parts, operands):
        order, space, length, kind = self.access(parts)
        names = vector(operands[0]) if length > 1 else [operands[0]]
        bits = bits_type(BITS[kind])
        call = f"ptx::load_{space}<{bits}, {length}>" if order == "weak" else f"ptx::load_{order}<{bits}, {length}>"
        into = "const auto from"
        lines = [f"{into} = {call}(block, {self.address(operands[1])});"]
        for i, name in enumerate(names):
            raw = f"from.words[{i}]"
            lines.append(self.assign(name, kind, f"__builtin_bit_cast({c_type(kind)}, {raw})"))
        return "{ " + " ".join(lines) + " }"

    def do_st(self, parts, operands):
        order, space, length, kind = self.access(parts)
        names = vector(operands[1]) if length > 1 else [operands[1]]
        bits = bits_type(BITS[kind])
        call = f"ptx::store_{space}" if order == "weak" else f"ptx::store_{order}"
        values = ", ".join(f"__builtin_bit_cast({bits}, {self.value(n, kind)})" for n in names)
        return f"{call}<{bits}, {length}>(block, {self.address(operands[0])}, {{{{{values}}}}});"

    def atomic(self, parts, operands):
        base = ".".join(parts)
        kind = parts[-1]
        if base in ("atom.shared.max.u64", "atom.acq_rel.gpu.global.add.u32"):
            name = "shared_max" if "shared" in parts else "add_acquire_release"
            value = self.value(operands[2], kind)
            return self.assign(operands[0], kind, f"ptx::{name}(block, {self.address(operands[1])}, {value})")
        if base == "red.relaxed.gpu.global.add.u32":
            return f"ptx::add_relaxed(block, {self.address(operands[0])}, {self.value(operands[1], kind)});"
        raise Unknown(f"instruction {base}")

    do_atom = do_red = atomic

    def do_multimem(self, parts, operands):
        base = ".".join(parts)
        if base == "multimem.st.relaxed.sys.global.v4.f32":
            values = ", ".join(f"(uint32_t){self.place(n)}" for n in vector(operands[1]))
            return f"ptx::multicast_store(block, {self.address(operands[0])}, {{{{{values}}}}});"
        if parts[1:5] != ["ld_reduce", "relaxed", "sys", "global"]:
            raise Unknown(f"instruction {base}")
        names = vector(operands[0]) if operands[0].startswith("{") else [operands[0]]
        kind = {"f16x2": "b32", "bf16x2": "b32"}.get(parts[-1], parts[-1])
        how = "_".join(parts[5:]).replace("::", "_")
        lines = [f"const auto from = ptx::reduce_{how}(block, {self.address(operands[1])});"]
        lines += [self.assign(n, f"b{BITS[kind]}", f"from.words[{i}]") for i, n in enumerate(names)]
        return "{ " + " ".join(lines) + " }"

    # ---- control ----

    def do_bar(self, parts, operands):
        if parts == ["bar", "sync"] and operands == ["0"]:
            return "ptx::barrier();"
        if parts not in (["bar", "sync"], ["bar", "arrive"]) or len(operands) != 2:
            raise Unknown(f"instruction {'.'.join(parts)} of {len(operands)} operands")
        number, threads = (self.value(operand, "u32") for operand in operands)
        return f"ptx::barrier({number}, {threads}, {'true' if parts[1] == 'sync' else 'false'});"

    def do_bra(self, _parts, operands):
        return f"goto {label(operands[0])};"

    def do_call(self, _parts, operands):
        result = []
        if operands[0].startswith("("):
            result, operands = split_operands(operands[0][1:-1]), operands[1:]
        arguments = split_operands(operands[1].strip()[1:-1]) if len(operands) > 1 else []
        if operands[0] not in self.module.functions:
            raise Unknown(f"function {operands[0]}")
        return f"{self.module.called(operands[0])}({', '.join(['block'] + result + arguments)});"

    # ---- the body ----

    def declaration(self, text):
        """A directive inside a function."""
        match = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", text, re.S)
        if match:
            bits = BITS[match.group(1)]
            ctype = "bool" if bits == 1 else bits_type(bits)
            names = []
            for name in split_operands(match.group(2)):
                counted = re.fullmatch(r"([^<]+)<(\d+)>", name)
                names += [f"{counted.group(1)}{i}" for i in range(int(counted.group(2)))] if counted else [name]
            self.registers.update(dict.fromkeys(names, bits))
            return names and f"{ctype} {', '.join(self.place(n) for n in names)};"
        match = re.fullmatch(r"\.(param|local)\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(\S+?)(?:\[(\d+)\])?", text)
        if match:
            space, kind, name, count = match.groups()
            self.memory[name] = space
            return f"alignas(16) unsigned char {name}[{BITS[kind] // 8 * int(count or 1)}];"
        if text.startswith((".pragma", ".loc", ".shared")):
            return ""
        raise Unknown(f"directive {text}")

    def translate(self):
        for number, kind, text in statements(self.body):
            try:
                if kind == "text":
                    code = self.declaration(text) if text.startswith(".") else \
                        "return;" if text in ("ret", "exit") else self.instruction(text)
                elif kind == "label":
                    code = f"{label(text)}:;"
                elif kind == "poll":
                    address, bounded = text
                    code = f"ptx::poll_failed({self.value(address, 'b64')}, {self.value(bounded, 'b32')} != 0);"
                else:
                    code = {"poll ended": "ptx::wait_ended();"}.get(kind, text)
            except (Unknown, KeyError) as error:
                raise SystemExit(f"{self.name}, line {number} of its body: {error}: {text!r}: unknown to translate.py") from error
            if code:
                self.lines.append(code)
        return self.lines


def only_type(parts):
    if len(parts) != 2 or parts[1] not in BITS:
        raise Unknown(f"instruction {'.'.join(parts)}")
    return parts[1]


def vector(operand):
    return split_operands(operand.strip()[1:-1])


def label(name):
    return name.replace("$", "_")


def split_operands(text):
    """Splits at commas outside braces, brackets and parentheses."""
    operands, depth, current = [], 0, ""
    for char in text.strip():
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            operands.append(current.strip())
            current = ""
        else:
            current += char
    return operands + [current.strip()] if current.strip() else operands


def statements(body):
    """Yields (line, kind, text) for each statement, label, brace and comment that means something."""
    current, number = "", 0
    for number, line in enumerate(body.split("\n"), 1):
        poll = POLL.search(line)
        if poll:
            yield number, "poll", poll.groups()
        elif POLL_ENDED.search(line):
            yield number, "poll ended", line
        for piece in re.findall(r"[^;{}]+|[;{}]", line.split("//")[0]):
            if piece == ";":
                if current.strip():
                    yield number, "text", re.sub(r"\s+", " ", current.strip())
                current = ""
            elif piece in "{}" and not current.strip():
                yield number, "brace", piece
            else:
                current += piece
        match = re.fullmatch(r"\s*([$\w]+):\s*", current)
        if match:
            yield number, "label", match.group(1)
            current = ""
        current += " "


def parameters_of(text):
    """[(name, bytes)] of a parameter list."""
    found = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([^\s,\[\]()]+)(?:\[(\d+)\])?", text)
    return [(name, BITS[kind] // 8 * int(count or 1)) for kind, name, count in found]


class Module:
    """All of a PTX file."""

    HEADER = re.compile(r"^(?:\.(?:visible|weak)\s+)?\.(entry|func)\s+(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?"
                        r"(?:\s*\.(?:maxntid|minnctapersm|noinline)[^\n{]*)*\s*(;|\{)", re.M)
    plain = {"bar": None, "barrier": None, "fence": None, "membar": None, "trap": None}

    def __init__(self, text):
        self.plain = {
            "fence": lambda parts, _: plain(parts, ["0"], {"fence.proxy.alias": "ptx::alias_fence();", "fence.acq_rel.sys": "ptx::fence();"}),
            "trap": lambda *_: "ptx::trap();",
        }
        self.shared, self.shared_bytes = {}, 0
        for align, name, count in re.findall(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]", text):
            start = -(-self.shared_bytes // max(16, int(align))) * max(16, int(align))
            self.shared[name] = SHARED_START + start
            self.shared_bytes = start + int(count)
        self.functions = {}
        self.renamed = {}  # function -> its name in a mutant
        for match in self.HEADER.finditer(text):
            kind, results, name, parameters, end = match.groups()
            if end == "{":
                body = text[match.end():text.index("\n}", match.end())]
                self.functions[name] = Function(self, name, kind == "entry", parameters_of(results or ""),
                                                parameters_of(parameters or ""), body)

    def called(self, name):
        return self.renamed.get(name, "f_" + name)

    def declarations(self):
        lines = ["// Made by translate.py.", "#pragma once", '#include "tests/ptx/machine.h"', "namespace ptx_kernels {",
                 f"inline constexpr ptx::SharedMemory kShared = {{{SHARED_START}, {self.shared_bytes}}};"]
        for function in self.functions.values():
            lines.append(function.signature() + ";")
            if function.is_entry:
                lines.append(f"inline constexpr unsigned long {function.name}_bytes = {function.parameters[0][1]};")
        for name, offset in self.shared.items():
            lines.append(f"inline constexpr unsigned long shared_{name} = {offset};")
        return "\n".join(lines + ["}  // namespace ptx_kernels", ""])

    def definition(self, name):
        function = self.functions[name]
        function.lines = []
        lines = "\n  ".join(function.translate())
        return f"{function.signature(self.called(name))} {{\n  {lines}\n}}\n"

    def mutant(self, name, where, text, replacement):
        """The C++ of the mutated function and of those that lead to it, under names of their own, and its kernels."""
        function = self.functions[where]
        right = function.body
        function.body, count = re.subn(text, replacement, right, count=1)
        if text and (count != 1 or function.body == right):
            sys.exit(f"translate.py: mutant {name}: {where} has no {text}")
        changed = {where}
        while callers := {f for f in self.functions if f not in changed
                          and any(re.search(rf"\b{re.escape(c)}\b", self.functions[f].body) for c in changed)}:
            changed |= callers
        self.renamed = {f: f"{name}_{f}" for f in changed}
        code = "".join(f"{self.functions[f].signature(self.renamed[f])};\n" for f in changed)
        code += "".join(self.definition(f) for f in changed)
        kernels = "".join(f'extern "C" void {kernel}_{name}(tutti::cuda::Launch launch) {{ ptx_kernels::{self.called(kernel)}('
                          "ptx::this_block(ptx_kernels::kShared), reinterpret_cast<const unsigned char*>(&launch)); }\n"
                          for kernel in ("tutti_run", "tutti_short"))
        function.body, self.renamed = right, {}
        return f"namespace ptx_kernels {{\n{code}}}\n{kernels}"


def plain(parts, operands, known):
    base = ".".join(parts)
    if base not in known or operands != ["0"]:
        raise Unknown(f"instruction {base} {', '.join(operands)}")
    return known[base]


def main():
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    folder, parts = pathlib.Path(sys.argv[2]), int(sys.argv[3])
    module = Module(text)
    (folder / "ptx.h").write_text(module.declarations(), encoding="utf-8")
    pieces = [""] * parts
    for name in sorted(module.functions, key=lambda n: -len(module.functions[n].body)):
        pieces[min(range(parts), key=lambda i: len(pieces[i]))] += module.definition(name) + "\n"
    for i, piece in enumerate(pieces):
        text = f'#include "ptx.h"\nnamespace ptx_kernels {{\n{piece}}}  // namespace ptx_kernels\n'
        (folder / f"ptx_{i}.cc").write_text(text, encoding="utf-8")
    mutants = "".join(module.mutant(*row) for row in MUTANTS)
    (folder / "ptx_mutants.cc").write_text(f'#include "engine/cuda/program.h"\n#include "ptx.h"\n{mutants}', encoding="utf-8")
    lines = [f'extern "C" void {kernel}_{name}(tutti::cuda::Launch launch);'
             for name, *_ in MUTANTS for kernel in ("tutti_run", "tutti_short")]
    lines += ["namespace tutti::test {", "constexpr Mutant kMutants[] = {"]
    lines += [f'    {{"{name}", &tutti_run_{name}, &tutti_short_{name}, false}},' for name, *_ in MUTANTS[1:]]
    (folder / "mutants.inc").write_text("\n".join(lines + ["};", "}  // namespace tutti::test", ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
