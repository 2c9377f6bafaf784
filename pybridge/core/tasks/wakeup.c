/*
 * wakeup.c: a Task waits for a future, and is woken by it.
 *
 *   the coroutine yields                      the task
 *   ------------------------------------      ----------------------------------------
 *   a goloop.Future or Task, on our loop      becomes its callback0 (future.c); done:
 *                                             the future queues the task as ready
 *   any other future                          adds a wakeup callable; done: call_soon
 *   None                                      is scheduled again
 *   anything else                             gets a RuntimeError by a scheduled step
 *
 * Two callables exist for the general path, named as asyncio's are, because they are
 * seen in logs and reprs: `TaskStepMethWrapper` and the built-in method
 * `Task.task_wakeup`.
 */
#include "tasks/private.h"

/* ---- the wakeup callable -------------------------------------------------------------- */

static PyObject *
wakeup_call(PyObject *self, PyObject *fut)
{
    PyObject *exc;
    GUARD_FUTURE(self);
    if (wakeup_outcome((gl_task *)self, fut, &exc) < 0)
        return NULL;
    int r = task_step((gl_task *)self, exc);
    Py_XDECREF(exc);
    return gl_none_or_null(r);
}

GL_PRIVATE PyMethodDef wakeup_def = {"task_wakeup", wakeup_call, METH_O, NULL};

/* ---- the step callable ----------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    gl_task *task;
    PyObject *exc; /* or NULL */
} gl_step;

static int
step_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((gl_step *)self)->task);
    Py_VISIT(((gl_step *)self)->exc);
    return 0;
}

static int
step_clear(PyObject *self)
{
    Py_CLEAR(((gl_step *)self)->task);
    Py_CLEAR(((gl_step *)self)->exc);
    return 0;
}

static void
step_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)step_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
step_call(PyObject *self, PyObject *args, PyObject *kwds)
{
    gl_step *s = (gl_step *)self;
    bool keywords = kwds != NULL && PyDict_GET_SIZE(kwds) != 0;
    if (keywords || (args != NULL && PyTuple_GET_SIZE(args) != 0)) {
        PyErr_Format(PyExc_TypeError, "function takes no %s arguments",
                     keywords ? "keyword" : "positional");
        return NULL;
    }
    if (s->task == NULL)
        Py_RETURN_NONE; /* the collector has cleared us */
    GUARD_FUTURE(s->task);
    gl_task *task = (gl_task *)Py_NewRef((PyObject *)s->task);
    PyObject *exc = Py_XNewRef(s->exc);
    int r = task_step(task, exc);
    Py_XDECREF(exc);
    Py_DECREF(task);
    return gl_none_or_null(r);
}

static PyObject *
step_get_self(PyObject *self, void *Py_UNUSED(closure))
{
    gl_task *task = ((gl_step *)self)->task;
    return Py_NewRef(task ? (PyObject *)task : Py_None);
}

