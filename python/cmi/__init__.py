"""Memory that processes of many nodes share: the Coherent Memory Interface over libfabric.

    with cmi.Context() as context:
        segment = context.find("/srv/job", "table", timeout=10)
        words = segment.attach().array("uint64")     # a NumPy array: loads and stores
        words[0] = 1
        cmi.publish()                                # every node sees it from here on

doc/python.md has what holds of threads, of lost memory, and of what must be closed when.
"""

import os
from collections.abc import AsyncIterator
from typing import Optional

from ._cmi import (
    ATOMIC,
    CLIENT_CONSIST,
    CLIENT_INCONSIST,
    EVENT_CMAP,
    EVENT_HCTXT_DOWN,
    EVENT_HW,
    EVENT_QUIESCE,
    EVENT_RCTXT_DOWN,
    EVENT_RESUME,
    EVENT_STORE_FAILURE,
    LARGE_PAGES,
    NORESERVE,
    READ,
    WRITE,
    Atomic,
    Barrier,
    Event,
    Handle,
    Latch,
    Mutex,
    Offer,
    Queue,
    Segment,
    Semaphore,
    SharedMutex,
    Taken,
    Thread,
    TicketLock,
    Token,
    View,
    _Context,
    _find,
    _offer,
    fence,
    publish,
)
from ._errors import Error, Lost, OwnerDead
from ._events import readable

__all__ = [
    "ATOMIC", "CLIENT_CONSIST", "CLIENT_INCONSIST", "EVENT_CMAP", "EVENT_HCTXT_DOWN", "EVENT_HW",
    "EVENT_QUIESCE", "EVENT_RCTXT_DOWN", "EVENT_RESUME", "EVENT_STORE_FAILURE", "LARGE_PAGES", "NORESERVE",
    "READ", "WRITE", "Atomic", "Barrier", "Context", "Error", "Event", "Handle", "Latch", "Lost", "Mutex",
    "Offer", "OwnerDead", "Queue", "Segment", "Semaphore", "SharedMutex", "Taken", "Thread", "TicketLock",
    "Token", "View", "fence", "publish",
]


class Context(_Context):
    """The process's context. The thread that makes it is registered; others use thread().

    Closing it closes all that was made in it. It is left open, and BufferError raised, while an array
    or a memoryview of a view lives.
    """

    def offer(self, where: "str | os.PathLike[str]", name: str, segment: Segment,
              rights: int = READ | WRITE | ATOMIC) -> Offer:
        """Leaves a segment at a place under a name for find(), until the offer is closed."""
        return _offer(self, os.fspath(where), name, segment, rights)

    def find(self, where: "str | os.PathLike[str]", name: str,
             timeout: Optional[float] = 10.0) -> Segment:
        """Waits so many seconds (None: without end) for such an offer, and imports it."""
        return _find(self, os.fspath(where), name, timeout)

    async def events(self) -> AsyncIterator[Event]:
        """The context's events as they come, for asyncio: async for event in context.events()."""
        descriptor = os.dup(self.event_fd)  # a reader of the loop's own: several may wait at once
        try:
            while True:
                event = self.next_event()
                if event is None:
                    await readable(descriptor)
                else:
                    yield event
        finally:
            os.close(descriptor)
