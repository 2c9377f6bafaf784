"""TLS: asyncio's SSLProtocol with its data path in C.

The state machine (handshake, shutdown, timeouts, flow control) is the running
version's own `asyncio.sslproto.SSLProtocol`. `_core.TLSEngine` stands before it in
the order of bases and replaces what runs per record; see pybridge/core/tls/tls.c.
"""

from __future__ import annotations

import _ssl
import asyncio
import os
import ssl
from asyncio import sslproto, transports
from collections.abc import Callable, Coroutine

from ... import _core
from ..loop.base import CoreLoop
from . import tls_errors
from .handshakes import ANSWERED, FRESH, HEAD, SLOW, WHOLE, Records
from .transport_info import NO_TLS, has_buffer_methods

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextvars
    from typing import Any

_State = sslproto.SSLProtocolState
_AppState = sslproto.AppProtocolState
_Inherited: Any = sslproto.SSLProtocol

# Bytes that a peer may send behind close(), more than can be under way to a loop that reads.
MOST_DROPPED = 4 << 20

# So much of what has come may wait for a handshake's turn; reading stops there.
READ_AHEAD = 64 * 1024


# A timeout that is due waits for so many polls, each of which may bring what it waits for.
LAST_TURNS = 4


class SSLTransport(sslproto._SSLProtocolTransport):
    """What the application's protocol writes to; programs look for "SSL" in its name."""

    _closed_again = False

    def close(self) -> None:
        """Flush what was written, and close; harmless where it was called before.

        asyncio's forgets its protocol at the second call, and abort() then does nothing.
        This one keeps it, and lets the context go at the end of the connection.
        """
        if not self._closed:
            super().close()
        else:
            self._closed_again = True
            protocol: Any = self._ssl_protocol
            protocol._forget_context_if_lost(self)

    def send_fds(self, data: object, fds: object) -> None:
        """Refuse, with a TypeError: TLS carries no descriptors."""
        raise TypeError(NO_TLS)


