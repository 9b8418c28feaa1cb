#!/usr/bin/env python3
"""heat: a plate of N by N points that is hot on one side, computed by two nodes. Both hold all of it as
NumPy arrays over one segment; each computes a half of the rows and reads one row of the other's.

  heat.py home DIR N STEPS    makes the segment, offers it in DIR, and compares the end with what one
                              process gets
  heat.py peer DIR            the other node

DIR is how they find each other, as in 01-hello; run-heat starts both on this machine."""

import sys
import time
from pathlib import Path

import numpy

import cmi

PAGE = 4096
SIZES = 0  # N and the number of steps
BARRIER = 512
PLATES = PAGE  # two, of rows that begin at pages: what one node stores, the other stores not


def row_bytes(n):
    return (n * 8 + PAGE - 1) // PAGE * PAGE


def plates_of(view, n):
    """What a step reads and what it writes, in turn."""
    raw = view.array("float64", (2, n, row_bytes(n) // 8), PLATES)
    return raw[:, :, :n]


def step(old, new, first, last):
    """Each point becomes the mean of its neighbours; the edge stays."""
    new[first:last, 1:-1] = (old[first - 1:last - 1, 1:-1] + old[first + 1:last + 1, 1:-1]
                             + old[first:last, :-2] + old[first:last, 2:]) / 4


def work(view, n, steps, first, last):
    plates = plates_of(view, n)
    barrier = cmi.Barrier(view, BARRIER, 2)
    for number in range(steps):
        step(plates[number % 2], plates[1 - number % 2], first, last)
        # Arriving publishes what was stored before; who has passed sees the other's half.
        if barrier.wait(60) != cmi.Taken.YES:
            raise SystemExit("heat: the other node is gone")
    return plates[steps % 2]


def home(folder, n, steps):
    with cmi.Context() as context:
        segment = context.segment(PLATES + 2 * n * row_bytes(n), cmi.CLIENT_CONSIST)
        view = segment.attach()
        view.array("uint64", 2, SIZES)[:] = n, steps
        plates_of(view, n)[:, 0, :] = 100
        cmi.publish()
        offer = context.offer(folder, "heat", segment)
        shared = work(view, n, steps, 1, n // 2).copy()
        offer.close()
        # The segment goes with the context: not before the other has passed its last barrier.
        end = time.monotonic() + 60
        while not Path(folder, "left").exists() and time.monotonic() < end:
            time.sleep(0.005)
    alone = numpy.zeros((2, n, n))
    alone[:, 0, :] = 100
    for number in range(steps):
        step(alone[number % 2], alone[1 - number % 2], 1, n - 1)
    same = bool((shared == alone[steps % 2]).all())
    print(f"{n} by {n} points, {steps} steps on two nodes; warmest inner point {shared[1:-1].max():.2f}; "
          f"identical: {'yes' if same else 'no'}")
    return 0 if same else 1


def peer(folder):
    with cmi.Context() as context:
        view = context.find(folder, "heat", timeout=60).attach()
        n, steps = (int(value) for value in view.array("uint64", 2, SIZES))
        work(view, n, steps, n // 2, n - 1)
    Path(folder, "left").touch()
    return 0


def main(arguments):
    if len(arguments) == 4 and arguments[0] == "home" and int(arguments[2]) >= 4:
        return home(arguments[1], int(arguments[2]), int(arguments[3]))
    if len(arguments) == 2 and arguments[0] == "peer":
        return peer(arguments[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
