"""The arguments with which tests call loops and their objects, as Python source.

Valid calls of each function, and wrong values for each kind of argument. loop/wrong_calls.py makes
the wrong calls on asyncio and on goloop; fuzz/hostile.py puts its own objects into the valid ones.
"""

from __future__ import annotations

import ast


def valid_calls(text: str) -> dict[str, dict[str, str]]:
    """Return the calls of a text: for each function its arguments by name, or by position."""
    found = {}
    for line in ast.parse(text).body:
        assert isinstance(line, ast.Expr)
        assert isinstance(line.value, ast.Call)
        given = [(str(at), value) for at, value in enumerate(line.value.args)]
        given += [(str(each.arg), each.value) for each in line.value.keywords]
        function = ast.unparse(line.value.func)
        found[function] = {name: ast.get_source_segment(text, value) or "" for name, value in given}
    return found


# A name is given to each argument of a function whose arguments C takes apart.
_VALID = valid_calls("""
loop.call_soon(callback=function); loop.call_soon_threadsafe(callback=function)
loop.call_later(delay=1000, callback=function); loop.call_at(when=1e12, callback=function)
loop.add_reader(fd=fd, callback=function); loop.add_writer(fd=fd, callback=function)
loop.remove_reader(fd=fd); loop.remove_writer(fd=fd); loop.sock_recv(sock=near, n=10)
loop.sock_recv_into(sock=near, buf=bytearray(5)); loop.sock_recvfrom(udp, 10)
loop.sock_recvfrom_into(udp, bytearray(5)); loop.sock_sendall(sock=near, data=b'x')
loop.sock_sendto(udp, b'x', ('127.0.0.1', 9)); loop.sock_connect(spare, ('127.0.0.1', 1))
loop.sock_accept(listening); loop.sock_sendfile(near, file)
loop.add_signal_handler(signal.SIGUSR1, function); loop.remove_signal_handler(signal.SIGUSR1)
loop.run_in_executor(None, function); loop.set_default_executor(executor)
loop.getaddrinfo('127.0.0.1', 1); loop.getnameinfo(('127.0.0.1', 1)); loop.create_task(coroutine)
loop.create_connection(Protocol, '127.0.0.1', 1); loop.create_server(Protocol, '127.0.0.1', 0)
loop.create_datagram_endpoint(DatagramProtocol); loop.create_unix_connection(Protocol)
loop.create_unix_server(Protocol); loop.connect_accepted_socket(Protocol, near)
loop.connect_read_pipe(Protocol, source); loop.connect_write_pipe(Protocol, sink)
loop.start_tls(transport, transport.get_protocol(), context); loop.sendfile(transport, file)
loop.subprocess_exec(SubprocessProtocol, '/bin/true')
loop.subprocess_shell(SubprocessProtocol, 'true'); loop.set_exception_handler(function)
loop.call_exception_handler({'message': 'm'}); loop.default_exception_handler({'message': 'm'})
loop.set_task_factory(function); loop.set_debug(False); loop.run_until_complete(coroutine)
loop.create_future(); loop.get_exception_handler(); loop.get_task_factory(); loop.get_debug()
loop.time(); loop.is_running(); loop.is_closed(); loop.stop(); loop.close(); loop.run_forever()
loop.shutdown_asyncgens(); loop.shutdown_default_executor()
transport.write(data=b'x'); transport.writelines(list_of_data=[b'x'])
transport.get_extra_info('peername'); transport.set_protocol(protocol=Protocol())
transport.write_eof(); transport.can_write_eof(); transport.close(); transport.abort()
transport.is_closing(); transport.is_reading(); transport.pause_reading()
transport.resume_reading(); transport.get_protocol(); transport.get_write_buffer_size()
transport.get_write_buffer_limits(); transport.set_write_buffer_limits()
datagrams.sendto(data=b'x', addr=('127.0.0.1', 9)); datagrams.get_extra_info('peername')
datagrams.set_protocol(protocol=DatagramProtocol()); datagrams.abort(); datagrams.close()
datagrams.is_closing(); datagrams.get_write_buffer_size(); datagrams.set_write_buffer_limits()
reading.set_protocol(protocol=Protocol()); reading.get_extra_info('pipe'); reading.pause_reading()
reading.resume_reading(); reading.is_reading(); reading.close(); reading.is_closing()
writing.write(data=b'x'); writing.writelines(list_of_data=[b'x'])
writing.set_protocol(protocol=Protocol()); writing.write_eof(); writing.can_write_eof()
writing.close(); writing.abort(); writing.is_closing(); writing.get_write_buffer_size()
writing.set_write_buffer_limits()
future.set_result(1); future.set_exception(ValueError('v')); future.add_done_callback(function)
future.remove_done_callback(function); future.result(); future.exception(); future.cancel()
future.cancelled(); future.done(); future.get_loop()
task.set_name('x'); task.set_result(1); task.set_exception(ValueError('v'))
task.add_done_callback(function); task.remove_done_callback(function); task.cancel()
task.cancelled(); task.cancelling(); task.uncancel(); task.get_name(); task.get_coro()
task.get_context(); task.get_stack(); task.print_stack()
server.close(); server.get_loop(); server.is_serving(); server.start_serving()
server.wait_closed()
handle.cancel(); handle.cancelled(); handle.get_context()
timer.cancel(); timer.when()
""")
VALID = {function: tuple(given.values()) for function, given in _VALID.items()}
NAMED = {function: tuple(given) for function, given in _VALID.items() if given and "0" not in given}

