/*
 * task.c: goloop.Task, a subclass of _asyncio.Task and goloop.Future whose steps are C
 * functions that work on the fields of the base class.
 *
 * States of a task:
 *
 *     created --> ready queue --> step --> waits for a future --> ready queue --> ...
 *                               |  \--> yields None -----------^
 *                               v
 *                  returned, raised, cancelled, or (SystemExit, KeyboardInterrupt)
 *                  raised, and the exception ends the run of the loop
 *
 * Functions of one step:
 *
 *     gl_task_run                an entry of the ready queue (queue/scheduling.c)
 *       wakeup_outcome           wakeup.c: the exception of the awaited future, or none
 *       step_as_current          sets asyncio.current_task() (current_task.c)
 *         step_coroutine         sends None to the coroutine or throws into it
 *           task_wait            it yielded: wait_exact | wait_general | schedule_step
 *           finish_with_result   it returned
 *           finish_with_exception  it raised
 *       report_step_error        the step itself failed: Loop._step_failed()
 *
 *     task_step                  a step by asyncio's callables: wakeup_call, core_step
 *     task_start_eagerly         the first step, inside of create_task() or Task()
 *
 * The ready queue contains the Task itself, so that a step needs neither a Handle nor a
 * callable nor a tuple of arguments.  The task tells the kind of its entry: with a
 * `fut_waiter` the entry is a wakeup, without one a plain step.
 *
 * cancel(), by state: a waiting task cancels the future that it awaits; a task in the ready
 * queue or in its step sets `must_cancel`, and its next step throws CancelledError.
 *
 * Rules for memory: the caller of each function here owns a reference to the task.  The
 * functions own references to the coroutine, the exception and the future while foreign code
 * can run, and read the fields again afterwards.
 */
#include "tasks/private.h"

/* ---- the step --------------------------------------------------------------------------- */

/* Clears a StopIteration that is set, and stores its value (owned); false: another exception. */
static inline bool
take_stop_iteration_value(PyObject **result)
{
    if (!PyErr_ExceptionMatches(PyExc_StopIteration))
        return false;
    PyObject *exc = gl_take_exception();
    *result = Py_NewRef(((PyStopIterationObject *)exc)->value);
    Py_DECREF(exc);
    return true;
}

/* Sets the result of a task whose coroutine returned `value` (stolen), or cancels the task if
 * cancel() was called in its last step. */
static int
finish_with_result(gl_task *task, PyObject *value)
{
    int r;
    if (task->must_cancel) {
        /* cancel() was called in the last step. */
        task->must_cancel = 0;
        PyObject *msg = Py_XNewRef(task->cancel_msg);
        r = future_set_cancelled((gl_future *)task, msg);
        Py_XDECREF(msg);
        if (r > 0)
            r = 0;
    } else {
        r = future_finish((gl_future *)task, value);
    }
    Py_DECREF(value);
    return r;
}

/* Finishes the task of a coroutine that raised the current exception.  Returns -1, with the
 * exception set, for SystemExit and KeyboardInterrupt. */
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

/* Runs the coroutine to its next yield, return or exception.  `exc`, if not NULL, is thrown into
 * the coroutine; a pending cancel() replaces it by a CancelledError. */
