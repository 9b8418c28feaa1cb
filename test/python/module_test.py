"""Package cmi between two nodes, as doc/python.md says. Run by test/python/run."""

import ast
import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import cmi
import cmi._cmi

try:
    import numpy
except ImportError:
    numpy = None

MEETING = os.environ["CMI_MEETING"]


class Peer:
    """A process of another node; see peer.py."""

    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("peer.py"))],
            env=dict(os.environ, CMI_NODE="peer"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def does(self, what):
        self.begins(what)
        self.ends()

    def begins(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def ends(self):
        line = self.process.stdout.readline()
        if line != "done\n":
            raise AssertionError(f"the peer has ended: {self.process.wait()}")

    def is_killed(self):
        self.process.kill()
        self.process.wait()


class BetweenNodes(unittest.TestCase):
    def setUp(self):
        self.context = cmi.Context()
        self.segment = self.context.segment(2 * 4096, cmi.CLIENT_CONSIST)
        self.view = self.segment.attach()
        self.offer = self.context.offer(MEETING, "ours", self.segment)

    def tearDown(self):
        self.context.close()

    @unittest.skipIf(numpy is None, "no NumPy (python3-numpy)")
    def test_what_a_peer_stores_in_an_array_is_there(self):
        table = self.view.array("int32", (4, 8))
        table[...] = 10
        table[3, 7] = 1000
        cmi.publish()
        with Peer() as peer:
            peer.does("find")
            peer.does("array")
            self.assertEqual(table[0, 0], -5)
            self.assertEqual(table[3, 7], 1001)
            self.assertEqual(int(table.sum()), 30 * 11 + 1001 - 5)
        self.assertEqual(self.view.read(0, 4), (-5).to_bytes(4, "little", signed=True))
        self.assertRaises(BufferError, self.view.close)
        with self.assertRaises(IndexError):
            self.view.array("int64", (4096,))
        del table
        self.view.close()

    def test_atomic_words_of_each_kind_count_exactly_and_a_killed_owner_leaves_its_lock(self):
        kinds = ((1024, "Q"), (1032, "h"), (1034, "B"), (1040, "d"), (1048, "f"))
        mutex = cmi.Mutex(self.view, 2048)
        with Peer() as peer:
            peer.does("find")
            peer.begins("count")
            for offset, kind in kinds:
                word = cmi.Atomic(self.view, offset, kind)
                for _ in range(20):
                    word.fetch_add(1)
            peer.ends()
            for offset, kind in kinds:
                self.assertEqual(cmi.Atomic(self.view, offset, kind).load(), 40)
            peer.does("push")
            queue = cmi.Queue(self.view, 4096, 4, 16)
            self.assertEqual(queue.pop(10), b"an item" + bytes(9))
            self.assertEqual(queue.pop(10), b"another" + bytes(9))
            self.assertIsNone(queue.pop(0))
            peer.does("lock")
            self.assertEqual(mutex.acquire(0), cmi.Taken.NO)
            peer.is_killed()
            self.assertEqual(mutex.acquire(60), cmi.Taken.OWNER_DEAD)
        mutex.release()
        with self.assertRaises(cmi.OwnerDead), mutex:
            self.fail("it is not whole")
        self.assertEqual(mutex.acquire(60), cmi.Taken.OWNER_DEAD)
        mutex.repaired()
        mutex.release()
        with mutex:
            pass

    def test_what_is_lost_with_its_home_raises_and_the_event_comes_by_asyncio(self):
        target = bytearray(11)
        with Peer() as peer:
            peer.does("offer")
            theirs = self.context.find(MEETING, "theirs", 60)
            view = theirs.attach()
            view.prefetch()
            view.prefetch(4096, len(target))
            with self.assertRaises(IndexError):
                view.prefetch(len(view) + 1)
            misses = self.context.stats()["load_misses"]
            view.readinto(4096, target)
            self.assertEqual(self.context.stats()["load_misses"], misses)
            self.assertEqual(target, b"of the peer")
            reader = theirs.attach(readonly=True)
            self.assertTrue(reader.readonly and memoryview(reader).readonly)
            with self.assertRaises(cmi.Lost) as lost:
                reader.write(0, b"x")
            self.assertEqual(lost.exception.name, "CMI_ERROR_ACCESS")
            self.assertIsNone(self.context.next_event())

            async def first():
                async for event in self.context.events():
                    return event

            async def meanwhile():
                task = asyncio.create_task(first())
                await asyncio.sleep(0)
                peer.is_killed()
                return await asyncio.wait_for(task, 60)

            event = asyncio.run(meanwhile())
        self.assertEqual((event.type, event.name), (cmi.EVENT_HCTXT_DOWN, "CMI_EVENT_HCTXT_DOWN"))
        self.assertEqual(event.segments, [theirs.id])
        event.done()
        for access in (lambda: view.read(0, 1), lambda: view.write(4096, b"y"), lambda: view.readinto(0, target),
                       lambda: cmi.Atomic(view, 0).fetch_add(1), lambda: cmi.Atomic(view, 4096).load(),
                       lambda: cmi.Mutex(view, 0).acquire(1)):
            with self.assertRaises(cmi.Lost) as lost:
                access()
            self.assertEqual(lost.exception.name, "CMI_ERROR_SINVAL")
            self.assertEqual(lost.exception.segment, theirs.id)

    def test_threads_wait_for_each_other(self):
        passed = []

        def other():
            with self.context.thread():
                barrier = cmi.Barrier(self.view, 0, 2)
                barrier.wait(60)
                latch = cmi.Latch(self.view, 1024, 1)
                self.assertTrue(latch.wait(60))
                with cmi.SharedMutex(self.view, 4096):
                    passed.append(1)

        thread = threading.Thread(target=other)
        thread.start()
        barrier = cmi.Barrier(self.view, 0, 2)
        self.assertEqual(barrier.wait(60), cmi.Taken.YES)
        latch = cmi.Latch(self.view, 1024, 1)
        self.assertFalse(latch.wait(0))
        latch.count_down()
        thread.join(60)
        self.assertEqual(passed, [1])
        shared = cmi.SharedMutex(self.view, 4096)
        self.assertEqual(shared.acquire_shared(1), cmi.Taken.YES)
        shared.release_shared()
        permits = cmi.Semaphore(self.view, 2048, 1)
        self.assertTrue(permits.acquire(1))
        self.assertFalse(permits.acquire(0))
        permits.release()
        with cmi.TicketLock(self.view, 6144):
            pass
        self.assertEqual(self.context.stats()["load_misses"], 0)

    def test_a_signal_ends_a_wait_without_an_end(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            with self.assertRaises(KeyboardInterrupt):
                self.context.find(MEETING, "nobody", timeout=None)
        finally:
            signal.signal(signal.SIGALRM, before)

    def test_failures_say_why(self):
        with self.assertRaises(cmi.Error) as failed:
            self.context.segment(1)
        self.assertEqual(failed.exception.code, 2)
        self.assertRegex(str(failed.exception), "^seg_get.*CMI_ERR_INVAL")
        with self.assertRaises(cmi.Error):
            self.context.find(MEETING, "nobody", timeout=0)
        for wrong in (lambda: cmi.Atomic(self.view, 4), lambda: cmi.Atomic(self.view, 0, "x"),
                      lambda: self.context.import_text("cmi1-rseg-AAAA", "cmi1-token-AAAA")):
            self.assertRaises((ValueError, cmi.Error), wrong)
        self.assertRaises(OverflowError, cmi.Atomic(self.view, 0, "B").store, 256)
        self.assertRaises(OverflowError, cmi.Atomic(self.view, 0, "Q").store, -1)
        self.assertRaises(TypeError, cmi.Atomic(self.view, 0, "Q").store, "1")
        for offset, size in ((0, 8193), (8193, 0), (2**64 - 1, 2)):
            self.assertRaises(IndexError, self.view.read, offset, size)
        self.assertEqual(cmi.Atomic(self.view, 8).compare_exchange(1, 2), (False, 0))
        self.assertEqual(cmi.Atomic(self.view, 8).compare_exchange(0, 2), (True, 0))
        self.assertEqual(cmi.Atomic(self.view, 8).exchange(3), 2)
        self.assertEqual(cmi.Atomic(self.view, 8).fetch_sub(), 3)


class Closing(unittest.TestCase):
    def test_a_context_closes_what_was_made_in_it_unless_that_is_in_use(self):
        with cmi.Context() as context:
            segment = context.segment(4096)
            view = segment.attach()
            words = segment.export().text, segment.grant(cmi.READ).text
            window = memoryview(view)[8:16]
            window[0] = 5
            self.assertRaises(BufferError, context.close)
            self.assertEqual(view.read(8, 1), b"\x05")
            window.release()
        self.assertTrue(context.closed and segment.closed and view.closed)
        self.assertTrue(words[0].startswith("cmi1-rseg-") and words[1].startswith("cmi1-token-"))
        for use in (lambda: view.read(0, 1), lambda: len(segment), lambda: context.segment(4096),
                    lambda: memoryview(view)):
            self.assertRaises((ValueError, BufferError), use)


class Stubs(unittest.TestCase):
    def test_the_stubs_name_what_the_module_has(self):
        tree = ast.parse((Path(cmi.__file__).with_name("_cmi.pyi")).read_text())
        self.assertTrue(Path(cmi.__file__).with_name("py.typed").exists())
        typed = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                typed[node.name] = {part.target.id if isinstance(part, ast.AnnAssign) else part.name
                                    for part in node.body if not isinstance(part, ast.Expr)}
            elif isinstance(node, ast.AnnAssign):
                typed[node.target.id] = None
            elif isinstance(node, ast.FunctionDef):
                typed[node.name] = None
        own = {"__enter__", "__exit__", "__len__", "__bool__", "__init__"}
        real = {}
        for name, thing in vars(cmi._cmi).items():
            if name.startswith("__"):
                continue
            real[name] = {part for part in vars(thing) if part in own or not part.startswith("_")} \
                if inspect.isclass(thing) else None
        typed_classes = {name: parts for name, parts in typed.items() if parts}
        self.assertEqual(sorted(typed), sorted(real))
        for name, parts in typed_classes.items():
            # pybind11 gives each class an __init__ that raises where none was defined.
            missing = real[name] - parts - {"__init__"}
            self.assertEqual((name, sorted(missing), sorted(parts - real[name])), (name, [], []))


if __name__ == "__main__":
    unittest.main()
