/*
 * stream_reader.c: feeds an asyncio.StreamReader without a call of Python.
 *
 * asyncio's way is three functions in Python for each packet:
 *
 *     StreamReaderProtocol.data_received   calls feed_data() of the reader, if it is alive
 *       StreamReader.feed_data             appends to _buffer; pauses the transport when there are
 *                                          more than 2 * _limit bytes
 *         StreamReader._wakeup_waiter      sets the result of the future in _waiter
 *
 * The functions here do the same work on the same attributes, so read(), readline() and all other
 * methods are asyncio's own.  They check everything before the first change, and leave the bytes to
 * data_received() in each case in which asyncio would run other code or raise: a replaced method,
 * an attribute of another type, bytes after the end, a buffer that is exported, a waiter that is
 * not a pending or cancelled goloop.Future of the running loop.
 */
#include "streams/stream.h"

#include "tasks/tasks.h"

/* The attributes of a reader that feed_data() uses for every packet. */
typedef struct reader_state {
    PyObject *buffer; /* owned; an exact bytearray */
    PyObject *waiter; /* owned; None, or an exact goloop.Future */
    Py_ssize_t limit; /* PY_SSIZE_T_MAX for greater numbers */
} reader_state;

/* Returns an attribute from the object itself, as a new reference; NULL without an exception if it
 * has none.  Runs no Python for a name of a native rule. */
static inline PyObject *
own_attribute(PyObject *o, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(o, name);
    if (value == NULL)
        PyErr_Clear();
    return value;
}

/* Finds the reader of a protocol that follows the native rule.  True with a new reference in
 * *reader, or NULL there if the reader is gone; false if `_stream_reader_wr` is not as asyncio has
 * made it. */
static bool
find_reader(PyObject *protocol, PyObject **reader)
{
    *reader = NULL;
    PyObject *ref = own_attribute(protocol, G.s__stream_reader_wr);
    bool found = ref != NULL && (ref == Py_None || PyWeakref_CheckRefExact(ref));
    if (found && ref != Py_None) {
#if GL_HAS_WEAKREF_GET_REF
        (void)PyWeakref_GetRef(ref, reader);
#else
        PyObject *referent = PyWeakref_GET_OBJECT(ref);
        if (referent != Py_None)
            *reader = Py_NewRef(referent);
#endif
    }
    Py_XDECREF(ref);
    return found;
}

/* Returns true if the loop's own Future `waiter` can be woken without a call of Python, or is
 * cancelled.  True for None, too. */
static bool
is_native_waiter(PyObject *waiter, PyObject *loop)
{
    if (waiter == Py_None)
        return true;
    if (G.future_type == NULL || Py_TYPE(waiter) != G.future_type)
        return false;
    const gl_future *f = (const gl_future *)waiter;
    return f->loop == loop && f->state != GL_FINISHED && gl_loop_if_native(loop) != NULL &&
           gl_loop_runs_here((gl_loop *)loop);
}

/* Stores an exact int in *n, PY_SSIZE_T_MAX for greater ones.  Returns false for other objects and
 * for negative numbers. */
static bool
as_limit(PyObject *o, Py_ssize_t *n)
{
    if (o == NULL || !PyLong_CheckExact(o))
        return false;
    int overflow;
    long value = PyLong_AsLongAndOverflow(o, &overflow);
    *n = value;
    if (overflow > 0)
        *n = PY_SSIZE_T_MAX;
    return overflow >= 0 && value >= 0;
}

static void
reader_state_clear(reader_state *state)
{
    Py_CLEAR(state->buffer);
    Py_CLEAR(state->waiter);
}

/* Reads the attributes of a reader.  Returns true if they have the types and values that C handles;
 * the caller then clears *state.  Runs no Python. */
static bool
reader_state_read(PyObject *reader, PyObject *loop, reader_state *state)
{
    PyObject *eof = own_attribute(reader, G.s__eof);
    PyObject *limit = own_attribute(reader, G.s__limit);
    state->buffer = own_attribute(reader, G.s__buffer);
    state->waiter = own_attribute(reader, G.s__waiter);
    bool usable = eof == Py_False && as_limit(limit, &state->limit) && state->buffer != NULL &&
                  PyByteArray_CheckExact(state->buffer) && state->waiter != NULL &&
                  is_native_waiter(state->waiter, loop);
    Py_XDECREF(eof);
    Py_XDECREF(limit);
    if (!usable)
        reader_state_clear(state);
    return usable;
}

/* Finds the reader to feed.  1 with a new reference in *reader and its attributes in *state, which
 * the caller clears by reader_end(); 1 with NULL in *reader if the reader is gone; 0 if
 * data_received() has to be called.  Runs no Python. */
static int
reader_begin(PyObject *loop, PyObject *protocol, PyObject **reader, reader_state *state)
{
    if (!gl_may_feed_reader(protocol) ||
        !gl_is_native_per_call(GL_RULE_STREAM_PROTOCOL, protocol) || !find_reader(protocol, reader))
        return 0;
    if (*reader == NULL || (gl_is_native_per_call(GL_RULE_STREAM_READER, *reader) &&
                            reader_state_read(*reader, loop, state)))
        return 1;
    Py_CLEAR(*reader);
    return 0;
}

static void
reader_end(PyObject *reader, reader_state *state)
{
    reader_state_clear(state);
    Py_DECREF(reader);
}

/* Pauses the transport of a reader with too many bytes, unless the reader has none or has paused it
 * already.  A transport that can't be paused is forgotten, as in asyncio. */
