/*
 * callbacks.h: every Python method that C calls by its name, and every object that it imports.
 *
 * The tables list all calls from C to Python.  support.h makes the interned strings G.s_NAME from
 * GL_METHODS and GL_WORDS, and the fields of G from GL_IMPORTS.  C cannot call a method that has no
 * row: the method's G.s_NAME and GL_METHOD(NAME) do not compile.  tests/project/test_callbacks.py
 * checks that each owner has the method.
 */
#pragma once

/* clang-format off */

/* X(name, owners, when): the classes that define the method, and the event on which C calls it. */
#define GL_METHODS(X) \
    /* goloop.Loop */ \
    X(_block_ended, "goloop.Loop", "the watchdog: a blocked iteration has ended") \
    X(_blocked, "goloop.Loop", "the watchdog: an iteration lasts longer than the limit") \
    X(_call_later, "goloop.Loop", "call_later() with arguments that C does not handle") \
    X(_callback_failed, "goloop.Loop", "a handle's callback raised an exception") \
    X(_check_callback, "goloop.Loop", "debug mode: call_soon() checks the callback") \
    X(_check_thread, "goloop.Loop", "debug mode: call_soon() checks the thread") \
    X(_create_by_asyncio, "goloop.Loop", "create_task() by asyncio's method, or its replacement") \
    X(_create_task, "goloop.Loop", "create_task() in debug mode or with unusual arguments") \
    X(_descriptors_lost, "goloop.Loop", "the reactor's epoll or eventfd was closed") \
    X(_event_failed, "goloop.Loop", "a protocol's method raised an exception") \
    X(_log_slow, "goloop.Loop", "debug mode: a callback took longer than slow_callback_duration") \
    X(_sock_recv, "goloop.Loop", "sock_recv() of a socket that C may not read") \
    X(_sock_recv_into, "goloop.Loop", "sock_recv_into() of a socket that C may not read") \
    X(_sock_sendall, "goloop.Loop", "sock_sendall() of a socket that C may not write") \
    X(_step_failed, "goloop.Loop", "a task's step raised an exception outside its coroutine") \
    X(_watch_lost, "goloop.Loop", "a watched fd was closed while a duplicate is open") \
    X(call_soon, "asyncio.AbstractEventLoop", \
      "callbacks of futures of a loop that is not native") \
    X(create_future, "asyncio.AbstractEventLoop", "sock_*: the future that is awaited") \
    X(is_running, "asyncio.AbstractEventLoop", \
      "an eager task starts on a loop that is not native") \
    /* transports */ \
    X(_accepted, "goloop._internal.net.server.Listener", "a listener accepted a connection") \
    X(_failed, "goloop._internal.net.server.Listener", "a listener's accept failed") \
    X(_call_connection_lost, "goloop._core.StreamTransport | goloop._core.DatagramTransport", \
      "scheduled: a transport is closed") \
    X(_close_if_sent, "goloop._core.StreamTransport", \
      "scheduled: close() of a transport with pending writes") \
    X(_deliver_paused_data, "goloop._core.StreamTransport | goloop._core.DatagramTransport", \
      "scheduled: reading resumes, and data was received before") \
    X(_drain_input, "goloop._core.StreamTransport", \
      "scheduled: the rest of the input of a closing connection") \
    X(_maybe_resume_protocol, "goloop._core.StreamTransport", \
      "scheduled: the write buffer is below its low-water mark") \
    X(_before_made, "goloop._core.StreamTransport", \
      "scheduled: before connection_made() of an accepted connection") \
    X(_receive_first, "goloop._core.StreamTransport", \
      "scheduled: the first receive of an accepted connection") \
    X(_start, "goloop._core.StreamTransport | goloop._core.DatagramTransport", \
      "scheduled: connection_made() and the first read") \
    X(_fatal_error, \
      "goloop._internal.net.stream_transport.StreamTransport | " \
      "goloop._internal.net.datagrams.DatagramTransport | " \
      "goloop._internal.tls.protocol.TLSProtocol", \
      "an error ends the transport") \
    X(_force_close, "asyncio.sslproto._SSLProtocolTransport", \
      "TLS in TLS: an error ends the inner connection, and _fatal_error() has failed") \
    X(_call_error_received, "goloop._internal.net.datagrams.DatagramTransport", \
      "sendto(): the kernel reported an error") \
    X(_check_address, "goloop._internal.net.datagrams.DatagramTransport", \
      "sendto() with an address, on a connected socket") \
    X(_drain, "goloop._internal.net.datagrams.DatagramTransport", \
      "the socket is writable, and datagrams are queued") \
    X(_enqueue, "goloop._internal.net.datagrams.DatagramTransport", \
      "sendto(): the socket's send buffer is full") \
    X(_refuse_look_up, "goloop._internal.net.datagrams.DatagramTransport", \
      "sendto() with a host name in place of an address") \
    X(_attach, "asyncio.base_events.Server", "a server's connection is made") \
    X(_detach, "asyncio.base_events.Server", "a server's connection is closed") \
    X(pause_reading, "asyncio.ReadTransport", "a StreamReader has more than twice its limit") \
    X(write, "asyncio.WriteTransport", "TLS: encrypted bytes for a transport that is not native") \
    /* TLS */ \
    X(_call_eof_received, "goloop._internal.tls.protocol.TLSProtocol", \
      "the peer closed the TLS connection") \
    X(_control_ssl_reading, "asyncio.sslproto.SSLProtocol", \
      "the incoming buffer's size may pause or resume reading") \
    X(_raise_openssl, "goloop._internal.tls.protocol.TLSProtocol", \
      "OpenSSL reported an error: raises it as ssl does") \
    X(_received, "goloop._internal.tls.protocol.TLSProtocol", \
      "encrypted input for a connection that C does not decrypt") \
    X(_schedule_read, "goloop._internal.tls.protocol.TLSProtocol", \
      "input is left: read in the next iteration") \
    X(_start_shutdown, "goloop._internal.tls.protocol.TLSProtocol", \
      "the peer closed the TLS connection, and eof_received() agreed") \
    X(append, "builtins.list", "TLS: pending plain text is kept") \
    /* protocols */ \
    X(buffer_updated, "asyncio.BufferedProtocol", "bytes were received") \
    X(connection_lost, "asyncio.Protocol", "a transport is closed") \
    X(connection_made, "asyncio.Protocol", "a transport is ready") \
    X(data_received, "asyncio.Protocol", "bytes were received") \
    X(datagram_received, "asyncio.DatagramProtocol", "a datagram was received") \
    X(eof_received, "asyncio.Protocol", "the peer has shut down its writing half") \
    X(get_buffer, "asyncio.BufferedProtocol", "bytes are about to be received") \
    X(pause_writing, "asyncio.Protocol", "the write buffer is above its high-water mark") \
    X(resume_writing, "asyncio.Protocol", "the write buffer is below its low-water mark") \
    /* futures, handles, coroutines */ \
    X(_run, "asyncio.Handle", "a handle whose _run() a program has replaced") \
    X(cancel, "asyncio.Future | asyncio.Handle", \
      "a task's cancel() reaches the future that it awaits") \
    X(cancelled, "asyncio.Future | asyncio.Handle", "a waiter may have been cancelled") \
    X(done, "asyncio.Future", "a waiter may be done") \
    X(result, "asyncio.Future", "the awaited future is done") \
    X(set_exception, "asyncio.Future", "a waiter fails") \
    X(set_result, "asyncio.Future", "a waiter succeeds") \
    X(throw, "collections.abc.Coroutine", "a task is cancelled, or an awaited future failed") \
    /* sockets, locks, logger */ \
    X(_decref_socketios, "socket.socket", "the last waiter of a closed socket has run") \
    X(close, "socket.socket | asyncio.BaseTransport", "a descriptor is not needed any more") \
    X(fileno, "socket.socket", "the descriptor of a socket") \
    X(notice, "goloop._internal.loop.descriptors.ObservedRefCount", \
      "a transport uses the number of a socket") \
    X(recv_into, "socket.socket", "sock_recv_into()") \
    X(sendto, "socket.socket", "sendto() of a socket whose sendto() a program has replaced") \
    X(acquire, "_thread.LockType", "a ThreadSafeHandle runs, or is cancelled") \
    X(release, "_thread.LockType", "a ThreadSafeHandle has run, or was cancelled") \
    X(info, "logging.Logger", "a connection was closed by its peer") \
    X(warning, "logging.Logger", "write() after the connection was lost") \
    X(register, "abc.ABCMeta", "at import: a sock_* operation is a Coroutine")

