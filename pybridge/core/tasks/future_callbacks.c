/*
 * future_callbacks.c: the callbacks of a goloop.Future or goloop.Task.
 *
 * The methods that store and schedule callbacks are replaced, because of a representation that
 * CPython does not know: a single waiting Task is stored as `callback0` itself, with None as its
 * context,
 *
 *     callback0 = the Task      context0 = None
 *
 * and is pushed to the loop's ready queue when the future is done.  Programs that read the
 * callbacks get the callable that asyncio would have stored (wakeup.c).
 *
 * Comparisons, call_soon() and destructors can run foreign code.  The functions move the fields
 * out of the struct or take references before they do so, and read the struct again afterwards.
 */
#include "tasks/private.h"

/* Returns true if this callback, with its context, is a waiting Task that is stored as itself. */
static inline bool
is_waiting_task(PyObject *callback, PyObject *context)
{
    return context == Py_None && gl_is_task(callback);
}

GL_PRIVATE PyObject *
wakeup_callable(gl_task *task)
{
    return PyCFunction_New(G.task_wakeup, (PyObject *)task);
}

GL_PRIVATE PyObject *
gl_wakeup_with_context(PyObject *task, PyObject **context)
{
    *context = Py_XNewRef(((gl_task *)task)->context);
    PyObject *wakeup = wakeup_callable((gl_task *)task);
    if (wakeup == NULL)
        Py_CLEAR(*context);
    return wakeup;
}

/* Schedules the first callback of a future that is done: pushes a waiting Task to the ready queue,
 * or calls call_soon().  Steals both references, also if it fails. */
static int
schedule_first_callback(gl_future *f, PyObject *callback, PyObject *context)
{
    int r;
    if (is_waiting_task(callback, context)) {
        gl_task *task = (gl_task *)callback;
        gl_loop *loop = gl_loop_if_native(f->loop);
        Py_DECREF(context);
        if (loop && task->fut_waiter == (PyObject *)f) {
            r = gl_ready_add(loop, callback);
            if (r < 0)
                Py_DECREF(callback);
            return r;
        }
        callback = gl_wakeup_with_context((PyObject *)task, &context);
        Py_DECREF(task);
        if (context == NULL)
            return gl_drop_result(callback);
    }
    r = gl_schedule_on_any_loop(f->loop, callback, (PyObject *)f, context);
    Py_DECREF(callback);
    Py_DECREF(context);
    return r;
}

/* Returns the pair (callback, context) at index i, a new reference; NULL with RuntimeError for
 * another object.  The list can contain other objects, since asyncio's `_callbacks`, called
 * unbound, returns this list itself. */
static PyObject *
callback_pair(PyObject *list, Py_ssize_t i)
{
    PyObject *pair = PyList_GET_ITEM(list, i);
    if (PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2)
        return Py_NewRef(pair);
    PyErr_Format(PyExc_RuntimeError,
                 "a future's list of callbacks must contain pairs (callback, context), got %.200s",
                 Py_TYPE(pair)->tp_name);
    return NULL;
}

GL_PRIVATE int
future_schedule_callbacks(gl_future *f)
{
    if (Py_TYPE(f) != G.future_type && PyObject_TypeCheck((PyObject *)f, G.task_type))
        task_unregister((gl_task *)f);
    PyObject *callback = f->callback0;
    if (callback != NULL) {
        PyObject *context = f->context0;
        f->callback0 = NULL;
        f->context0 = NULL;
        if (schedule_first_callback(f, callback, context) < 0) {
            Py_CLEAR(f->callbacks); /* asyncio drops all callbacks in this case */
            return -1;
        }
    }
    PyObject *list = f->callbacks;
    if (list == NULL)
        return 0;
    f->callbacks = NULL;
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(list); i++) {
        PyObject *pair = callback_pair(list, i);
        r = -1;
        if (pair != NULL)
            r = gl_schedule_on_any_loop(f->loop, PyTuple_GET_ITEM(pair, 0), (PyObject *)f,
                                        PyTuple_GET_ITEM(pair, 1));
        Py_XDECREF(pair);
    }
    Py_DECREF(list);
    return r;
}

GL_PRIVATE int
future_add_callback(gl_future *f, PyObject *fn, PyObject *context)
{
    if (f->loop == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "uninitialized Future object");
        return -1;
    }
    if (f->state != GL_PENDING)
        return gl_schedule_on_any_loop(f->loop, fn, (PyObject *)f, context);
    /* A Task that a program adds as a callback is not a waiting task, so callback0 must not be
     * used for it. */
    if (f->callbacks == NULL && f->callback0 == NULL && !gl_is_task(fn)) {
        f->callback0 = Py_NewRef(fn);
        f->context0 = Py_NewRef(context);
        return 0;
    }
    PyObject *pair = PyTuple_Pack(2, fn, context);
    if (pair == NULL)
        return -1;
    int r = -1;
    PyObject *list = NULL;
    if (f->callbacks == NULL)
        list = PyList_New(0);
    if (f->callbacks == NULL) { /* checked again: PyList_New() can run the collector */
        f->callbacks = list;
        list = NULL;
    }
    if (f->callbacks != NULL)
        r = PyList_Append(f->callbacks, pair);
    Py_XDECREF(list);
    Py_DECREF(pair);
    return r;
}