static inline int
step_coroutine(gl_task *task, PyObject *exc)
{
    if (task->state != GL_PENDING) {
        PyErr_Format(G.asyncio_InvalidStateError, ALREADY_DONE, task, exc ? exc : Py_None);
        return -1;
    }
    PyObject *thrown = NULL; /* the CancelledError of this step, owned */
    if (task->must_cancel) {
        if (exc == NULL || !PyErr_GivenExceptionMatches(exc, G.asyncio_CancelledError)) {
            thrown = future_cancelled_error((gl_future *)task);
            if (thrown == NULL)
                return -1;
            exc = thrown;
        }
        task->must_cancel = 0;
    }
    Py_CLEAR(task->fut_waiter);
    if (task->coro == NULL) {
        Py_XDECREF(thrown);
        return raise_uninitialized();
    }
    PyObject *coro = Py_NewRef(task->coro);
    PyObject *result = NULL;
    PySendResult outcome;
    if (exc == NULL) {
        outcome = PyIter_Send(coro, Py_None, &result);
    } else {
        result = PyObject_CallMethodOneArg(coro, G.s_throw, exc);
        Py_XDECREF(thrown);
        if (result != NULL)
            outcome = PYGEN_NEXT;
        else
            outcome = take_stop_iteration_value(&result) ? PYGEN_RETURN : PYGEN_ERROR;
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

/* Runs one step while asyncio.current_task() is the task.  `queued`: see current_task_enter(). */
static inline int
step_as_current(gl_task *task, PyObject *loop, PyObject *exc, bool queued)
{
    char *ts = (char *)PyThreadState_Get(); /* a step stays on its thread */
    if (current_task_enter(ts, loop, (PyObject *)task, queued) < 0)
        return -1;
    if (step_coroutine(task, exc) == 0)
        return current_task_leave(ts, loop, (PyObject *)task, queued);
    /* An error of current_task_leave() gets the step's exception as its __context__. */
    PyObject *raised = gl_take_exception();
    (void)current_task_leave(ts, loop, (PyObject *)task, queued);
    gl_restore_exception(raised);
    return -1;
}

/* Runs one step as the current task; `exc`, if not NULL, is thrown into the coroutine. */
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

/* ---- entries of the ready queue -------------------------------------------------------------- */

/* Reports the current exception as asyncio reports an exception of the step's Handle.  Clears
 * the exception, unless it is SystemExit or KeyboardInterrupt (-1). */
static int
report_step_error(gl_loop *loop, gl_task *task, PyObject *waited_for)
{
    if (gl_is_exit_exception())
        return -1;
    PyObject *exc = gl_take_exception();
    PyObject *wakeup = waited_for ? wakeup_callable(task) : Py_NewRef(Py_None);
    if (wakeup == NULL) {
        Py_XDECREF(exc);
        return -1;
    }
    PyObject *awaited = waited_for ? waited_for : Py_None;
    PyObject *context = task->context ? task->context : Py_None;
    int r = gl_drop_result(PyObject_CallMethod((PyObject *)loop, GL_METHOD(_step_failed), "OOOOO",
                                               task, wakeup, awaited, exc, context));
    Py_DECREF(wakeup);
    Py_XDECREF(exc);
    return r;
}

/* Runs a step of a task of the ready queue in its context, and reports an exception of the step
 * itself.  Steals the task.  -1 if the exception ends the run. */
GL_PRIVATE_INLINE int
gl_task_run(gl_loop *loop, gl_task *task)
{
    PyObject *context = task->context;
    PyObject *fut = Py_XNewRef(task->fut_waiter);
    int r = -1;
    if (context == NULL) {
        raise_uninitialized();
    } else {
        Py_INCREF(context);
        if (PyContext_Enter(context) == 0) {
            PyObject *exc = NULL;
            if (fut == NULL || wakeup_outcome(task, fut, &exc) >= 0)
                r = step_as_current(task, (PyObject *)loop, exc, true);
            Py_XDECREF(exc);
            if (r == 0)
                gl_context_exit(context);
            else
                gl_context_exit_keep_error(context);
        }
        Py_DECREF(context);
    }
    if (r < 0)
        r = report_step_error(loop, task, fut);
    Py_XDECREF(fut);
    Py_DECREF(task);
    return r;
}

/* ---- cancel -------------------------------------------------------------------------------- */

/* Cancels a pending task: its awaited future, or by a CancelledError in its next step.  Returns 1:
 * requested, 0: the task was done, -1: error. */
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

/* Cancels the awaited future, of any class.  Returns 1: cancelled, 0: it was done, -1: error. */
GL_PRIVATE int
cancel_awaited(PyObject *fut, PyObject *msg)
{
    if (Py_TYPE(fut) == G.future_type)
        return future_set_cancelled((gl_future *)fut, msg);
    int cancelled = -1;
    if (gl_is_task(fut)) {
        /* A recursion check, since tasks can wait for each other in a circle. */
        if (Py_EnterRecursiveCall(" while calling a Python object") == 0) {
            cancelled = task_request_cancel((gl_task *)fut, msg);
            Py_LeaveRecursiveCall();
        }
        return cancelled;
    }
    return gl_take_bool(PyObject_CallMethodOneArg(fut, G.s_cancel, msg));
}

/* Task.cancel(msg=None): True if the task was pending. */
static PyObject *
task_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    /* asyncio's method works on the same fields and raises the error for wrong arguments. */
    if (nargs > 1 || kwnames != NULL)
        return call_unbound(G.asyncio.Task_cancel, self, args, nargs, kwnames);
    int r = task_request_cancel((gl_task *)self, nargs ? args[0] : Py_None);
    return gl_bool_or_null(r);
}

/* get_coro() and get_context() replace asyncio's methods, which return NULL in some releases of
 * CPython: a task that ended in its eager start has no coroutine, and a task that was never
 * initialised has no context. */
static PyObject *
task_get_coro(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *coro = ((gl_task *)self)->coro;
    return gl_ref_or_none(coro);
}

#if GL_TASK_HAS_GET_CONTEXT
/* Task.get_context(); see task_get_coro(). */
static PyObject *
task_get_context(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *context = ((gl_task *)self)->context;
    return gl_ref_or_none(context);
}
#endif

/* ---- construction ---------------------------------------------------------------------------- */

/* Increments the counter of default names and returns the number, such as 7 for Task-7. */
static inline unsigned long long
next_name_number(void)
{
#ifdef GL_FREE_THREADED
    return __atomic_add_fetch(G.task_names, 1, __ATOMIC_RELAXED);
#else
    return ++*G.task_names;
#endif
}

/* Returns the value of the name field, new, for the argument `name` (None or NULL: a default
 * name). */
static PyObject *
name_object(PyObject *name)
{
    if (name == NULL || name == Py_None) {
#if GL_TASK_HAS_LAZY_NAME
        return PyLong_FromUnsignedLongLong(next_name_number()); /* get_name() formats it */
#else
        return PyUnicode_FromFormat("Task-%llu", next_name_number());
#endif
    }
    if (PyUnicode_CheckExact(name))
        return Py_NewRef(name);
    return PyObject_Str(name);
}

/* Returns 1 or 0 as asyncio.iscoroutine(coro), or -1.  Does not call it for an exact coroutine. */
static int
is_coroutine(PyObject *coro)
{
    if (PyCoro_CheckExact(coro))
        return 1;
    return gl_take_bool(PyObject_CallOneArg(G.asyncio.iscoroutine, coro));
}

/* Fills in a task whose Future part is initialised.  `coro` is a coroutine; `name` and `context`
 * may be NULL or None: a default name, a copy of the current context. */
GL_PRIVATE int
task_init_fields(gl_task *task, PyObject *coro, PyObject *name, PyObject *context)
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
    PyObject *own_context;
    if (context == NULL || context == Py_None)
        own_context = PyContext_CopyCurrent();
    else
        own_context = Py_NewRef(context);
    if (own_context == NULL)
        return -1;
    Py_XSETREF(task->context, own_context);
    Py_CLEAR(task->fut_waiter);
    task->must_cancel = 0;
    task->log_destroy_pending = 1;
    task->num_cancels = 0;
    Py_XSETREF(task->coro, Py_NewRef(coro));
    PyObject *own_name = name_object(name);
    if (own_name == NULL)
        return -1;
    Py_XSETREF(task->name, own_name);
    return 0;
}

