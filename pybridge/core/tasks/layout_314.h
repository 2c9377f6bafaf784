/*
 * layout_314.h: the fields of _asyncio.Future and _asyncio.Task in CPython 3.14.
 *
 * Source: struct FutureObj and struct TaskObj, Modules/_asynciomodule.c of the 3.14
 * branch.  New against 3.13: who awaits the future (for `python -m asyncio ps`), and
 * a task's node in the list of its thread's tasks (struct llist_node of
 * Include/internal/pycore_llist.h).
 */
#define GL_FUTURE_SIZE 112
#define GL_TASK_SIZE 168

#define GL_FUTURE_FIELDS                                                       \
    PyObject *loop;                                                            \
    PyObject *callback0;       /* the first callback, and its context */       \
    PyObject *context0;                                                        \
    PyObject *callbacks;       /* list of the others as (callback, context) */ \
    PyObject *exception;                                                       \
    PyObject *exception_tb;                                                    \
    PyObject *result;                                                          \
    PyObject *source_traceback;                                                \
    PyObject *cancel_msg;                                                      \
    PyObject *cancelled_exc;                                                   \
    PyObject *awaited_by;      /* a task or future, or a set of such */        \
    int state;                 /* enum gl_future_state */                      \
    char is_task;                                                              \
    char awaited_by_is_set;                                                    \
    unsigned log_tb : 1;       /* an exception that nobody has retrieved */    \
    unsigned blocking : 1;     /* _asyncio_future_blocking */

#define GL_TASK_FIELDS                                                         \
    unsigned must_cancel : 1;                                                  \
    unsigned log_destroy_pending : 1;                                          \
    int num_cancels;                                                           \
    PyObject *fut_waiter;                                                      \
    PyObject *coro;                                                            \
    PyObject *name;                                                            \
    PyObject *context;                                                         \
    gl_task_node node;

#define GL_LAYOUT_OWN_DICT 0
#define GL_LAYOUT_LAZY_NAME 1
#define GL_LAYOUT_AWAITED_BY 1