static PyGetSetDef step_getset[] = {
    {"__self__", step_get_self, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot step_slots[] = {
    {Py_tp_traverse, step_traverse}, {Py_tp_clear, step_clear},
    {Py_tp_dealloc, step_dealloc},   {Py_tp_call, step_call},
    {Py_tp_getset, step_getset},     {0, NULL},
};

GL_PRIVATE PyType_Spec step_spec = {
    .name = "goloop._core.TaskStepMethWrapper",
    .basicsize = sizeof(gl_step),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = step_slots,
};

GL_PRIVATE PyObject *
step_callable(gl_task *task, PyObject *exc)
{
    gl_step *s = PyObject_GC_New(gl_step, G.step_type);
    if (s == NULL)
        return NULL;
    s->task = (gl_task *)Py_NewRef((PyObject *)task);
    s->exc = Py_XNewRef(exc);
    PyObject_GC_Track((PyObject *)s);
    return (PyObject *)s;
}

GL_PRIVATE int
raise_uninitialized(void)
{
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "uninitialized Task object");
    return -1;
}

/* Waits for a future of any kind by a callable among its callbacks. */
static int
add_wakeup(gl_task *task, PyObject *fut)
{
    PyObject *context, *wakeup = gl_wakeup_of((PyObject *)task, &context);
    int r = -1;
    if (context == NULL) {
        raise_uninitialized();
    } else if (is_any_exact_future(fut)) {
        r = future_add_callback((gl_future *)fut, wakeup, context);
    } else {
        PyObject *stack[3] = {fut, wakeup, context};
        r = gl_done(PyObject_VectorcallMethod(G.s_add_done_callback, stack,
                                              2 | PY_VECTORCALL_ARGUMENTS_OFFSET, G.kw_context));
    }
    Py_XDECREF(context);
    Py_XDECREF(wakeup);
    return r;
}

GL_PRIVATE int
step_soon(gl_task *task, PyObject *exc)
{
    gl_loop *loop;
    if (exc == NULL && gl_is_task((PyObject *)task) &&
        (loop = gl_native_loop(task->loop)) != NULL)
        return gl_push_task(loop, (PyObject *)task);
    PyObject *step = step_callable(task, exc), *context = Py_XNewRef(task->context);
    int r = -1;
    if (context == NULL)
        raise_uninitialized();
    else if (step != NULL)
        r = gl_soon(task->loop, step, NULL, context);
    Py_XDECREF(context);
    Py_XDECREF(step);
    return r;
}

/* ---- waiting -------------------------------------------------------------------------- */

#if GL_LAYOUT_AWAITED_BY

/* Notes for the debugging tools that `task` awaits `fut`. */
static int
awaited_by_add(gl_future *fut, PyObject *task)
{
    if (fut->awaited_by == NULL) {
        fut->awaited_by = Py_NewRef(task);
        return 0;
    }
    /* The hash of a subclass's instance runs Python, which may begin the future anew. */
    PyObject *before = Py_NewRef(fut->awaited_by);
    int r;
    if (fut->awaited_by_is_set) {
        r = PySet_Add(before, task);
    } else {
        PyObject *set = PySet_New(NULL);
        r = set == NULL || PySet_Add(set, task) < 0 || PySet_Add(set, before) < 0 ? -1 : 0;
        if (r == 0 && fut->awaited_by == before) {
            fut->awaited_by_is_set = 1;
            Py_SETREF(fut->awaited_by, Py_NewRef(set));
        }
        Py_XDECREF(set);
    }
    Py_DECREF(before);
    return r;
}

static inline int
awaited_by_discard(gl_future *fut, PyObject *task)
{
    if (fut->awaited_by == task) {
        fut->awaited_by = NULL;
        Py_DECREF(task); /* the caller holds another reference */
        return 0;
    }
    if (fut->awaited_by == NULL || !fut->awaited_by_is_set)
        return 0;
    PyObject *set = Py_NewRef(fut->awaited_by);
    int r = PySet_Discard(set, task) < 0 ? -1 : 0;
    Py_DECREF(set);
    return r;
}

#else

#define awaited_by_add(fut, task) ((void)(task), 0)
#define awaited_by_discard(fut, task) 0

#endif

/* The task's next step throws a RuntimeError.  The format has one or two %R. */
static int
error_soon(gl_task *task, const char *format, PyObject *first, PyObject *second)
{
    PyObject *text = PyUnicode_FromFormat(format, first, second);
    if (text == NULL)
        return -1;
    PyObject *exc = PyObject_CallOneArg(PyExc_RuntimeError, text);
    Py_DECREF(text);
    if (exc == NULL)
        return -1;
    int r = step_soon(task, exc);
    Py_DECREF(exc);
    return r;
}

/* The task waits for `fut` from now on.  A cancel() that arrived while the coroutine ran goes
 * to the future. */
static inline int
set_waiter(gl_task *task, PyObject *fut)
{
    Py_XSETREF(task->fut_waiter, Py_NewRef(fut));
    if (!task->must_cancel)
        return 0;
    PyObject *msg = Py_NewRef(task->cancel_msg ? task->cancel_msg : Py_None);
    int cancelled = cancel_awaited(fut, msg);
    Py_DECREF(msg);
    if (cancelled > 0)
        task->must_cancel = 0;
    return cancelled < 0 ? -1 : 0;
}

/* 1 where the task may wait for the future; else its next step throws. */
static inline int
may_wait(gl_task *task, PyObject *fut, bool same_loop, bool blocking)
{
    if (same_loop && blocking)
        return 1;
    return error_soon(task,
                      same_loop ? "yield was used instead of yield from in task %R with %R"
                                : "Task %R got Future %R attached to a different loop",
                      (PyObject *)task, fut);
}

/* Waits for an instance of a class whose C methods we know. */
static int
wait_exact(gl_task *task, PyObject *result)
{
    gl_future *fut = (gl_future *)result;
    int r = may_wait(task, result, fut->loop == task->loop, fut->blocking);
    if (r <= 0)
        return r;
    if (awaited_by_add(fut, (PyObject *)task) < 0)
        return -1;
    fut->blocking = 0;
    if (fut->callback0 == NULL && fut->callbacks == NULL && fut->state == GL_PENDING &&
        is_future(result) && gl_is_task((PyObject *)task) && gl_native_loop(task->loop)) {
        fut->callback0 = Py_NewRef((PyObject *)task);
        fut->context0 = Py_NewRef(Py_None);
    } else if (add_wakeup(task, result) < 0) {
        return -1;
    }
    return set_waiter(task, result);
}

/* asyncio.futures._get_loop() */
static PyObject *
future_loop(PyObject *fut)
{
    PyObject *get_loop = PyObject_GetAttr(fut, G.s_get_loop);
    if (get_loop != NULL) {
        PyObject *loop = PyObject_CallNoArgs(get_loop);
        Py_DECREF(get_loop);
        return loop;
    }
    if (!PyErr_ExceptionMatches(PyExc_AttributeError))
        return NULL;
    PyErr_Clear();
    return PyObject_GetAttr(fut, G.s__loop);
}

/* Waits for anything that follows the future protocol, by its methods. */
static int
wait_general(gl_task *task, PyObject *result, PyObject *blocking_attr)
{
    int blocking = PyObject_IsTrue(blocking_attr);
    if (blocking < 0)
        return -1;
    PyObject *loop = future_loop(result);
    if (loop == NULL)
        return -1;
    bool same = loop == task->loop;
    Py_DECREF(loop);
    int r = may_wait(task, result, same, blocking);
    if (r <= 0)
        return r;
    if (has_layout(result) && awaited_by_add((gl_future *)result, (PyObject *)task) < 0)
        return -1;
    if (PyObject_SetAttr(result, G.s__asyncio_future_blocking, Py_False) < 0 ||
        add_wakeup(task, result) < 0)
        return -1;
    return set_waiter(task, result);
}

/* Neither a future nor None. */
static int
wait_foreign(gl_task *task, PyObject *result)
{
    PyObject *blocking = PyObject_GetAttr(result, G.s__asyncio_future_blocking);
    if (blocking == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
    } else {
        int r = 0;
        bool follows = blocking != Py_None;
        if (follows)
            r = wait_general(task, result, blocking);
        Py_DECREF(blocking);
        if (follows)
            return r;
    }
    int is_generator = PyObject_IsInstance(result, (PyObject *)&PyGen_Type);
    if (is_generator < 0)
        return -1;
    if (is_generator)
        return error_soon(task,
                          "yield was used instead of yield from for generator in task %R "
                          "with %R",
                          (PyObject *)task, result);
    return error_soon(task, "Task got bad yield: %R", result, NULL);
}

GL_PRIVATE_INLINE int
task_wait(gl_task *task, PyObject *result)
{
    int r;
    if (result == Py_None)
        r = step_soon(task, NULL);
    else if (result == (PyObject *)task)
        r = error_soon(task, "Task cannot await on itself: %R", (PyObject *)task, NULL);
    else if (is_any_exact_future(result))
        r = wait_exact(task, result);
    else
        r = wait_foreign(task, result);
    Py_DECREF(result);
    return r;
}

/* ---- waking ---------------------------------------------------------------------------- */

GL_PRIVATE int
wakeup_outcome(gl_task *task, PyObject *fut, PyObject **exc)
{
    *exc = NULL;
    if (has_layout(fut) && awaited_by_discard((gl_future *)fut, (PyObject *)task) < 0)
        return -1;
    if (is_any_exact_future(fut))
        return future_outcome((gl_future *)fut, exc);
    PyObject *result = PyObject_CallMethodNoArgs(fut, G.s_result);
    if (result != NULL) {
        Py_DECREF(result);
        return 0;
    }
    *exc = gl_take_exception();
    return 1;
}
