/*
 * future_iter.c: what `await fut` iterates over.
 *
 * States:  fresh --next--> waiting (the future is yielded, with its blocking flag set)
 *          --next, done--> the result or the exception; exhausted then, before 3.14
 *
 * Ours rather than asyncio's for two reasons: no search for _asyncio's module state,
 * and no StopIteration for a result of None: tp_iternext may end without one, and the
 * interpreter then makes nothing.  Freed iterators are kept for the next await.
 */
#include "tasks/private.h"

static PySendResult
future_iter_send(PyObject *self, PyObject *Py_UNUSED(value), PyObject **result)
{
    gl_future_iter *it = (gl_future_iter *)self;
    gl_future *f = it->future;
    *result = NULL;
    if (f == NULL) {
        *result = Py_NewRef(Py_None);
        return PYGEN_RETURN;
    }
    GUARD_FUTURE(f);
    if (f->state == GL_PENDING) {
        if (f->blocking) {
            PyErr_SetString(PyExc_RuntimeError, "await wasn't used with future");
            return PYGEN_ERROR;
        }
        f->blocking = 1;
        *result = Py_NewRef((PyObject *)f);
        return PYGEN_NEXT;
    }
#if PY_VERSION_HEX >= 0x030E0000
    Py_INCREF(f); /* whoever asks again is told again */
#else
    it->future = NULL;
#endif
    PySendResult outcome = PYGEN_ERROR;
    if (f->state == GL_FINISHED && f->exception == NULL && f->result != NULL) {
        f->log_tb = 0;
        *result = Py_NewRef(f->result);
        outcome = PYGEN_RETURN;
    } else {
        PyObject *exc;
        if (future_outcome(f, &exc) > 0) {
            PyErr_SetObject(PyExceptionInstance_Class(exc), exc);
            Py_DECREF(exc);
        }
    }
    Py_DECREF(f);
    return outcome;
}

/* Sets StopIteration(value). */
static void
set_stop_iteration(PyObject *value)
{
    if (!PyTuple_Check(value) && !PyExceptionInstance_Check(value)) {
        PyErr_SetObject(PyExc_StopIteration, value);
        return;
    }
    /* The setter would take these apart. */
    PyObject *exc = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (exc != NULL) {
        PyErr_SetObject(PyExc_StopIteration, exc);
        Py_DECREF(exc);
    }
}

static PyObject *
step_iter(PyObject *self, bool method)
{
    PyObject *result;
    PySendResult outcome = future_iter_send(self, Py_None, &result);
    if (outcome != PYGEN_RETURN)
        return result;
    if (method || result != Py_None) /* a method has to raise */
        set_stop_iteration(result);
    Py_DECREF(result);
    return NULL;
}

static PyObject *
future_iter_next(PyObject *self)
{
    return step_iter(self, false);
}

static PyObject *
future_iter_method_send(PyObject *self, PyObject *Py_UNUSED(value))
{
    return step_iter(self, true);
}

static PyObject *
future_iter_method_throw(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 1 || nargs > 3) {
        PyErr_Format(PyExc_TypeError, "throw expected at %s %d argument%s, got %zd",
                     nargs < 1 ? "least" : "most", nargs < 1 ? 1 : 3, nargs < 1 ? "" : "s",
                     nargs);
        return NULL;
    }
#if PY_VERSION_HEX >= 0x030C0000
    if (nargs > 1 &&
        PyErr_WarnEx(PyExc_DeprecationWarning,
                     "the (type, exc, tb) signature of throw() is deprecated, "
                     "use the single-arg signature instead.",
                     1) < 0)
        return NULL;
#endif
    PyObject *type = args[0], *value = nargs > 1 ? args[1] : NULL,
             *tb = nargs > 2 ? args[2] : NULL;
    if (tb == Py_None) {
        tb = NULL;
    } else if (tb != NULL && !PyTraceBack_Check(tb)) {
        PyErr_SetString(PyExc_TypeError, "throw() third argument must be a traceback");
        return NULL;
    }
    if (PyExceptionInstance_Check(type)) {
        if (value != NULL && value != Py_None) {
            PyErr_SetString(PyExc_TypeError,
                            "instance exception may not have a separate value");
            return NULL;
        }
        value = Py_NewRef(type);
        type = Py_NewRef(PyExceptionInstance_Class(value));
        tb = tb ? Py_NewRef(tb) : PyException_GetTraceback(value);
    } else if (PyExceptionClass_Check(type)) {
        Py_INCREF(type);
        Py_XINCREF(value);
        Py_XINCREF(tb);
        PyErr_NormalizeException(&type, &value, &tb);
    } else {
        PyErr_SetString(PyExc_TypeError, "exceptions must be classes deriving "
                                         "BaseException or instances of such a class");
        return NULL;
    }
    Py_CLEAR(((gl_future_iter *)self)->future);
    PyErr_Restore(type, value, tb);
    return NULL;
}

static int
future_iter_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((gl_future_iter *)self)->future);
    return 0;
}

static int
future_iter_clear(PyObject *self)
{
    Py_CLEAR(((gl_future_iter *)self)->future);
    return 0;
}

static PyObject *
future_iter_method_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return gl_none_or_null(future_iter_clear(self));
}

static void
future_iter_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_CLEAR(((gl_future_iter *)self)->future);
    if (ITER_POOL && G.iter_pool_len < GL_ITER_POOL)
        G.iter_pool[G.iter_pool_len++] = (gl_future_iter *)self;
    else
        PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef future_iter_methods[] = {
    {"send", future_iter_method_send, METH_O, NULL},
    {"throw", GL_FAST(future_iter_method_throw), NULL},
    {"close", future_iter_method_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot future_iter_slots[] = {
    {Py_tp_traverse, future_iter_traverse}, {Py_tp_clear, future_iter_clear},
    {Py_tp_dealloc, future_iter_dealloc},   {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, future_iter_next},     {Py_am_send, future_iter_send},
    {Py_tp_methods, future_iter_methods},   {0, NULL},
};

GL_PRIVATE PyType_Spec future_iter_spec = {
    .name = "goloop._core.FutureIter",
    .basicsize = sizeof(gl_future_iter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = future_iter_slots,
};
