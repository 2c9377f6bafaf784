/*
 * task.c: goloop.Task, a subclass of _asyncio.Task and goloop.Future that steps on
 * the base's fields.
 *
 * Life of a task:
 *
 *     made --> ready queue --> step --> waits for a future --> ready queue --> ...
 *                               |  \--> yields None -----------^
 *                               v
 *                  returned, raised, cancelled, or (SystemExit, KeyboardInterrupt)
 *                  raised and left the loop
 *
 * The ready queue holds the Task itself: neither a Handle nor a callable nor a tuple of
 * arguments is made for a step.  What an entry means stands in the task: with a
 * `fut_waiter` it is a wakeup, without one a plain step.
 *
 * cancel(), by state: waiting: the future that it waits for is cancelled; in the
 * ready queue or running: `must_cancel`, and the next step throws.
 *
 * Rules for memory: whoever calls a function here holds a reference to the task;
 * coroutine, exception and future are held while foreign code can run; fields are
 * read again after it ran.
 */
#include "tasks/private.h"

/* ---- the step --------------------------------------------------------------------------- */

static inline bool
takes_value_of_stop_iteration(PyObject **result)
{
    if (!PyErr_ExceptionMatches(PyExc_StopIteration))
        return false;
    PyObject *exc = gl_take_exception();
    *result = Py_NewRef(((PyStopIterationObject *)exc)->value);
    Py_DECREF(exc);
    return true;
}

/* The coroutine has returned `value` (stolen). */
static int
finish_with_result(gl_task *task, PyObject *value)
{
    int r;
    if (task->must_cancel) {
        /* Cancelled just before its end. */
        task->must_cancel = 0;
        PyObject *msg = Py_XNewRef(task->cancel_msg);
        r = future_set_cancelled((gl_future *)task, msg);
        Py_XDECREF(msg);
        r = r < 0 ? -1 : 0;
    } else {
        r = future_settle((gl_future *)task, value);
    }
    Py_DECREF(value);
    return r;
}

/* The coroutine has raised what is set. */
static int
finish_with_exception(gl_task *task)
{
    bool cancelled = PyErr_ExceptionMatches(G.asyncio_CancelledError);
    PyObject *exc = gl_take_exception();
    if (cancelled) {
        Py_XSETREF(task->cancelled_exc, exc);
        return future_set_cancelled((gl_future *)task, NULL) < 0 ? -1 : 0;
    }
    if (future_fail((gl_future *)task, exc) < 0) {
        Py_DECREF(exc);
        return -1;
    }
    if (PyErr_GivenExceptionMatches(exc, PyExc_KeyboardInterrupt) ||
        PyErr_GivenExceptionMatches(exc, PyExc_SystemExit)) {
        gl_restore_exception(exc);
        return -1;
    }
    Py_DECREF(exc);
    return 0;
}

#if GL_TASK_STEP_HAS_TWO_UNDERSCORES
#define ALREADY_DONE "__step(): already done: %R %R"
#else
#define ALREADY_DONE "_step(): already done: %R %R"
#endif

/* One step, inside of enter and leave. */
static inline int
step_entered(gl_task *task, PyObject *exc)
{
    if (task->state != GL_PENDING) {
        PyErr_Format(G.asyncio_InvalidStateError, ALREADY_DONE, task, exc ? exc : Py_None);
        return -1;
    }
    PyObject *thrown = NULL; /* owned, where we make it */
    if (task->must_cancel) {
        if (exc == NULL || !PyErr_GivenExceptionMatches(exc, G.asyncio_CancelledError)) {
            exc = thrown = future_cancelled_error((gl_future *)task);
            if (exc == NULL)
                return -1;
        }
        task->must_cancel = 0;
    }
    Py_CLEAR(task->fut_waiter);
    if (task->coro == NULL) {
        Py_XDECREF(thrown);
        return raise_uninitialized();
    }
    PyObject *coro = Py_NewRef(task->coro), *result = NULL;
    PySendResult outcome;
    if (exc == NULL) {
        outcome = PyIter_Send(coro, Py_None, &result);
    } else {
        result = PyObject_CallMethodOneArg(coro, G.s_throw, exc);
        Py_XDECREF(thrown);
        if (result != NULL)
            outcome = PYGEN_NEXT;
        else
            outcome = takes_value_of_stop_iteration(&result) ? PYGEN_RETURN : PYGEN_ERROR;
    }
    int r;
    if (outcome == PYGEN_NEXT)
        r = task_wait(task, result);
    else if (outcome == PYGEN_RETURN)
        r = finish_with_result(task, result);
    else
        r = finish_with_exception(task);
    Py_DECREF(coro);
    return r;
}