#if GL_EAGER_TASKS

/* Runs the first step inside of the running task or callback, and registers the task unless it
 * ends.  -1 with the exception of the step itself, SystemExit or KeyboardInterrupt. */
GL_PRIVATE int
task_start_eagerly(gl_task *task)
{
    PyObject *loop = Py_NewRef(task->loop);
    PyObject *context = Py_NewRef(task->context);
    int r = -1;
    PyObject *before = current_task_swap(loop, (PyObject *)task);
    if (before == NULL)
        goto done;
    task_register(task);
    if (PyContext_Enter(context) == 0) {
        r = step_coroutine(task, NULL);
        gl_context_exit_keep_error(context);
    }
    PyObject *exc = r < 0 ? gl_take_exception() : NULL;
    PyObject *current = current_task_swap(loop, before);
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
        task->log_destroy_pending = 0; /* the caller gets the exception instead */
    Py_DECREF(context);
    Py_DECREF(loop);
    return r;
}

#endif

/* Replaces the error of PyArg_ParseTupleAndKeywords, which would say "at most 1", by Argument
 * Clinic's wording if there are too many positional arguments. */
static void
task_init_word_error(PyObject *args, PyObject *kwds)
{
    Py_ssize_t given = PyTuple_GET_SIZE(args);
    if (given <= 1)
        return;
    if (kwds != NULL)
        given += PyDict_GET_SIZE(kwds);
    PyErr_Format(PyExc_TypeError, "Task() takes exactly 1 positional argument (%zd given)", given);
}

