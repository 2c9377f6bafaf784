"""A group: classes of one module of test.test_asyncio, and how they are bound."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """The classes of one module of test.test_asyncio and how they are bound."""

    module: str
    # Concrete classes that are bound by policy or by name.  None: every
    # TestCase of the module whose name is not in `skip_classes`.
    classes: tuple[str, ...] | None = None
    # Mixins, or whole classes, that ask `create_event_loop` or `new_loop`.
    mixins: tuple[str, ...] = ()
    skip_classes: tuple[str, ...] = ()
