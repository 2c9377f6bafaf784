"""TLS: asyncio's SSLProtocol with its data path in C.

The state machine (handshake, shutdown, timeouts, flow control) is the
`asyncio.sslproto.SSLProtocol` of the running Python version. `_core.TLSEngine` precedes it in
the list of base classes and replaces the methods that run per record: pybridge/core/tls/tls.c.
"""

from __future__ import annotations

import _ssl
import asyncio
import ssl
from asyncio import sslproto, transports
from collections.abc import Callable, Coroutine

from ... import _core
from . import tls_errors
from .handshakes import ANSWERED, FRESH, HEAD, SLOW, WHOLE, Handshakes, Records
from .transport_info import NO_TLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextvars
    from typing import Any

_State = sslproto.SSLProtocolState
_AppState = sslproto.AppProtocolState
_Inherited: Any = sslproto.SSLProtocol

# The peer may send at most this many bytes after close(). A peer that reads has fewer in transit.
MAX_DROPPED = 4 << 20

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


class SSLTransport(sslproto._SSLProtocolTransport):
    """The transport of the application's protocol; programs look for "SSL" in its class name."""

    _closed_again = False

    def close(self) -> None:
        """Flush written data and close; a second call is harmless.

        asyncio's version drops its protocol at the second call, and a later abort() then does
        nothing. This one keeps the protocol, and drops the SSLContext when the connection ends.
        """
        if not self._closed:
            super().close()
        else:
            self._closed_again = True
            protocol: Any = self._ssl_protocol
            protocol._forget_context_if_lost(self)

    def send_fds(self, data: object, fds: object) -> None:
        """Raise TypeError: TLS cannot pass descriptors."""
        raise TypeError(NO_TLS)


