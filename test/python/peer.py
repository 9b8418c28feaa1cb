"""The other node of module_test.py: does what the lines that it reads say, one after another, and says
"done" after each. What lies where in the segment is in module_test.py."""

import os
import sys

import cmi


class Peer:
    def __init__(self, context):
        self.context = context
        self.meeting = os.environ["CMI_MEETING"]
        self.view = None

    def find(self):
        self.segment = self.context.find(self.meeting, "ours", timeout=60)
        self.view = self.segment.attach()

    def offer(self):
        self.segment = self.context.segment(2 * 4096)
        self.view = self.segment.attach()
        self.view.write(4096, b"of the peer")
        cmi.publish()
        self.kept = self.context.offer(self.meeting, "theirs", self.segment)

    def array(self):
        table = self.view.array("int32", (4, 8))
        assert table[3, 7] == 1000, table
        table += 1
        table[0, 0] = -5
        cmi.publish()

    def count(self):
        for offset, kind in ((1024, "Q"), (1032, "h"), (1034, "B"), (1040, "d"), (1048, "f")):
            word = cmi.Atomic(self.view, offset, kind)
            for _ in range(20):
                word.fetch_add(1)

    def lock(self):
        self.mutex = cmi.Mutex(self.view, 2048)
        assert self.mutex.acquire() != cmi.Taken.NO

    def push(self):
        queue = cmi.Queue(self.view, 4096, 4, 16)
        assert queue.push(b"an item", 10) and queue.push(b"another", 10)


def main():
    with cmi.Context() as context:
        peer = Peer(context)
        for line in sys.stdin:
            getattr(peer, line.strip())()
            print("done", flush=True)
        peer.view = None


main()
