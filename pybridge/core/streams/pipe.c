/*
 * pipe.c: what is different where a stream is one end of a pipe, a FIFO, a terminal or
 * another character device, or a socket that serves as one.
 *
 * A pipe transport is a gl_stream of kind KIND_READ_PIPE or KIND_WRITE_PIPE; the receiving,
 * the write queue and flow control are the stream's.  Here is where asyncio's pipe
 * transports have rules of their own:
 *
 *   - The pipe object is the caller's until the transport has been made, then the
 *     transport's; it is closed once, by its close(), behind connection_lost.
 *   - Reading: the end (stream_read.c) schedules eof_received and connection_lost, whatever
 *     eof_received answers.  What data_received raises is reported, and reading goes on.
 *   - Writing: write_eof() and close() are one: no more is taken, and the pipe is closed
 *     when all is sent.  On FIFOs and sockets the reactor watches for the end:
 *     anything readable there means that the reader has gone.
 *
 * One fd number can be in the poller once.  A terminal that is opened for both
 * directions has two transports, and loop.add_reader may have the number too: the second
 * user gets a duplicate for the reactor (shares_number).
 */
#include "streams/stream.h"

#include <errno.h>

/* ---- construction ------------------------------------------------------------------- */

/* `watch_end`: of a write end, whether readiness to read says that the reader has gone. */
GL_PRIVATE int
pipe_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop", "pipe", "protocol", "extra", "watch_end", "exposed", NULL};
    gl_stream *s = (gl_stream *)self;
    transport_arguments a = TRANSPORT_ARGUMENTS;
    int watch_end = 0, exposed = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|Opp", names, G.loop_type, &a.loop,
                                     &a.file, &a.protocol, &a.given_extra, &watch_end, &exposed))
        return -1;
    GL_GUARD(a.loop);
    int rc = gl_transport_construct(&s->base, &a);
    if (rc == 0) {
        s->watch_end = watch_end && s->kind == KIND_WRITE_PIPE;
        s->exposed = (char)exposed;
        if ((rc = gl_transport_begin(&s->base, Py_None)) < 0)
            gl_transport_abandon(&s->base);
    }
    gl_transport_arguments_clear(&a);
    return rc;
}

/* Go may read, or look for the end; a write end also where only its queue is left.  A device
 * that cannot be polled (/dev/null) fails here alone. */
static int
pipe_start(gl_transport *t)
{
    /* A number is missing where somebody has set _pipe to None. */
    if (t->lease.number < 0)
        return 0;
    return t->registered ? gl_transport_sync(t) : gl_transport_open(t);
}

/* ---- the end ------------------------------------------------------------------------------- */

/* A terminal whose other side is gone says EIO, and that is no more than an end. */
static bool
pipe_quiet(gl_transport *t, PyObject *exc)
{
    if (!PyObject_TypeCheck(exc, (PyTypeObject *)PyExc_OSError))
        return false;
    if (((gl_stream *)t)->kind == KIND_WRITE_PIPE)
        return true;
    PyObject *number = ((PyOSErrorObject *)exc)->myerrno;
    if (number == NULL || !PyLong_Check(number))
        return false;
    int overflow;
    return PyLong_AsLongAndOverflow(number, &overflow) == EIO;
}

/* As with asyncio's, `transport._pipe = None` lets go of the pipe, unclosed. */
GL_PRIVATE int
pipe_setter(gl_stream *s, PyObject *value, void *Py_UNUSED(closure))
{
    if (value != Py_None) {
        PyErr_SetString(PyExc_AttributeError, "_pipe can only be set to None");
        return -1;
    }
    if (s->loop != NULL && gl_loop_is_foreign(s->loop))
        return gl_loop_check_usable(s->loop);
    if (!is_closing(s))
        s->phase = GL_CLOSING;
    if (s->loop != NULL) {
        gl_transport_leave(&s->base);
        gl_fd_forget_transport(s->loop, s->fd_shown, (PyObject *)s);
    }
    gl_lease_return(&s->lease);
    return 0;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static const gl_params pipe_write_params =
    GL_PARAMS("_UnixWritePipeTransport.write", 1, 1, false, GL_NAME(data));

/* 0, or -1 with an exception for the caller of write(). */
static int
write_pipe_take(gl_stream *s, PyObject *data)
{
    gl_piece c;
    if (piece_from_object(data, &c) < 0) {
        /* A view in pieces: asyncio learns of it when it sends it. */
        if (!PyErr_ExceptionMatches(PyExc_BufferError))
            return -1;
        s->late_writes++;
        return gl_transport_fatal_current(&s->base, WRITE_FAILED(s));
    }
    if (is_closing(s)) { /* the object's __buffer__ closed the transport */
        Py_DECREF(c.owner);
        return 0;
    }
    return stream_take_piece(s, c);
}

GL_PRIVATE PyObject *
write_pipe_write(gl_stream *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *data = gl_arg(&pipe_write_params, s, args, nargs, kwnames);
    if (data == NULL)
        return NULL;
    if (!PyBytes_Check(data) && !PyByteArray_Check(data) && !PyMemoryView_Check(data)) {
        PyObject *text = PyObject_Repr(data);
        if (text != NULL)
            PyErr_SetObject(PyExc_AssertionError, text);
        Py_XDECREF(text);
        return NULL;
    }
    int some = PyObject_IsTrue(data), rc = some < 0 ? -1 : 0;
    if (some > 0 && is_closing(s))
        /* What comes too late is dropped; whoever goes on is told in the log. */
        rc = gl_late_write(&s->late_writes,
                           "pipe closed by peer or os.write(pipe, data) raised exception.");
    else if (some > 0)
        rc = write_pipe_take(s, data);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- the two kinds ---------------------------------------------------------------------------- */

static const transport_ops pipe_ops = {
    .kind = GL_REG_STREAM,
    .shares_number = true,
    STREAM_OPS,
    .start = pipe_start,
    .quiet = pipe_quiet,
};

static PyObject *
pipe_new(PyTypeObject *type, enum stream_kind kind)
{
    gl_stream *s = stream_alloc(type, &pipe_ops);
    if (s != NULL)
        s->kind = (uint8_t)kind;
    return (PyObject *)s;
}

GL_PRIVATE PyObject *
read_pipe_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    return pipe_new(type, KIND_READ_PIPE);
}

GL_PRIVATE PyObject *
write_pipe_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    return pipe_new(type, KIND_WRITE_PIPE);
}
