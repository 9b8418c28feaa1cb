"""Waiting for a descriptor in an event loop."""

import asyncio


async def readable(descriptor: int) -> None:
    """Returns when the descriptor polls readable."""
    loop = asyncio.get_running_loop()
    future: "asyncio.Future[None]" = loop.create_future()
    loop.add_reader(descriptor, lambda: future.done() or future.set_result(None))
    try:
        await future
    finally:
        loop.remove_reader(descriptor)