GL_PRIVATE PyObject *
future_method_add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames)
{
    Py_ssize_t n = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (nargs != 1 || n > 1 ||
        (n == 1 &&
         PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "context") != 0)) {
        /* asyncio's method raises the error for wrong arguments. */
        return gl_call_unbound(G.asyncio.Future_add_done_callback, self, args, nargs, kwnames);
    }
    PyObject *context = n ? Py_NewRef(args[1]) : PyContext_CopyCurrent();
    if (context == NULL)
        return NULL;
    int r = future_add_callback((gl_future *)self, args[0], context);
    Py_DECREF(context);
    return gl_none_or_null(r);
}

/* Returns the first callback in asyncio's form: a waiting Task becomes its wakeup method.  Sets
 * *context to its context or NULL; both are new references.  The future must have a first
 * callback. */
static PyObject *
first_callback(gl_future *f, PyObject **context)
{
    if (is_waiting_task(f->callback0, f->context0))
        return gl_wakeup_with_context(f->callback0, context);
    *context = Py_XNewRef(f->context0);
    return Py_NewRef(f->callback0);
}

/* Removes the first callback if it equals `fn`.  Returns 1: removed, 0: not equal, or there is
 * none, -1: the comparison raised.  The comparison runs Python. */
static int
remove_first_callback(gl_future *f, PyObject *fn)
{
    if (f->callback0 == NULL)
        return 0;
    PyObject *context;
    PyObject *callback = first_callback(f, &context);
    Py_XDECREF(context);
    if (callback == NULL)
        return -1;
    int same = PyObject_RichCompareBool(callback, fn, Py_EQ);
    Py_DECREF(callback);
    if (same <= 0)
        return same;
    /* Both fields are cleared first, since the callback's destructor may add another callback. */
    callback = f->callback0;
    context = f->context0;
    f->callback0 = NULL;
    f->context0 = NULL;
    Py_XDECREF(callback);
    Py_XDECREF(context);
    return 1;
}

GL_PRIVATE PyObject *
future_method_remove_done_callback(PyObject *self, PyObject *fn)
{
    gl_future *f = (gl_future *)self;
    if (future_ensure_initialized(f) < 0)
        return NULL;
    Py_ssize_t removed = remove_first_callback(f, fn);
    if (removed < 0)
        return NULL;
    if (f->callbacks == NULL)
        return PyLong_FromSsize_t(removed);
    /* A comparison can change the list, drop it or replace it. */
    PyObject *list = Py_NewRef(f->callbacks);
    PyObject *kept = PyList_New(0);
    Py_ssize_t before = PyList_GET_SIZE(list);
    PyObject *answer = NULL;
    if (kept == NULL)
        goto done;
    for (Py_ssize_t i = 0; f->callbacks == list && i < PyList_GET_SIZE(list); i++) {
        PyObject *pair = callback_pair(list, i);
        if (pair == NULL)
            goto done;
        int same = PyObject_RichCompareBool(PyTuple_GET_ITEM(pair, 0), fn, Py_EQ);
        if (same == 0)
            same = PyList_Append(kept, pair);
        Py_DECREF(pair);
        if (same < 0)
            goto done;
    }
    if (f->callbacks != list) {
        /* The list was dropped or replaced: none of its callbacks will be called. */
        answer = PyLong_FromSsize_t(before + removed);
        goto done;
    }
    Py_ssize_t now = PyList_GET_SIZE(list);
    Py_ssize_t left = PyList_GET_SIZE(kept);
    if (left == 0)
        Py_CLEAR(f->callbacks);
    else if (left != now && PyList_SetSlice(list, 0, now, kept) < 0)
        goto done;
    answer = PyLong_FromSsize_t(now - left + removed);
done:
    Py_XDECREF(kept);
    Py_XDECREF(list);
    return answer;
}

/* Getter of `_callbacks`: a new list of pairs (callback, context), or None without callbacks.  A
 * waiting Task appears as its wakeup callable.  RuntimeError if the future is not initialised. */
static PyObject *
future_get_callbacks(PyObject *self, void *Py_UNUSED(closure))
{
    gl_future *f = (gl_future *)self;
    if (future_ensure_initialized(f) < 0)
        return NULL;
    if (f->callback0 == NULL && (f->callbacks == NULL || PyList_GET_SIZE(f->callbacks) == 0))
        Py_RETURN_NONE;
    PyObject *list = PyList_New(0);
    if (list && f->callback0) {
        PyObject *context;
        PyObject *callback = first_callback(f, &context);
        PyObject *second = context ? context : Py_None;
        PyObject *pair = NULL;
        if (callback != NULL)
            pair = PyTuple_Pack(2, callback, second);
        if (pair == NULL || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
        Py_XDECREF(callback);
        Py_XDECREF(context);
    }
    for (Py_ssize_t i = 0; list && f->callbacks && i < PyList_GET_SIZE(f->callbacks); i++)
        if (PyList_Append(list, PyList_GET_ITEM(f->callbacks, i)) < 0)
            Py_CLEAR(list);
    return list;
}

GL_PRIVATE PyGetSetDef future_getset[2] = {
    {"_callbacks", future_get_callbacks, NULL,
     PyDoc_STR("The callbacks as a list of (callback, context), or None."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