# Wrong values of an argument, by the kind of the right one.
FDS = (
    "None", "'x'", "b'x'", "1.5", "1j", "True", "-1", "-2**40", "2**31", "2**40", "2**64", "nobody",
    "object()", "closed_file", "closed_socket", "BytesIO()", "[]", "file", "transport",
    "transport_fd", "transport_socket", "(transport, near)[1]", "Fileno('x')", "Fileno(None)",
    "Fileno(-1)",
    "Fileno(2**40)", "Fileno(1.5)", "Fileno(ValueError('no'))", "Fileno(OSError('no'))",
    "Fileno(KeyError('no'))", "Index(0)", "Angry()",
)  # fmt: skip
CALLBACKS = ("None", "1", "'x'", "object()", "coroutine", "coroutine_function", "Angry()",
             "partial(coroutine_function)", "generator_function", "future")  # fmt: skip
TIMES = ("None", "'x'", "nan", "inf", "-inf", "1j", "object()", "[]", "-2**80", "2**2000", "b'1'",
         "True", "Index(0)")  # fmt: skip
SOCKETS = ("None", "1", "'x'", "object()", "closed_socket", "tls_socket", "BytesIO()", "[]",
           "closed_file", "file", "transport_socket", "Fileno(-1)", "Fileno(2**40)", "transport",
           "Angry()")  # fmt: skip
SIZES = ("None", "-1", "'x'", "1.5", "2**70", "object()", "[]", "Index(-1)")
BYTES = ("None", "'x'", "1", "[]", "[1]", "object()", "memoryview(b'abcdef')[::2]", "Angry()",
         "array('B', b'x')")  # fmt: skip
BUFFERS = ("None", "'x'", "1", "[]", "object()", "b'abc'", "bytearray()",
           "memoryview(bytearray(6))[::2]")  # fmt: skip
ADDRESSES = ("None", "1", "'x'", "b'x'", "()", "('127.0.0.1',)", "('127.0.0.1', 'x')",
             "('127.0.0.1', -1)", "('127.0.0.1', 70000)", "('127.0.0.1', None)", "(1, 2)",
             "(None, 1)", "('127.0.0.1', 1, 2, 3, 4)", "('::1', 1)", "['127.0.0.1', 1]",
             "object()")  # fmt: skip
PIPES = ("None", "1", "-1", "'x'", "object()", "BytesIO()", "StringIO()", "closed_file", "file",
         "text_file", "null", "closed_socket", "udp", "Fileno('x')", "Fileno(-1)", "Fileno(2**40)",
         "Fileno(None)", "Angry()")  # fmt: skip
FACTORIES = ("None", "1", "'x'", "object()", "coroutine_function", "Partial", "Angry()")
FLAGS = ("None", "'x'", "-1", "2**40", "1.5", "object()")
SIGNALS = ("None", "'x'", "0", "-1", "1000", "2**40", "1.5", "signal.SIGKILL", "signal.SIGSTOP",
           "object()", "b'x'", "signal.SIG_DFL")  # fmt: skip
CONTEXTS = ("1", "'x'", "object()", "{}")
TLS_CONTEXTS = ("1", "'x'", "object()")
# The limits of the types in C.
LIMITS = ("None", "-1", "0", "2**31 - 1", "2**31", "2**63 - 1", "2**64", "nan", "-inf", "b''",
          "'a\\0b'", "()")  # fmt: skip