class TLSProtocol(_core.TLSEngine, sslproto.SSLProtocol):
    """The protocol between a stream transport and the application's protocol."""

    # Attributes of SSLProtocol that typeshed does not declare.
    _get_read_buffer_size: Callable[[], int]
    _set_state: Callable[[Any], None]
    _app_state: Any
    _app_reading_paused: bool
    _read_failed: bool
    _process_outgoing: Callable[[], None]
    _do_read: Callable[[], None]
    _control_ssl_reading: Callable[[], None]
    _on_shutdown_complete: Callable[[BaseException | None], None]
    _app_writing_paused: bool
    _outgoing_high_water: int
    _outgoing_low_water: int
    _ssl_reading_paused: bool
    _ssl_buffer_view: memoryview

    # The peer's end was received while the handshake was scheduled, or while reading was deferred.
    _end_deferred = False

    # True once the handshake has succeeded.
    _handshake_done = False

    # Number of bytes that the peer sent after close().
    _dropped_bytes = 0

    # True if the protocol's buffer was filled, so that another read is scheduled.
    _read_scheduled = False

    # True while _do_flush() runs.
    _is_flushing = False

    # The TLS protocol above this one (TLS in TLS), if it has an end and still undelivered data.
    _inner_reads: TLSProtocol | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create the protocol with an empty buffer; the arguments are those of SSLProtocol."""
        # SSLProtocol.__init__ allocates a receive buffer of max_size bytes. The stream transport
        # passes its bytes to the engine without a buffer; get_buffer() enlarges the buffer for
        # other transports.
        instance: Any = self
        instance.max_size = 0
        self._records = Records()
        try:
            sslproto.SSLProtocol.__init__(self, *args, **kwargs)
        finally:
            del instance.max_size

    # For an accepted connection: a coroutine function that takes the transport and waits until
    # the handshake ends.
    await_handshake: Callable[[Any], Coroutine[Any, Any, None]] | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin the handshake over the new connection."""
        _Inherited.connection_made(self, transport)
        self._lower_limits_below()
        if self.await_handshake is not None:
            self._begin_to_await_handshake()

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

    def _raise_openssl(
        self, method: str, why: int, code: int, verified: int, words: str | None,
        verify_words: str | None,
    ) -> None:  # fmt: skip
        """Raise the error of an OpenSSL call that the engine made, with the text of `_ssl`."""
        name = getattr(self._sslobj, "server_hostname", None)
        failure = tls_errors.OpenSSLFailure(why, code, words, verified, verify_words, name)
        raise tls_errors.make_exception(method, failure)

    # ---- the handshake and the scheduling of its steps (handshakes.py) ----------

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
            _handshakes_of(self._loop).step(self)

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
            sessions.failed(self._session_offer, exc)
        elif not isinstance(exc, ssl.SSLError):
            sessions.keep(self._session_offer, self._sslobj)

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
            _handshakes_of(self._loop).step(self)
        elif found == HEAD and not self._handshake_queued:
            # An incomplete record is either rejected or needs more data: the step computes nothing
            # and sends nothing, so the handshake stays in its queue.
            line = self._handshake_queue
            _handshakes_of(self._loop).do(self)
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
            self._run_queued_step(do)
        else:
            context.run(self._run_queued_step, do)

    def _run_queued_step(self, do: Callable[[Any], None]) -> None:
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

    # ---- timeouts: received data is processed before a due timer, as in asyncio ------------------

    # True if the handshake's timeout came while a step was queued.
    _timeout_pending = False

    def _check_handshake_timeout(self) -> None:
        """Expire the handshake's timer, unless data arrives in the next iterations."""
        self._expire_unless_data(self._is_handshake_late, _Inherited._check_handshake_timeout)

    def _is_handshake_late(self) -> bool:
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

    def _set_app_protocol(self, app_protocol: Any) -> None:
        """Set the application's protocol; one with the two buffer methods is served as buffered."""
        _Inherited._set_app_protocol(self, app_protocol)
        # asyncio's method recognizes buffered protocols by their class only.
        if not self._app_protocol_is_buffer and _core._has_buffer_methods(app_protocol):
            self._app_protocol_get_buffer = app_protocol.get_buffer
            self._app_protocol_buffer_updated = app_protocol.buffer_updated
            self._app_protocol_is_buffer = True

    def _get_app_transport(self) -> asyncio.Transport:
        """Return the application's transport, an SSLTransport, creating it on first use.

        RuntimeError if it was created and has ended.
        """
        if self._app_transport is None:
            if self._app_transport_created:
                raise RuntimeError("Creating _SSLProtocolTransport twice")
            transport: Any = SSLTransport(self._loop, self)
            transport.__dict__["write"] = self._write  # a property of a subclass has precedence
            self._app_transport = transport
            self._app_transport_created = True
        return self._app_transport

    def _get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes, in TLS and in the transport below.

        get_write_buffer_size() and pause_writing() both use this number. The bytes of a transport
        whose limits _lower_limits_below() cannot lower do not count, as in asyncio: such a
        transport need not report that they are sent, so the protocol would stay paused.
        """
        size: int = _Inherited._get_write_buffer_size(self)
        below = self._transport
        if isinstance(below, transports._FlowControlMixin):
            size += below.get_write_buffer_size()
        return size

    def resume_writing(self) -> None:
        """Go on after the transport below has room again.

        start_tls() takes over a transport that may be paused, of whose pause this protocol was not
        told. asyncio's version fails then, and the protocol above would stay paused.
        """
        self._ssl_writing_paused = False
        self._process_outgoing()

    def _set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the write limits as asyncio does, and lower those of the transport below."""
        _Inherited._set_write_buffer_limits(self, high, low)
        if self._transport is not None:
            self._lower_limits_below()

    # The original limits of the transport below, once they were changed.
    _original_limits_below: tuple[int, int] | None = None

    def _lower_limits_below(self) -> None:
        """Lower the write limits of the transport below to those of this transport.

        Its queued bytes count here, and it reports changes only when they cross its own limits.
        If this transport's limits are raised later, those below return to their original values at
        most.
        """
        below = self._transport
        if not isinstance(below, transports._FlowControlMixin):
            return
        now = low, high = below.get_write_buffer_limits()
        if self._original_limits_below is None:
            if high < self._outgoing_high_water and low <= self._outgoing_low_water:
                return
            self._original_limits_below = now
        low, high = self._original_limits_below
        # asyncio's stream transport pauses above its limit, its TLS transport at the limit.
        high = min(high, max(self._outgoing_high_water - 1, 0))
        low = min(low, high, self._outgoing_low_water)
        if (low, high) != now:
            below.set_write_buffer_limits(high, low)

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

    # The exception of the protocol that _report_callback_error() reported.
    _callback_error: BaseException | None = None

    def _report_callback_error(self, exc: BaseException) -> None:
        """End the connection after the protocol raised, with the same result as in asyncio.

        In asyncio the exception is raised by buffer_updated(), to the transport that called it.
        Here the handshake may have been queued, or the data deferred, so no transport is the
        caller.
        """
        below = self._transport
        self._callback_error = exc
        self._read_failed = True
        if isinstance(below, sslproto._SSLProtocolTransport):
            outer: Any = below._ssl_protocol
            outer._fatal_error(exc, "Fatal error on SSL protocol")
        elif below is not None:
            below._fatal_error(exc, "Fatal error: protocol.buffer_updated() call failed.")

    def _read_as_received(self) -> None:
        """Deliver received data outside of the call of the transport below.

        An exception of the protocol has the same result as in that call.
        """
        try:
            self._do_read()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._report_callback_error(exc)

    def _send_wrapped(self) -> None:
        """Send pending encrypted data between the handshake and the shutdown."""
        if self._state == _State.WRAPPED:
            self._process_outgoing()

    def _connection_context(self) -> contextvars.Context | None:
        """Return the context of the transport below, or None if it has none."""
        context: contextvars.Context | None = getattr(self._transport, "_context", None)
        return context

    def _read_after_handshake(self) -> None:
        """Read data that followed the handshake, after the task that awaited it has run.

        With start_tls() that task is the first to have the new transport, and may set a protocol
        or check the negotiated parameters. An end that was received meanwhile is delivered last.
        """
        if not self._read_deferred:
            return
        self._read_deferred = False
        self._read_as_received()
        if self._read_failed:
            return  # the connection ends: nothing more is sent or delivered
        self._send_wrapped()  # the handshake's last message, if no response has carried it
        if self._end_deferred:
            self._deliver_end()

    def _schedule_read(self) -> None:
        """Read on in the next iteration, as asyncio does if the protocol's buffer is full."""
        if not self._read_scheduled:
            self._read_scheduled = True
            self._loop.call_soon(self._continue_reading)

    def _continue_reading(self) -> None:
        """Read or flush again: the scheduled call of _schedule_read()."""
        self._read_scheduled = False
        if self._state == _State.FLUSHING:
            self._do_flush()
        else:
            self._do_read()

    def _deliver_end(self) -> None:
        """Handle the deferred end of the connection below, unless that is closed already.

        Closes the transport below unless eof_received() keeps it open. Exceptions abort the
        connection, except SystemExit and KeyboardInterrupt.
        """
        if self._transport is None:
            return
        try:
            keep_open = self._end_received()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._fatal_error(exc, "Fatal error: protocol.eof_received() call failed.")
        else:
            if not keep_open and self._transport is not None:
                self._transport.close()

    def eof_received(self) -> Any:
        """Handle the end of the connection below, after all data that came before it.

        Returns true if the transport below must stay open: the end is deferred, or plaintext must
        be delivered first.
        """
        self._end_deferred = self._read_deferred or self._handshake_queued
        return True if self._end_deferred else self._end_received()

    def _end_received(self) -> bool:
        """Begin the shutdown; return true while plaintext must be delivered before it."""
        keep_open = _Inherited.eof_received(self)
        return bool(keep_open) or self._state == _State.FLUSHING

    def _call_eof_received(self) -> None:
        """Notify the application's protocol of the peer's end, once.

        With TLS in TLS the inner protocol may still have plaintext to deliver. This connection
        then waits until the inner one closes it; asyncio closes both and loses the unread data.
        """
        inner = self._app_protocol
        if not isinstance(inner, TLSProtocol):
            _Inherited._call_eof_received(self)
        elif self._app_state == _AppState.STATE_CON_MADE:
            self._app_state = _AppState.STATE_EOF
            try:
                if inner.eof_received():
                    self._inner_reads = inner
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as exc:
                self._fatal_error(exc, "Error calling eof_received()")

    def _fatal_error(self, exc: BaseException, message: str = "Fatal error on transport") -> None:
        """Report an error and abort the connection; deliver no more data."""
        self._read_failed = True  # connection_lost() must not deliver more data
        _Inherited._fatal_error(self, exc, message)

    def _awaits_inner(self) -> bool:
        """Return true if the inner TLS protocol still has data to deliver."""
        inner = self._inner_reads
        return inner is not None and inner is self._app_protocol and not self._is_closed()

    def _is_closed(self) -> bool:
        """Return true if the application has closed its transport and wants no more data."""
        transport = self._app_transport
        return transport is None or transport._closed

    def connection_lost(self, exc: BaseException | None) -> None:
        """Deliver the remaining data, then notify the application's protocol of the end.

        Before that a queued handshake that may be complete gets its last step, a failed handshake
        is counted, and the session is stored. An exception of the protocol replaces `exc`.
        """
        try:
            self._deliver_rest()
        finally:
            self._end_connection(exc)

    def _deliver_rest(self) -> None:
        """Deliver the data that was received before the end, unless reading has failed."""
        if self._handshake_queued:
            self._handshake_queued = False
            # A peer that had a response may have completed the handshake and sent data. Without a
            # response it cannot have, and the computation would have no use.
            if self._handshake_queue == ANSWERED and self._state == _State.DO_HANDSHAKE:
                _handshakes_of(self._loop).do(self)
        if self._read_deferred:
            self._read_deferred = False
            self._read_as_received()
        while self._read_scheduled and not (
            self._read_failed or self._app_reading_paused or self._is_closed()
        ):
            self._read_scheduled = False
            self._read_as_received()

    def _end_connection(self, exc: BaseException | None) -> None:
        """Store the session, and notify the application's protocol of the end."""
        if not self._handshake_done:
            loop: Any = self._loop
            loop._count_handshake(False)
        transport = self._app_transport
        exc, self._callback_error = self._callback_error or exc, None
        try:
            self._store_session(exc)
        except Exception as failed:
            message = "A TLS session could not be stored"
            self._loop.call_exception_handler({"message": message, "exception": failed})
        finally:
            _Inherited.connection_lost(self, exc)
        if transport is not None:
            self._forget_context_if_lost(transport)

    def _forget_context_if_lost(self, transport: Any) -> None:
        """Drop the SSLContext of a connection that has ended and was closed twice."""
        # A program that keeps such a transport must not keep the SSLContext alive with it.
        if self._transport is None and transport._closed_again:
            instance: Any = self
            instance._sslcontext = instance._sslobj = None
            for name in ("sslcontext", "ssl_object"):
                self._extra.pop(name, None)

    def _start_shutdown(self) -> None:
        """Begin the shutdown, or end the flush; asyncio calls this method for close(), too.

        Does nothing while the inner TLS protocol still has data to deliver.
        """
        if self._awaits_inner():
            return
        if self._state != _State.FLUSHING:
            _Inherited._start_shutdown(self)
        elif not self._is_flushing:
            # The peer ended the connection, and its data is unread because the protocol paused
            # reading. After close() the protocol will not read the data; asyncio waits forever.
            self._end_flush()

    def _do_shutdown(self) -> None:
        """Shut TLS down; data that the peer still sends is dropped.

        asyncio fails with APPLICATION_DATA_AFTER_CLOSE_NOTIFY if such data is unread (bpo-39951),
        even if it was received during a pause. Each byte costs the time to decrypt it, so after
        MAX_DROPPED bytes the connection is closed.
        """
        try:
            while data := self._sslobj.read(65536):
                self._dropped_bytes += len(data)
        except (*sslproto.SSLAgainErrors, ssl.SSLZeroReturnError):
            pass
        except ssl.SSLError as exc:
            self._on_shutdown_complete(exc)
            return
        if self._dropped_bytes > MAX_DROPPED and self._transport is not None:
            self._on_shutdown_complete(None)
            return
        # A pause with much unread data has paused the transport below, which must read to the end.
        self._control_ssl_reading()
        _Inherited._do_shutdown(self)

    def _control_app_writing(self) -> None:
        """Call pause_writing() in the connection's context instead of the writer's.

        A copy of the context is entered, because the writer may run in the context itself. An
        empty buffer never pauses the protocol: with a limit of 0 asyncio calls pause_writing() for
        it, and nothing that is sent later would resume the protocol.
        """
        if not self._app_writing_paused and self._get_write_buffer_size() == 0:
            return
        context = None if self._app_writing_paused else self._connection_context()
        if context is None:
            _Inherited._control_app_writing(self)
        else:
            context.copy().run(_Inherited._control_app_writing, self)

    def _do_flush(self) -> None:
        """Deliver the peer's last plaintext, then continue the shutdown if none is left.

        asyncio continues after one read, which for a BufferedProtocol is one buffer of data.
        """
        below = self._transport
        failed = self._read_failed and below is not None and below.is_closing()
        if self._is_flushing or failed:
            return
        self._is_flushing = True
        try:
            self._read_deferred = False
            paused = self._app_reading_paused
            self._do_read()
            if self._state != _State.FLUSHING:
                return
            if not self._is_closed():
                if self._read_scheduled or self._has_unread(paused):
                    return
                if isinstance(self._app_protocol, TLSProtocol):
                    self._call_eof_received()
                    if self._awaits_inner():
                        return
        finally:
            self._is_flushing = False
        self._end_flush()

    def _has_unread(self, paused: bool) -> bool:
        """Return true if a pause left plaintext unread; `paused`: it began before the read."""
        if not self._app_reading_paused:
            return False
        return paused or bool(self._incoming.pending or self._sslobj.pending())

    def _end_flush(self) -> None:
        """Continue the shutdown after the flush, unless the transport below is closing."""
        # asyncio's version continues after a protocol's abort(), and fails; and after a failed
        # read, which has closed the transport, it would read again.
        below = self._transport
        ended = below is not None and below.is_closing()
        if self._state == _State.FLUSHING and not ended:
            self._set_state(_State.SHUTDOWN)
            self._do_shutdown()

    def _abort(self, exc: BaseException | None = None) -> None:
        """Close the connection below at once, with an exception for connection_lost() or None."""
        # 3.11's _abort() takes no exception, although its own TLS transport passes one: TLS in
        # TLS could not be aborted there.
        self._set_state(_State.UNWRAPPED)
        if self._transport is not None:
            self._transport._force_close(exc)

    def _do_read__buffered(self) -> None:
        """Read plaintext into the buffer of a BufferedProtocol, if C cannot call OpenSSL.

        asyncio slices the buffer. A slice of a bytearray is a copy, so data that is read into it
        is lost.
        """
        buf = self._app_protocol_get_buffer(self._get_read_buffer_size())
        wants, offset, ended = len(buf), 0, False
        try:
            count = offset = self._sslobj.read(wants, buf)
            while count and offset < wants:
                with (
                    memoryview(buf) as given,
                    given.cast("B") as view,
                    view[offset:wants] as rest,
                ):
                    count = self._sslobj.read(len(rest), rest)
                offset += count
            ended = not count  # a buffer without room counts as an end, too
            if not ended:
                self._schedule_read()
        except sslproto.SSLAgainErrors:
            pass
        if offset:
            self._app_protocol_buffer_updated(offset)
        if ended:
            self._call_eof_received()
            self._start_shutdown()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes from a transport other than the engine's own."""
        self._received(self._ssl_buffer_view[:nbytes])

    def _received(self, data: Any) -> None:
        """Handle received bytes, in the way of the current state.

        The engine calls this in states other than WRAPPED, buffer_updated() in all states.
        """
        state = self._state
        if state == _State.DO_HANDSHAKE:
            self._handshake_received(data)
            return
        self._incoming.write(data)
        if state == _State.WRAPPED:
            self._do_read()
        elif state == _State.FLUSHING:
            self._do_flush()
        elif state == _State.SHUTDOWN:
            self._do_shutdown()


def move_unread_bytes(protocol: Any, tls: Any) -> None:
    """Move the unread bytes of a StreamReader to a TLS protocol's handshake.

    A client that does not wait for the server's consent has already sent its ClientHello. Called
    for servers only: a client must not use bytes that it received before TLS began. Newer
    releases of asyncio do the same.
    """
    reader = protocol._stream_reader
    if reader is not None and reader._buffer:
        data = bytes(reader._buffer)
        tls._incoming.write(data)
        tls._records.feed(data)
        reader._buffer.clear()
        reader._maybe_resume_transport()


def _register_with_c() -> None:
    """Register the types and methods for C."""
    native: Any = _ssl
    _core._begin_tls(
        (native._SSLSocket, native.MemoryBIO),
        (ssl.SSLObject, SSLTransport),
        (
            _Inherited._do_read,
            _Inherited._do_write,
            _Inherited._process_outgoing,
            _Inherited._write_appdata,
            TLSProtocol._control_app_writing,
            _State.FLUSHING,
            _State.WRAPPED,
        ),
    )


_register_with_c()
