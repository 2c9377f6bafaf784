/*
 * layout_313.h: the fields of _asyncio.Future and _asyncio.Task in CPython 3.13.
 *
 * Source: struct FutureObj and struct TaskObj, Modules/_asynciomodule.c of the 3.13
 * branch.  The flags have become bits, those of the Task in the same unit as those of
 * the Future; dict and weak references are kept before the object.
 */
#define GL_FUTURE_SIZE 104
#define GL_TASK_SIZE 144

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
    int state;                 /* enum gl_future_state */                      \
    unsigned log_tb : 1;       /* an exception that nobody has retrieved */    \
    unsigned blocking : 1;     /* _asyncio_future_blocking */

#define GL_TASK_FIELDS                                                         \
    unsigned must_cancel : 1;                                                  \
    unsigned log_destroy_pending : 1;                                          \
    int num_cancels;                                                           \
    PyObject *fut_waiter;                                                      \
    PyObject *coro;                                                            \
    PyObject *name;                                                            \
    PyObject *context;

#define GL_LAYOUT_OWN_DICT 0
#define GL_LAYOUT_LAZY_NAME 1
