/*
 * pipe.c: what is different where a stream is one end of a pipe, a FIFO, a terminal or
 * another character device, or a socket that serves as one.
 *
 * A pipe transport is a gl_stream of kind GL_KIND_READ_PIPE or GL_KIND_WRITE_PIPE; the
 * receiving, the write queue and flow control are the stream's.  Here is where asyncio's
 * pipe transports have rules of their own:
 *
 *   - The pipe object is the caller's until the transport has been made, then the
 *     transport's; it is closed once, by its close(), behind connection_lost.
 *   - Reading: the end schedules eof_received and connection_lost, whatever eof_received
 *     answers.  What data_received raises is reported, and reading goes on.
 *   - Writing: write_eof() and close() are one: no more is taken, and the pipe is closed
 *     when all is sent.  On FIFOs and sockets the reactor watches for the end:
 *     anything readable there means that the reader has gone.
 *
 * One fd number can be in the poller once.  A terminal that is opened for both
 * directions has two transports, and loop.add_reader may have the number too: who comes
 * second gets a duplicate for the reactor.
 */
#include "transports/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

/* ---- the reactor ------------------------------------------------------------------ */

GL_PRIVATE bool
pipe_number_is_taken(gl_stream *s)
{
    gl_fd *f = gl_fd_find(s->loop, s->lease.number);
    if (f == NULL)
        return false;
    gl_watch *w = f->watch;
    return (f->transport != NULL && f->transport != (PyObject *)s) ||
           (w != NULL && w->watched && (w->place[0].waiter != NULL || w->place[1].waiter != NULL));
}

/* ---- birth --------------------------------------------------------------------------- */

/* asyncio's sentences for what is no pipe. */
static int
pipe_check_mode(gl_stream *s, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) {
        s->watch_end = s->kind == GL_KIND_WRITE_PIPE;
        return 0;
    }
    if (S_ISCHR(st.st_mode))
        return 0;
    PyErr_SetString(PyExc_ValueError,
                    s->kind == GL_KIND_READ_PIPE
                        ? "Pipe transport is for pipes/sockets only."
                        : "Pipe transport is only for pipes, sockets and character devices");
    return -1;
}

/* Schedules connection_made, the start, and the waking of who waits: three callbacks,
 * for a device that cannot be polled (/dev/null) fails in the second alone. */
static int
pipe_begin(gl_stream *s, PyObject *waiter)
{
    PyObject *made = PyObject_GetAttr(s->protocol, G.s_connection_made);
    if (made == NULL)
        return -1;
    int rc = s->loop != NULL ? gl_call_soon(s->loop, made, (PyObject *)s, s->context) : 0;
    Py_DECREF(made);
    if (rc < 0 || stream_call_soon(s, G.s__start, Py_None) < 0)
        return -1;
    return waiter == Py_None ? 0 : stream_call_soon(s, G.s__wake_waiter, waiter);
}

/* The constructor behind the lease, which it takes over where it succeeds. */
static int
pipe_begin_with(gl_stream *s, gl_loop *loop, gl_lease *lease, PyObject *protocol,
                PyObject *waiter)
{
    if (gl_loop_check_usable(loop) < 0 || pipe_check_mode(s, lease->number) < 0 ||
        gl_lease_nonblocking(lease) < 0)
        return -1;
    PyObject *context = PyContext_CopyCurrent();
    if (context == NULL)
        return -1;
    if (gl_loop_check_usable(loop) < 0 || s->fd_shown >= 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, "the transport has a pipe already");
        Py_DECREF(context);
        return -1;
    }
    s->lease = *lease;
    *lease = GL_NO_LEASE;
    s->fd_shown = s->lease.number;
    s->context = context;
    s->loop = (gl_loop *)Py_NewRef(loop);
    s->protocol = Py_NewRef(protocol);
    s->closing = false;
    s->conn_lost = 0;
    if ((pipe_number_is_taken(s) || gl_fd_set_transport(loop, s->fd_shown, GL_REG_STREAM, (PyObject *)s) == 0) &&
        pipe_begin(s, waiter) == 0)
        return 0;
    /* The pipe stays its owner's. */
    PyObject *exc = gl_take_exception();
    stream_forget_fd(s);
    s->closing = true;
    s->conn_lost = 1;
    gl_lease_return(&s->lease);
    Py_CLEAR(s->protocol);
    Py_CLEAR(s->loop);
    gl_restore_exception(exc);
    return -1;
}

