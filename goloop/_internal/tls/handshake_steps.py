"""The steps of a TLS handshake, and the timeouts of a handshake and of a shutdown.

A step runs as far as the received bytes allow. Many handshakes at once take turns, by the schedule
of handshakes.py, so a step may be queued; what the peer does meanwhile waits until it has run.
"""

from __future__ import annotations

import ssl
from asyncio import sslproto
from collections.abc import Callable, Coroutine

from ... import _core
from .handshakes import ANSWERED, FRESH, HEAD, SLOW, WHOLE, Handshakes

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextvars
    from typing import Any

    from .handshakes import Records

_State = sslproto.SSLProtocolState
_Inherited: Any = sslproto.SSLProtocol

# Received bytes that may be queued while a handshake is scheduled for later; then reading stops.
READ_AHEAD = 64 * 1024

# A timeout that is due is checked again after this many polls, which may receive the awaited bytes.
POLLS_BEFORE_TIMEOUT = 4


def _handshakes_of(loop: Any) -> Handshakes:
    """Return the schedule of a loop's handshakes, which its first handshake creates."""
    found: Handshakes | None = loop._handshakes
    if found is None:
        found = loop._handshakes = Handshakes()
    return found


class HandshakeSteps(_core.TLSEngine, sslproto.SSLProtocol):
    """The part of TLSProtocol that makes the handshake."""

    # Set by TLSProtocol, or methods of it.
    _records: Records
    _end_deferred: bool
    _connection_context: Callable[[], contextvars.Context | None]
    _deliver_end: Callable[[], None]
    _read_after_handshake: Callable[[], None]
    _report_callback_error: Callable[[BaseException], None]
    _send_wrapped: Callable[[], None]

    # For an accepted connection: a coroutine function that takes the transport and waits until
    # the handshake ends.
    await_handshake: Callable[[Any], Coroutine[Any, Any, None]] | None = None

    def _begin_to_await_handshake(self) -> None:
        """Create the handshake task of an accepted connection, as asyncio does.

        The program's task factory is called as asyncio calls it, with the loop and the coroutine
        only. The task gets a copy of the connection's context, which is the current one here:
        a factory that starts tasks eagerly could not enter it a second time. If the task cannot
        be created, the connection is aborted and the exception raised.
        """
        make: Any = self.await_handshake
        self.await_handshake = None
        awaited = make(self._app_transport)
        try:
            self._loop.create_task(awaited)
        except BaseException:
            # Without the task nothing would retrieve the handshake's exception. asyncio drops the
            # connection as well.
            awaited.close()
            if self._waiter is not None:
                self._waiter.cancel()
            self._abort(None)
            raise

    # True while a step of the handshake is queued; and the queue to use: ANSWERED, FRESH or SLOW.
    _handshake_queued = False
    _handshake_queue = FRESH

    def _do_handshake(self) -> None:
        """Begin the handshake; asyncio's connection_made() calls this hook.

        A client offers a stored session and runs the first step. A server does nothing until it
        has received data.
        """
        # The client sends first, so a server has no step to do before data is received.
        if not self._server_side or self._incoming.pending:
            if not self._server_side:
                self._offer_session()
            _handshakes_of(self._loop).step_if_allowed(self)

    # For a client context that stores sessions (goloop/tls.py): the store, and the offered session.
    _sessions: Any = None
    _session_offer: Any = None

    def _offer_session(self) -> None:
        """Offer the server a stored session to resume, if the context has a session store."""
        sessions = getattr(self._sslcontext, "_goloop_sessions", None)
        if sessions is not None and self._transport is not None:
            address = self._transport.get_extra_info("peername")
            self._session_offer = sessions.offer(self._sslobj, address)
            self._sessions = sessions

    def _store_session(self, exc: BaseException | None) -> None:
        """Store the TLS session of a connection that ends, or note that resuming it failed.

        Does nothing without a session store, on a second call, and if the connection ended with
        an SSLError after the handshake.
        """
        sessions, self._sessions = self._sessions, None
        if sessions is None or self._sslobj is None:
            return
        if not self._handshake_done:
            sessions.record_failure(self._session_offer, exc)
        elif not isinstance(exc, ssl.SSLError):
            sessions.store(self._session_offer, self._sslobj)

    def _has_python_callbacks(self) -> bool:
        """Return true if Python callbacks observe the handshake, so that `_ssl` must run it.

        Only `_ssl`'s own method raises exceptions of these callbacks. An SNI callback counts, too,
        because it may set another context, with such callbacks.
        """
        context: Any = self._sslcontext
        return not (
            context._msg_callback is None
            and context.keylog_filename is None
            and context.sni_callback is None
        )

    def _step_handshake(self) -> None:
        """Run the handshake as far as the received bytes allow.

        If it is unfinished, send the output and choose the queue for the next step. If it has
        succeeded or failed, call _on_handshake_complete().
        """
        try:
            done = self._advance_handshake(self._has_python_callbacks())
            if done is None:
                self._sslobj.do_handshake()
        except sslproto.SSLAgainErrors:
            done = False
        except ssl.SSLError as exc:
            self._on_handshake_complete(exc)
            return
        if done is False:
            self._handshake_queue = ANSWERED if self._outgoing.pending else SLOW
            self._process_outgoing()
        else:
            self._on_handshake_complete(None)

    def _handshake_received(self, data: Any) -> None:
        """Feed received bytes to the handshake, and run or schedule a step for whole records.

        The head of an incomplete record gets a step at once, so that OpenSSL can reject it.
        Reading is paused while a queued handshake has READ_AHEAD bytes.
        """
        self._incoming.write(data)
        found = self._records.feed(data)
        if found == WHOLE:
            _handshakes_of(self._loop).step_if_allowed(self)
        elif found == HEAD and not self._handshake_queued:
            # An incomplete record is either rejected or needs more data: the step computes nothing
            # and sends nothing, so the handshake stays in its queue.
            line = self._handshake_queue
            _handshakes_of(self._loop).run_step(self)
            self._handshake_queue = line
        if self._handshake_queued and self._incoming.pending >= READ_AHEAD:
            self._limit_reading()

    def _limit_reading(self) -> None:
        """Pause reading while a scheduled handshake has READ_AHEAD bytes, else resume it.

        The peer is not authenticated yet, so the memory that it can use is limited.
        """
        wait = self._handshake_queued and self._incoming.pending >= READ_AHEAD
        if wait == self._ssl_reading_paused or self._transport is None:
            return
        if wait:
            self._ssl_reading_paused = True
            self._transport.pause_reading()
        elif self._state == _State.DO_HANDSHAKE:  # in other states the engine controls reading
            self._ssl_reading_paused = False
            self._transport.resume_reading()

    def _resume_handshake(self, do: Callable[[Any], None]) -> None:
        """Run a queued step of the handshake by `do`, in the connection's context."""
        context = self._connection_context()
        if context is None:
            self._run_step_and_deferred_events(do)
        else:
            context.run(self._run_step_and_deferred_events, do)

    def _run_step_and_deferred_events(self, do: Callable[[Any], None]) -> None:
        """Run a queued step by `do(self)`, then all events that were deferred until its end.

        The deferred events are an expired timeout, a pause of reading, and the peer's end.
        """
        if self._state == _State.DO_HANDSHAKE:
            do(self)
        # Cleared only after the step: if an interrupt ends the step, the handshake stays queued.
        self._handshake_queued = False
        if self._timeout_pending:
            self._check_handshake_timeout()
        if self._ssl_reading_paused:
            self._limit_reading()
        if self._end_deferred and not self._read_deferred:
            self._deliver_end()

    def _run_last_step(self) -> None:
        """Run a queued step of a connection that ends, if the handshake may be complete."""
        self._handshake_queued = False
        # A peer that had a response may have completed the handshake and sent data. Without a
        # response it cannot have, and the computation would have no use.
        if self._handshake_queue == ANSWERED and self._state == _State.DO_HANDSHAKE:
            _handshakes_of(self._loop).run_step(self)

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        """Finish the handshake, which failed with an exception or succeeded (None).

        After a success, application data is held back until the task that awaited the handshake
        has run (_read_after_handshake()). An exception of connection_made() ends the connection.
        """
        self._read_deferred = handshake_exc is None and self._waiter is not None
        try:
            _Inherited._on_handshake_complete(self, handshake_exc)
            # connection_made() may already have begun to close the connection.
            if self._state != _State.UNWRAPPED:
                self._handshake_done = True
                loop: Any = self._loop
                loop._count_handshake(True)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._read_deferred = False
            self._report_callback_error(exc)
            return
        finally:
            # The exception's traceback refers to this frame: avoid a reference cycle.
            del handshake_exc
            if self._read_deferred:
                self._loop.call_soon(self._read_after_handshake, context=self._connection_context())
        # asyncio sends the handshake's last message together with the next read or write, which a
        # protocol that pauses reading may delay for long, so it is sent now. In TLS 1.3 no client
        # waits for a server's last message, which is sent with the first response.
        if not (self._read_deferred and self._server_side and self._sslobj.version() == "TLSv1.3"):
            self._send_wrapped()

    # ---- timeouts: received data is processed before a due timer, as in asyncio ------------------

    # True if the handshake's timeout came while a step was queued.
    _timeout_pending = False

    def _check_handshake_timeout(self) -> None:
        """Expire the handshake's timer, unless data arrives in the next iterations."""
        self._expire_unless_data(self._check_handshake_late, _Inherited._check_handshake_timeout)

    def _check_handshake_late(self) -> bool:
        """Return true if the handshake is unfinished and no step of it is queued.

        Sets `_timeout_pending` if a step is queued, so that the timeout is checked after it.
        """
        # The bytes that complete the handshake may be queued: check again after that step.
        self._timeout_pending = self._handshake_queued
        return self._state == _State.DO_HANDSHAKE and not self._timeout_pending

    def _check_shutdown_timeout(self) -> None:
        """Expire the shutdown's timer, unless data arrives in the next iterations."""
        self._expire_unless_data(self._is_shutdown_late, _Inherited._check_shutdown_timeout)

    def _is_shutdown_late(self) -> bool:
        """Return true if the shutdown is unfinished and the connection below is open."""
        return self._state in (_State.FLUSHING, _State.SHUTDOWN) and self._transport is not None

    def _expire_unless_data(
        self,
        is_late: Callable[[], bool],
        expire: Callable[[Any], None],
        turns: int = POLLS_BEFORE_TIMEOUT,
    ) -> None:
        """Call `expire(self)` for a due timer if `is_late()` stays true for `turns` iterations.

        After a long callback more data may be available than one turn delivers, and timers have
        a share of each turn. asyncio delivers all available data before it runs timers.
        """
        if not is_late():
            return
        if turns:
            self._loop.call_later(0, self._expire_unless_data, is_late, expire, turns - 1)
        else:
            expire(self)
