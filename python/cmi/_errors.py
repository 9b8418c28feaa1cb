"""Exceptions of package cmi, raised by its extension module."""


class Error(Exception):
    """A call that failed. `code` is a cmi_error of <cmi.h>; the text says why."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class OwnerDead(Error):
    """A process died while it held this; see cmi_sync(3)."""


class Lost(Error):
    """An access could not be made: a SIGSEGV of CMI, here without the end of the process.

    `code` is one of CMI_ERROR_ of <cmi.h>, `name` what it is called there, `address` and `segment`
    are where.
    """

    def __init__(self, code: int, name: str, address: int, segment: int) -> None:
        super().__init__(code, f"{name} at {address:#x}, segment {segment}")
        self.name = name
        self.address = address
        self.segment = segment
