/*
 * future_iter.c: the iterator of `await fut`, which the interpreter advances.
 *
 * States:  new --next--> waiting (the future is yielded, with its blocking flag set)
 *          --next, done--> the result or the exception; before 3.14 exhausted afterwards
 *
 * FutureIter replaces asyncio's iterator for two reasons.  It does not look for _asyncio's module
 * state, and it creates no StopIteration object for the result None: tp_iternext may return NULL
 * without an exception.  Freed iterators are cached for the next await (G.iter_pool).
 *
 * future.c and task.c have future_iter_new() in the tables of their types, and this file reads the
 * outcome of a future by future.c: a circle, as between any type and its iterator.
 *
 * FutureIter has a strong reference to its future until it is deallocated.
 */
#include "tasks/private.h"

GL_PRIVATE PyObject *
future_iter_new(PyObject *fut)
{
    GUARD_FUTURE(fut);
    if (future_ensure_initialized((gl_future *)fut) < 0)
        return NULL;
    gl_future_iter *it;
    if (ITER_POOL && G.iter_pool_len) {
        it = G.iter_pool[--G.iter_pool_len];
        Py_INCREF(G.future_iter_type);
        _Py_NewReference((PyObject *)it);
    } else {
        it = PyObject_GC_New(gl_future_iter, G.future_iter_type);
        if (it == NULL)
            return NULL;
    }
    it->future = (gl_future *)Py_NewRef(fut);
    it->exhausted = false;
    PyObject_GC_Track((PyObject *)it);
    return (PyObject *)it;
}

/* Implements am_send: yields the pending future and sets its blocking flag, or returns or raises
 * its outcome.  An exhausted iterator returns None.  RuntimeError for a pending future whose flag
 * is set already. */
static PySendResult
future_iter_send(PyObject *self, PyObject *Py_UNUSED(value), PyObject **result)
{
    gl_future_iter *it = (gl_future_iter *)self;
    gl_future *f = it->future;
    *result = NULL;
    if (GL_READ(it->exhausted)) {
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
    GL_WRITE(it->exhausted, !GL_FUTURE_ITER_REPEATS);
    PySendResult outcome = PYGEN_ERROR;
    if (f->state == GL_FINISHED && f->exception == NULL && f->result != NULL) {
        f->log_tb = 0;
        *result = Py_NewRef(f->result);
        outcome = PYGEN_RETURN;
    } else {
        PyObject *exc;
        if (future_exception_to_throw(f, &exc) > 0) {
            PyErr_SetObject(PyExceptionInstance_Class(exc), exc);
            Py_DECREF(exc);
        }
    }
    return outcome;
}

GL_PRIVATE void
gl_set_stop_iteration(PyObject *value)
{
    if (!PyTuple_Check(value) && !PyExceptionInstance_Check(value)) {
        PyErr_SetObject(PyExc_StopIteration, value);
        return;
    }
    /* PyErr_SetObject() would unpack a tuple, and raise an exception instance itself. */
    PyObject *exc = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (exc != NULL) {
        PyErr_SetObject(PyExc_StopIteration, exc);
        Py_DECREF(exc);
    }
}

/* Advances the iterator.  Returns the pending future, a new reference, or NULL at the end with
 * StopIteration(result) or the future's exception.  `method`: called as send(), which must set
 * StopIteration also for None, whereas tp_iternext may then return NULL without an exception. */
static PyObject *
step_iter(PyObject *self, bool method)
{
    PyObject *result;
    PySendResult outcome = future_iter_send(self, Py_None, &result);
    if (outcome != PYGEN_RETURN)
        return result;
    if (method || result != Py_None)
        gl_set_stop_iteration(result);
    Py_DECREF(result);
    return NULL;
}

/* Implements tp_iternext; see step_iter(). */
static PyObject *
future_iter_next(PyObject *self)
{
    return step_iter(self, false);
}

/* FutureIter.send(value): ignores the value, as asyncio's iterator does. */
static PyObject *
future_iter_method_send(PyObject *self, PyObject *Py_UNUSED(value))
{
    return step_iter(self, true);
}

/* FutureIter.throw(): raises an exception instance, as a coroutine's throw() passes it, and
 * exhausts the iterator.  Other arguments go to asyncio's throw(), which raises the exception, or
 * the error for wrong arguments. */
static PyObject *
future_iter_method_throw(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs == 1 && PyExceptionInstance_Check(args[0])) {
        GL_WRITE(((gl_future_iter *)self)->exhausted, true);
        gl_restore_exception(Py_NewRef(args[0]));
        return NULL;
    }
    PyObject *r = PyObject_Vectorcall(G.asyncio.iter_throw, args, (size_t)nargs, NULL);
    PyObject *exc = gl_take_exception();
    PyObject *type = NULL;
    if (nargs > 0)
        type = PyType_Check(args[0]) ? args[0] : (PyObject *)Py_TYPE(args[0]);
    if (exc != NULL && type != NULL && PyErr_GivenExceptionMatches(exc, type))
        GL_WRITE(((gl_future_iter *)self)->exhausted, true);
    gl_restore_exception(exc);
    return r;
}

/* tp_traverse: visits the type and the future. */
static int
future_iter_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((gl_future_iter *)self)->future);
    return 0;
}

/* Implements tp_clear; the iterator is exhausted afterwards, so the missing future is not read. */
static int
future_iter_clear(PyObject *self)
{
    GL_WRITE(((gl_future_iter *)self)->exhausted, true);
    Py_CLEAR(((gl_future_iter *)self)->future);
    return 0;
}

/* FutureIter.close(): the iterator returns None from now on. */
static PyObject *
future_iter_method_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    GL_WRITE(((gl_future_iter *)self)->exhausted, true);
    Py_RETURN_NONE;
}

/* tp_dealloc: drops the future, and puts the iterator into the pool if that has room. */
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
