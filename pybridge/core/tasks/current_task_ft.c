/*
 * current_task_ft.c: asyncio.current_task() in CPython 3.13 without the GIL.
 *
 * There the running tasks of all loops are in one dict, _asyncio._current_tasks, and two threads
 * that write to the dict at each step would wait for each other's lock.  So a loop stores its
 * running task in a field of its own (`current.task`), and publishes the task in the dict on
 * request.  A lookup of the loop in the dict computes the loop's hash first, and this is the
 * request:
 *
 *     a step begins         current.task = task
 *     hash(loop)            dict[loop] = task, current.published = task
 *     the step ends         current.task = NULL; a published task is removed from the dict
 *
 * While `current.task` is NULL the dict is correct: it contains tasks of other classes, and tasks
 * that a program has swapped in.
 *
 * Another thread can look up the loop too.  It takes a reference to the task only if the task is
 * alive, and checks after the publication that the task still runs.  So the dict can contain a task
 * whose step has ended, but only while a thread has `mutex` locked: a lookup that finds no running
 * task waits for the mutex.
 *
 * Memory order: the stores and loads of `current.task` and `current.published` are sequentially
 * consistent, so that either the loop's thread sees the publication or the publishing thread sees
 * the end of the step.
 */
#include "tasks/private.h"

#if GL_CURRENT_TASK_IN_LOOP

/* True while this thread changes the dict, so that gl_loop_hash() must not store_in_current_tasks.
 * lint: allow mutable-static: each thread uses its own */
static _Thread_local bool publishing;

/* Stores the task in the loop's entry of the dict (NULL: removes the entry) and in
 * current.published; if the dict can't be changed, current.published is NULL.  Keeps the current
 * exception.  The caller has the mutex; lint: allow python-under-mutex: the loop's hash takes no
 * mutex while `publishing` */
static void
set_dict_entry(gl_loop *loop, PyObject *task)
{
    PyObject *exc = gl_take_exception();
    bool outer = publishing;
    publishing = true;
    int rc;
    if (task != NULL)
        rc = PyDict_SetItem(G.asyncio.current_tasks, (PyObject *)loop, task);
    else
        rc = PyDict_DelItem(G.asyncio.current_tasks, (PyObject *)loop);
    publishing = outer;
    if (rc < 0)
        PyErr_Clear(); /* a program removed the entry, or memory has run out */
    gl_restore_exception(exc);
    __atomic_store_n(&loop->current.published, rc == 0 ? task : NULL, __ATOMIC_SEQ_CST);
}

/* Removes a published task from the dict at the end of its step; locks the mutex meanwhile.  Does
 * nothing if no task is published now. */
static void
unpublish_running_task(gl_loop *loop)
{
    PyMutex_Lock(&loop->current.mutex);
    if (loop->current.published != NULL)
        set_dict_entry(loop, NULL);
    PyMutex_Unlock(&loop->current.mutex);
}

/* Stores the running task in the dict, unless its step ends meanwhile.  Called by any thread;
 * `task` is borrowed.  Does nothing for a task that is being freed.  Locks the mutex meanwhile. */
static void
store_in_current_tasks(gl_loop *loop, PyObject *task)
{
    PyObject *reference = gl_try_newref(task);
    if (reference == NULL)
        return;
    PyMutex_Lock(&loop->current.mutex);
    if (__atomic_load_n(&loop->current.task, __ATOMIC_SEQ_CST) == task) {
        set_dict_entry(loop, task);
        if (__atomic_load_n(&loop->current.task, __ATOMIC_SEQ_CST) != task)
            set_dict_entry(loop, NULL); /* the step has just ended */
    }
    PyMutex_Unlock(&loop->current.mutex);
    Py_DECREF(reference);
}

/* Waits until no thread publishes a task of the loop.  A thread that starts later finds that no
 * task runs and does not change the dict. */
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
        store_in_current_tasks(loop, task);
    return PyObject_GenericHash(self);
}

GL_PRIVATE void
loop_set_current_task(gl_loop *loop, PyObject *task)
{
    __atomic_store_n(&loop->current.task, task, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&loop->current.published, __ATOMIC_SEQ_CST) != NULL)
        unpublish_running_task(loop);
}

#endif
