/*
 * layout_311.h: the fields of _asyncio.Future and _asyncio.Task in CPython 3.11.
 *
 * Source: struct FutureObj and struct TaskObj, Modules/_asynciomodule.c of the 3.11
 * branch.  Sizes as Future.__basicsize__ and Task.__basicsize__ tell them.
 */
#define GL_FUTURE_SIZE 128
#define GL_TASK_SIZE 176

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
    int state;                 /* enum gl_future_state */                      \
    int log_tb;                /* an exception that nobody has retrieved */    \
    int blocking;              /* _asyncio_future_blocking */                  \
    PyObject *dict;                                                            \
    PyObject *weakrefs;                                                        \
    PyObject *cancelled_exc;

#define GL_TASK_FIELDS                                                         \
    PyObject *fut_waiter;                                                      \
    PyObject *coro;                                                            \
    PyObject *name;                                                            \
    PyObject *context;                                                         \
    int must_cancel;                                                           \
    int log_destroy_pending;                                                   \
    int num_cancels;

/* The instance dict and the list of weak references are fields. */
#define GL_LAYOUT_OWN_DICT 1
/* A default name is formatted at once. */
#define GL_LAYOUT_LAZY_NAME 0
