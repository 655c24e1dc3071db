# SPDX-License-Identifier: MIT
"""Every single measurement, and the medians over the rounds."""
import json
import statistics

import silence


class Results:
    def __init__(self, questions, facts):
        self.questions = {q.key: q for q in questions}
        self.facts = facts
        self.records = []

    def add(self, question, world, line, x, round_number, figures):
        self.records.append({"question": question.key, "world": world.name, "line": line.name, "role": line.role, "x": x,
                             "round": round_number, "figures": figures})

    def field(self, question, key):
        q = self.questions.get(question)
        return next((f for f in q.fields if f.key == key), None) if q else None

    def values(self, question, world, line, x, key):
        """Of all rounds. A line that was measured once for all x has the same figures at every x."""
        return [r["figures"][key] for r in self.records
                if (r["question"], r["world"], r["line"]) == (question, world, line) and r["x"] in (None, x) and
                r["figures"] and key in r["figures"]]

    def median(self, question, world, line, x, key="value"):
        values = self.values(question, world, line, x, key)
        return statistics.median(values) if values else None

    def worlds(self, question):
        """Those that were measured, in order."""
        return list(dict.fromkeys(r["world"] for r in self.records if r["question"] == question))

    def failures(self):
        return [r for r in self.records if not r["figures"]]

    def disturbed(self):
        return [r for r in self.records if silence.disturbed(r["figures"])]

    def load(self, path):
        with open(path) as f:
            kept = json.load(f)
        self.facts, self.records = kept["facts"], kept["records"]

    def save(self, path):
        with open(path, "w") as f:
            json.dump({"facts": self.facts, "records": self.records}, f, indent=1)