static int
pipe_init(PyObject *self, PyObject *args, PyObject *kwargs, enum gl_stream_kind kind)
{
    static char *names[] = {"loop", "pipe", "protocol", "waiter", "extra", NULL};
    gl_stream *s = (gl_stream *)self;
    PyObject *loop, *pipe, *protocol, *waiter = Py_None, *extra = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|OO", names, G.loop_type, &loop, &pipe,
                                     &protocol, &waiter, &extra))
        return -1;
    if (s->fd_shown >= 0) {
        PyErr_SetString(PyExc_RuntimeError, "the transport has a pipe already");
        return -1;
    }
    if (gl_loop_check_usable((gl_loop *)loop) < 0)
        return -1;
    extra = extra == Py_None ? PyDict_New() : Py_NewRef(extra);
    gl_lease lease = GL_NO_LEASE;
    int rc = -1;
    if (extra != NULL && PyObject_SetItem(extra, G.s_pipe, pipe) == 0 &&
        gl_lease_take(&lease, pipe, false) == 0) {
        s->kind = (uint8_t)kind;
        Py_XSETREF(s->extra, Py_NewRef(extra));
        rc = pipe_begin_with(s, (gl_loop *)loop, &lease, protocol, waiter);
    }
    gl_lease_return(&lease);
    Py_XDECREF(extra);
    return rc;
}

GL_PRIVATE int
read_pipe_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return pipe_init(self, args, kwargs, GL_KIND_READ_PIPE);
}

GL_PRIVATE int
write_pipe_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return pipe_init(self, args, kwargs, GL_KIND_WRITE_PIPE);
}