/* Task.__init__(): registers the task and schedules its first step, or runs it (eager_start). */
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
    PyObject *coro;
    PyObject *loop = Py_None;
    PyObject *name = Py_None;
    PyObject *context = Py_None;
    int eager = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwds, format, names, &coro, &loop, &name, &context,
                                     &eager)) {
        task_init_word_error(args, kwds);
        return -1;
    }
    /* Future.__init__() sets the loop, and in debug mode the caller's stack. */
    PyObject *future_kwds = Py_BuildValue("{OO}", G.s_loop, loop);
    int r = future_kwds ? future_init_base(self, G.empty_tuple, future_kwds) : -1;
    Py_XDECREF(future_kwds);
    if (r < 0)
        return -1;
    GUARD_FUTURE(self);
    int valid = is_coroutine(coro);
    if (valid <= 0) {
        if (valid == 0) {
            task->log_destroy_pending = 0;
            PyErr_Format(PyExc_TypeError, "a coroutine was expected, got %R", coro);
        }
        return -1;
    }
    if (task_init_fields(task, coro, name, context) < 0)
        return -1;
    gl_loop *native = gl_native_loop(task->loop);
    if (native != NULL)
        gl_trace_task(native, self, coro, task->name);
#if GL_EAGER_TASKS
    if (eager) {
        int is_running;
        if (native != NULL)
            is_running = native->thread_id != 0;
        else
            is_running = gl_take_bool(PyObject_CallMethodNoArgs(task->loop, G.s_is_running));
        if (is_running < 0)
            return -1;
        if (is_running)
            return task_start_eagerly(task);
    }
#endif
    if (schedule_step(task) < 0)
        return -1;
    task_register(task);
    return 0;
}

/* ---- the type ------------------------------------------------------------------------------- */

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
    task_unregister(t); /* all_tasks() must not return a half cleared task */
    (void)future_clear(self);
#define CLEAR(field) Py_CLEAR(t->field);
    GL_TASK_OBJECTS(CLEAR)
#undef CLEAR
    return 0;
}

/* Reports a pending task or an exception that was never retrieved, by asyncio's finalizer.  Before
 * 3.14 the collector has cleared the weak reference in all_tasks() by then, so that a report that
 * stores the task does not list it again. */
static void
task_finalize(PyObject *self)
{
#if !GL_LAYOUT_AWAITED_BY
    task_unregister((gl_task *)self);
#endif
    if (((gl_task *)self)->loop != NULL) /* asyncio's finalizer does not check this */
        G.asyncio.Task->tp_finalize(self);
}

/* Frees a task without the trashcan; for gl_dealloc_nested(). */
static void
task_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_ClearWeakRefs(self);
    (void)task_clear(self); /* unregisters too: the finalizer may have registered the task again */
    type->tp_free(self);
    Py_DECREF(type);
}

static void
task_dealloc(PyObject *self) /* lint: allow dealloc-type: task_free() releases it */
{
    gl_task *t = (gl_task *)self;
    PyTypeObject *type = Py_TYPE(self);
    task_unregister(t);
    /* The finalizer reports pending tasks and exceptions that were never retrieved. */
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
     PyDoc_STR("get_coro($self, /)\n--\n\nReturn the coroutine; None after an eager completion.")},
#if GL_TASK_HAS_GET_CONTEXT
    {"get_context", task_get_context, METH_NOARGS,
     PyDoc_STR("get_context($self, /)\n--\n\nReturn the context that the coroutine runs in.")},
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
