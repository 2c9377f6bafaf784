/*
 * task_registry.c: the tasks that asyncio.all_tasks() lists.
 *
 * CPython 3.14 has a list per thread that holds _asyncio.Task and its subclasses; ours
 * join it as CPython's own do, without a reference, and are moved to the interpreter's
 * list by CPython when their thread ends.
 *
 * Before 3.14 asyncio keeps a WeakSet, which costs more than all the rest of a task's
 * construction.  Our tasks are in a list of our own instead, which goloop/_internal/task_set.py shows
 * to whoever iterates over that WeakSet.
 *
 * A task is in the list from its creation until it is done or freed.  Guarded by the
 * GIL.
 */
#include "tasks/private.h"

static inline gl_task_node *
tasks_head(void)
{
#if GL_LAYOUT_AWAITED_BY
    return (gl_task_node *)((char *)PyThreadState_Get() + G.asyncio.ts_tasks_head);
#else
    return &G.own_tasks;
#endif
}

GL_PRIVATE_INLINE void
task_register(gl_task *task)
{
    if (task->node.next != NULL)
        return;
    gl_task_node *head = tasks_head(), *last = head->prev;
    task->node.prev = last;
    task->node.next = head;
    last->next = &task->node;
    head->prev = &task->node;
}

GL_PRIVATE_INLINE void
task_unregister(gl_task *task)
{
    gl_task_node *node = &task->node;
    if (node->next == NULL)
        return;
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = node->prev = NULL;
}

/* May a task of the list be given out?  Not one that nobody has any more: a subclass's
 * dealloc runs Python (a finalizer, the destructors of its slots, what waits before it in
 * the trashcan) before it comes to ours, which unlinks it.  Nor one that was finalized:
 * asyncio's weak reference is gone by then, or the collector is about to clear it. */
static inline bool
task_is_live(PyObject *task)
{
    return Py_REFCNT(task) > 0 && !PyObject_GC_IsFinalized(task);
}

GL_PRIVATE PyObject *
core_live_tasks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *list = PyList_New(0);
    for (gl_task_node *n = G.own_tasks.next; list && n != &G.own_tasks; n = n->next) {
        PyObject *task = (PyObject *)((char *)n - offsetof(gl_task, node));
        /* Growing the list may not run the collector, which could unlink `n`; from
         * 3.12 on it never does, and 3.11 only collects when objects are tracked. */
        if (task_is_live(task) && PyList_Append(list, task) < 0)
            Py_CLEAR(list);
    }
    return list;
}