class TLSProtocol(_core.TLSEngine, sslproto.SSLProtocol):
    """The protocol between a stream transport and an application's protocol."""

    # SSLProtocol's own, which its published types don't have.
    _get_read_buffer_size: Callable[[], int]
    _set_state: Callable[[Any], None]
    _app_state: Any
    _app_reading_paused: bool
    _process_outgoing: Callable[[], None]
    _do_read: Callable[[], None]
    _control_ssl_reading: Callable[[], None]
    _on_shutdown_complete: Callable[[BaseException | None], None]
    _app_writing_paused: bool
    _outgoing_high_water: int
    _outgoing_low_water: int
    _ssl_reading_paused: bool
    _ssl_buffer_view: memoryview

    # The end of the connection below came while the handshake waited, or reading was held.
    _end_held = False

    # The handshake has succeeded.
    _greeted = False

    # Bytes of the peer's that came behind close().
    _dropped = 0

    # The protocol's buffer was filled: another read is scheduled.
    _read_scheduled = False

    # _do_flush() runs.
    _flushes = False

    # The TLS above this one, which was told of the peer's end and has not delivered all yet.
    _inner_reads: TLSProtocol | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # SSLProtocol sets a receive buffer of this size aside; the stream transport
        # hands its bytes to the engine without one, and any other transport makes it
        # grow when it asks for a buffer.
        instance: Any = self
        instance.max_size = 0
        self._records = Records()
        try:
            sslproto.SSLProtocol.__init__(self, *args, **kwargs)
        finally:
            del instance.max_size

    # For an accepted connection: what waits for the end of its handshake, as a coroutine
    # function of the transport.
    await_handshake: Callable[[Any], Coroutine[Any, Any, None]] | None = None

    def connection_made(self, transport: Any) -> None:
        """The connection below is there: the handshake begins."""
        _Inherited.connection_made(self, transport)
        self._limit_below()
        if self.await_handshake is not None:
            self._begin_to_await_handshake()

    def _begin_to_await_handshake(self) -> None:
        """Create the task of an accepted connection, as asyncio does for each.

        The program's task factory is called as asyncio calls it, with the loop and the coroutine
        alone. The task gets a copy of the connection's context, which is entered here: a factory
        that starts tasks eagerly could not enter it again.
        """
        make: Any = self.await_handshake
        self.await_handshake = None
        awaited = make(self._app_transport)
        try:
            self._loop.create_task(awaited)
        except BaseException:
            # Without the task nothing would retrieve the outcome of the handshake. asyncio drops
            # the connection as well.
            awaited.close()
            if self._waiter is not None:
                self._waiter.cancel()
            self._abort(None)
            raise

    def _raise_openssl(
        self, method: str, why: int, code: int, verified: int, words: str | None,
        verify_words: str | None,
    ) -> None:  # fmt: skip
        """What the engine's call of OpenSSL has failed with is raised, as `_ssl` words it."""
        name = getattr(self._sslobj, "server_hostname", None)
        stop = tls_errors.Stop(why, code, words, verified, verify_words, name)
        raise tls_errors.worded(method, stop)

    # ---- the handshake, which takes turns with others (handshakes.py) ---------------------------

    # It could go on, and waits for its turn; the line in which it would.
    _handshake_waits = False
    _handshake_line = FRESH

    def _do_handshake(self) -> None:
        """The handshake begins, as asyncio says."""
        # The client speaks first: OpenSSL is not asked what to do before.
        if not self._server_side or self._incoming.pending:
            loop: Any = self._loop
            if not self._server_side:
                self._offer_session()
            loop._handshakes.step(self)

    # Of a client whose context keeps sessions (goloop/tls.py), and what it has offered.
    _sessions: Any = None
    _session_offer: Any = None

    def _offer_session(self) -> None:
        sessions = getattr(self._sslcontext, "_goloop_sessions", None)
        if sessions is not None and self._transport is not None:
            address = self._transport.get_extra_info("peername")
            self._session_offer = sessions.offer(self._sslobj, address)
            self._sessions = sessions

    def _keep_session(self, exc: BaseException | None) -> None:
        """The connection ends, by an error of TLS or otherwise."""
        sessions, self._sessions = self._sessions, None
        if sessions is None or self._sslobj is None:
            return
        if not self._greeted:
            sessions.failed(self._session_offer, exc)
        elif not isinstance(exc, ssl.SSLError):
            sessions.keep(self._session_offer, self._sslobj)

    def _is_watched(self) -> bool:
        """Whether Python's callbacks hear of the handshake.

        What they raise comes out of `_ssl`'s own method only; that of SNI may put a context with
        such callbacks in this one's place.
        """
        context: Any = self._sslcontext
        return not (
            context._msg_callback is None
            and context.keylog_filename is None
            and context.sni_callback is None
        )

    def _step_handshake(self) -> None:
        """Does what can be done now."""
        try:
            done = self._advance_handshake(self._is_watched())
            if done is None:
                self._sslobj.do_handshake()
        except sslproto.SSLAgainErrors:
            done = False
        except ssl.SSLError as exc:
            self._on_handshake_complete(exc)
            return
        if done is False:
            self._handshake_line = ANSWERED if self._outgoing.pending else SLOW
            self._process_outgoing()
        else:
            self._on_handshake_complete(None)

    def _handshake_received(self, data: Any) -> None:
        loop: Any = self._loop
        self._incoming.write(data)
        found = self._records.feed(data)
        if found == WHOLE:
            loop._handshakes.step(self)
        elif found == HEAD and not self._handshake_waits:
            # It is refused or waited for: neither computes, and neither is an answer.
            line = self._handshake_line
            loop._handshakes.do(self)
            self._handshake_line = line
        if self._handshake_waits and self._incoming.pending >= READ_AHEAD:
            self._limit_reading()

    def _limit_reading(self) -> None:
        """A peer that has not proved anything yet is not read without limit."""
        wait = self._handshake_waits and self._incoming.pending >= READ_AHEAD
        if wait == self._ssl_reading_paused or self._transport is None:
            return
        if wait:
            self._ssl_reading_paused = True
            self._transport.pause_reading()
        elif self._state == _State.DO_HANDSHAKE:  # otherwise reading itself decides
            self._ssl_reading_paused = False
            self._transport.resume_reading()

    def _resume_handshake(self, do: Callable[[Any], None]) -> None:
        """The handshake's turn has come; in the context of the connection."""
        context = self._own_context()
        if context is None:
            self._take_turn(do)
        else:
            context.run(self._take_turn, do)

    def _take_turn(self, do: Callable[[Any], None]) -> None:
        if self._state == _State.DO_HANDSHAKE:
            do(self)
        # Not before: an interrupt may have come, and it waits still.
        self._handshake_waits = False
        if self._timed_out:
            self._check_handshake_timeout()
        if self._ssl_reading_paused:
            self._limit_reading()
        if self._end_held and not self._read_held:
            self._tell_end()

    # ---- timeouts: what has come is served before its timer, as in asyncio -----------------------

    # The handshake's timeout came while a step of it waited for its turn.
    _timed_out = False

    def _check_handshake_timeout(self) -> None:
        self._when_served(self._handshake_is_late, _Inherited._check_handshake_timeout)

    def _handshake_is_late(self) -> bool:
        # The bytes that end it may be here already: its turn decides.
        self._timed_out = self._handshake_waits
        return self._state == _State.DO_HANDSHAKE and not self._timed_out

    def _check_shutdown_timeout(self) -> None:
        self._when_served(self._shutdown_is_late, _Inherited._check_shutdown_timeout)

    def _shutdown_is_late(self) -> bool:
        return self._state in (_State.FLUSHING, _State.SHUTDOWN) and self._transport is not None

    def _when_served(
        self, is_late: Callable[[], bool], expire: Callable[[Any], None], turns: int = LAST_TURNS
    ) -> None:
        """A timer is due: expire, but for bytes that come in these turns of the reactor.

        After a long callback more may have come than one turn hands out, and timers have their
        share of each. asyncio hands out all of it first.
        """
        if not is_late():
            return
        if turns:
            self._loop.call_later(0, self._when_served, is_late, expire, turns - 1)
        else:
            expire(self)

    def _set_app_protocol(self, app_protocol: Any) -> None:
        _Inherited._set_app_protocol(self, app_protocol)
        # asyncio looks at the class alone.
        if not self._app_protocol_is_buffer and has_buffer_methods(app_protocol):
            self._app_protocol_get_buffer = app_protocol.get_buffer
            self._app_protocol_buffer_updated = app_protocol.buffer_updated
            self._app_protocol_is_buffer = True

    def _get_app_transport(self) -> asyncio.Transport:
        if self._app_transport is None:
            if self._app_transport_created:
                raise RuntimeError("Creating _SSLProtocolTransport twice")
            transport: Any = SSLTransport(self._loop, self)
            transport.__dict__["write"] = self._write  # behind a property of a program's
            self._app_transport = transport
            self._app_transport_created = True
        return self._app_transport

    def _get_write_buffer_size(self) -> int:
        """The bytes that have not left: those that TLS holds, and the transport's.

        Both get_write_buffer_size() and pause_writing() go by this number.
        """
        size: int = _Inherited._get_write_buffer_size(self)
        if self._transport is not None:
            size += self._transport.get_write_buffer_size()
        return size

    def _set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        _Inherited._set_write_buffer_limits(self, high, low)
        if self._transport is not None:
            self._limit_below()

    # The limits of the transport below, as they were found.
    _limits_below: tuple[int, int] | None = None

    def _limit_below(self) -> None:
        """The transport below tells of its queue no later than the limits here ask for.

        What it holds counts here, and it says only by its own limits when that has changed.
        """
        below = self._transport
        if not isinstance(below, transports._FlowControlMixin):
            return
        now = low, high = below.get_write_buffer_limits()
        if self._limits_below is None:
            if high < self._outgoing_high_water and low <= self._outgoing_low_water:
                return
            self._limits_below = now
        low, high = self._limits_below
        # asyncio's pauses above its limit, and TLS at it.
        high = min(high, max(self._outgoing_high_water - 1, 0))
        low = min(low, high, self._outgoing_low_water)
        if (low, high) != now:
            below.set_write_buffer_limits(high, low)

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        self._read_held = handshake_exc is None and self._waiter is not None
        try:
            _Inherited._on_handshake_complete(self, handshake_exc)
            # The protocol may have begun to close the connection already.
            if self._state != _State.UNWRAPPED:
                self._greeted = True
                loop: Any = self._loop
                loop._note_handshake(True)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._read_held = False
            self._made_failed(exc)
            return
        finally:
            # Raised in there, its traceback reaches this frame, and this frame it.
            del handshake_exc
            if self._read_held:
                self._loop.call_soon(self._read_first, context=self._own_context())
        # asyncio sends the handshake's last message with what is read or written next,
        # and whoever pauses reading first may do neither for long. What a server says last
        # in TLS 1.3 nobody waits for: it goes with the first answer.
        if not (self._read_held and self._server_side and self._sslobj.version() == "TLSv1.3"):
            self._send_wrapped()

    # What connection_made() has raised.
    _failed: BaseException | None = None

    def _made_failed(self, exc: BaseException) -> None:
        """connection_made() has raised: the end that asyncio makes of it.

        There it comes out of buffer_updated(), to the transport that has called that. Here the
        handshake may have waited for its turn, and nobody has called.
        """
        below = self._transport
        self._failed = exc
        if isinstance(below, sslproto._SSLProtocolTransport):
            outer: Any = below._ssl_protocol
            outer._fatal_error(exc, "Fatal error on SSL protocol")
        elif below is not None:
            below._fatal_error(exc, "Fatal error: protocol.buffer_updated() call failed.")

    def _send_wrapped(self) -> None:
        if self._state == _State.WRAPPED:
            self._process_outgoing()

    def _own_context(self) -> contextvars.Context | None:
        context: contextvars.Context | None = getattr(self._transport, "_context", None)
        return context

    def _read_first(self) -> None:
        """What came behind the handshake is read once the task that awaited it has run.

        By start_tls() that is the first to know the transport, and may set a protocol or
        look at what was negotiated. An end that came meanwhile comes behind it.
        """
        if not self._read_held:
            return
        self._read_held = False
        self._do_read()
        self._send_wrapped()  # the handshake's last message, if no answer took it along
        if self._end_held:
            self._tell_end()

    def _read_soon(self) -> None:
        """The protocol's buffer is full: the rest comes in the next iteration, as in asyncio."""
        if not self._read_scheduled:
            self._read_scheduled = True
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._read_scheduled = False
        if self._state == _State.FLUSHING:
            self._do_flush()
        else:
            self._do_read()

    def _tell_end(self) -> None:
        """The end of the connection below came earlier, and its turn is now."""
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
        """The peer has ended the connection below; what came before that comes before that."""
        self._end_held = self._read_held or self._handshake_waits
        return True if self._end_held else self._end_received()

    def _end_received(self) -> bool:
        """Begin to end the connection; true while plaintext has to be delivered before that."""
        keep_open = _Inherited.eof_received(self)
        return bool(keep_open) or self._state == _State.FLUSHING

    def _call_eof_received(self) -> None:
        """The application's protocol is told of the peer's end, once.

        TLS within TLS may have plaintext to deliver still. This connection then waits until the
        other one closes it; asyncio closes both, and what the reader has not read yet is lost.
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
        self._read_scheduled = False  # connection_lost() delivers nothing more
        _Inherited._fatal_error(self, exc, message)

    def _awaits_inner(self) -> bool:
        inner = self._inner_reads
        return inner is not None and inner is self._app_protocol and not self._is_closed()

    def _is_closed(self) -> bool:
        """Whether the application has closed its transport, and wants no more data."""
        transport = self._app_transport
        return transport is None or transport._closed

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection below has ended."""
        if self._handshake_waits:
            self._handshake_waits = False
            # With an answer the peer may have finished it, and sent data. Without one it can't
            # have: what would be computed is for nobody.
            if self._handshake_line == ANSWERED and self._state == _State.DO_HANDSHAKE:
                waiting: Any = self._loop
                waiting._handshakes.do(self)
        if self._read_held:
            self._read_held = False
            self._do_read()
        # What came before the end is delivered before it.
        while self._read_scheduled and not (self._app_reading_paused or self._is_closed()):
            self._read_scheduled = False
            self._do_read()
        if not self._greeted:
            loop: Any = self._loop
            loop._note_handshake(False)
        transport = self._app_transport
        exc, self._failed = self._failed or exc, None
        try:
            self._keep_session(exc)
        except Exception as failed:
            message = "A session of TLS could not be kept"
            self._loop.call_exception_handler({"message": message, "exception": failed})
        finally:
            _Inherited.connection_lost(self, exc)
        if transport is not None:
            self._forget_context_if_lost(transport)

    def _forget_context_if_lost(self, transport: Any) -> None:
        # Whoever keeps a transport that was closed twice keeps no SSLContext by it.
        if self._transport is None and transport._closed_again:
            instance: Any = self
            instance._sslcontext = instance._sslobj = None
            for name in ("sslcontext", "ssl_object"):
                self._extra.pop(name, None)

    def _start_shutdown(self) -> None:
        if self._awaits_inner():
            return
        if self._state != _State.FLUSHING:
            _Inherited._start_shutdown(self)
        elif not self._flushes:
            # The peer ended the connection, and its data waits for the protocol to read on.
            # close() says that it won't: asyncio waits for it all the same, for ever.
            self._end_flush()

    def _do_shutdown(self) -> None:
        """Ends TLS; what the peer still sends is dropped.

        asyncio ends with APPLICATION_DATA_AFTER_CLOSE_NOTIFY where such data waits
        (bpo-39951), whether it came too late or during a pause.  A peer that goes on sending
        costs the time to decrypt it: after MOST_DROPPED bytes the connection is closed.
        """
        try:
            while data := self._sslobj.read(65536):
                self._dropped += len(data)
        except (*sslproto.SSLAgainErrors, ssl.SSLZeroReturnError):
            pass
        except ssl.SSLError as exc:
            self._on_shutdown_complete(exc)
            return
        if self._dropped > MOST_DROPPED and self._transport is not None:
            self._on_shutdown_complete(None)
            return
        # A pause with much unread has stopped the transport below, and the end is behind it.
        self._control_ssl_reading()
        _Inherited._do_shutdown(self)

    def _control_app_writing(self) -> None:
        """pause_writing() runs in the connection's context, and not in the writer's.

        In a copy of it: the writer may be in the very context.
        """
        context = None if self._app_writing_paused else self._own_context()
        if context is None:
            _Inherited._control_app_writing(self)
        else:
            context.copy().run(_Inherited._control_app_writing, self)

    def _do_flush(self) -> None:
        """Deliver the peer's last plaintext, and go on with the shutdown when there is none left.

        asyncio goes on after one read: of a BufferedProtocol that is one buffer.
        """
        if self._flushes:
            return
        self._flushes = True
        try:
            self._read_held = False
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
            self._flushes = False
        self._end_flush()

    def _has_unread(self, paused: bool) -> bool:
        """Whether a pause keeps plaintext from being read; `paused`: it began before the read."""
        if not self._app_reading_paused:
            return False
        return paused or bool(self._incoming.pending or self._sslobj.pending())

    def _end_flush(self) -> None:
        # asyncio's goes on where a protocol has called abort() meanwhile, and fails; and where
        # reading has failed, which has closed the transport: it would read on.
        below = self._transport
        ended = below is not None and below.is_closing()
        if self._state == _State.FLUSHING and not ended:
            self._set_state(_State.SHUTDOWN)
            self._do_shutdown()

    def _abort(self, exc: BaseException | None = None) -> None:
        # 3.11's takes no exception, though its own transport of TLS passes one: there
        # TLS within TLS could not be aborted.
        self._set_state(_State.UNWRAPPED)
        if self._transport is not None:
            self._transport._force_close(exc)

    def _do_read__buffered(self) -> None:
        """Reached where OpenSSL is not called directly: reads into the protocol's buffer.

        asyncio slices the buffer, and what it reads into the slice of a bytearray is
        lost.
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
            ended = not count  # no room at all is taken for the end, too
            if not ended:
                self._read_soon()
        except sslproto.SSLAgainErrors:
            pass
        if offset:
            self._app_protocol_buffer_updated(offset)
        if ended:
            self._call_eof_received()
            self._start_shutdown()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came by another transport than the engine's own."""
        self._received(self._ssl_buffer_view[:nbytes])

    def _received(self, data: Any) -> None:
        """Bytes came; the engine asks for this in a state other than WRAPPED, where it reads."""
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


