/*
 * current_task.c: what asyncio.current_task() answers while a Task runs.
 *
 * CPython 3.14 keeps the running task in the thread state, behind the part of it
 * that is public; the probe has found the offsets.  Before, it is the dict
 * _asyncio._current_tasks, loop -> task.
 *
 * A dict entry need not come and go with each step.  After a task out of the ready queue
 * the entry stays with None as its value (the loop's `current_task_stale` flag), which reads as no
 * task, and the next task replaces it.  gl_clear_stale_current_task() removes it before anything
 * runs that could enter a task by itself: another kind of entry, the end of the batch.
 */
#include "tasks/private.h"

#if GL_LAYOUT_AWAITED_BY

#define LINGERS 0
#define OTHER_IS_ENTERED "Invalid attempt to leave task %R while task %R is entered."

/* The loop's running task, borrowed; NULL: none. */
static inline int
current_get(char *ts, PyObject *loop, PyObject **task)
{
    if (*(PyObject **)(ts + G.asyncio.ts_loop) != loop) {
        PyErr_Format(PyExc_RuntimeError, "loop %R is not the running loop", loop);
        return -1;
    }
    *task = *(PyObject **)(ts + G.asyncio.ts_task);
    return 0;
}

static inline int
current_set(char *ts, PyObject *Py_UNUSED(loop), PyObject *task)
{
    PyObject **current = (PyObject **)(ts + G.asyncio.ts_task), *before = *current;
    *current = Py_XNewRef(task);
    Py_XDECREF(before);
    return 0;
}

GL_PRIVATE_INLINE void
gl_clear_stale_current_task(gl_loop *Py_UNUSED(loop))
{
}

#else

#define LINGERS !GL_LAZY_CURRENT
#define OTHER_IS_ENTERED "Leaving task %R does not match the current task %R."

#if GL_LAZY_CURRENT
/* The entry's value is kept alive by the thread that entered it, which is this one. */
static inline int
current_get(char *Py_UNUSED(ts), PyObject *loop, PyObject **task)
{
    gl_loop *own = gl_as_loop(loop);
    *task = own ? own->current.task : NULL;
    if (*task != NULL)
        return 0;
    PyObject *entry;
    int rc = PyDict_GetItemRef(G.asyncio.current_tasks, loop, &entry);
    *task = entry;
    Py_XDECREF(entry);
    return rc < 0 ? -1 : 0; /* lint: allow borrowed-across-call: a number */
}
#else
static inline int
current_get(char *Py_UNUSED(ts), PyObject *loop, PyObject **task)
{
    *task = PyDict_GetItemWithError(G.asyncio.current_tasks, loop);
    return *task == NULL && PyErr_Occurred() ? -1 : 0;
}
#endif

static inline int
current_set(char *Py_UNUSED(ts), PyObject *loop, PyObject *task)
{
    return task ? PyDict_SetItem(G.asyncio.current_tasks, loop, task)
                : PyDict_DelItem(G.asyncio.current_tasks, loop);
}

/* Keeps an exception that is set. */
GL_PRIVATE void
gl_clear_stale_current_task(gl_loop *loop)
{
    if (GL_LAZY_CURRENT)
        return;
    PyObject *exc = gl_take_exception();
    loop->current_task_stale = 0;
    if (current_set(NULL, (PyObject *)loop, NULL) < 0)
        PyErr_Clear(); /* somebody has removed it */
    gl_restore_exception(exc);
}

#endif

static int
another_task(const char *format, PyObject *task, PyObject *other)
{
    Py_INCREF(other);
    PyErr_Format(PyExc_RuntimeError, format, task, other);
    Py_DECREF(other);
    return -1;
}

GL_PRIVATE_INLINE int
current_enter(char *ts, PyObject *loop, PyObject *task, bool queued)
{
#if GL_LAZY_CURRENT
    gl_loop *own = gl_as_loop(loop);
    if (queued && own != NULL && own->current.task == NULL) {
        current_set_lazily(own, task);
        return 0;
    }
#endif
    if (LINGERS && queued && ((gl_loop *)loop)->current_task_stale) {
        ((gl_loop *)loop)->current_task_stale = 0;
        return current_set(ts, loop, task);
    }
    PyObject *other;
    if (current_get(ts, loop, &other) < 0)
        return -1;
    if (other != NULL)
        return another_task("Cannot enter into task %R while another task %R is being executed.",
                            task, other);
#if GL_LAZY_CURRENT
    if (own != NULL) {
        current_set_lazily(own, task);
        return 0;
    }
#endif
    return current_set(ts, loop, task);
}

GL_PRIVATE_INLINE int
current_leave(char *ts, PyObject *loop, PyObject *task, bool queued)
{
#if GL_LAZY_CURRENT
    gl_loop *own = gl_as_loop(loop);
    if (own != NULL && own->current.task == task) {
        current_set_lazily(own, NULL);
        return 0;
    }
#endif
    PyObject *other;
    if (current_get(ts, loop, &other) < 0)
        return -1;
    if (other != task)
        return another_task(OTHER_IS_ENTERED, task, other ? other : Py_None);
    if (LINGERS && queued) {
        ((gl_loop *)loop)->current_task_stale = 1;
        return current_set(ts, loop, Py_None);
    }
    return current_set(ts, loop, NULL);
}

#if GL_EAGER_TASKS
GL_PRIVATE PyObject *
current_swap(PyObject *loop, PyObject *task)
{
    char *ts = (char *)PyThreadState_Get();
    PyObject *before;
    if (current_get(ts, loop, &before) < 0)
        return NULL;
    before = Py_NewRef(before ? before : Py_None);
#if GL_LAZY_CURRENT
    gl_loop *own = gl_as_loop(loop);
    if (own != NULL && task != before)
        current_set_lazily(own, NULL); /* the dict is what is true from here on */
#endif
    if (task != before && current_set(ts, loop, task == Py_None ? NULL : task) < 0)
        Py_CLEAR(before);
    return before;
}
#endif
