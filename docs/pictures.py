#!/usr/bin/env python3
"""Draws the pictures of the pages: the life of a call, how a message is carried, a fault.

Usage: pictures.py FOLDER. Writes life_of_a_call.svg, carriage.svg and fault.svg. A test compares the committed files with
what this script draws.
"""

import pathlib
import sys
from xml.sax.saxutils import escape

BLUE, GREEN, RED, ORANGE, GREY = "#1f77b4", "#2ca02c", "#d62728", "#ff7f0e", "#7f7f7f"
PALE = {BLUE: "#dbe9f6", GREEN: "#dff2df", RED: "#fbe0e0", ORANGE: "#ffecd9", GREY: "#f0f0f0"}
LINE = 14


class Picture:
    """Boxes, arrows and texts on white, in the style of trainer.svg. Coordinates are pixels."""

    def __init__(self, width, height, title):
        heads = "".join(
            f'<marker id="head{color[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{color}"/></marker>' for color in PALE)
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                      'font-family="sans-serif">',
                      f'<rect width="{width}" height="{height}" fill="white"/>', f"<defs>{heads}</defs>"]
        self.text(20, 20, title, size=13)

    def text(self, x, y, text, anchor="start", color="black", size=11):
        self.parts.append(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{color}">'
                          f"{escape(text)}</text>")

    def box(self, x, y, width, height, text, color=GREY):
        """A box with centred lines of text."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{PALE[color]}" '
                          f'stroke="{color}"/>')
        lines = text.split("\n")
        first = y + height // 2 + 4 - LINE * (len(lines) - 1) // 2
        for number, line in enumerate(lines):
            self.text(x + width // 2, first + LINE * number, line, anchor="middle")

    def arrow(self, points, color=GREY, dashed=False, head=True):
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"'
                          + (' stroke-dasharray="5 3"' if dashed else "")
                          + (f' marker-end="url(#head{color[1:]})"' if head else "") + "/>")

    def cross(self, x, y):
        for sign in (1, -1):
            self.arrow([(x - 7, y - 7 * sign), (x + 7, y + 7 * sign)], RED, head=False)

    def svg(self):
        return "\n".join(self.parts + ["</svg>", ""])


def life_of_a_call():
    picture = Picture(780, 330, "The life of a call")
    picture.text(20, 58, "first call of a shape: may allocate", color=ORANGE)
    steps = ["check the\narguments\n(src/api)", "choose the\nalgorithm\n(choice.txt)", "make this rank's\nplan\n(algorithms/)",
             "bind: offsets,\nlinks, kernels\n(src/engine)"]
    for number, step in enumerate(steps):
        x = 180 + 150 * number
        picture.box(x, 68, 120, 56, step, ORANGE)
        if number:
            picture.arrow([(x - 30, 96), (x, 96)], ORANGE)
    picture.text(20, 256, "short repeated call: no allocation, lock or system call", color=BLUE)
    picture.box(20, 180, 120, 56, "the program:\ntutti_all_reduce", GREY)
    picture.box(180, 180, 120, 56, "equal to the\nlast call?", BLUE)
    picture.box(390, 180, 150, 56, "advance: reduce all\nsources, write all sinks,\nslice by slice", BLUE)
    picture.box(630, 180, 120, 56, "the call returns:\nall steps done", GREEN)
    picture.arrow([(140, 208), (180, 208)], BLUE)
    picture.arrow([(240, 180), (240, 124)], ORANGE)
    picture.text(248, 152, "no", color=ORANGE)
    picture.arrow([(300, 208), (390, 208)], BLUE)
    picture.text(338, 202, "yes", color=BLUE)
    picture.arrow([(690, 124), (690, 152), (465, 152), (465, 180)], ORANGE)
    picture.arrow([(540, 208), (630, 208)], GREEN)
    picture.box(390, 266, 150, 44, "wait: spin, yield, sleep;\nlook at the alert", RED)
    picture.arrow([(430, 236), (430, 266)], RED)
    picture.arrow([(500, 266), (500, 236)], BLUE)
    picture.text(422, 256, "a peer is late", anchor="end", color=RED)
    picture.text(508, 256, "the message is there", color=BLUE)
    picture.arrow([(540, 288), (630, 288)], RED)
    picture.box(630, 266, 120, 44, "an error that names\nrank and call", RED)
    picture.text(543, 279, "alert, deadline", color=RED)
    return picture.svg()


def carriage():
    picture = Picture(780, 420, "How a message is carried: each arrow is a copy of the data")
    for x, title in ((190, "sender"), (400, "link"), (610, "receiver")):
        picture.text(x + 55, 48, title, anchor="middle", size=12)
    rows = [
        ("inline", "up to 120 bytes", "flag word, data", [("sender", "link"), ("link", "receiver")]),
        ("slot", "longer messages", "flag word; slot", [("sender", "link"), ("link", "receiver")]),
        ("reference", "memory that both reach", "flag word: address", [("sender", "receiver")]),
        ("pull", "from 32 KiB on, if faster", "flag word: address", [("sender", "receiver")]),
        ("direct write", "results, from 1 MiB on", "flag word", [("sender", "receiver")]),
        ("other hosts", "over TCP", "slot, socket, slot", [("sender", "link"), ("link", "receiver")]),
    ]
    notes = ["", "", "the receiver reads the sender's buffer", "the receiver calls process_vm_readv",
             "the sender stores into the receiver's buffer", "a frame carries several messages"]
    for number, (name, when, link, copies) in enumerate(rows):
        y = 60 + 60 * number
        picture.text(20, y + 14, name, color=BLUE, size=12)
        picture.text(20, y + 29, when)
        for x, text, color in ((190, "buffer", GREEN), (400, link, BLUE), (610, "buffer", GREEN)):
            picture.box(x, y, 110, 26, text, color)
        for start, end in copies:
            left, right = (300 if start == "sender" else 510), (400 if end == "link" else 610)
            if right - left > 100:
                picture.arrow([(245, y + 26), (245, y + 44), (665, y + 44), (665, y + 26)], ORANGE)
            else:
                picture.arrow([(left, y + 13), (right, y + 13)], ORANGE)
        picture.text(455, y + 39, notes[number], anchor="middle", color=GREY, size=10)
    return picture.svg()


def fault():
    picture = Picture(780, 420, "A fault: rank 2 of 4 is killed inside an all_reduce")
    lanes = [210, 360, 510, 660]
    for rank, x in enumerate(lanes):
        picture.box(x - 40, 36, 80, 24, f"rank {rank}", RED if rank == 2 else BLUE)
        picture.arrow([(x, 60), (x, 128 if rank == 2 else 400)], GREY, head=False)
    bands = [(84, "all ranks are inside the call"), (128, "kill -9"), (176, "0 to 24 ms: its life descriptor"),
             (232, "the alert"), (288, "the call returns"), (348, "tutti_comm_shrink")]
    for y, text in bands:
        picture.text(20, y + 4, text)
    picture.text(20, 194, "closes, and a waiting rank notices")
    picture.text(20, 366, "the survivors agree and go on")
    for rank, (left, right) in enumerate(zip(lanes, lanes[1:])):
        picture.arrow([(left + 4, 80 + 4 * rank), (right - 4, 80 + 4 * rank)], BLUE)
    picture.cross(lanes[2], 128)
    picture.arrow([(lanes[2], 140), (lanes[2], 176), (lanes[3] - 4, 176)], RED, dashed=True)
    picture.text(lanes[3] + 8, 180, "rank 3 waits", color=RED)
    picture.text(lanes[3] + 8, 194, "for rank 2", color=RED)
    picture.arrow([(lanes[3] - 4, 226), (lanes[1] + 4, 226)], RED)
    picture.arrow([(lanes[3] - 4, 240), (lanes[0] + 4, 240)], RED)
    picture.text(lanes[2] + 8, 220, "raised once", color=RED)
    for rank in (0, 1, 3):
        picture.box(lanes[rank] - 66, 274, 132, 36, "TUTTI_PEER_LOST\nrank 2 has ended: ...", RED)
    for rank, new in ((0, 0), (1, 1), (3, 2)):
        picture.box(lanes[rank] - 50, 376, 100, 24, f"rank {new} of 3", GREEN)
    picture.arrow([(lanes[0] + 4, 340), (lanes[1] - 4, 340)], GREEN)
    picture.arrow([(lanes[0] + 4, 350), (lanes[3] - 4, 350)], GREEN)
    picture.arrow([(lanes[3] - 4, 360), (lanes[0] + 4, 360)], GREEN)
    return picture.svg()


PICTURES = {"life_of_a_call.svg": life_of_a_call, "carriage.svg": carriage, "fault.svg": fault}


if __name__ == "__main__":
    for file_name, draw in PICTURES.items():
        (pathlib.Path(sys.argv[1]) / file_name).write_text(draw(), encoding="utf-8")
