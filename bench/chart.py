# SPDX-License-Identifier: MIT
"""SVG charts, drawn by hand: a panel per link, one scale for all, readable on light and on dark ground."""
import math
from dataclasses import dataclass, field
from html import escape

PANEL_W, PANEL_H, GAP = 300, 250, 22
LEFT, TOP, BOTTOM, RIGHT = 62, 86, 54, 24
LEGEND_ROW = 20
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"

STYLE = f"""
 svg {{ font-family: {FONT}; font-size: 12px; }}
 .ground {{ fill: #ffffff; }} .panel {{ fill: #f6f8fa; }} .grid {{ stroke: #d8dee4; stroke-width: 1; }}
 text {{ fill: #1f2328; }} .faint {{ fill: #636c76; }} .title {{ font-size: 16px; font-weight: 600; }}
 .head {{ font-weight: 600; }} .on-bar {{ fill: #ffffff; font-weight: 600; }} .ring {{ stroke: #f6f8fa; }} .mark {{ stroke: #1f2328; }}
 @media (prefers-color-scheme: dark) {{
  .ground {{ fill: #0d1117; }} .panel {{ fill: #161b22; }} .grid {{ stroke: #30363d; }}
  text {{ fill: #e6edf3; }} .on-bar {{ fill: #ffffff; }} .faint {{ fill: #9198a1; }} .ring {{ stroke: #161b22; }} .mark {{ stroke: #e6edf3; }}
 }}"""

VERB_COLOURS = {"write": "#2f81f7", "send": "#1a9e5c", "read": "#a259e6"}
COLOURS = {"ours": ["#2f81f7", "#12a5b5"], "rival": ["#e5534b", "#e8912d"], "information": ["#b58a1b"],
           "floor": ["#7d8590", "#a3a9b1", "#5f6772"]}
DASHES = {"ours": "", "rival": "7 4", "floor": "2 4", "information": "2 4"}


@dataclass
class Curve:
    name: str
    role: str
    points: list  # (x, y); x None: the same everywhere
    colour: str = ""


@dataclass
class Panel:
    title: str
    curves: list = field(default_factory=list)


def colour_curves(names_and_roles):
    """A colour per name: cold ones for us, a verb's own when it is free; warm ones for rivals; grey for the floor."""
    chosen = {}
    for name, role in names_and_roles:
        verb = VERB_COLOURS.get(name.split(",")[0])
        free = [c for c in [verb] * bool(verb) + COLOURS[role] if c not in chosen.values()]
        chosen[name] = free[0] if free else COLOURS[role][-1]
    return chosen


