# SPDX-License-Identifier: MIT
"""Writes what a run leaves: report.md, a chart per figure, and index.html, which joins them."""
import os
import re
from html import escape

import chart
import goals
import table

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>anyrdma: measurements</title>
<style>
 body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1060px; margin: 2rem auto; padding: 0 1rem; }}
 img {{ max-width: 100%; height: auto; margin: .5rem 0; }}
 table {{ border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; font-size: 13px; }}
 th, td {{ border-bottom: 1px solid #8884; padding: .25rem .7rem; text-align: left; }}
 .scroll {{ overflow-x: auto; }}
</style>
<h1>anyrdma: measurements</h1>
{body}
</html>
"""


def panels_of(results, question, field):
    colours = chart.colour_curves([(line.name, line.role) for line in question.lines])
    panels = []
    for world in results.worlds(question.key):
        panel = chart.Panel(world)
        for line in question.lines:
            points = [(x, results.median(question.key, world, line.name, x, field.key))
                      for x in line.xs or [None] if x is None or x >= field.x_from]
            panel.curves.append(chart.Curve(line.name, line.role, [p for p in points if p[1] is not None],
                                            colours[line.name]))
        panels.append(panel)
    return panels


def draw(results, question, field):
    """The SVG text of one figure, or None when nothing was measured."""
    panels = panels_of(results, question, field)
    better = f"{field.unit}, {'higher' if field.higher_is_better else 'lower'} is better"
    if not question.x_label:
        return chart.bars(field.title, better, panels, lambda v: f"{table.number_text(v)} {field.unit}")
    return chart.curves(field.title, better, panels, question.x_label, lambda x: table.x_text(question, x), field.log)


def draw_goals(results):
    rows = [(f"{v.goal.world}: {v.goal.text()}, to {v.goal.against() or 'the limit'}", v.ratio, v.goal.factor, v.reached)
            for v in goals.judge_all(results)]
    return chart.goal_bars("Goals", "times better than the rival; the mark is the goal", rows)


def charts(results):
    """(question key, file name, SVG) of all there are."""
    yield "goals", "goals.svg", draw_goals(results)
    for q in results.questions.values():
        for f in q.fields:
            yield q.key, "-".join(filter(None, (q.key, f.name))) + ".svg", draw(results, q, f)


def html_of(markdown):
    """Enough markdown for our own tables: headings, paragraphs, bold, tables."""
    out = []
    for block in re.split(r"\n{2,}", markdown.strip()):
        lines = block.split("\n")
        if block.startswith("## "):
            out.append(f"<h2>{escape(block[3:])}</h2>")
        elif block.startswith("|"):
            rows = [[escape(c.strip()) for c in line.strip("|").split("|")] for line in lines]
            head = "".join(f"<th>{c}</th>" for c in rows[0])
            body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows[2:])
            out.append(f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>')
        else:
            out.append("<p>" + re.sub(r"[*][*](.*?)[*][*]", r"<b>\1</b>", escape(block)) + "</p>")
    return "\n".join(out)


def write(results, out):
    files = {}
    for key, name, svg in charts(results):
        path = os.path.join(out, name)
        if svg:
            files.setdefault(key, []).append(name)
            with open(path, "w") as f:
                f.write(svg)
        elif os.path.exists(path):
            os.remove(path)  # of an earlier run that asked for more
    with open(os.path.join(out, "report.md"), "w") as f:
        f.write(table.report(results))

    def pictures(key):
        return "\n".join(f'<p><img src="{name}" alt="{name[:-4]}"></p>' for name in files.get(key, []))

    parts = [html_of(table.facts_text(results)), pictures("goals"), html_of(table.goals_table(results) or "\n")]
    for q in results.questions.values():
        if results.worlds(q.key):
            heading, rest = table.question_text(results, q).split("\n", 1)
            parts += [html_of(heading), pictures(q.key), html_of(rest)]
    with open(os.path.join(out, "index.html"), "w") as f:
        f.write(PAGE.format(body="\n".join(parts)))
