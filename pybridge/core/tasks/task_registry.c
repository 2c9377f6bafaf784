/*
 * task_registry.c: the tasks that asyncio.all_tasks() lists.
 *
 * CPython 3.14 has a list per thread that holds _asyncio.Task and its subclasses; ours
 * join it as CPython's own do, without a reference, and are moved to the interpreter's
 * list by CPython when their thread ends.
 *
 * Before 3.14 asyncio keeps a WeakSet, which costs more than all the rest of a task's
 * construction.  Our tasks are in a list of our own instead, which goloop/_internal/tasks/task_set.py shows
 * to whoever iterates over that WeakSet.
 *
 * A task is in the list from its creation until it is done or freed.  Guarded by the
 * GIL; without one each loop has a list, which its lock guards.
 */
#include "tasks/private.h"

/* The list of a task; with its lock, where there is no GIL: the loop's, which whoever calls has, or
 * that of all tasks of other loops. */
static inline gl_task_node *
tasks_begin(gl_task *task)
{
#if GL_LAYOUT_AWAITED_BY
    (void)task;
    return (gl_task_node *)((char *)PyThreadState_Get() + G.asyncio.ts_tasks_head);
#elif defined(GL_FREE_THREADED)
    gl_loop *loop = gl_as_loop(task->loop);
    if (loop != NULL)
        return &loop->tasks;
    GL_LOCK(tasks_mutex);
    return &G.own_tasks;
#else
    (void)task;
    return &G.own_tasks;
#endif
}

static inline void
tasks_end(const gl_task_node *head)
{
#ifdef GL_FREE_THREADED
    if (head == &G.own_tasks)
        GL_UNLOCK(tasks_mutex);
#else
    (void)head;
#endif
}

GL_PRIVATE_INLINE void
task_register(gl_task *task)
{
    if (task->node.next != NULL)
        return;
    gl_enable_try((PyObject *)task);
    gl_task_node *head = tasks_begin(task), *last = head->prev;
    task->node.prev = last;
    task->node.next = head;
    last->next = &task->node;
    head->prev = &task->node;
    tasks_end(head);
}

GL_PRIVATE_INLINE void
task_unregister(gl_task *task)
{
    gl_task_node *node = &task->node;
    if (node->next == NULL)
        return;
#if GL_LAYOUT_AWAITED_BY
    const gl_task_node *head = NULL;
#else
    const gl_task_node *head = tasks_begin(task);
#endif
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = node->prev = NULL;
    tasks_end(head);
}

/* May a task of the list be given out?  Not one that nobody has any more: a subclass's
 * dealloc runs Python (a finalizer, the destructors of its slots, what waits before it in
 * the trashcan) before it comes to ours, which unlinks it.  Nor one that was finalized:
 * asyncio's weak reference is gone by then, or the collector is about to clear it. */
static inline bool
task_is_live(PyObject *task)
{
    return !PyObject_GC_IsFinalized(task);
}

/* Appends those of one list; -1 with an exception. */
static int
list_tasks(PyObject *list, const gl_task_node *head)
{
    for (gl_task_node *n = head->next; n != head; n = n->next) {
        PyObject *task = (PyObject *)((char *)n - offsetof(gl_task, node));
        if (!task_is_live(task) || gl_try_newref(task) == NULL)
            continue;
        /* Growing the list may not run the collector, which could unlink `n`; from
         * 3.12 on it never does, and 3.11 only collects when objects are tracked. */
        int rc = PyList_Append(list, task);
        Py_DECREF(task); /* lint: allow check-commit: the list has it, unless memory has run out */
        if (rc < 0)
            return -1;
    }
    return 0;
}

#ifdef GL_FREE_THREADED
static int
list_of_loop(PyObject *list, gl_loop *loop)
{
    GL_GUARD(loop);
    return list_tasks(list, &loop->tasks);
}
#endif

GL_PRIVATE PyObject *
core_live_tasks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return NULL;
    GL_LOCK(tasks_mutex);
    int rc = list_tasks(list, &G.own_tasks);
    GL_UNLOCK(tasks_mutex);
#ifdef GL_FREE_THREADED
    gl_loop_list all = gl_loops_all(true);
    for (uint32_t i = 0; rc == 0 && i < all.len; i++)
        rc = list_of_loop(list, all.item[i]);
    gl_loops_drop(&all);
#endif
    if (rc < 0)
        Py_CLEAR(list);
    return list;
}
