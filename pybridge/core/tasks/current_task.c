/*
 * current_task.c: what asyncio.current_task() answers while a Task runs.
 *
 * CPython 3.14 keeps the running task in the thread state, behind the part of it
 * that is public; the probe has found the offsets.  Before, it is the dict
 * _asyncio._current_tasks, loop -> task.
 *
 * A dict entry need not come and go with each step.  After a task out of the ring the
 * entry stays with None as its value (the loop's `lingering` flag), which reads as no
 * task, and the next task replaces it.  gl_current_flush() removes it before anything
 * runs that could enter a task by itself: another kind of entry, the end of the batch.
 */
#include "tasks/private.h"

static int
already_entered(PyObject *task, PyObject *other)
{
    Py_INCREF(other);
    PyErr_Format(PyExc_RuntimeError,
                 "Cannot enter into task %R while another task %R is being executed.", task,
                 other);
    Py_DECREF(other);
    return -1;
}

#if GL_LAYOUT_AWAITED_BY

static inline PyObject **
ts_slot(Py_ssize_t offset)
{
    return (PyObject **)((char *)PyThreadState_Get() + offset);
}

static inline int
enter_in(char *ts, PyObject *loop, PyObject *task)
{
    PyObject **current = (PyObject **)(ts + G.asyncio.ts_task);
    if (*(PyObject **)(ts + G.asyncio.ts_loop) != loop) {
        PyErr_Format(PyExc_RuntimeError, "loop %R is not the running loop", loop);
        return -1;
    }
    if (*current != NULL)
        return already_entered(task, *current);
    *current = Py_NewRef(task);
    return 0;
}

static inline int
leave_in(char *ts, PyObject *loop, PyObject *task)
{
    PyObject **current = (PyObject **)(ts + G.asyncio.ts_task);
    if (*(PyObject **)(ts + G.asyncio.ts_loop) != loop) {
        PyErr_Format(PyExc_RuntimeError, "loop %R is not the running loop", loop);
        return -1;
    }
    if (*current != task) {
        PyObject *other = Py_NewRef(*current ? *current : Py_None);
        PyErr_Format(PyExc_RuntimeError,
                     "Invalid attempt to leave task %R while task %R is entered.", task, other);
        Py_DECREF(other);
        return -1;
    }
    *current = NULL;
    Py_DECREF(task);
    return 0;
}

GL_PRIVATE int
current_enter(PyObject *loop, PyObject *task)
{
    return enter_in((char *)PyThreadState_Get(), loop, task);
}

GL_PRIVATE int
current_leave(PyObject *loop, PyObject *task)
{
    return leave_in((char *)PyThreadState_Get(), loop, task);
}

GL_PRIVATE_INLINE void
gl_current_flush(gl_loop *Py_UNUSED(loop))
{
}

/* Makes `task` (None: no task) the current one; returns the one before, or None. */
GL_PRIVATE PyObject *
current_swap(PyObject *loop, PyObject *task)
{
    if (*ts_slot(G.asyncio.ts_loop) != loop) {
        PyErr_Format(PyExc_RuntimeError, "loop %R is not the running loop", loop);
        return NULL;
    }
    PyObject **current = ts_slot(G.asyncio.ts_task);
    PyObject *before = *current;
    *current = task == Py_None ? NULL : Py_NewRef(task);
    return before ? before : Py_NewRef(Py_None);
}

#define GL_LINGERS 0

#else

GL_PRIVATE_INLINE int
current_enter(PyObject *loop, PyObject *task)
{
    PyObject *other = PyDict_GetItemWithError(G.asyncio.current_tasks, loop);
    if (other != NULL)
        return already_entered(task, other);
    if (PyErr_Occurred())
        return -1;
    return PyDict_SetItem(G.asyncio.current_tasks, loop, task);
}

static int
check_leave(PyObject *loop, PyObject *task)
{
    PyObject *other = PyDict_GetItemWithError(G.asyncio.current_tasks, loop);
    if (other == task)
        return 0;
    if (other == NULL && PyErr_Occurred())
        return -1;
    other = Py_NewRef(other ? other : Py_None);
    PyErr_Format(PyExc_RuntimeError, "Leaving task %R does not match the current task %R.",
                 task, other);
    Py_DECREF(other);
    return -1;
}

GL_PRIVATE int
current_leave(PyObject *loop, PyObject *task)
{
    if (check_leave(loop, task) < 0)
        return -1;
    return PyDict_DelItem(G.asyncio.current_tasks, loop);
}

/* Keeps an exception that is set. */
GL_PRIVATE void
gl_current_flush(gl_loop *loop)
{
    PyObject *exc = PyErr_Occurred() ? gl_take_exception() : NULL;
    loop->lingering = 0;
    if (PyDict_DelItem(G.asyncio.current_tasks, (PyObject *)loop) < 0)
        PyErr_Clear(); /* somebody has removed it */
    if (exc)
        gl_restore_exception(exc);
}

#if PY_VERSION_HEX >= 0x030C0000
GL_PRIVATE PyObject *
current_swap(PyObject *loop, PyObject *task)
{
    PyObject *before = PyDict_GetItemWithError(G.asyncio.current_tasks, loop);
    if (before == NULL && PyErr_Occurred())
        return NULL;
    before = Py_NewRef(before ? before : Py_None);
    int r = 0;
    if (task != Py_None)
        r = PyDict_SetItem(G.asyncio.current_tasks, loop, task);
    else if (before != Py_None)
        r = PyDict_DelItem(G.asyncio.current_tasks, loop);
    if (r < 0)
        Py_CLEAR(before);
    return before;
}
#endif

#define GL_LINGERS 1

#endif

GL_PRIVATE_INLINE int
current_enter_ring(char *ts, gl_loop *loop, PyObject *task)
{
#if GL_LINGERS
    (void)ts;
    if (loop->lingering) {
        loop->lingering = 0;
        return PyDict_SetItem(G.asyncio.current_tasks, (PyObject *)loop, task);
    }
    return current_enter((PyObject *)loop, task);
#else
    return enter_in(ts, (PyObject *)loop, task);
#endif
}

GL_PRIVATE_INLINE int
current_leave_ring(char *ts, gl_loop *loop, PyObject *task)
{
#if GL_LINGERS
    (void)ts;
    if (check_leave((PyObject *)loop, task) < 0)
        return -1;
    loop->lingering = 1;
    return PyDict_SetItem(G.asyncio.current_tasks, (PyObject *)loop, Py_None);
#else
    return leave_in(ts, (PyObject *)loop, task);
#endif
}
