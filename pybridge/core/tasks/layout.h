/*
 * layout.h: goloop.Future and goloop.Task as C structs.
 *
 * Both begin with the fields of _asyncio.Future and _asyncio.Task, which they subclass, so that
 * CPython's methods and goloop's methods work on the same memory:
 *
 *     gl_future   [ object head | GL_FUTURE_FIELDS ]
 *     gl_task     [ object head | GL_FUTURE_FIELDS | GL_TASK_FIELDS | own fields ]
 *
 * The fields are copied, for each CPython version, from struct FutureObj and struct TaskObj
 * (Modules/_asynciomodule.c of its branch).  They are private to CPython, so a patch release may
 * move them.  Therefore the sizes here are compared with the running classes
 * (Future.__basicsize__, Task.__basicsize__), and then each word and each flag is compared with
 * the classes' public behaviour (probe.c and layout_check.py).  If anything differs goloop uses
 * the stdlib's classes.
 *
 * The GIL guards every field; without a GIL the lock of the loop in the field `loop`.  Before 3.14
 * this includes a task's node, which belongs to a list of the process; in 3.14 the node belongs to
 * a list of the thread.
 */
#pragma once

#include "queue/queue.h"

/* The structs below are not used if GL_LAYOUT_KNOWN is 0. */

#define GL_OBJECT_FIELD(name) PyObject *name;

/* The first fields of a Future, the same in every version: `callback0` and `context0` are the first
 * callback and its context, `callbacks` is the list of the other pairs (callback, context). */
#define GL_FUTURE_FIRST(X)                                                                         \
    X(loop)                                                                                        \
    X(callback0)                                                                                   \
    X(context0)                                                                                    \
    X(callbacks)                                                                                   \
    X(exception) X(exception_tb) X(result) X(source_traceback) X(cancel_msg)

/* The objects of a Task, which are adjacent in every version. */
#define GL_TASK_OBJECTS(X) X(fut_waiter) X(coro) X(name) X(context)

/* Defined below for each layout:
 *
 *   GL_FUTURE_SIZE, GL_TASK_SIZE   the sizes of _asyncio.Future and _asyncio.Task
 *   GL_FUTURE_OBJECTS              the objects of a Future, for the collector and the probe
 *   GL_FUTURE_FIELDS, GL_TASK_FIELDS   the fields after the object head
 *   GL_LAYOUT_OWN_DICT             1: the instance dict and the list of weak references are fields;
 *                                  0: they precede the object
 *   GL_LAYOUT_AWAITED_BY           1: a future records the tasks that await it (for
 *                                  `python -m asyncio ps`), and each thread has a list of its tasks
 *                                  (struct llist_node of Include/internal/pycore_llist.h)
 */
#if GL_FUTURE_LAYOUT_SINCE_3_13

#if GL_FUTURE_LAYOUT_SINCE_3_14
#define GL_FUTURE_SIZE 112
#define GL_TASK_SIZE 168
#define GL_LAYOUT_AWAITED_BY 1
#define GL_FUTURE_OBJECTS(X)                                                                       \
    GL_FUTURE_FIRST(X) X(cancelled_exc) X(awaited_by) /* a task or future, or a set of such */
#define GL_AWAITED_BY_FLAGS                                                                        \
    char is_task;                                                                                  \
    char awaited_by_is_set;
#define GL_TASK_NODE gl_task_node node;
#else
#ifdef Py_GIL_DISABLED /* the object's head has 16 bytes more */
#define GL_FUTURE_SIZE 120
#define GL_TASK_SIZE 160
#else
#define GL_FUTURE_SIZE 104
#define GL_TASK_SIZE 144
#endif
#define GL_LAYOUT_AWAITED_BY 0
#define GL_FUTURE_OBJECTS(X) GL_FUTURE_FIRST(X) X(cancelled_exc)
#define GL_AWAITED_BY_FLAGS
#define GL_TASK_NODE
#endif