/* A step as the current task; `queued` as for current_enter. */
static inline int
step_as_current(gl_task *task, PyObject *loop, PyObject *exc, bool queued)
{
    char *ts = (char *)PyThreadState_Get(); /* a step never moves to another thread */
    if (current_enter(ts, loop, (PyObject *)task, queued) < 0)
        return -1;
    if (step_entered(task, exc) == 0)
        return current_leave(ts, loop, (PyObject *)task, queued);
    /* A failure to leave becomes the consequence of what the step raised. */
    PyObject *raised = gl_take_exception();
    (void)current_leave(ts, loop, (PyObject *)task, queued);
    gl_restore_exception(raised);
    return -1;
}

GL_PRIVATE int
task_step(gl_task *task, PyObject *exc)
{
    if (task->loop == NULL)
        return raise_uninitialized();
    PyObject *loop = Py_NewRef(task->loop);
    int r = step_as_current(task, loop, exc, false);
    Py_DECREF(loop);
    return r;
}

/* ---- out of the ready queue ------------------------------------------------------------------ */

/* What asyncio would have logged: the exception of the Handle of this step.  Takes the
 * exception that is set. */
static int
report_step(gl_loop *loop, gl_task *task, PyObject *waited_for)
{
    if (gl_is_exit_exception())
        return -1;
    PyObject *exc = gl_take_exception();
    PyObject *wakeup = waited_for ? wakeup_callable(task) : Py_NewRef(Py_None);
    int r =
        wakeup
            ? gl_drop_result(PyObject_CallMethod((PyObject *)loop, GL_METHOD(_step_failed), "OOOOO",
                                                 task, wakeup, waited_for ? waited_for : Py_None,
                                                 exc, task->context ? task->context : Py_None))
            : -1;
    Py_XDECREF(wakeup);
    Py_XDECREF(exc);
    return r;
}

GL_PRIVATE_INLINE int
gl_task_run(gl_loop *loop, gl_task *task)
{
    PyObject *context = task->context, *fut = Py_XNewRef(task->fut_waiter);
    int r = -1;
    if (context == NULL) {
        raise_uninitialized();
    } else {
        Py_INCREF(context);
        if (PyContext_Enter(context) == 0) {
            PyObject *exc = NULL;
            r = fut == NULL || wakeup_outcome(task, fut, &exc) >= 0
                    ? step_as_current(task, (PyObject *)loop, exc, true)
                    : -1;
            Py_XDECREF(exc);
            if (r == 0)
                gl_context_exit(context);
            else
                gl_context_exit_keep_error(context);
        }
        Py_DECREF(context);
    }
    if (r < 0)
        r = report_step(loop, task, fut);
    Py_XDECREF(fut);
    Py_DECREF(task);
    return r;
}

/* ---- cancel -------------------------------------------------------------------------------- */

/* 1, 0 or -1 as future_set_cancelled. */
static int
task_request_cancel(gl_task *task, PyObject *msg)
{
    task->log_tb = 0;
    if (task->state != GL_PENDING)
        return 0;
    task->num_cancels++;
    if (task->fut_waiter != NULL) {
        PyObject *fut = Py_NewRef(task->fut_waiter);
        int cancelled = cancel_awaited(fut, msg);
        Py_DECREF(fut);
        if (cancelled)
            return cancelled;
    }
    task->must_cancel = 1;
    Py_XSETREF(task->cancel_msg, Py_NewRef(msg));
    return 1;
}

GL_PRIVATE int
cancel_awaited(PyObject *fut, PyObject *msg)
{
    if (Py_TYPE(fut) == G.future_type)
        return future_set_cancelled((gl_future *)fut, msg);
    int cancelled = -1;
    if (gl_is_task(fut)) {
        /* Tasks may wait for each other in a circle. */
        if (Py_EnterRecursiveCall(" while calling a Python object") == 0) {
            cancelled = task_request_cancel((gl_task *)fut, msg);
            Py_LeaveRecursiveCall();
        }
        return cancelled;
    }
    return gl_take_bool(PyObject_CallMethodOneArg(fut, G.s_cancel, msg));
}

static PyObject *
task_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs > 1 || kwnames != NULL) /* it works on the same fields, and words the errors */
        return call_unbound(G.asyncio.Task_cancel, self, args, nargs, kwnames);
    int r = task_request_cancel((gl_task *)self, nargs ? args[0] : Py_None);
    return r < 0 ? NULL : PyBool_FromLong(r);
}

/* Ours because some releases of CPython give out a NULL here: a task that ended in its
 * eager start has no coroutine, one that was never initialised no context. */
static PyObject *
task_get_coro(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *coro = ((gl_task *)self)->coro;
    return Py_NewRef(coro ? coro : Py_None);
}

