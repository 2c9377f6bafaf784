/*
 * current_task_ft.c: asyncio.current_task() in CPython 3.13 without the GIL.
 *
 * There the running tasks of all loops are in one dict, _asyncio._current_tasks, and two threads
 * that write to it at each step wait for each other's lock.  So a loop keeps its running task for
 * itself (`current`), and puts it into the dict when somebody looks.  Whoever looks for a loop's
 * entry asks for the loop's hash first:
 *
 *     a step begins         current = task
 *     hash(loop)            dict[loop] = current, published = current
 *     the step ends         current = NULL; what was published leaves the dict
 *
 * While `current` is NULL the dict says what is true: tasks that are not ours, or whom somebody
 * has swapped, are there.
 *
 * Another thread may look too: it takes a reference to the task only if the task lives, and looks
 * once more whether it still runs after publishing it.  So the dict may name a task whose step has
 * ended, but only while `mutex` is held: whoever looks while no task runs waits for it.
 */
#include "tasks/private.h"

#if GL_LAZY_CURRENT

/* lint: allow mutable-static: one for each thread, which alone uses it */
static _Thread_local bool publishing;

/* With the mutex; lint: allow python-under-mutex: the loop's hash takes none while `publishing`.
 * Keeps an exception that is set. */
static void
set_entry(gl_loop *loop, PyObject *task)
{
    PyObject *exc = gl_take_exception();
    bool outer = publishing;
    publishing = true;
    int rc = task ? PyDict_SetItem(G.asyncio.current_tasks, (PyObject *)loop, task)
                  : PyDict_DelItem(G.asyncio.current_tasks, (PyObject *)loop);
    publishing = outer;
    if (rc < 0)
        PyErr_Clear(); /* somebody has removed it, or there is no memory: it is not seen */
    gl_restore_exception(exc);
    __atomic_store_n(&loop->current.published, rc == 0 ? task : NULL, __ATOMIC_SEQ_CST);
}

static void
take_back(gl_loop *loop)
{
    PyMutex_Lock(&loop->current.mutex);
    if (loop->current.published != NULL)
        set_entry(loop, NULL);
    PyMutex_Unlock(&loop->current.mutex);
}

static void
publish(gl_loop *loop, PyObject *task)
{
    PyObject *held = gl_try_newref(task);
    if (held == NULL)
        return;
    PyMutex_Lock(&loop->current.mutex);
    if (__atomic_load_n(&loop->current.task, __ATOMIC_SEQ_CST) == task) {
        set_entry(loop, task);
        if (__atomic_load_n(&loop->current.task, __ATOMIC_SEQ_CST) != task)
            set_entry(loop, NULL); /* its step has just ended */
    }
    PyMutex_Unlock(&loop->current.mutex);
    Py_DECREF(held);
}

/* A thread that publishes from here on finds that no task runs, and leaves the dict as it is. */
static void
wait_for_publishers(gl_loop *loop)
{
    PyMutex_Lock(&loop->current.mutex);
    PyMutex_Unlock(&loop->current.mutex);
}

GL_PRIVATE Py_hash_t
gl_loop_hash(PyObject *self)
{
    gl_loop *loop = (gl_loop *)self;
    PyObject *task = __atomic_load_n(&loop->current.task, __ATOMIC_RELAXED);
    if (publishing)
        return PyObject_GenericHash(self);
    if (task == NULL)
        wait_for_publishers(loop);
    else if (task != __atomic_load_n(&loop->current.published, __ATOMIC_RELAXED))
        publish(loop, task);
    return PyObject_GenericHash(self);
}

GL_PRIVATE void
current_set_lazily(gl_loop *loop, PyObject *task)
{
    __atomic_store_n(&loop->current.task, task, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&loop->current.published, __ATOMIC_SEQ_CST) != NULL)
        take_back(loop);
}

#endif