def _hand_over(protocol: Any, tls: Any) -> None:
    """What a stream reader has got beyond what was read from it begins the handshake.

    A client that does not wait for the server's consent has sent its hello along. Not
    so on the client's side, where such bytes are in clear what TLS ought to protect;
    newer asyncio makes the same difference.
    """
    reader = protocol._stream_reader
    if reader is not None and reader._buffer:
        data = bytes(reader._buffer)
        tls._incoming.write(data)
        tls._records.feed(data)
        reader._buffer.clear()
        reader._maybe_resume_transport()


class StartTLS(CoreLoop):
    """start_tls over the engine."""

    async def start_tls(
        self,
        transport: Any,
        protocol: asyncio.BaseProtocol,
        sslcontext: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> Any:
        """Put TLS between a transport and its protocol; return the new transport.

        Timeouts are in seconds; None is asyncio's default. TypeError for a context or
        a transport of the wrong kind, ssl.SSLError and its kin where the handshake
        fails, after which the transport is closed.
        """
        if not isinstance(sslcontext, ssl.SSLContext):
            raise TypeError(
                f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}"
            )
        if not getattr(transport, "_start_tls_compatible", False):
            raise TypeError(f"transport {transport!r} is not supported by start_tls()")
        waiter = self.create_future()
        tls: Any = TLSProtocol(
            self,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
            call_connection_made=False,
        )
        if server_side and isinstance(protocol, asyncio.StreamReaderProtocol):
            _hand_over(protocol, tls)
        # What arrives from now on is held until the engine has the transport.
        transport.pause_reading()
        transport.set_protocol(tls)
        made = self.call_soon(tls.connection_made, transport)
        resumed = self.call_soon(transport.resume_reading)
        try:
            await waiter
        except BaseException:
            transport.close()
            made.cancel()
            resumed.cancel()
            raise
        finally:
            # Its exception would keep itself alive through the traceback.
            del waiter
        return tls._app_transport


def _begin() -> str | None:
    """Tells C what it works with; why OpenSSL is not called directly, or None where it is."""
    native: Any = _ssl
    forced = os.environ.get("GOLOOP_TLS") == "stdlib"
    reason = _core._begin_tls(
        False if forced else getattr(native, "__file__", None),
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
    return "GOLOOP_TLS=stdlib asks for SSLObject's own methods" if forced else reason


# Why TLS goes through SSLObject's methods, or None where OpenSSL is called directly.
fallback_reason = _begin()
