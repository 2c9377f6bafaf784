/*
 * trace.c: records the activity of a loop while a client traces it (golib/trace.go reads the
 * records).
 *
 * A record costs a read of the clock and two stores; names are looked up later, by Go.  The writer
 * has the GIL, or without a GIL the loop's lock.  The store of `written` releases the record to Go.
 */
#include "observe/observe.h"

/* Bits of gl_record.what: the kind in the bits 60 to 63, the detail in 56 to 59, the low byte of
 * the iteration's number in 48 to 55, the value below. */
#define VALUE_MASK 0xFFFFFFFFFFFF

/* Packs the parts of a record into gl_record.what. */
static inline uint64_t
record_pack(unsigned kind, unsigned detail, uint64_t iteration, uint64_t value)
{
    return (uint64_t)(kind << 4 | detail) << 56 | (iteration & 255) << 48 | (value & VALUE_MASK);
}

GL_PRIVATE_INLINE void
gl_trace_add(gl_loop *loop, gl_trace *t, unsigned kind, unsigned detail, uint64_t value)
{
    uint64_t n = GL_READ(t->written);
    gl_record *r = &t->record[n & (GL_TRACE_RECORDS - 1)];
    r->ticks = gl_ticks();
    r->what = record_pack(kind, detail, loop->counts.iterations, value);
    __atomic_store_n(&t->written, n + 1, __ATOMIC_RELEASE);
}

/* Adds a record that continues the previous one with 14 bytes: `word` and the low six of `rest`. */
static void
trace_add_continuation(gl_trace *t, uint64_t word, unsigned detail, uint64_t rest)
{
    uint64_t n = GL_READ(t->written);
    t->record[n & (GL_TRACE_RECORDS - 1)] = (gl_record){word, record_pack(0, detail, 0, rest)};
    __atomic_store_n(&t->written, n + 1, __ATOMIC_RELEASE);
}

/* Returns the name of the object's class, a string that lives as long as the class; NULL for
 * NULL. */
static const char *
class_name(PyObject *o)
{
    return o != NULL ? Py_TYPE(o)->tp_name : NULL;
}

GL_PRIVATE void
gl_trace_call(gl_loop *loop, gl_trace *t, PyObject *callable)
{
    if (callable != NULL && PyMethod_Check(callable))
        callable = PyMethod_GET_FUNCTION(callable);
    if (callable != NULL && PyFunction_Check(callable)) {
        gl_trace_add(loop, t, GL_TRACE_CALL, 0, (uintptr_t)PyFunction_GET_CODE(callable));
        return;
    }
    const char *name;
    if (callable != NULL && PyCFunction_Check(callable))
        name = ((PyCFunctionObject *)callable)->m_ml->ml_name;
    else
        name = class_name(callable);
    gl_trace_add(loop, t, GL_TRACE_NATIVE, 0, (uintptr_t)name);
}

GL_PRIVATE void
gl_trace_completion(gl_loop *loop, gl_trace *t, const gl_completion *c, PyObject *protocol)
{
    unsigned kind = c->kind;
    if (kind == GL_CMP_READY && (c->res & GL_READABLE) != 0)
        kind = GL_CMP_DATA; /* C receives the data next and calls the protocol */
    gl_trace_add(loop, t, GL_TRACE_EVENT, kind, (uintptr_t)class_name(protocol));
}

GL_PRIVATE void
gl_trace_connection(gl_loop *loop, unsigned kind, PyObject *transport, PyObject *protocol)
{
    gl_trace *t = gl_active_trace(loop);
    if (t == NULL)
        return;
    gl_trace_add(loop, t, kind, 0, (uintptr_t)transport);
    trace_add_continuation(t, (uintptr_t)class_name(protocol), 0, 0);
}

GL_PRIVATE void
gl_trace_task(gl_loop *loop, PyObject *task, PyObject *coro, PyObject *name)
{
    gl_trace *t = gl_active_trace(loop);
    if (t == NULL)
        return;
    PyObject *code = PyCoro_CheckExact(coro) ? PyObject_GetAttrString(coro, "cr_code") : NULL;
    Py_ssize_t len = 0;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &len) : NULL;
    uint64_t number = 0;
    if (text == NULL && PyLong_Check(name))
        number = PyLong_AsUnsignedLongLong(name);
    PyErr_Clear(); /* the name cannot be encoded in UTF-8 */
    gl_trace_add(loop, t, GL_TRACE_TASK, 0, (uintptr_t)task);
    uint64_t function;
    if (code != NULL)
        function = (uint64_t)GL_TRACE_CALL << 60 | (uintptr_t)code;
    else
        function = (uint64_t)GL_TRACE_NATIVE << 60 | (uintptr_t)class_name(coro);
    trace_add_continuation(t, function, 0, 0);
    if (text == NULL)
        trace_add_continuation(t, number, 1, 0);
    for (Py_ssize_t i = 0; i < len && i < 56; i += 14) {
        uint64_t part[2] = {0, 0};
        memcpy(part, text + i, (size_t)Py_MIN(len - i, 14));
        trace_add_continuation(t, part[0], 0, part[1]);
    }
    Py_XDECREF(code);
}

GL_PRIVATE void
gl_trace_gc(bool begins)
{
    GL_LOCK(loops_mutex);
    for (gl_loop *loop = G.first_loop; loop != NULL; loop = loop->next_loop) {
        gl_trace *t = gl_loop_runs_here(loop) ? gl_active_trace(loop) : NULL;
        if (t != NULL)
            gl_trace_add(loop, t, GL_TRACE_GC, begins, 0);
    }
    GL_UNLOCK(loops_mutex);
}

/* _trace(fd): starts a thread of the library that sends a trace of this process's loops to the
 * connection, and closes the fd at the end.  Returns None.  NULL with ImportError if the library
 * cannot be loaded, OSError if no thread can be started, or the error of a wrong argument; after an
 * exception the fd still belongs to the caller. */
static PyObject *
trace_start(PyObject *Py_UNUSED(module), PyObject *fd_object)
{
    const char *message;
    const gl_table *go = gl_library_open(&message);
    int fd = (int)PyLong_AsLong(fd_object);
    if (go == NULL)
        return PyErr_Format(PyExc_ImportError, "%s", message);
    if (PyErr_Occurred())
        return NULL;
    int32_t n = go->trace_start(fd);
    if (n < 0) {
        errno = -n;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyMethodDef trace_functions[] = {
    {"_trace", GL_ONEARG(trace_start),
     PyDoc_STR("Write a trace of this process's loops to a connection.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_trace_init(PyObject *module)
{
    return PyModule_AddFunctions(module, trace_functions);
}
