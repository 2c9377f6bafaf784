/*
 * current_task.c: sets the result of asyncio.current_task() for the time of a Task's step.
 *
 * CPython 3.14 stores the running task in the thread state, after its public part, at an offset
 * that the probe has found.  Before 3.14 it is in the dict _asyncio._current_tasks, loop -> task.
 *
 *     step_as_current (task_step.c)
 *       current_task_enter    RuntimeError if another task runs
 *       current_task_leave    RuntimeError if another task was entered meanwhile
 *
 *     states of the dict's entry:   none --enter--> task --leave, queued--> None (stale)
 *                                                    |                        |
 *                                                 leave, not queued        next enter, or
 *                                                    v                     clear
 *                                                   none
 *
 * Removing the entry after each step and inserting it again would be slow.  Therefore, after the
 * step of a task from the ready queue, the entry stays with the value None, which means no task,
 * and the loop's flag `current_task_stale` is set.  The next task replaces the value.
 * gl_clear_stale_current_task() removes the entry before other code runs that may enter a task
 * itself: before an entry of another kind, and at the end of the batch.
 */
#include "tasks/private.h"

#if GL_LAYOUT_AWAITED_BY

/* 1 if the end of a queued task's step leaves the value None in the dict. */
#define LEAVES_STALE_ENTRY 0
#define LEAVE_ERROR "Invalid attempt to leave task %R while task %R is entered."

/* Stores the loop's running task in *task, borrowed, or NULL.  -1 with RuntimeError if another loop
 * runs in the thread.  `ts` is the thread state, as in all functions here. */
static inline int
current_task_get(char *ts, PyObject *loop, PyObject **task)
{
    if (*(PyObject **)(ts + G.asyncio.ts_loop) != loop) {
        PyErr_Format(PyExc_RuntimeError, "loop %R is not the running loop", loop);
        return -1;
    }
    *task = *(PyObject **)(ts + G.asyncio.ts_task);
    return 0;
}

/* Stores the running task, with a new reference; NULL: no task runs.  Returns 0. */
static inline int
current_task_set(char *ts, PyObject *Py_UNUSED(loop), PyObject *task)
{
    PyObject **current = (PyObject **)(ts + G.asyncio.ts_task);
    PyObject *before = *current;
    *current = Py_XNewRef(task);
    Py_XDECREF(before);
    return 0;
}

GL_PRIVATE_INLINE void
gl_clear_stale_current_task(gl_loop *Py_UNUSED(loop))
{
    /* No entry stays after a step. */
}

#else

/* 1 if the end of a queued task's step leaves the value None in the dict. */
#define LEAVES_STALE_ENTRY !GL_CURRENT_TASK_IN_LOOP
#define LEAVE_ERROR "Leaving task %R does not match the current task %R."

#if GL_CURRENT_TASK_IN_LOOP
/* Stores the loop's running task in *task, borrowed, or NULL: the task of the loop's field, or else
 * of asyncio's dict.  This thread has entered the task and keeps it alive. */
static inline int
current_task_get(char *Py_UNUSED(ts), PyObject *loop, PyObject **task)
{
    gl_loop *own = gl_as_loop(loop);
    *task = own ? own->current.task : NULL;
    if (*task != NULL)
        return 0;
    PyObject *entry;
    int rc = PyDict_GetItemRef(G.asyncio.current_tasks, loop, &entry);
    *task = entry;
    Py_XDECREF(entry);
    if (rc < 0) /* lint: allow borrowed-across-call: a number */
        return -1;
    return 0;
}
#else
/* Stores the loop's entry of asyncio's dict in *task, borrowed: the running task, None for a stale
 * entry, or NULL. */
static inline int
current_task_get(char *Py_UNUSED(ts), PyObject *loop, PyObject **task)
{
    *task = PyDict_GetItemWithError(G.asyncio.current_tasks, loop);
    if (*task == NULL && PyErr_Occurred())
        return -1;
    return 0;
}
#endif

/* Stores the task in the loop's entry of asyncio's dict; NULL removes the entry.  -1 with KeyError
 * if there is none to remove. */
static inline int
current_task_set(char *Py_UNUSED(ts), PyObject *loop, PyObject *task)
{
    if (task != NULL)
        return PyDict_SetItem(G.asyncio.current_tasks, loop, task);
    return PyDict_DelItem(G.asyncio.current_tasks, loop);
}

GL_PRIVATE void
gl_clear_stale_current_task(gl_loop *loop)
{
    if (GL_CURRENT_TASK_IN_LOOP)
        return;
    PyObject *exc = gl_take_exception();
    loop->current_task_stale = 0;
    if (current_task_set(NULL, (PyObject *)loop, NULL) < 0)
        PyErr_Clear(); /* a program has removed the entry */
    gl_restore_exception(exc);
}

#endif

/* Sets RuntimeError with `format` and the reprs of both tasks; returns -1. */
static int
raise_other_task(const char *format, PyObject *task, PyObject *other)
{
    Py_INCREF(other);
    PyErr_Format(PyExc_RuntimeError, format, task, other);
    Py_DECREF(other);
    return -1;
}

GL_PRIVATE_INLINE int
current_task_enter(char *ts, PyObject *loop, PyObject *task, bool queued)
{
#if GL_CURRENT_TASK_IN_LOOP
    gl_loop *own = gl_as_loop(loop);
    if (queued && own != NULL && own->current.task == NULL) {
        loop_set_current_task(own, task);
        return 0;
    }
#endif
    if (LEAVES_STALE_ENTRY && queued && ((gl_loop *)loop)->current_task_stale) {
        ((gl_loop *)loop)->current_task_stale = 0;
        return current_task_set(ts, loop, task);
    }
    PyObject *other;
    if (current_task_get(ts, loop, &other) < 0)
        return -1;
    if (other != NULL)
        return raise_other_task(
            "Cannot enter into task %R while another task %R is being executed.", task, other);
#if GL_CURRENT_TASK_IN_LOOP
    if (own != NULL) {
        loop_set_current_task(own, task);
        return 0;
    }
#endif
    return current_task_set(ts, loop, task);
}

GL_PRIVATE_INLINE int
current_task_leave(char *ts, PyObject *loop, PyObject *task, bool queued)
{
#if GL_CURRENT_TASK_IN_LOOP
    gl_loop *own = gl_as_loop(loop);
    if (own != NULL && own->current.task == task) {
        loop_set_current_task(own, NULL);
        return 0;
    }
#endif
    PyObject *other;
    if (current_task_get(ts, loop, &other) < 0)
        return -1;
    if (other != task)
        return raise_other_task(LEAVE_ERROR, task, other ? other : Py_None);
    if (LEAVES_STALE_ENTRY && queued) {
        ((gl_loop *)loop)->current_task_stale = 1;
        return current_task_set(ts, loop, Py_None);
    }
    return current_task_set(ts, loop, NULL);
}

#if GL_EAGER_TASKS
GL_PRIVATE PyObject *
current_task_swap(PyObject *loop, PyObject *task)
{
    char *ts = (char *)PyThreadState_Get();
    PyObject *before;
    if (current_task_get(ts, loop, &before) < 0)
        return NULL;
    before = gl_ref_or_none(before);
#if GL_CURRENT_TASK_IN_LOOP
    gl_loop *own = gl_as_loop(loop);
    if (own != NULL && task != before)
        loop_set_current_task(own, NULL); /* from here on the dict has the running task */
#endif
    if (task != before && current_task_set(ts, loop, task == Py_None ? NULL : task) < 0)
        Py_CLEAR(before);
    return before;
}
#endif
