/*
 * create_task.c: loop.create_task and loop.create_future.
 *
 *     gl_loop_create_task           parses the arguments and chooses the path
 *       create_native_task          fills the Task's fields without a call of Task.__init__()
 *         start_task                queues the first step, or runs it (eager start)
 *       Loop._create_task()         calls the class goloop.Task: debug mode, other awaitables
 *       Loop._create_by_asyncio()   asyncio's method: a task factory, wrong arguments, or a program
 *                                   that has replaced this method, as tracers do
 *
 * The three paths have the same outcome.  The first one serves the usual call:
 * loop.create_task(coro, name=..., context=..., eager_start=...) with a coroutine, on a loop
 * without a task factory and without debug mode.
 */
#include "tasks/private.h"

/* Starts a new task: runs its first step now if `eager` and the loop runs, or else appends the task
 * to the ready queue.  Registers the task unless its first step has ended it. */
static int
start_task(gl_loop *loop, gl_task *task, bool eager)
{
#if GL_EAGER_TASKS
    if (eager && loop->thread_id != 0)
        return task_start_eagerly(task);
#else
    (void)eager;
#endif
    if (gl_push_task(loop, (PyObject *)task) < 0)
        return -1;
    task_register(task);
    return 0;
}

/* Creates a Task without a call of Task.__init__() and starts it; the loop is native and `coro` a
 * coroutine.  On failure the dropped task logs no warning. */
static PyObject *
create_native_task(gl_loop *loop, PyObject *coro, PyObject *name, PyObject *context, bool eager)
{
    gl_task *task = (gl_task *)G.task_type->tp_alloc(G.task_type, 0);
    if (task == NULL)
        return NULL;
    __atomic_store_n(&task->loop, Py_NewRef((PyObject *)loop), __ATOMIC_RELEASE);
    int r = task_init_fields(task, coro, name, context);
    if (r == 0)
        gl_trace_task(loop, (PyObject *)task, coro, task->name);
    if (r < 0 || start_task(loop, task, eager) < 0) {
        task->log_destroy_pending = 0;
        Py_DECREF(task);
        return NULL;
    }
    return (PyObject *)task;
}

GL_PRIVATE PyObject *
gl_loop_create_task(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *asyncio_method = G.s__create_by_asyncio;
    if (gl_asyncio_create_task_replaced() || !gl_tasks_native() || nargs != 1 ||
        (self->task_factory && self->task_factory != Py_None))
        return gl_call_python((PyObject *)self, asyncio_method, args, nargs, kwnames);
    if (gl_loop_check_usable(self) < 0)
        return NULL;
    PyObject *name = NULL;
    PyObject *context = NULL;
    bool plain = PyCoro_CheckExact(args[0]); /* C can create the task */
    int eager = 0;
    for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, i);
        if (key == G.s_name) {
            name = args[1 + i];
        } else if (key == G.s_context) {
            context = args[1 + i];
        } else {
            int known = PySet_Contains(G.asyncio.create_task_names, key);
            if (known < 0)
                return NULL;
            if (!known)
                return gl_call_python((PyObject *)self, asyncio_method, args, nargs, kwnames);
            if (key != G.s_eager_start) {
                plain = false;
                continue;
            }
            eager = PyObject_IsTrue(args[1 + i]);
            if (eager < 0)
                return NULL;
        }
    }
    if (plain && gl_loop_if_native((PyObject *)self))
        return create_native_task(self, args[0], name, context, eager);
    return gl_call_python((PyObject *)self, G.s__create_task, args, 1, kwnames);
}

/* ---- futures -------------------------------------------------------------------- */

GL_PRIVATE PyObject *
gl_new_future(gl_loop *loop)
{
    if (G.future_type && !loop->debug) {
        gl_future *f = (gl_future *)G.future_type->tp_alloc(G.future_type, 0);
        if (f != NULL)
            __atomic_store_n(&f->loop, Py_NewRef((PyObject *)loop), __ATOMIC_RELEASE);
        return (PyObject *)f;
    }
    PyObject *type = G.future_type ? (PyObject *)G.future_type : G.asyncio_Future;
    PyObject *args[2] = {NULL, (PyObject *)loop};
    return PyObject_Vectorcall(type, args + 1, PY_VECTORCALL_ARGUMENTS_OFFSET, G.kw_loop);
}

GL_PRIVATE int
gl_future_is_done(PyObject *fut)
{
    if (G.future_type && Py_TYPE(fut) == G.future_type)
        return ((gl_future *)fut)->state != GL_PENDING;
    return gl_take_bool(PyObject_CallMethodNoArgs(fut, G.s_done));
}

GL_PRIVATE int
gl_future_set_none(PyObject *fut)
{
    int is_done = gl_future_is_done(fut);
    if (is_done < 0)
        return -1;
    if (is_done)
        return 0;
    if (G.future_type && Py_TYPE(fut) == G.future_type)
        return future_finish((gl_future *)fut, Py_None);
    return gl_call_method(fut, G.s_set_result, Py_None);
}

GL_PRIVATE PyObject *
gl_loop_create_future(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    return gl_new_future(self);
}