/* The flags are bit fields; the Task's flags share the storage unit of the Future's flags. */
#define GL_FUTURE_FIELDS                                                                           \
    GL_FUTURE_OBJECTS(GL_OBJECT_FIELD)                                                             \
    int state; /* enum gl_future_state */                                                          \
    GL_AWAITED_BY_FLAGS                                                                            \
    unsigned log_tb : 1;   /* the exception was not retrieved */                                   \
    unsigned blocking : 1; /* _asyncio_future_blocking */
#define GL_TASK_FIELDS                                                                             \
    unsigned must_cancel : 1;                                                                      \
    unsigned log_destroy_pending : 1;                                                              \
    int num_cancels;                                                                               \
    GL_TASK_OBJECTS(GL_OBJECT_FIELD)                                                               \
    GL_TASK_NODE
#define GL_LAYOUT_OWN_DICT 0

#else /* 3.11 and 3.12 */

#define GL_FUTURE_SIZE 128
#define GL_TASK_SIZE 176
#define GL_LAYOUT_AWAITED_BY 0
#define GL_FUTURE_OBJECTS(X) GL_FUTURE_FIRST(X) X(cancelled_exc) X(dict)
#define GL_FUTURE_FIELDS                                                                           \
    GL_FUTURE_FIRST(GL_OBJECT_FIELD)                                                               \
    int state;                                                                                     \
    int log_tb;                                                                                    \
    int blocking;                                                                                  \
    PyObject *dict;                                                                                \
    PyObject *weakrefs;                                                                            \
    PyObject *cancelled_exc;
#define GL_TASK_FIELDS                                                                             \
    GL_TASK_OBJECTS(GL_OBJECT_FIELD)                                                               \
    int must_cancel;                                                                               \
    int log_destroy_pending;                                                                       \
    int num_cancels;
#define GL_LAYOUT_OWN_DICT 1

#endif

/* The values of the field `state`, which are _asyncio's; a failed future is GL_FINISHED too. */
enum gl_future_state { GL_PENDING = 0, GL_CANCELLED = 1, GL_FINISHED = 2 };

/* An instance of goloop.Future, and the head of every instance of _asyncio.Future. */
typedef struct gl_future {
    PyObject_HEAD
    GL_FUTURE_FIELDS
} gl_future;

/* The fields of _asyncio.Task alone, for its size. */
typedef struct gl_base_task {
    PyObject_HEAD
    GL_FUTURE_FIELDS
    GL_TASK_FIELDS
} gl_base_task;

/* An instance of goloop.Task. */
typedef struct gl_task {
    PyObject_HEAD
    GL_FUTURE_FIELDS
    GL_TASK_FIELDS
#if !GL_LAYOUT_AWAITED_BY
    gl_task_node node; /* an entry of goloop's own list of tasks (task_registry.c) */
#endif
} gl_task;

#if GL_LAYOUT_KNOWN
_Static_assert(sizeof(gl_future) == GL_FUTURE_SIZE, "_asyncio.Future has another size");
_Static_assert(sizeof(gl_base_task) == GL_TASK_SIZE, "_asyncio.Task has another size");
_Static_assert(offsetof(gl_task, fut_waiter) == offsetof(gl_base_task, fut_waiter) &&
                   offsetof(gl_task, context) == offsetof(gl_base_task, context) &&
                   offsetof(gl_task, num_cancels) == offsetof(gl_base_task, num_cancels),
               "a Task's own fields follow the inherited fields");
_Static_assert(offsetof(gl_task, state) == offsetof(gl_future, state) &&
                   offsetof(gl_task, cancelled_exc) == offsetof(gl_future, cancelled_exc),
               "Future and Task share their head");
_Static_assert(sizeof(gl_task) == GL_TASK_SIZE + (GL_LAYOUT_AWAITED_BY ? 0 : sizeof(gl_task_node)),
               "own fields follow the base; 3.14 needs none");
#endif
