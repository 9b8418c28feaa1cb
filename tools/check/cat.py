#!/usr/bin/env python3
"""Reads doc/cmi.cat, and judges the generated litmus tests (test/litmus/cycles.cpp) by it.

No herd7 is at hand, so this is the part of its language that the file uses: sets and relations of the events of
one execution, let, acyclic and empty. Each critical cycle of up to four threads and six edges is one execution; how
many the file forbids has to be the number that doc/design/memory-model.md names and cycles_test.cpp finds.
"""

import re
import sys
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_EDGES, MOST_THREADS = 6, 4
FENCES = ["none", "rmb", "wmb", "mb", "flush"]
# How a variable is met: accesses (store?, value), consecutive ones in different threads.
MEETINGS = {
    "Rfe": [(1, 1), (0, 1)],
    "Fre": [(0, 0), (1, 1)],
    "Coe": [(1, 1), (1, 2)],
    "CoeRfe": [(1, 1), (1, 2), (0, 2)],
    "FreRfe": [(0, 0), (1, 1), (0, 1)],
}


class Model:
    """The statements of a cat file, and their evaluation. Precedence, lowest first: | ; \\ & *"""

    TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.-]*|[|;\\&*()\[\]=])")
    OPERATORS = [["|"], [";"], ["\\"], ["&"], ["*"]]

    def __init__(self, text):
        text = re.sub(r"\(\*.*?\*\)", " ", text, flags=re.DOTALL)
        text = re.sub(r'^\s*"[^"]*"', " ", text)
        self.tokens, at = [], 0
        text = text.rstrip()
        while at < len(text):
            found = self.TOKEN.match(text, at)
            if not found:
                raise ValueError(f"cannot read {text[at:at + 30]!r}")
            self.tokens.append(found.group(1))
            at = found.end()
        self.tokens.reverse()
        self.statements = []
        while self.tokens:
            word = self.tokens.pop()
            if word == "let":
                name = self.tokens.pop()
                self.take("=")
                self.statements.append((word, name, self.expression(0)))
            elif word in ("acyclic", "empty", "irreflexive"):
                what = self.expression(0)
                self.take("as")
                self.statements.append((word, self.tokens.pop(), what))
            else:
                raise ValueError(f"unknown statement {word}")

    def take(self, token):
        if not self.tokens or self.tokens.pop() != token:
            raise ValueError(f"{token} is missing")

    def expression(self, level):
        if level == len(self.OPERATORS):
            token = self.tokens.pop()
            if token in "([":
                inner = self.expression(0)
                self.take({"(": ")", "[": "]"}[token])
                return ("id", inner) if token == "[" else inner
            return ("name", token)
        left = self.expression(level + 1)
        while self.tokens and self.tokens[-1] in self.OPERATORS[level]:
            left = (self.tokens.pop(), left, self.expression(level + 1))
        return left

    def value(self, what, names):
        if what[0] == "name":
            if what[1] not in names:
                raise ValueError(f"{what[1]} is not known")
            return names[what[1]]
        if what[0] == "id":
            return {(e, e) for e in self.value(what[1], names)}
        a, b = self.value(what[1], names), self.value(what[2], names)
        if what[0] == ";":
            return {(x, z) for x, y in a for w, z in b if y == w}
        return {"|": a.__or__, "&": a.__and__, "\\": a.__sub__, "*": lambda c: set(product(a, c))}[what[0]](b)

    def allows(self, names):
        names = dict(names)
        for kind, name, what in self.statements:
            value = self.value(what, names)
            if kind == "let":
                names[name] = value
            elif kind == "empty" and value:
                return False
            elif kind == "irreflexive" and any(x == y for x, y in value):
                return False
            elif kind == "acyclic" and has_cycle(value):
                return False
        return True


def has_cycle(relation):
    after = {}
    for x, y in relation:
        after.setdefault(x, set()).add(y)
    while True:
        last = [x for x, ys in after.items() if not any(y in after for y in ys)]
        if not last:
            return bool(after)
        for x in last:
            del after[x]


def cycles():
    """(meetings, fences) of each cycle once: no two are turns of each other."""
    for variables in (2, 3):
        for meetings in product(MEETINGS, repeat=variables):
            accesses = sum(len(MEETINGS[m]) for m in meetings)
            if accesses > MOST_EDGES or accesses - variables > MOST_THREADS:
                continue
            for fences in product(FENCES, repeat=variables):
                order = [(list(MEETINGS).index(m), FENCES.index(f)) for m, f in zip(meetings, fences)]
                key = lambda c: ([m for m, _ in c], [f for _, f in c])
                if all(key(order) <= key(order[i:] + order[:i]) for i in range(variables)):
                    yield meetings, fences


def execution(meetings, fences, swaps):
    """Sets and relations of the execution in which all of the cycle was so."""
    accesses, thread = [], 0
    for variable, meeting in enumerate(meetings):
        for i, (store, value) in enumerate(MEETINGS[meeting]):
            thread += i > 0
            accesses.append([store, variable, value, thread])
    accesses[-1][3] = 0
    threads = {}
    for at in [len(accesses) - 1, *range(len(accesses) - 1)]:
        threads.setdefault(accesses[at][3], []).append(at)

    names = {n: set() for n in ("R", "W", "M", "RMW", "rmw", "po", "rf", "co", "ext", *FENCES)}
    event, where, value_of = {}, {}, {}

    def add(thread_of, kind, variable=None, value=None):
        e = len(event)
        event[e] = thread_of
        names[kind].add(e)
        where[e], value_of[e] = variable, value
        if thread_of is not None:
            names["po"] |= {(x, e) for x in event if event[x] == thread_of and x != e}
        return e

    first = {v: add(None, "W", v, 0) for v in range(len(meetings))}
    for number, list_ in threads.items():
        for i, at in enumerate(list_):
            store, variable, value, _ = accesses[at]
            if i > 0:
                fence = fences[accesses[at - 1][1]]
                if fence != "none":
                    add(number, fence)
            if store and swaps:
                r, w = add(number, "R", variable, value - 1), add(number, "W", variable, value)
                names["rmw"].add((r, w))
                names["RMW"] |= {r, w}
            else:
                add(number, "W" if store else "R", variable, value)
    names["M"] = names["R"] | names["W"]
    names["rf"] = {(w, r) for w in names["W"] for r in names["R"]
                   if where[w] == where[r] and value_of[w] == value_of[r]}
    names["co"] = {(x, y) for x in names["W"] for y in names["W"] if where[x] == where[y] and value_of[x] < value_of[y]}
    names["fr"] = {(r, x) for w, r in names["rf"] for y, x in names["co"] if w == y}
    names["po-loc"] = {(x, y) for x, y in names["po"] if where[x] is not None and where[x] == where[y]}
    for relation in ("rf", "co", "fr"):
        names[relation + "e"] = {(x, y) for x, y in names[relation] if event[x] != event[y]}
    return names


def main():
    model = Model((ROOT / "doc/cmi.cat").read_text())
    page = (ROOT / "doc/design/memory-model.md").read_text()
    expected = int(re.search(r"None of the ([\d,]+) that are forbidden", page).group(1).replace(",", ""))
    found = {swaps: sum(not model.allows(execution(m, f, swaps)) for m, f in cycles()) for swaps in (False, True)}
    print(f"cat: of {sum(found.values())} forbidden cycles {found[True]} are of swaps")
    if sum(found.values()) != expected:
        print(f"cat: doc/design/memory-model.md says {expected}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
