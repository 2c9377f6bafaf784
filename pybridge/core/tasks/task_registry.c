/*
 * task_registry.c: the list of tasks for asyncio.all_tasks().
 *
 * CPython 3.14 has a list per thread with the instances of _asyncio.Task and its subclasses.
 * goloop adds its tasks to this list as CPython adds its own, without a reference.  CPython moves
 * the tasks to the interpreter's list when their thread ends.
 *
 * Before 3.14 asyncio has a WeakSet; adding a task to it costs more than all other parts of a
 * task's construction.  Therefore goloop's tasks are in a list of their own, which
 * goloop/_internal/tasks/task_set.py adds to every iteration over the WeakSet.
 *
 * A task is in the list from its creation until it is done or freed.  The GIL guards the list;
 * without a GIL each loop has a list, which the loop's lock guards.
 */
#include "tasks/private.h"

/* Returns the list of a task, and locks it on CPython without a GIL.  The caller has the lock of a
 * goloop loop; the list of the tasks of other loops has a mutex. */
static inline gl_task_node *
lock_task_list(gl_task *task)
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

/* Unlocks the list that lock_task_list() returned; NULL: no list was locked. */
static inline void
unlock_task_list(const gl_task_node *head)
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
    gl_task_node *head = lock_task_list(task);
    gl_task_node *last = head->prev;
    task->node.prev = last;
    task->node.next = head;
    last->next = &task->node;
    head->prev = &task->node;
    unlock_task_list(head);
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
    const gl_task_node *head = lock_task_list(task);
#endif
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = NULL;
    node->prev = NULL;
    unlock_task_list(head);
}

/* Returns true if all_tasks() may return a task of the list: not after its finalizer.  Then a
 * subclass's dealloc may be running Python (a finalizer, the destructors of its slots, earlier
 * objects in the trashcan) before it calls task_dealloc(), which unlinks the task; or the collector
 * is about to clear the task.  asyncio's weak reference is dead in both cases. */
static inline bool
task_is_live(PyObject *task)
{
    return !PyObject_GC_IsFinalized(task);
}

/* Appends the live tasks of one list; the caller has the list's lock. */
static int
append_tasks(PyObject *list, const gl_task_node *head)
{
    for (gl_task_node *n = head->next; n != head; n = n->next) {
        PyObject *task = (PyObject *)((char *)n - offsetof(gl_task, node));
        if (!task_is_live(task) || gl_try_newref(task) == NULL)
            continue;
        /* Appending must not run the collector, which could unlink `n`.  From 3.12 on it never
         * does, and 3.11 collects only when an object is tracked. */
        int rc = PyList_Append(list, task);
        Py_DECREF(task); /* lint: allow check-commit: the list owns it, unless memory ran out */
        if (rc < 0)
            return -1;
    }
    return 0;
}

#ifdef GL_FREE_THREADED
/* Appends the live tasks of a loop, with its lock. */
static int
append_tasks_of_loop(PyObject *list, gl_loop *loop)
{
    GL_GUARD(loop);
    return append_tasks(list, &loop->tasks);
}
#endif

GL_PRIVATE PyObject *
core_live_tasks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return NULL;
    GL_LOCK(tasks_mutex);
    int rc = append_tasks(list, &G.own_tasks);
    GL_UNLOCK(tasks_mutex);
#ifdef GL_FREE_THREADED
    gl_loop_list all = gl_loops_all(true);
    for (uint32_t i = 0; rc == 0 && i < all.len; i++)
        rc = append_tasks_of_loop(list, all.item[i]);
    gl_loops_drop(&all);
#endif
    if (rc < 0)
        Py_CLEAR(list);
    return list;
}
