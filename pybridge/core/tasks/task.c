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
 * The steps are in task_step.c, cancel() is in task_cancel.c.
 *
 * Rules for memory: the caller of each function here owns a reference to the task.  The
 * functions own references to the coroutine, the exception and the future while foreign code
 * can run, and read the fields again afterwards.
 */
#include "tasks/private.h"

/* ---- methods -------------------------------------------------------------------------------- */

/* Task.get_coro(): the coroutine, or None.  get_coro() and get_context() replace asyncio's methods,
 * which return NULL in some releases of CPython: a task that ended in its eager start has no
 * coroutine, and a task that was never initialised has no context. */
static PyObject *
task_get_coro(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *coro = ((gl_task *)self)->coro;
    return gl_ref_or_none(coro);
}

#if GL_TASK_HAS_GET_CONTEXT
/* Task.get_context(): the context in which the coroutine runs, or None; see task_get_coro(). */
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
take_name_number(void)
{
#ifdef GL_FREE_THREADED
    return __atomic_add_fetch(G.task_names, 1, __ATOMIC_RELAXED);
#else
    return ++*G.task_names;
#endif
}

/* Returns the value of the name field, a new reference, for the argument `name` (None or NULL: a
 * default name, which increments the counter). */
static PyObject *
make_name(PyObject *name)
{
    if (name == NULL || name == Py_None) {
#if GL_TASK_HAS_LAZY_NAME
        return PyLong_FromUnsignedLongLong(take_name_number()); /* get_name() formats it */
#else
        return PyUnicode_FromFormat("Task-%llu", take_name_number());
#endif
    }
    if (PyUnicode_CheckExact(name))
        return Py_NewRef(name);
    return PyObject_Str(name);
}

/* Returns 1 or 0 as asyncio.iscoroutine(coro).  Does not call it for an exact coroutine. */
static int
is_coroutine(PyObject *coro)
{
    if (PyCoro_CheckExact(coro))
        return 1;
    return gl_take_bool(PyObject_CallOneArg(G.asyncio.iscoroutine, coro));
}

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
    PyObject *own_name = make_name(name);
    if (own_name == NULL)
        return -1;
    Py_XSETREF(task->name, own_name);
    return 0;
}

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

/* Task.__init__(): registers the task and schedules its first step, or runs that step (eager_start,
 * if the loop runs).  -1 with TypeError if `coro` is not a coroutine. */
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
    gl_loop *native = gl_loop_if_native(task->loop);
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

/* tp_traverse: visits the objects of the Task and the Future part. */
static int
task_traverse(PyObject *self, visitproc visit, void *arg)
{
    gl_task *t = (gl_task *)self;
#define VISIT(field) Py_VISIT(t->field);
    GL_TASK_OBJECTS(VISIT)
#undef VISIT
    return future_traverse(self, visit, arg);
}

/* tp_clear: unregisters the task, and clears the Future part and the objects of the Task. */
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

/* tp_finalize: reports a pending task or an exception that was never retrieved, by asyncio's
 * finalizer.  Before 3.14 it unregisters the task first: the collector has cleared asyncio's weak
 * reference by then too, so a report that stores the task does not list it again. */
static void
task_finalize(PyObject *self)
{
#if !GL_LAYOUT_AWAITED_BY
    task_unregister((gl_task *)self);
#endif
    if (((gl_task *)self)->loop != NULL) /* asyncio's finalizer does not check this */
        G.asyncio.Task->tp_finalize(self);
}

/* Clears and frees a task, without the trashcan; for gl_dealloc_nested(). */
static void
task_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_ClearWeakRefs(self);
    (void)task_clear(self); /* unregisters too: the finalizer may have registered the task again */
    type->tp_free(self);
    Py_DECREF(type);
}

/* tp_dealloc: unregisters the task.  Calls the finalizer only if it has something to report; it may
 * resurrect the task. */
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