#if GL_TASK_HAS_GET_CONTEXT
static PyObject *
task_get_context(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *context = ((gl_task *)self)->context;
    return Py_NewRef(context ? context : Py_None);
}
#endif

/* ---- construction ---------------------------------------------------------------------------- */

static inline unsigned long long
next_name(void)
{
#ifdef GL_FREE_THREADED
    return __atomic_add_fetch(G.task_names, 1, __ATOMIC_RELAXED);
#else
    return ++*G.task_names;
#endif
}

/* The value of the name field for what the caller gave (None or NULL: a default). */
static PyObject *
name_object(PyObject *name)
{
    if (name == NULL || name == Py_None) {
#if GL_TASK_HAS_LAZY_NAME
        return PyLong_FromUnsignedLongLong(next_name()); /* get_name() formats it */
#else
        return PyUnicode_FromFormat("Task-%llu", next_name());
#endif
    }
    if (PyUnicode_CheckExact(name))
        return Py_NewRef(name);
    return PyObject_Str(name);
}

/* asyncio.iscoroutine(), which remembers classes itself. */
static int
is_coroutine(PyObject *coro)
{
    if (PyCoro_CheckExact(coro))
        return 1;
    return gl_take_bool(PyObject_CallOneArg(G.asyncio.iscoroutine, coro));
}

GL_PRIVATE int
task_fill(gl_task *task, PyObject *coro, PyObject *name, PyObject *context)
{
#if GL_LAYOUT_AWAITED_BY
    task->is_task = 1;
#endif
#if GL_TASK_CHECKS_CONTEXT
    if (context != NULL && context != Py_None && !PyContext_CheckExact(context)) {
        task->log_destroy_pending = 0;
        PyErr_Format(PyExc_TypeError, "a contextvars.Context was expected, got %.200s",
                     Py_TYPE(context)->tp_name);
        return -1;
    }
#endif
    PyObject *c =
        context == NULL || context == Py_None ? PyContext_CopyCurrent() : Py_NewRef(context);
    if (c == NULL)
        return -1;
    Py_XSETREF(task->context, c);
    Py_CLEAR(task->fut_waiter);
    task->must_cancel = 0;
    task->log_destroy_pending = 1;
    task->num_cancels = 0;
    Py_XSETREF(task->coro, Py_NewRef(coro));
    PyObject *n = name_object(name);
    if (n == NULL)
        return -1;
    Py_XSETREF(task->name, n);
    return 0;
}

#if GL_EAGER_TASKS

GL_PRIVATE int
task_start_eagerly(gl_task *task)
{
    PyObject *loop = Py_NewRef(task->loop);
    PyObject *context = Py_NewRef(task->context);
    int r = -1;
    PyObject *before = current_swap(loop, (PyObject *)task);
    if (before == NULL)
        goto done;
    task_register(task);
    if (PyContext_Enter(context) == 0) {
        r = step_entered(task, NULL);
        gl_context_exit_keep_error(context);
    }
    PyObject *exc = r < 0 ? gl_take_exception() : NULL;
    PyObject *current = current_swap(loop, before);
    Py_XDECREF(current);
    Py_DECREF(before);
    if (current == NULL)
        r = -1;
    if (exc)
        gl_restore_exception(exc);
    if (task->state != GL_PENDING) {
        task_unregister(task);
        Py_CLEAR(task->coro);
    }
done:
    if (r < 0)
        task->log_destroy_pending = 0; /* whoever made it has the exception instead */
    Py_DECREF(context);
    Py_DECREF(loop);
    return r;
}

#endif

static int
task_init(PyObject *self, PyObject *args, PyObject *kwds)
{
    gl_task *task = (gl_task *)self;
    static char *names[] = {"coro",        "loop", "name", "context",
#if GL_EAGER_TASKS
                            "eager_start",
#endif
                            NULL};
    const char *format = GL_EAGER_TASKS ? "O|$OOOp:Task" : "O|$OOO:Task";
    PyObject *coro, *loop = Py_None, *name = Py_None, *context = Py_None;
    int eager = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwds, format, names, &coro, &loop, &name, &context,
                                     &eager)) {
        /* The words of Argument Clinic, which has no "at most" here. */
        if (PyTuple_GET_SIZE(args) > 1)
            PyErr_Format(PyExc_TypeError, "Task() takes exactly 1 positional argument (%zd given)",
                         PyTuple_GET_SIZE(args) + (kwds ? PyDict_GET_SIZE(kwds) : 0));
        return -1;
    }
    /* The Future's own: which loop, and in debug mode the caller's stack. */
    PyObject *future_kwds = Py_BuildValue("{OO}", G.s_loop, loop);
    int r = future_kwds ? future_init_base(self, G.empty_tuple, future_kwds) : -1;
    Py_XDECREF(future_kwds);
    if (r < 0)
        return -1;
    GUARD_FUTURE(self);
    int good = is_coroutine(coro);
    if (good <= 0) {
        if (good == 0) {
            task->log_destroy_pending = 0;
            PyErr_Format(PyExc_TypeError, "a coroutine was expected, got %R", coro);
        }
        return -1;
    }
    if (task_fill(task, coro, name, context) < 0)
        return -1;
    gl_loop *native = gl_native_loop(task->loop);
    if (native != NULL)
        gl_trace_task(native, self, coro, task->name);
