/*
 * stream_type.c: the types of streams.
 *
 *   StreamTransport     sockets (completed by goloop/_internal/net/stream_transport.py) and
 *                       writing ends of pipes (pipes.py)
 *   ReadPipeTransport   reading ends of pipes; has only the base and the methods of an
 *                       asyncio.ReadTransport, so that isinstance() gives asyncio's results
 *
 * StreamTransport is a subclass of asyncio's _FlowControlMixin, and so of asyncio.Transport: the
 * standard library's sendfile fallback accepts no other transports.  The mix-in computes the write
 * limits and stores them in _high_water and _low_water.
 */
#include "streams/stream.h"

/* ---- the names of an accepted connection ---------------------------------------- */

/* _raw_name(peer): the peer's name, or the local one, that was accepted with the connection, in the
 * form of socket.getpeername() or getsockname().  None if the kernel gave no name: then the socket
 * has to be asked. */
static PyObject *
stream_raw_name(gl_stream *s, PyObject *peer)
{
    int want = PyObject_IsTrue(peer);
    if (want < 0)
        return NULL;
    PyObject *name = stream_name(s, want);
    if (name != NULL || PyErr_Occurred())
        return name;
    return Py_NewRef(Py_None);
}

/* _adopt(sock): makes a socket object the owner of the descriptor of a transport without an owner,
 * and updates the registration.  Returns True; False if another thread was faster, or has closed
 * the transport.  NULL with the exception of sock.fileno(). */
static PyObject *
stream_adopt(gl_stream *s, PyObject *sock)
{
    int fd = gl_fd_from_object(sock);
    if (fd < 0)
        return NULL;
    if (s->lease.owner != NULL || s->lease.fd != fd)
        Py_RETURN_FALSE;
    gl_lease_set_owner(&s->lease, sock);
    /* From now on Go compares the owner's number too.  If this fails without memory, the count of
     * users still keeps the socket open. */
    if (s->registered && !gl_loop_is_foreign(s->loop) && gl_transport_update_interest(&s->base) < 0)
        PyErr_Clear();
    Py_RETURN_TRUE;
}

/* _queued: the number of bytes that the kernel has not accepted, without an attempt to send
 * them. */
static PyObject *
stream_queued_getter(gl_stream *s, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(stream_queued(s));
}

/* _protocol_connected: asyncio's attribute; true once the transport was constructed. */
static PyObject *
stream_connected_getter(gl_stream *s, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(s->phase != GL_EMPTY);
}

/* _empty_waiter: the Future that waits for an empty queue, or None. */
static PyObject *
stream_empty_waiter_getter(gl_stream *s, void *Py_UNUSED(closure))
{
    return gl_ref_or_none(s->empty_waiter);
}

/* Sets _empty_waiter; None or a deletion clears it.  While it is set, write() is refused. */
static int
stream_empty_waiter_setter(gl_stream *s, PyObject *value, void *Py_UNUSED(closure))
{
    if (value == Py_None)
        value = NULL;
    Py_XSETREF(s->empty_waiter, Py_XNewRef(value));
    return 0;
}

/* ---- the type ----------------------------------------------------------------------------- */

GL_TAKES_NONE(can_write_eof_checked, stream_can_write_eof, "can_write_eof")
GL_TAKES_NONE(queued_checked, stream_get_write_buffer_size, "get_write_buffer_size")
GL_TAKES_NONE(write_eof_checked, stream_write_eof, "write_eof")

