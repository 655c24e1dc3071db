# SPDX-License-Identifier: MIT
"""Results as markdown tables: the goals first, then a table per question and world."""
import goals


def size_text(n):
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= scale:
            return f"{n // scale} {unit}"
    return f"{n} B"


def number_text(v):
    """Three figures that mean something."""
    if v is None:
        return "–"
    return f"{v:.0f}" if v >= 100 else f"{v:.1f}" if v >= 10 else f"{v:.2f}" if v >= 0.1 else f"{v:.3f}"


def x_text(question, x):
    return size_text(x) if question.x_is_size else str(x)


def markdown(header, rows):
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]

    def line(cells):
        return "| " + " | ".join(str(c).ljust(w) for c, w in zip(cells, widths)) + " |"

    return "\n".join([line(header), "|" + "|".join("-" * (w + 2) for w in widths) + "|", *map(line, rows)])


def goal_rows(verdicts):
    for v in verdicts:
        g = v.goal
        wanted = (f"{'≥' if v.higher_is_better else '≤'} {g.limit:g} {v.unit}" if g.limit else
                  f"≤ {g.more:g} {v.unit} more" if g.more else f"≥ {g.factor:.2g}x")
        yield [g.world, g.text(), f"{number_text(v.ours)} {v.unit}", "" if g.limit else g.against(),
               "" if g.limit else f"{number_text(v.rival)} {v.unit}", "" if g.limit else f"{v.ratio:.2f}x", wanted,
               "reached" if v.reached else "not reached"]


def goals_table(results):
    verdicts = goals.judge_all(results)
    header = ["link", "what", "anyrdma", "rival", "", "ratio", "goal", ""]
    return "## Goals\n\n" + markdown(header, list(goal_rows(verdicts))) + "\n" if verdicts else ""


def with_ratio(results, question, world, line, x, field):
    """A figure and, in brackets, how many times better than the rival's it is; nothing where that rounds to nothing."""
    value = results.median(question.key, world, line.name, x, field.key)
    rival = results.median(question.key, world, question.rival, x, field.key) if question.rival else None
    if value is None or rival is None or line.name == question.rival:
        return number_text(value)
    ratio = value / rival if field.higher_is_better else rival / value
    return number_text(value) + (f" ({ratio:.2f}x)" if ratio >= 0.005 else "")


MANY = 12  # contenders: then each has a row, and each x a column


def curve_table(results, question, world, field):
    """A row per x, a column per contender; those without x in a line above."""
    lines = [line for line in question.lines if line.xs]
    once = [f"{line.name} {with_ratio(results, question, world, line, None, field)}"
            for line in question.lines if line.xs is None]
    xs = sorted({x for line in lines for x in line.xs})
    rows = [[x_text(question, x)] + [with_ratio(results, question, world, line, x, field) for line in lines] for x in xs]
    above = f"**{world}: {field.title.lower()}, {field.unit}**" + (": " + ", ".join(once) if once else "")
    whole = [[question.x_label] + [line.name for line in lines], *rows]
    if len(lines) > MANY:
        whole = list(map(list, zip(*whole)))
    return above + "\n\n" + markdown(whole[0], whole[1:])


def bars_table(results, question, field):
    """A row per contender, a column per world."""
    in_worlds = results.worlds(question.key)
    rows = [[line.name] + [with_ratio(results, question, w, line, None, field) for w in in_worlds]
            for line in question.lines]
    return markdown([field.unit] + in_worlds, rows)


def question_text(results, question):
    ratio = f" In brackets: times better than {question.rival}." if question.rival else ""
    parts = [f"## {question.title}", f"{question.note[0].upper()}{question.note[1:]}.{ratio}"]
    for field in (f for f in question.fields if f.tabled):
        if not question.x_label:
            parts.append(bars_table(results, question, field))
        else:
            parts += [curve_table(results, question, world, field) for world in results.worlds(question.key)]
    return "\n\n".join(parts) + "\n"


def facts_text(results):
    facts, disturbed, failed = results.facts, len(results.disturbed()), len(results.failures())
    return (f"{facts['date']}, commit {facts['commit']}: {facts['cores']} cores of {facts['cpu']}, virtual: "
            f"{facts['virtual']}, Linux {facts['kernel']}. Medians of {facts['rounds']} rounds; of {len(results.records)} "
            f"measurements {disturbed} were disturbed, {failed} failed.\n")


def report(results):
    measured = [q for q in results.questions.values() if results.worlds(q.key)]
    return "\n".join([facts_text(results), goals_table(results)] + [question_text(results, q) for q in measured])