#if GL_EAGER_TASKS
    if (eager) {
        int is_running = native
                             ? native->thread_id != 0
                             : gl_take_bool(PyObject_CallMethodNoArgs(task->loop, G.s_is_running));
        if (is_running < 0)
            return -1;
        if (is_running)
            return task_start_eagerly(task);
    }
#endif
    if (step_soon(task) < 0)
        return -1;
    task_register(task);
    return 0;
}

/* ---- the type --------------------------------------------------------------------------------- */

static int
task_traverse(PyObject *self, visitproc visit, void *arg)
{
    gl_task *t = (gl_task *)self;
#define VISIT(field) Py_VISIT(t->field);
    GL_TASK_OBJECTS(VISIT)
#undef VISIT
    return future_traverse(self, visit, arg);
}

static int
task_clear(PyObject *self)
{
    gl_task *t = (gl_task *)self;
    task_unregister(t); /* garbage: all_tasks() must not bring it back half cleared */
    (void)future_clear(self);
#define CLEAR(field) Py_CLEAR(t->field);
    GL_TASK_OBJECTS(CLEAR)
#undef CLEAR
    return 0;
}

/* Before 3.14 the collector takes a task out of all_tasks(), which holds it weakly,
 * before it is reported; it stays out even if the report keeps it. */
static void
task_finalize(PyObject *self)
{
#if !GL_LAYOUT_AWAITED_BY
    task_unregister((gl_task *)self);
#endif
    if (((gl_task *)self)->loop != NULL) /* asyncio's does not look */
        G.asyncio.Task->tp_finalize(self);
}

static void
task_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_ClearWeakRefs(self);
    (void)task_clear(self); /* and what the report ran may have listed us again */
    type->tp_free(self);
    Py_DECREF(type);
}

static void
task_dealloc(PyObject *self) /* lint: allow dealloc-type: task_free() releases it */
{
    gl_task *t = (gl_task *)self;
    PyTypeObject *type = Py_TYPE(self);
    task_unregister(t);
    /* The finalizer reports tasks that end pending and exceptions never retrieved. */
    if (type == G.task_type && (t->log_tb || (t->state == GL_PENDING && t->log_destroy_pending)) &&
        PyObject_CallFinalizerFromDealloc(self) < 0)
        return; /* resurrected */
    PyObject_GC_UnTrack(self);
    task_unregister(t);
    gl_dealloc_nested(self, task_dealloc, task_free);
}

static PyMethodDef task_methods[] = {
    GL_CALLBACK_METHODS,
    {"cancel", GL_FASTKW(task_cancel),
     PyDoc_STR("cancel($self, /, msg=None)\n--\n\n"
               "Request that CancelledError is thrown into the coroutine.")},
    {"get_coro", task_get_coro, METH_NOARGS,
     PyDoc_STR("get_coro($self, /)\n--\n\nThe coroutine; None after an eager completion.")},
#if GL_TASK_HAS_GET_CONTEXT
    {"get_context", task_get_context, METH_NOARGS,
     PyDoc_STR("get_context($self, /)\n--\n\nThe context that the coroutine runs in.")},
#endif
    {NULL, NULL, 0, NULL},
};

static PyType_Slot task_slots[] = {
    {Py_tp_doc,
#if GL_EAGER_TASKS
     PyDoc_STR("Task(coro, *, loop=None, name=None, context=None, eager_start=False)\n--\n\n"
               "A coroutine that the loop runs; an asyncio.Task.")},
#else
     PyDoc_STR("Task(coro, *, loop=None, name=None, context=None)\n--\n\n"
               "A coroutine that the loop runs; an asyncio.Task.")},
#endif
    {Py_tp_init, task_init},
    {Py_tp_traverse, task_traverse},
    {Py_tp_clear, task_clear},
    {Py_tp_dealloc, task_dealloc},
    {Py_tp_finalize, task_finalize},
    {Py_tp_methods, task_methods},
    {Py_tp_getset, future_getset},
    {Py_tp_iter, future_iter_new},
    {Py_am_await, future_iter_new},
    {0, NULL},
};

GL_PRIVATE PyType_Spec task_spec = {
    .name = "goloop.Task",
    .basicsize = sizeof(gl_task),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = task_slots,
};