static PyMethodDef read_pipe_methods[] = {
    {"_let_go", GL_NOARGS(pipe_release_fd), NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef stream_methods[] = {
    {"_let_go", GL_NOARGS(pipe_release_fd), NULL},
    {"_ignore_end", GL_NOARGS(pipe_stop_watching_end), NULL},
    {"can_write_eof", GL_FASTKW(can_write_eof_checked),
     PyDoc_STR("can_write_eof($self)\n--\n\nReturn True.")},
    {"get_write_buffer_size", GL_FASTKW(queued_checked),
     PyDoc_STR("get_write_buffer_size($self)\n--\n\n"
               "Return how many bytes the kernel has not taken yet.")},
    {"_maybe_pause_protocol", GL_NOARGS(stream_maybe_pause_method), NULL},
    {"_maybe_resume_protocol", GL_NOARGS(stream_maybe_resume_method), NULL},
    {"_close_if_sent", GL_NOARGS(stream_close_if_sent_method), NULL},
    {"_drain_input", GL_ONEARG(stream_drain_input_method), NULL},
    {"_before_made", GL_NOARGS(stream_before_made_method), NULL},
    {"_awaits_made", GL_NOARGS(stream_awaits_made_method), NULL},
    {"_receive_first", GL_NOARGS(stream_receive_first_method), NULL},
    {"write", GL_FASTKW(stream_write),
     PyDoc_STR("write($self, data)\n--\n\n"
               "Write some data to the transport.  Does not block.")},
#if GL_STREAM_HAS_WRITELINES
    {"writelines", GL_FASTKW(stream_writelines),
     PyDoc_STR("writelines($self, list_of_data)\n--\n\n"
               "Write a list (or any iterable) of data to the transport.")},
#endif
    {"write_eof", GL_FASTKW(write_eof_checked),
     PyDoc_STR("write_eof($self)\n--\n\n"
               "Close the write end once buffered data is sent; reading goes on.")},
    {"_flush", GL_NOARGS(stream_flush), PyDoc_STR("Send the pending writes now.")},
    {"_adopt", GL_ONEARG(stream_adopt), NULL},
    {"_raw_name", GL_ONEARG(stream_raw_name), NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_getset[] = {
    {"_high_water", (getter)stream_mark_getter, (setter)stream_mark_setter, NULL, ""},
    {"_low_water", (getter)stream_mark_getter, (setter)stream_mark_setter, NULL, NULL},
    {"_queued", (getter)stream_queued_getter, NULL, NULL, NULL},
    {"_protocol_connected", (getter)stream_connected_getter, NULL, NULL, NULL},
    {"_empty_waiter", (getter)stream_empty_waiter_getter, (setter)stream_empty_waiter_setter, NULL,
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef read_pipe_members[] = {
    TRANSPORT_MEMBERS,
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef stream_members[] = {
    TRANSPORT_MEMBERS,
    {"_conn_lost", T_UINT, offsetof(gl_stream, conn_lost), READONLY, NULL},
    {"_protocol_paused", T_BOOL, offsetof(gl_stream, protocol_paused), READONLY, NULL},
    {"_eof", T_BOOL, offsetof(gl_stream, eof), READONLY, NULL},
    {"_server", T_OBJECT, offsetof(gl_stream, server), 0, NULL},
    {"_late_writes", T_UINT, offsetof(gl_stream, late_writes), READONLY, NULL},
    {"_exposed", T_BOOL, offsetof(gl_stream, exposed), 0, NULL},
    {"_lazy", T_BOOL, offsetof(gl_stream, lazy_extra), 0, NULL},
    {"_counted", T_BOOL, offsetof(gl_stream, counted), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* The slots and the specification that the two types have in common. */
#define STREAM_SLOTS                                                                               \
    {Py_tp_init, stream_init}, {Py_tp_traverse, stream_traverse}, {Py_tp_clear, stream_clear},     \
        {Py_tp_finalize, gl_transport_finalize},                                                   \
    {                                                                                              \
        Py_tp_dealloc, gl_transport_dealloc                                                        \
    }

static PyType_Slot read_pipe_slots[] = {
    STREAM_SLOTS,
    {Py_tp_doc, PyDoc_STR("The reading end of a pipe as an asyncio.ReadTransport.")},
    {Py_tp_new, read_pipe_new},
    {Py_tp_methods, read_pipe_methods},
    {Py_tp_members, read_pipe_members},
    {0, NULL},
};

static PyType_Slot stream_slots[] = {
    STREAM_SLOTS,
    {Py_tp_doc, PyDoc_STR("A connected stream socket as an asyncio.Transport.")},
    {Py_tp_new, stream_new},
    {Py_tp_methods, stream_methods},
    {Py_tp_members, stream_members},
    {Py_tp_getset, stream_getset},
    {0, NULL},
};

#define STREAM_SPEC(type_name, its_slots)                                                          \
    {                                                                                              \
        .name = "goloop._core." type_name,                                                         \
        .basicsize = sizeof(gl_stream),                                                            \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,                    \
        .slots = its_slots,                                                                        \
    }

static PyType_Spec read_pipe_spec = STREAM_SPEC("ReadPipeTransport", read_pipe_slots);
static PyType_Spec stream_spec = STREAM_SPEC("StreamTransport", stream_slots);

/* ---- completions ------------------------------------------------------------- */

/* gl_reg_ops.complete: handles one completion in the context of the transport.  If the context
 * can't be entered, the transport ends.  An exception of a handler goes to the loop's exception
 * handler; a MemoryError also ends the transport.  Returns 0, or -1 with an exit exception or an
 * exception of the exception handler. */
static int
stream_complete(gl_loop *loop, PyObject *owner, const gl_completion *c)
{
    gl_stream *s = (gl_stream *)owner;
    if (PyContext_Enter(s->context) < 0)
        return gl_transport_fatal_current(&s->base, READ_FAILED(s));
    int rc = 0;
    switch (c->kind) {
    case GL_CMP_DATA:
        rc = stream_handle_data(s, c);
        break;
    case GL_CMP_EOF:
    case GL_CMP_READ_ERROR:
        rc = stream_handle_read_end(s, c);
        break;
    case GL_CMP_READY:
        rc = stream_handle_readable(s, c);
        break;
    case GL_CMP_WROTE:
        rc = stream_handle_wrote(s);
        break;
    case GL_CMP_WRITE_ERROR:
        rc = stream_handle_write_error(s, c->res);
        break;
    default:
        break;
    }
    gl_context_exit_keep_error(s->context);
    if (rc >= 0)
        return 0;
    gl_transport_end_without_memory(&s->base);
    const char *message = s->kind != KIND_SOCKET ? "Exception in callback of a pipe transport"
                                                 : "Exception in callback of a stream transport";
    return gl_call_exception_handler(loop, message, owner, s->protocol);
}

static const gl_reg_ops stream_reg_ops = {
    .complete = stream_complete,
    .unregister_on_loop_close = gl_transport_unregister_on_loop_close,
    .blocks_number = gl_transport_blocks_number,
    .queued_bytes = stream_get_queued_bytes,
    .is_dormant = stream_is_dormant,
};

/* _core._has_buffer_methods(protocol) -> bool. */
static PyObject *
core_has_buffer_methods(PyObject *Py_UNUSED(module), PyObject *protocol)
{
    return gl_bool_or_null(has_buffer_methods(protocol));
}

static PyMethodDef stream_functions[] = {
    {"_has_buffer_methods", core_has_buffer_methods, METH_O,
     PyDoc_STR("True for a protocol with BufferedProtocol's methods, without data_received().")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_stream_init_type(PyObject *module)
{
    if (PyModule_AddFunctions(module, stream_functions) < 0)
        return -1;
    G.asyncio_constants = PyImport_ImportModule("asyncio.constants");
    G.high_default = PyLong_FromLong(HIGH_WATER);
    G.low_default = PyLong_FromLong(HIGH_WATER / 4);
    if (G.asyncio_constants == NULL || G.high_default == NULL || G.low_default == NULL)
        return -1;
    G.reg_ops[GL_REG_STREAM] = &stream_reg_ops;
    G.stream_type =
        gl_transport_make_type(module, &stream_spec, "_FlowControlMixin", NULL, 256 * 1024);
    if (G.stream_type == NULL)
        return -1;
    PyTypeObject *reading =
        gl_transport_make_type(module, &read_pipe_spec, "ReadTransport", NULL, 256 * 1024);
    return gl_drop_result((PyObject *)reading); /* the module has it */
}