def text(x, y, s, cls="", anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{cls}" text-anchor="{anchor}" {extra}>{escape(s)}</text>'


def segment(x1, y1, x2, y2, cls="grid", extra=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{cls}" {extra}/>'


def document(width, height, title, subtitle, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{escape(title)}">\n<style>{STYLE}</style>\n'
            f'<rect class="ground" width="{width}" height="{height}"/>\n' + text(16, 28, title, "title") +
            text(16, 47, subtitle, "faint") + "\n" + "\n".join(body) + "\n</svg>\n")


# ---- scales ----

def decades(low, high):
    """1, 10, 100, … around the values; also 2 and 5 when there would be few."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    wide = len(exponents) > 3
    ticks = [m * 10.0 ** e for e in exponents for m in ((1,) if wide else (1, 2, 5))]
    inside = [t for t in ticks if low / 1.001 <= t <= high * 1.001]
    below, above = [t for t in ticks if t < low / 1.001], [t for t in ticks if t > high * 1.001]
    return below[-1:] + inside + above[:1]


def steps(high):
    """0 to a round number, in four to six steps."""
    rough = high / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= rough * 0.8)
    return [i * step for i in range(math.ceil(high / step - 1e-9) + 1)]


class Scale:
    """Maps values to pixels; ticks say where the grid is."""

    def __init__(self, ticks, log, start, end):
        self.f = math.log10 if log else float
        self.ticks, self.start, self.end = ticks, start, end
        self.low, self.high = self.f(ticks[0]), self.f(ticks[-1])

    def __call__(self, v):
        return self.start + (self.f(v) - self.low) / (self.high - self.low or 1) * (self.end - self.start)


def tick_text(v):
    return f"{v:,.0f}" if v >= 10 else f"{v:g}"


# ---- curves ----

def legend(curves, x, y, width):
    """Rows of short strokes with names; returns the drawing and its height."""
    body, at, row = [], x, 0
    for c in curves:
        need = 34 + 6.6 * len(c.name) + 14
        if at + need > x + width and at > x:
            at, row = x, row + 1
        line_y = y + row * LEGEND_ROW
        body.append(segment(at, line_y - 4, at + 26, line_y - 4, "",
                            f'stroke="{c.colour}" stroke-width="2.5" stroke-dasharray="{DASHES[c.role]}"'))
        body.append(text(at + 32, line_y, c.name))
        at += need
    return body, (row + 1) * LEGEND_ROW


def draw_curve(c, sx, sy):
    points = sorted(p for p in c.points if p[0] is not None)
    flat = [(sx.ticks[0], y) for x, y in c.points if x is None] + [(sx.ticks[-1], y) for x, y in c.points if x is None]
    path = " ".join(f"{sx(x):.1f},{sy(y):.1f}" for x, y in points or flat)
    body = [f'<polyline points="{path}" fill="none" stroke="{c.colour}" stroke-width="2.2" stroke-linejoin="round" '
            f'stroke-dasharray="{DASHES[c.role]}"/>']
    for x, y in points:
        body.append(f'<circle cx="{sx(x):.1f}" cy="{sy(y):.1f}" r="3.4" fill="{c.colour}" stroke-width="1.2" class="ring">'
                    f'<title>{escape(c.name)} at {x}: {y:.3g}</title></circle>')
    return body


def draw_panel(panel, left, top, sx, sy, x_text, labelled):
    body = [f'<rect class="panel" x="{left}" y="{top}" width="{PANEL_W}" height="{PANEL_H}" rx="3"/>']
    for t in sy.ticks:
        body.append(segment(left, sy(t), left + PANEL_W, sy(t)))
        if labelled:
            body.append(text(left - 8, sy(t) + 4, tick_text(t), "faint", "end"))
    for i, t in enumerate(sx.ticks):
        body.append(segment(sx(t), top + PANEL_H, sx(t), top + PANEL_H + 4))
        if len(sx.ticks) <= 6 or i % 2 == (len(sx.ticks) - 1) % 2:
            body.append(text(sx(t), top + PANEL_H + 18, x_text(t), "faint", "middle"))
    body.append(text(left + PANEL_W / 2, top - 8, panel.title, "head", "middle"))
    for role in ("floor", "information", "rival", "ours"):  # ours on top
        for c in panel.curves:
            if c.role == role and c.points:
                body += draw_curve(c, sx, sy)
    return body


def curves(title, subtitle, panels, x_label, x_text, log):
    """Line charts beside each other. x is always logarithmic, as sizes and numbers of queue pairs are."""
    everything = [c for p in panels for c in p.curves]
    xs = sorted({x for c in everything for x, _ in c.points if x is not None})
    ys = [y for c in everything for _, y in c.points if y > 0]
    if not xs or not ys:
        return None
    known = list({c.name: c for c in everything if c.points}.values())
    width = max(LEFT + len(panels) * (PANEL_W + GAP) - GAP + RIGHT, 560)
    keys, keys_h = legend(known, 16, 72, width - 32)
    top = TOP + keys_h
    sy = Scale(decades(min(ys), max(ys)) if log else steps(max(ys)), log, top + PANEL_H, top)
    body = keys
    for i, panel in enumerate(panels):
        left = LEFT + i * (PANEL_W + GAP)
        sx = Scale(xs if len(xs) > 1 else [xs[0], xs[0] * 2], True, left + 14, left + PANEL_W - 14)
        body += draw_panel(panel, left, top, sx, sy, x_text, i == 0)
        body.append(text(left + PANEL_W / 2, top + PANEL_H + 38, x_label, "faint", "middle"))
    return document(width, top + PANEL_H + BOTTOM, title, subtitle, body)


# ---- bars ----

BAR_H, BAR_GAP, GROUP_GAP, NAME_W, BARS_W = 15, 5, 40, 190, 520


def bars(title, subtitle, panels, value_text):
    """Horizontal bars, grouped by link: one figure per contender."""
    ys = [y for p in panels for c in p.curves for _, y in c.points]
    if not ys:
        return None
    sx = Scale(steps(max(ys)), False, NAME_W, NAME_W + BARS_W)
    body, y = [], 66
    for panel in panels:
        y += 14
        body.append(text(16, y, panel.title, "head"))
        y += 10
        for c in (c for c in panel.curves if c.points):
            v = c.points[0][1]
            body.append(text(NAME_W - 10, y + BAR_H - 3, c.name, "", "end"))
            body.append(f'<rect x="{NAME_W}" y="{y}" width="{max(sx(v) - NAME_W, 1):.1f}" height="{BAR_H}" rx="2" '
                        f'fill="{c.colour}"/>')
            body.append(text(sx(v) + 7, y + BAR_H - 3, value_text(v), "faint"))
            y += BAR_H + BAR_GAP
        y += GROUP_GAP - 24
    return document(NAME_W + BARS_W + 90, y, title, subtitle, body)


def goal_bars(title, subtitle, rows):
    """Ratios as bars with a mark where the goal is. rows: (name, ratio, goal, reached)."""
    if not rows:
        return None
    name_w, bars_w, step = 350, 440, 26
    sx = Scale(steps(max(max(r[1], r[2]) for r in rows)), False, name_w, name_w + bars_w)
    body, y, bottom = [], 70, 70 + len(rows) * step
    for t in sx.ticks:
        body += [segment(sx(t), y - 6, sx(t), bottom), text(sx(t), bottom + 16, f"{t:g}x", "faint", "middle")]
    for name, ratio, goal, reached in rows:
        inside = sx(ratio) - name_w > 50
        body.append(text(name_w - 12, y + 13, name, "", "end"))
        body.append(f'<rect x="{name_w}" y="{y}" width="{max(sx(ratio) - name_w, 1):.1f}" height="18" rx="2" '
                    f'fill="{"#1a7f4b" if reached else "#cf4a42"}"/>')
        body.append(text(sx(ratio) + (-7 if inside else 7), y + 13, f"{ratio:.2f}x", "on-bar" if inside else "",
                         "end" if inside else "start"))
        body.append(segment(sx(goal), y - 3, sx(goal), y + 21, "mark", 'stroke-width="2.5"'))
        y += step
    return document(name_w + bars_w + 40, bottom + 34, title, subtitle, body)
