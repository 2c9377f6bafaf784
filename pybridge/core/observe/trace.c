/*
 * trace.c: notes what a loop does, while somebody traces it (golib/trace.go).
 *
 * A record takes a clock and two stores: no name is looked up, nothing is counted and nobody waited
 * for.  Whoever notes has the GIL, or without one the loop's lock.
 */
#include "observe/observe.h"

GL_PRIVATE_INLINE void
gl_trace_add(gl_loop *loop, gl_trace *t, unsigned kind, unsigned own, uint64_t value)
{
    uint64_t n = GL_READ(t->written);
    gl_record *r = &t->record[n & (GL_TRACE_RECORDS - 1)];
    r->ticks = gl_ticks();
    r->what = (uint64_t)(kind << 4 | own) << 56 | (loop->counts.iterations & 255) << 48 |
              (value & 0xFFFFFFFFFFFF);
    __atomic_store_n(&t->written, n + 1, __ATOMIC_RELEASE);
}

/* Eight bytes of the record before, or six more. */
static void
trace_add_continuation(gl_trace *t, uint64_t word, unsigned own, uint64_t rest)
{
    uint64_t n = GL_READ(t->written);
    t->record[n & (GL_TRACE_RECORDS - 1)] =
        (gl_record){word, (uint64_t)own << 56 | (rest & 0xFFFFFFFFFFFF)};
    __atomic_store_n(&t->written, n + 1, __ATOMIC_RELEASE);
}

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
    if (callable != NULL && PyFunction_Check(callable))
        gl_trace_add(loop, t, GL_TRACE_CALL, 0, (uintptr_t)PyFunction_GET_CODE(callable));
    else
        gl_trace_add(loop, t, GL_TRACE_NATIVE, 0,
                     (uintptr_t)(callable != NULL && PyCFunction_Check(callable)
                                     ? ((PyCFunctionObject *)callable)->m_ml->ml_name
                                     : class_name(callable)));
}

GL_PRIVATE void
gl_trace_completion(gl_loop *loop, gl_trace *t, const gl_completion *c, PyObject *protocol)
{
    bool read = c->kind == GL_CMP_READY && c->res & GL_READABLE; /* the protocol gets it next */
    gl_trace_add(loop, t, GL_TRACE_EVENT, read ? GL_CMP_DATA : c->kind,
                 (uintptr_t)class_name(protocol));
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
    uint64_t number = text == NULL && PyLong_Check(name) ? PyLong_AsUnsignedLongLong(name) : 0;
    PyErr_Clear(); /* a name that is no UTF-8 */
    gl_trace_add(loop, t, GL_TRACE_TASK, 0, (uintptr_t)task);
    trace_add_continuation(t,
               code != NULL ? (uint64_t)GL_TRACE_CALL << 60 | (uintptr_t)code
                            : (uint64_t)GL_TRACE_NATIVE << 60 | (uintptr_t)class_name(coro),
               0, 0);
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

/* _trace(fd): the connection, which is given away, gets what the loops of this process do. */
static PyObject *
trace(PyObject *Py_UNUSED(module), PyObject *number)
{
    const char *message;
    const gl_table *go = gl_library(&message);
    int fd = (int)PyLong_AsLong(number);
    if (go == NULL || PyErr_Occurred())
        return go ? NULL : PyErr_Format(PyExc_ImportError, "%s", message);
    int32_t n = go->trace_start(fd);
    return n < 0 ? (errno = -n, PyErr_SetFromErrno(PyExc_OSError)) : Py_NewRef(Py_None);
}

static PyMethodDef trace_functions[] = {
    {"_trace", GL_ONEARG(trace), PyDoc_STR("Gives a connection a trace of this process's loops.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_trace_init(PyObject *module)
{
    return PyModule_AddFunctions(module, trace_functions);
}