/* Other interned strings: names of arguments and of attributes. */
#define GL_WORDS(X) \
    X(LOG_THRESHOLD_FOR_CONNLOST_WRITES) X(_app_transport) X(_asyncio_future_blocking) X(_buffer) \
    X(_eof) X(_limit) X(_paused) X(_sslobj) X(_stream_reader_wr) X(_transport) X(_waiter) X(addr) \
    X(buf) X(callback) X(context) X(data) X(delay) X(eager_start) X(list_of_data) X(loop) \
    X(n) X(name) X(protocol) X(raw) X(sock) X(when)

/* X(field, module, attribute): objects that G.field has from the import of goloop._core on. */
#define GL_IMPORTS(X) \
    X(asyncio_BaseEventLoop, "asyncio", "BaseEventLoop") \
    X(asyncio_BufferedProtocol, "asyncio", "BufferedProtocol") \
    X(asyncio_CancelledError, "asyncio", "CancelledError") \
    X(asyncio_Future, "asyncio", "Future") /* the C-accelerated class */ \
    X(asyncio_Handle, "asyncio", "Handle") \
    X(asyncio_InvalidStateError, "asyncio", "InvalidStateError") \
    X(asyncio_Protocol, "asyncio", "Protocol") \
    X(asyncio_StreamReader, "asyncio.streams", "StreamReader") \
    X(asyncio_StreamReaderProtocol, "asyncio.streams", "StreamReaderProtocol") \
    X(asyncio_TimerHandle, "asyncio", "TimerHandle") \
    X(allocate_lock, "_thread", "allocate_lock") \
    X(caller_stack, "goloop._internal.loop.debugging", \
      "caller_stack") /* a handle's stack in debug mode */ \
    X(fd_number, "goloop._internal.loop.arg_errors", \
      "fd_number") \
    X(log_debug, "goloop._internal.loop.debugging", \
      "log_debug") \
    X(logger, "asyncio.log", "logger") \
    X(ObservedRefCount, "goloop._internal.loop.descriptors", \
      "ObservedRefCount") /* a transport uses the number of a socket */ \
    X(refuse_call, "goloop._internal.loop.arg_errors", \
      "refuse") \
    X(refuse_data, "goloop._internal.loop.arg_errors", \
      "refuse_data") /* write() of an object without bytes */ \
    X(socket_socket, "socket", "socket") \
    X(stack_summary, "goloop._internal.loop.debugging", \
      "stack_summary") \
    X(throw_arguments, "goloop._internal.loop.debugging", \
      "throw") /* throw() of a sock_* operation */

/* X(module, attribute, where): objects that gl_import_attr() imports for one room, when _core is
 * imported.  C imports nothing later: the import could fail, or wait for a lock that a fork has
 * left locked. */
#define GL_ROOM_IMPORTS(X) \
    X("_asyncio", "Future", "tasks/probe.c") \
    X("_asyncio", "Task", "tasks/probe.c") \
    X("asyncio.events", "_ThreadSafeHandle", "queue/handle_views.c, since 3.14") \
    X("collections.abc", "Coroutine", "watch/sockop.c")

/* clang-format on */