/* Runs behind connection_made: Go may read, or look for the end. */
static PyObject *
pipe_start_method(gl_stream *s, PyObject *Py_UNUSED(none))
{
    s->started = true;
    /* A number is missing where somebody has set _pipe to None. */
    if (s->loop != NULL && !s->conn_lost && s->lease.number >= 0 &&
        (s->open ? stream_sync(s) : stream_open(s)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
pipe_wake_waiter_method(gl_stream *Py_UNUSED(s), PyObject *waiter)
{
    if (stream_wake_waiter(waiter) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* A terminal whose other side is gone says EIO, and that is no more than an end. */
GL_PRIVATE bool
pipe_logs_error(gl_stream *s, PyObject *exc)
{
    if (!PyObject_TypeCheck(exc, (PyTypeObject *)PyExc_OSError))
        return false;
    if (s->kind == GL_KIND_WRITE_PIPE)
        return true;
    PyObject *number = ((PyOSErrorObject *)exc)->myerrno;
    if (number == NULL || !PyLong_Check(number))
        return false;
    int overflow;
    return PyLong_AsLongAndOverflow(number, &overflow) == EIO;
}

static int
pipe_log_closed(gl_stream *s)
{
    if (!s->loop->debug)
        return 0;
    PyObject *r =
        PyObject_CallMethod(G.logger, "info", "sO", "%r was closed by peer", (PyObject *)s);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

static int
read_pipe_ended(gl_stream *s)
{
    if (s->closing || pipe_log_closed(s) < 0 || s->loop == NULL || s->protocol == NULL)
        return PyErr_Occurred() ? -1 : 0;
    s->closing = true;
    stream_leave(s);
    PyObject *method = PyObject_GetAttr(s->protocol, G.s_eof_received);
    if (method == NULL)
        return -1;
    int rc = s->loop != NULL ? gl_call_soon(s->loop, method, NULL, s->context) : 0;
    Py_DECREF(method);
    return rc < 0 ? -1 : stream_force_close(s, Py_None);
}

static int
write_pipe_ended(gl_stream *s)
{
    if (s->conn_lost || pipe_log_closed(s) < 0 || s->loop == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (stream_queued(s) == 0)
        return stream_force_close(s, Py_None);
    PyObject *exc = PyObject_CallNoArgs(PyExc_BrokenPipeError);
    if (exc == NULL)
        return -1;
    int rc = stream_force_close(s, exc);
    Py_DECREF(exc);
    return rc;
}

GL_PRIVATE int
pipe_ended(gl_stream *s)
{
    return s->kind == GL_KIND_READ_PIPE ? read_pipe_ended(s) : write_pipe_ended(s);
}

/* ---- reading ---------------------------------------------------------------------------------- */

GL_PRIVATE PyObject *
read_pipe_close_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (!s->closing && stream_force_close(s, Py_None) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- writing ----------------------------------------------------------------------------------- */

/* What comes when no more is taken is dropped; whoever goes on is told in the log. */
static int
write_pipe_late(gl_stream *s)
{
    return late_write(&s->late_writes,
                         "pipe closed by peer or os.write(pipe, data) raised exception.");
}

/* 0, or -1 with an exception for the caller of write(). */
static int
write_pipe_take(gl_stream *s, PyObject *data)
{
    if (stream_check_usable(s) < 0)
        return -1;
    gl_piece c;
    if (piece_from_object(data, &c) < 0) {
        /* A view in pieces: asyncio learns of it when it sends it. */
        if (!PyErr_ExceptionMatches(PyExc_BufferError))
            return -1;
        s->late_writes++;
        return stream_fatal_current(s, GL_WRITE_FAILED(s));
    }
    if (s->closing) { /* the object's __buffer__ closed the transport */
        Py_DECREF(c.owner);
        return 0;
    }
    return stream_take_piece(s, c);
}

GL_PRIVATE PyObject *
write_pipe_write_method(gl_stream *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *data = one_argument("write", "data", args, nargs, kwnames);
    if (data == NULL)
        return NULL;
    if (!PyBytes_Check(data) && !PyByteArray_Check(data) && !PyMemoryView_Check(data)) {
        PyObject *text = PyObject_Repr(data);
        if (text != NULL)
            PyErr_SetObject(PyExc_AssertionError, text);
        Py_XDECREF(text);
        return NULL;
    }
    int some = PyObject_IsTrue(data);
    if (some < 0)
        return NULL;
    if (some && (s->conn_lost || s->closing ? write_pipe_late(s) : write_pipe_take(s, data)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

GL_PRIVATE PyObject *
write_pipe_eof_method(gl_stream *s, PyObject *Py_UNUSED(ignored))
{
    if (stream_close(s) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- what a pipe tells about itself ---------------------------------------------------------------- */

static PyObject *
pipe_repr(PyObject *self)
{
    gl_stream *s = (gl_stream *)self;
    PyObject *name = PyType_GetName(Py_TYPE(self)), *text;
    if (name == NULL)
        return NULL;
    bool closed = s->lease.number < 0;
    const char *state = closed ? " closed" : s->closing ? " closing" : "";
    if (s->fd_shown < 0)
        text = PyUnicode_FromFormat("<%U%s fd=None closed>", name, state);
    else if (closed || s->loop == NULL || s->loop->closed)
        text = PyUnicode_FromFormat("<%U%s fd=%d %s>", name, state, s->fd_shown,
                                    closed ? "closed" : "open");
    else if (s->kind == GL_KIND_READ_PIPE)
        text = PyUnicode_FromFormat("<%U%s fd=%d %s>", name, state, s->fd_shown,
                                    stream_reading_wanted(s) ? "polling" : "idle");
    else
        text = PyUnicode_FromFormat("<%U%s fd=%d %s bufsize=%zd>", name, state, s->fd_shown,
                                    stream_queued(s) > 0 ? "polling" : "idle", stream_queued(s));
    Py_DECREF(name);
    return text;
}

/* As with asyncio's, `transport._pipe = None` lets go of the pipe, unclosed. */
static int
pipe_setter(gl_stream *s, PyObject *value, void *Py_UNUSED(closure))
{
    if (value != Py_None) {
        PyErr_SetString(PyExc_AttributeError, "_pipe can only be set to None");
        return -1;
    }
    if (s->loop != NULL && gl_loop_is_foreign(s->loop))
        return gl_loop_check_usable(s->loop);
    if (s->loop != NULL && s->open && gl_loop_check_own_thread(s->loop) < 0)
        return -1;
    s->closing = true;
    if (s->loop != NULL)
        stream_leave(s);
    stream_forget_fd(s);
    gl_lease_return(&s->lease);
    return 0;
}

static PyObject *
pipe_fileno_getter(gl_stream *s, void *Py_UNUSED(closure))
{
    if (s->fd_shown < 0)
        Py_RETURN_NONE;
    return PyLong_FromLong(s->fd_shown);
}

GL_PRIVATE PyObject *
pipe_late_writes_getter(gl_stream *s, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(s->late_writes);
}
