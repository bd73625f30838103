"""An SVG of the comparison, written by hand: one panel per (ranks, collective, placement), size across, time upwards, both log."""

import math
from xml.sax.saxutils import escape

import report

COLORS = {"tutti": "#d62728", "openmpi": "#1f77b4", "openmpi-ucx": "#6baed6", "openmpi-sm": "#9ecae1",
          "mpich": "#2ca02c", "mpich-gather": "#98df8a", "gloo": "#7f7f7f", "gloo-bcube": "#bcbd22"}
PANEL_WIDTH, PANEL_HEIGHT, MARGIN, COLUMNS = 320, 230, 52, 3
HEADER_HEIGHT = 56


def _text(x, y, words, size=11, anchor="middle"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'


def _panel(left, top, title, series):
    """series: {configuration: [(bytes, us), ...]}"""
    points = [point for line in series.values() for point in line]
    low_x, high_x = (math.log2(f(size for size, _ in points)) for f in (min, max))
    low_y = math.floor(math.log10(min(us for _, us in points)))
    high_y = max(math.ceil(math.log10(max(us for _, us in points))), low_y + 1)
    width, height = PANEL_WIDTH - MARGIN - 12, PANEL_HEIGHT - MARGIN - 18
    x_of = lambda size: left + MARGIN + (math.log2(size) - low_x) / max(high_x - low_x, 1) * width
    y_of = lambda us: top + 24 + (high_y - math.log10(us)) / (high_y - low_y) * height
    out = [_text(left + MARGIN + width / 2, top + 16, title, 13)]
    for power in range(low_y, high_y + 1):
        y = y_of(10.0**power)
        out.append(f'<line x1="{left + MARGIN}" y1="{y:.1f}" x2="{left + MARGIN + width}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(_text(left + MARGIN - 5, y + 4, f"{10.0**power:g}", 10, "end"))
    for size in sorted({size for size, _ in points})[::2]:
        out.append(_text(x_of(size), top + 24 + height + 16, report.size_text(size).replace(" ", ""), 9))
    for name, line in series.items():
        color = COLORS.get(name, "#000000")
        path = " ".join(f"{x_of(size):.1f},{y_of(us):.1f}" for size, us in sorted(line))
        thick = 2.4 if name == report.SUBJECT else 1.4
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{thick}"/>')
        out += [f'<circle cx="{x_of(size):.1f}" cy="{y_of(us):.1f}" r="2.2" fill="{color}"/>' for size, us in line]
    return out


def svg(rows, machine):
    panels = {}
    for row in rows:
        if row["bytes"] and row["type"] == "float32":
            key = (row["ranks"], row["collective"], row["placement"])
            panels.setdefault(key, {}).setdefault(row["configuration"], []).append((row["bytes"], row["microseconds"]))
    lines = max(1, math.ceil(len(panels) / COLUMNS))
    width, height = PANEL_WIDTH * COLUMNS, HEADER_HEIGHT + PANEL_HEIGHT * lines
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           _text(12, 20, f"Microseconds a call, float32 sum. {machine}", 12, "start")]
    names = dict.fromkeys(row["configuration"] for row in rows)
    for number, name in enumerate(names):
        x = 12 + number * 110
        color = COLORS.get(name, "#000000")
        out.append(f'<line x1="{x}" y1="38" x2="{x + 22}" y2="38" stroke="{color}" stroke-width="3"/>')
        out.append(_text(x + 27, 42, name, 11, "start"))
    for number, ((ranks, collective, placement), series) in enumerate(panels.items()):
        left = number % COLUMNS * PANEL_WIDTH
        top = HEADER_HEIGHT + number // COLUMNS * PANEL_HEIGHT
        out += _panel(left, top, f"{collective}, {ranks} ranks" + (f", {placement}" if placement else ""), series)
    return "\n".join(out + ["</svg>"])
