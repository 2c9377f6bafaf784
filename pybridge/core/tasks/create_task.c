/*
 * create_task.c: loop.create_task and loop.create_future.
 *
 * The usual call, loop.create_task(coro, name=..., context=..., eager_start=...) on a loop
 * without a task factory and out of debug mode, fills the Task's fields here, since all
 * that Task.__init__ could ask is known.  Everything else takes a general path with the
 * same outcome: goloop.Task is called as a class (_create_task of loop.py), and what asyncio's create_task alone
 * knows (a task factory, wrong arguments) is left to it.
 */
#include "tasks/private.h"

/* The first step: now where the task begins eagerly and the loop runs, else by the ready queue. */
static int
create_begin(gl_loop *loop, gl_task *task, bool eager)
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

static PyObject *
create_fast(gl_loop *loop, PyObject *coro, PyObject *name, PyObject *context, bool eager)
{
    gl_task *task = (gl_task *)G.task_type->tp_alloc(G.task_type, 0);
    if (task == NULL)
        return NULL;
    __atomic_store_n(&task->loop, Py_NewRef((PyObject *)loop), __ATOMIC_RELEASE);
    int r = task_fill(task, coro, name, context);
    if (r == 0)
        gl_trace_task(loop, (PyObject *)task, coro, task->name);
    if (r < 0 || create_begin(loop, task, eager) < 0) {
        task->log_destroy_pending = 0;
        Py_DECREF(task);
        return NULL;
    }
    return (PyObject *)task;
}

GL_PRIVATE PyObject *
gl_loop_create_task(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *by_asyncio = G.s__create_by_asyncio;
    if (!gl_tasks_native() || (self->task_factory && self->task_factory != Py_None) || nargs != 1)
        return gl_call_python((PyObject *)self, by_asyncio, args, nargs, kwnames);
    if (gl_loop_check_usable(self) < 0)
        return NULL;
    PyObject *name = NULL, *context = NULL;
    bool plain = PyCoro_CheckExact(args[0]);
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
                return gl_call_python((PyObject *)self, by_asyncio, args, nargs, kwnames);
            if (key != G.s_eager_start)
                plain = false;
            else if ((eager = PyObject_IsTrue(args[1 + i])) < 0)
                return NULL;
        }
    }
    if (plain && gl_native_loop((PyObject *)self))
        return create_fast(self, args[0], name, context, eager);
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
    if (is_done)
        return is_done < 0 ? -1 : 0;
    if (G.future_type && Py_TYPE(fut) == G.future_type)
        return future_settle((gl_future *)fut, Py_None);
    return gl_call_method(fut, G.s_set_result, Py_None);
}

GL_PRIVATE PyObject *
gl_loop_create_future(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    return gl_new_future(self);
}
