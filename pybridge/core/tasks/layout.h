/*
 * layout.h: goloop.Future and goloop.Task as C structs.
 *
 * Both begin with the very fields of _asyncio.Future and _asyncio.Task, which they
 * subclass, so that CPython's methods and ours work on the same words:
 *
 *     gl_future   [ object head | GL_FUTURE_FIELDS ]
 *     gl_task     [ object head | GL_FUTURE_FIELDS | GL_TASK_FIELDS | own fields ]
 *
 * The fields are those of one CPython version each, in layout_3XX.h.  CPython keeps
 * them private, so a patch release may move them: the numbers here are checked
 * against the sizes of the running classes, and then word by word and flag by flag
 * against their public behaviour (probe.c, goloop/probe.py).  Where anything differs
 * goloop uses the stdlib's classes.
 */
#ifndef GOLOOP_LAYOUT_H
#define GOLOOP_LAYOUT_H

#include "state/state.h"

/* The first version that nobody has looked at; a test lowers it. */
#ifndef GL_LAYOUT_UNKNOWN_FROM
#define GL_LAYOUT_UNKNOWN_FROM 0x03100000
#endif

#if PY_VERSION_HEX >= GL_LAYOUT_UNKNOWN_FROM || defined(Py_GIL_DISABLED) || defined(Py_DEBUG)
/* The structs below are then never used. */
#define GL_LAYOUT_KNOWN 0
#else
#define GL_LAYOUT_KNOWN 1
#endif

#if PY_VERSION_HEX >= 0x030E0000
#include "tasks/layout_314.h" /* 3.15's too */
#elif PY_VERSION_HEX >= 0x030D0000
#include "tasks/layout_313.h"
#elif PY_VERSION_HEX >= 0x030C0000
#include "tasks/layout_312.h"
#else
#include "tasks/layout_311.h"
#endif

#ifndef GL_LAYOUT_AWAITED_BY
#define GL_LAYOUT_AWAITED_BY 0
#endif

enum gl_future_state { GL_PENDING = 0, GL_CANCELLED = 1, GL_FINISHED = 2 };

typedef struct gl_future {
    PyObject_HEAD
    GL_FUTURE_FIELDS
} gl_future;

/* _asyncio.Task's part alone, for its size. */
typedef struct gl_base_task {
    PyObject_HEAD
    GL_FUTURE_FIELDS
    GL_TASK_FIELDS
} gl_base_task;

typedef struct gl_task {
    PyObject_HEAD
    GL_FUTURE_FIELDS
    GL_TASK_FIELDS
#if !GL_LAYOUT_AWAITED_BY
    gl_task_node node; /* before 3.14 the list of tasks is our own (task_registry.c) */
#endif
} gl_task;

#if GL_LAYOUT_KNOWN
_Static_assert(sizeof(gl_future) == GL_FUTURE_SIZE, "_asyncio.Future has another size");
_Static_assert(sizeof(gl_base_task) == GL_TASK_SIZE, "_asyncio.Task has another size");
_Static_assert(offsetof(gl_task, fut_waiter) == offsetof(gl_base_task, fut_waiter) &&
                   offsetof(gl_task, context) == offsetof(gl_base_task, context) &&
                   offsetof(gl_task, num_cancels) == offsetof(gl_base_task, num_cancels),
               "a Task's own fields come behind the inherited ones");
_Static_assert(offsetof(gl_task, state) == offsetof(gl_future, state) &&
                   offsetof(gl_task, cancelled_exc) == offsetof(gl_future, cancelled_exc),
               "Future and Task share their head");
#if GL_LAYOUT_AWAITED_BY
_Static_assert(sizeof(gl_task) == GL_TASK_SIZE, "3.14 needs no fields of our own");
#else
_Static_assert(offsetof(gl_task, node) == GL_TASK_SIZE, "own fields begin behind the base");
#endif
#endif

#endif /* GOLOOP_LAYOUT_H */