static int
pause_transport(PyObject *reader)
{
    PyObject *transport = PyObject_GenericGetAttr(reader, G.s__transport);
    if (transport == NULL)
        return -1;
    int is_paused = 1;
    if (transport != Py_None)
        is_paused = gl_take_bool(PyObject_GenericGetAttr(reader, G.s__paused));
    int rc = Py_MIN(is_paused, 0);
    if (is_paused == 0 && gl_call_method(transport, G.s_pause_reading, NULL) == 0) {
        rc = PyObject_SetAttr(reader, G.s__paused, Py_True);
    } else if (is_paused == 0) {
        rc = -1;
        if (PyErr_ExceptionMatches(PyExc_NotImplementedError)) {
            PyErr_Clear();
            rc = PyObject_SetAttr(reader, G.s__transport, Py_None);
        }
    }
    Py_DECREF(transport);
    return rc;
}

/* Does what feed_data() does after it has appended bytes: wakes the waiter, and pauses the
 * transport if there are too many bytes. */
static int
bytes_appended(PyObject *reader, const reader_state *state)
{
    if (state->waiter != Py_None) {
        if (PyObject_GenericSetAttr(reader, G.s__waiter, Py_None) < 0 ||
            gl_future_set_none(state->waiter) < 0)
            return -1;
    }
    /* len(buffer) > 2 * limit, without an overflow */
    if ((PyByteArray_GET_SIZE(state->buffer) - 1) / 2 >= state->limit &&
        pause_transport(reader) < 0)
        return -1;
    return 0;
}

/* Makes a bytearray n bytes longer.  1 with the address of these bytes in *end; 0 if the buffer is
 * exported, and can't grow; -1 with MemoryError, and from 3.15 on the buffer may be empty.
 * Requires the object's lock.  Runs no Python. */
static int
extend_buffer(PyObject *buffer, Py_ssize_t n, char **end)
{
    if (((PyByteArrayObject *)buffer)->ob_exports != 0)
        return 0;
    Py_ssize_t before = PyByteArray_GET_SIZE(buffer);
    if (PyByteArray_Resize(buffer, before + n) < 0)
        return -1;
    *end = PyByteArray_AS_STRING(buffer) + before;
    return 1;
}

/* Makes a bytearray shorter.  Without memory it keeps its allocation or, from 3.15 on, is empty
 * afterwards: -1 with MemoryError.  Requires the object's lock.  Runs no Python. */
static int
truncate_buffer(PyObject *buffer, Py_ssize_t size)
{
    int rc = PyByteArray_Resize(buffer, size);
#if !GL_BYTEARRAY_HAS_BYTES
    if (rc < 0) {
        PyErr_Clear();
        Py_SET_SIZE((PyVarObject *)buffer, size);
        PyByteArray_AS_STRING(buffer)[size] = '\0';
        rc = 0;
    }
#endif
    return rc;
}

/* ---- many bytes ---------------------------------------------------------------------- */

/* Receives at most `room` bytes to the end of a bytearray.  1 with the result of stream_recv() in
 * *n and *err; 0 if the buffer is exported, and can't grow; -1 with MemoryError, and the received
 * bytes are lost.  Runs no Python. */
static int
receive_to_end(gl_stream *s, PyObject *buffer, Py_ssize_t room, ssize_t *n, int *err)
{
    int rc;
    GL_LOCK_OBJECT(buffer);
    char *end;
    rc = extend_buffer(buffer, room, &end);
    if (rc > 0) {
        *n = stream_recv(s, end, room, err);
        Py_ssize_t unused = room - Py_MAX(*n, 0);
        if (truncate_buffer(buffer, PyByteArray_GET_SIZE(buffer) - unused) < 0)
            rc = -1;
    }
    GL_UNLOCK_OBJECT();
    return rc;
}

GL_PRIVATE int
stream_reader_receive(gl_stream *s, PyObject **reader, ssize_t *n, int *err)
{
    reader_state state;
    if (reader_begin((PyObject *)s->loop, s->protocol, reader, &state) == 0 || *reader == NULL)
        return 0;
    int received = receive_to_end(s, state.buffer, gl_large_size(s->loop), n, err);
    reader_state_clear(&state);
    if (received <= 0)
        Py_CLEAR(*reader);
    return received;
}

GL_PRIVATE int
stream_reader_received(gl_stream *s, PyObject *reader)
{
    reader_state state;
    if (!reader_state_read(reader, (PyObject *)s->loop, &state))
        return 0;
    int rc = bytes_appended(reader, &state);
    reader_state_clear(&state);
    return rc;
}

/* ---- bytes that were received elsewhere ----------------------------------------------- */

/* Appends n bytes to a bytearray.  1; 0 if the buffer is exported, and can't grow; -1 with
 * MemoryError.  Runs no Python. */
static int
append_bytes(PyObject *buffer, const char *data, Py_ssize_t n)
{
    int rc;
    GL_LOCK_OBJECT(buffer);
    char *end;
    rc = extend_buffer(buffer, n, &end);
    if (rc > 0)
        memcpy(end, data, (size_t)n);
    GL_UNLOCK_OBJECT();
    return rc;
}

GL_PRIVATE int
gl_stream_reader_feed(PyObject *loop, PyObject *protocol, const char *data, Py_ssize_t n)
{
    PyObject *reader = NULL;
    reader_state state;
    int rc = reader_begin(loop, protocol, &reader, &state);
    if (rc == 0 || reader == NULL)
        return rc;
    rc = append_bytes(state.buffer, data, n);
    if (rc > 0 && bytes_appended(reader, &state) < 0)
        rc = -1;
    reader_end(reader, &state);
    return rc;
}
