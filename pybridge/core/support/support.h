/*
 * support.h: helpers of all rooms of the extension, and the module's state.
 *
 *   callbacks.h  every Python method that C calls by name
 *   names.c      interned strings, imported objects, the module's state
 *   objects.c    types and their methods, arrays that grow
 *   method_calls.c  calls of methods by name, and of unbound methods
 *   args.c       arguments by position or by name (args.h)
 *   report.c     exceptions: saved, created from an errno, passed to the exception handler
 *   endpoints.c  raw socket addresses as Python values, and back
 *   free_threading.h  substitutes for the GIL in a build without it
 *   compat.h     the differences between versions of CPython
 *
 * Every function of the extension needs the GIL unless its comment says otherwise.  A function that
 * returns int returns 0 unless its comment names other results.  The result -1 or NULL means that
 * the call has failed and an exception is set; so a comment gives another meaning of the two if
 * there is one, names an exception that a wrong use or a caller depends on (others, such as
 * MemoryError, are always possible), and says if the exception is cleared or was never set.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "linkage.h"
#include "runtime/runtime.h"
#include "support/callbacks.h"
#include "support/compat.h"
#include "support/free_threading.h"

/* A loop, the C half of a goloop.Loop (state/state.h). */
typedef struct gl_loop gl_loop;

/* ---- the module's state -------------------------------------------------------------- */

/* Takes n received bytes for a protocol that is written in C. */
typedef int gl_receive(PyObject *protocol, const char *data, Py_ssize_t n);

/* The functions of a kind of registration, called with its transport or listener (fds/fds.h
 * describes each).  The room that creates such registrations fills in the struct; NULL: the kind
 * has none. */
typedef struct gl_reg_ops {
    int (*complete)(gl_loop *loop, PyObject *owner, const gl_completion *c);
    void (*unregister_on_loop_close)(PyObject *owner);
    bool (*blocks_number)(PyObject *transport);
    size_t (*queued_bytes)(PyObject *transport);
    /* Returns true if no completion of the reactor can call the owner; NULL: never true. */
    bool (*is_dormant)(PyObject *owner);
} gl_reg_ops;

/* The kinds of entries in the loop's table of registrations, which select the functions above. */
enum gl_reg_kind {
    GL_REG_FREE = 0,
    GL_REG_STREAM,
    GL_REG_LISTENER,
    GL_REG_WATCH,
    GL_REG_DATAGRAM,
    GL_REG_KINDS,
};

/* The classes for which the native rule decides whether C may do the work of their methods
 * (state/native_rule.c). */
enum gl_rule {
    GL_RULE_LOOP,
    GL_RULE_ASYNCIO_LOOP,
    GL_RULE_HANDLE,
    GL_RULE_TIMER_HANDLE,
    GL_RULE_SOCKET,
    GL_RULE_SSL_OBJECT,
    GL_RULE_TLS_TRANSPORT,
    GL_RULE_STREAM_PROTOCOL,
    GL_RULE_STREAM_READER,
    GL_RULES,
};
#define GL_RULE_METHODS 9 /* at most 15: the last bit stands for the attributes */
#define GL_RULE_ATTRIBUTES 6

/* Freed objects of one type, for reuse. */
#define GL_MAX_POOL 2048
typedef struct gl_pool {
    PyObject *item[GL_MAX_POOL];
    int len;
} gl_pool;

/* The number of freed iterators of futures that are cached. */
#define GL_ITER_POOL 64

/* A node of a circular doubly linked list; CPython's struct llist_node. */
typedef struct gl_task_node {
    struct gl_task_node *next, *prev; /* NULL while in no list */
} gl_task_node;

#ifdef GL_FREE_THREADED
/* The slots that threads/guard.c has replaced, at import. */
#define GL_GUARD_TYPES 16
typedef struct gl_guarded_type {
    PyTypeObject *type;
    Py_ssize_t loop_offset; /* offset of gl_owner_loop, or GL_OWNER_LOOP_ITSELF and so on */
    destructor dealloc;     /* the type's own slots */
    destructor finalize;
    inquiry clear;
} gl_guarded_type;
#endif

/* The module's state.  The module is loaded once in a process (module.c), so this
 * is one object.  The first part is written while the module is imported and only read
 * afterwards; the second changes while loops run.  The brackets after a field's comment name its
 * guard: [GIL] means any thread that has the GIL. */
struct gl_globals {
    /* Interned strings: G.s_NAME is the str "NAME". */
#define X(name, ...) PyObject *s_##name;
    GL_METHODS(X)
    GL_WORDS(X)
#undef X
    /* Imported objects. */
#define X(field, module, attribute) PyObject *field;
    GL_IMPORTS(X)
#undef X
    PyObject *empty_tuple;
    PyObject *kw_loop;             /* ("loop",) */
    PyObject *kw_context;          /* ("context",) */
    PyObject *asyncio_create_task; /* the attribute of BaseEventLoop, at import */
    PyObject *Handle_run, *Handle_cancel, *TimerHandle_cancel; /* asyncio's unbound methods */
    PyObject *asyncio_constants;                               /* the module asyncio.constants */
    struct {
        PyTypeObject *Future, *Task; /* the C-accelerated classes */
        /* Passed by goloop/_internal/tasks/layout_check.py, for the room tasks/. */
        PyObject *iscoroutine, *iter_throw, *step, *wait;
        PyObject *Future_add_done_callback, *Future_cancel, *Future_set_exception, *Task_cancel;
        PyObject *create_task_names; /* frozenset: keywords that create_task takes */
        /* 3.14: offsets into the thread state; before: unused */
        Py_ssize_t ts_loop, ts_task, ts_tasks_head;
        PyObject *current_tasks; /* before 3.14: _asyncio._current_tasks */
    } asyncio;
    struct {
        PyTypeObject *socket_base;        /* _socket.socket; NULL if its layout is unknown */
        PyTypeObject *file;               /* io.FileIO; NULL if its layout is unknown */
        PyTypeObject *buffered[3];        /* io.BufferedReader, ...Writer, ...Random */
        Py_ssize_t io_refs, closed;       /* offsets of slots of socket.socket; -1: not slots */
    } lease;                              /* classes of objects with an fd number (fds/lease.c) */
    PyObject *high_default, *low_default; /* default limits of write buffers (transports) */

    /* The types. */
    PyTypeObject *loop_type, *handle_type, *timer_handle_type;
    PyTypeObject *threadsafe_handle_type;  /* result of call_soon_threadsafe; NULL before 3.14 */
    PyTypeObject *future_type, *task_type; /* NULL until enabled (tasks/probe.c) */
    PyMethodDef *task_wakeup;              /* the callable that wakes a task (tasks/wakeup.c) */
    PyTypeObject *future_iter_type, *sockop_type;
    PyTypeObject *listener_type;
    PyTypeObject *native_protocol; /* TLS: the protocol that is written in C */
    gl_receive *native_receive;    /* takes received bytes for a native_protocol */
    const gl_reg_ops *reg_ops[GL_REG_KINDS];

    /* ---- state that changes ---- */
    PyObject *module;          /* _core; NULL until its import has succeeded [GIL] */
    uint64_t threads_numbered; /* the last _thread_number() [atomic] */
    int dealloc_depth;         /* nesting of deallocations [GIL] */
    gl_loop *first_loop;       /* list of loops with a reactor (state/loops.c) [GIL] */
    gl_pool handle_pool, timer_pool, threadsafe_pool; /* queue/handle.c [GIL] */
    PyObject *spare_context; /* an empty context for the next handle; or NULL [GIL] */
    struct gl_future_iter *iter_pool[GL_ITER_POOL]; /* tasks/future_iter.c [GIL] */
    int iter_pool_len;
    gl_task_node own_tasks; /* all tasks, before 3.14 (tasks/task_registry.c) [GIL] */
    unsigned long long *task_names, own_task_names; /* number of the last default name [GIL] */
    struct gl_rule_class {
        PyTypeObject *type; /* NULL until the rule begins; read only afterwards */
        PyObject *globals;  /* the globals of original functions, or NULL */
        PyObject *method[GL_RULE_METHODS];
        PyObject *attribute[GL_RULE_ATTRIBUTES];
        PyObject *property;    /* or NULL */
        Py_ssize_t getter;     /* the offset of `fget` in a property; -1: not known */
        uint64_t seen;         /* version tag of a class, and 16 bits: its replaced methods
                                * [atomic] */
    } rule[GL_RULES];          /* state/native_rule.c */
    PyTypeObject *stream_type; /* the type of native streams */
    struct {
        PyObject *do_read, *do_write, *process_outgoing, *write_appdata, *control_app_writing;
        PyObject *wrapped, *flushing;
    } tls; /* methods and states of SSLProtocol, set by the import of
            * goloop/_internal/tls/protocol.py */
    /* The system calls on descriptors (fds/calls.c) [GIL]. */
    const struct gl_calls *calls;
    gl_introspection_socket introspection_socket; /* observe/watchdog.c */
    gl_python python;                             /* observe/python_stack.c */
    /* Time that Python's garbage collector used in process gc_pid, and the start of the current
     * collection or 0 (observe/watchdog.c) [GIL]. */
    int64_t gc_ns, gc_began;
    long gc_pid;
#ifdef GL_FREE_THREADED
    PyMutex loops_mutex; /* guards first_loop */
    PyMutex tasks_mutex; /* guards own_tasks, the tasks of other loops */
    struct {
        PyObject *acquire, *release; /* _imp.acquire_lock, _imp.release_lock; read only */
    } import_lock;                   /* threads/stop_world.c */
    struct {
        gl_guarded_type type[GL_GUARD_TYPES];
        int types;
        destructor dealloc; /* tp_dealloc of types with a guarded deallocation */
    } guards;
#endif
};
GL_PRIVATE_DATA struct gl_globals G;

/* The name of a method of callbacks.h, for PyObject_CallMethod(). */
#define GL_METHOD(name) ((void)sizeof(G.s_##name), #name)

/* ---- deep nesting -------------------------------------------------------------------- */

/* The nesting of deallocations up to which an object is freed without the trashcan. */
#define GL_DEALLOC_DIRECT 32

/* Frees an untracked object by `free_it`, the body of its type's `dealloc`: directly, or, deep in a
 * chain of such objects, through CPython's trashcan, so that a long chain does not overflow the
 * stack.  The trashcan costs four calls, the counter here two additions. */
static inline void
gl_dealloc_nested(PyObject *self, destructor dealloc, destructor free_it)
{
#ifdef GL_FREE_THREADED /* a depth shared by all threads would be wrong */
    if (Py_TYPE(self)->tp_dealloc == G.guards.dealloc)
        dealloc = G.guards.dealloc; /* the trashcan compares it with the type's tp_dealloc */
#else
    if (G.dealloc_depth < GL_DEALLOC_DIRECT) {
        G.dealloc_depth++;
        free_it(self);
        G.dealloc_depth--;
        return;
    }
#endif
    Py_TRASHCAN_BEGIN(self, dealloc) free_it(self);
    Py_TRASHCAN_END
}

/* ---- objects.c ------------------------------------------------------------------------------- */

/* The function and the flags of a PyMethodDef, by calling convention. */
#define GL_FASTKW(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL | METH_KEYWORDS
#define GL_FAST(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL
#define GL_NOARGS(f) (PyCFunction)(f), METH_NOARGS
#define GL_ONEARG(f) (PyCFunction)(f), METH_O

/* Adds an attribute to a type that is not used yet.  Steals `value`, also on failure; if it is
 * NULL, an exception must be set, and the result is -1. */
GL_PRIVATE int gl_type_add(PyTypeObject *type, const char *name, PyObject *value);
/* Adds the methods of a table, which ends with an empty entry, to a type that is not used yet. */
GL_PRIVATE int gl_type_add_methods(PyTypeObject *type, PyMethodDef *methods);
/* Creates a type, stores it in *type, which owns a reference, and adds it to the module.  `base`, a
 * type or a tuple of types, may be NULL. */
GL_PRIVATE int gl_type_make(PyTypeObject **type, PyObject *module, PyType_Spec *spec,
                            PyObject *base);

/* Drops the result of a call.  Returns 0, or -1 if the call failed (NULL). */
static inline int
gl_drop_result(PyObject *result)
{
    if (result == NULL)
        return -1;
    Py_DECREF(result);
    return 0;
}

/* Returns None as a method's result, or NULL if r is -1. */
static inline PyObject *
gl_none_or_null(int r)
{
    if (r < 0)
        return NULL;
    return Py_NewRef(Py_None);
}

/* Returns r, 1 or 0, as a method's bool, or NULL if r is -1. */
static inline PyObject *
gl_bool_or_null(int r)
{
    if (r < 0)
        return NULL;
    return PyBool_FromLong(r);
}

/* Returns a new reference to an object, or to None for NULL. */
static inline PyObject *
gl_ref_or_none(PyObject *o)
{
    if (o == NULL)
        return Py_NewRef(Py_None);
    return Py_NewRef(o);
}

/* Returns -1 if an exception is set, otherwise 0. */
static inline int
gl_error_status(void)
{
    if (PyErr_Occurred())
        return -1;
    return 0;
}

/* Drops the result of a call and returns its truth value, 0 or 1; -1 if the call (`answer` is NULL)
 * or the test of truth has failed. */
static inline int
gl_take_bool(PyObject *answer)
{
    if (answer == NULL)
        return -1;
    int truth = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return truth;
}

/* Returns true if there are weak references to the object. */
static inline bool
gl_has_weakrefs(PyObject *o)
{
    Py_ssize_t offset = Py_TYPE(o)->tp_weaklistoffset;
    return offset != 0 && *(PyObject **)((char *)o + offset) != NULL;
}

/* Reallocates an array for gl_grow(): doubles *cap, from `first`, until it exceeds `len`, and sets
 * the new items to zero.  Returns false, without an exception and without a change, if there is no
 * memory or if the capacity would exceed 32 bits. */
GL_PRIVATE bool gl_grow_array(void *array, uint32_t *cap, uint32_t len, size_t size,
                              uint32_t first);
/* Grows an array of `*cap` items of `size` bytes, if it is full, so that it has space for one item
 * more than `len`; `array` is the address of its pointer.  The capacity starts at `first` and
 * doubles.  New items are zero.  The array must be freed with PyMem_RawFree().  Returns false,
 * without an exception, if out of memory. */
static inline bool
gl_grow(void *array, uint32_t *cap, uint32_t len, size_t size, uint32_t first)
{
    return len < *cap || gl_grow_array(array, cap, len, size, first);
}

/* ---- method_calls.c -------------------------------------------------------------------------- */

/* Calls o.name() or, if `arg` is not NULL, o.name(arg), and drops the result. */
GL_PRIVATE int gl_call_method(PyObject *o, PyObject *name, PyObject *arg);

/* Calls o.name() with the arguments of a vectorcall, for the cases that C leaves to Python.
 * Returns the result. */
GL_PRIVATE PyObject *gl_call_python(PyObject *o, PyObject *name, PyObject *const *args,
                                    Py_ssize_t nargs, PyObject *kwnames);
/* Calls unbound(self, *args, **kwargs), a function of a class, with the arguments of a vectorcall.
 * Returns the result. */
GL_PRIVATE PyObject *gl_call_unbound(PyObject *unbound, PyObject *self, PyObject *const *args,
                                     Py_ssize_t nargs, PyObject *kwnames);

/* ---- report.c -------------------------------------------------------------------------------- */

/* Passes the current exception to loop.call_exception_handler() with `message`, as a Handle does,
 * and clears it.  For exceptions of callbacks that asyncio itself calls outside any try block.
 * `protocol` may be NULL for None.  -1 for SystemExit and KeyboardInterrupt, which stay set, and -1
 * with the handler's exception if it raised. */
GL_PRIVATE int gl_call_exception_handler(gl_loop *loop, const char *message, PyObject *transport,
                                         PyObject *protocol);
/* Returns true if the current exception ends the loop's run: SystemExit or KeyboardInterrupt; false
 * if none is set. */
GL_PRIVATE bool gl_is_exit_exception(void);
/* Passes an exception that does not end the loop's run to sys.unraisablehook, with `about`, and
 * returns 0.  Returns `rc` if it is 0, or -1 with SystemExit or KeyboardInterrupt still set. */
GL_PRIVATE int gl_unraisable_unless_leaving(int rc, PyObject *about);
/* Creates an OSError, of the subclass for the errno; a new reference. */
GL_PRIVATE PyObject *gl_oserror(int err);
/* Sets an OSError, of the subclass for the errno, as the current exception; returns -1. */
GL_PRIVATE int gl_set_oserror(int err);
/* gl_take_exception() clears the current exception and returns it, owned, with its traceback; NULL
 * if none is set.  gl_restore_exception() sets it again and steals the reference; NULL is ignored.
 * An exception that was set in between stays, with the restored one as its context, as after a
 * `finally` that raises. */
GL_PRIVATE PyObject *gl_take_exception(void);
GL_PRIVATE void gl_restore_exception(PyObject *exc);
/* Exit a contextvars context.  The first requires that no exception is set; the second preserves a
 * pending one.  A failure goes to sys.unraisablehook. */
GL_PRIVATE_INLINE void gl_context_exit(PyObject *context);
GL_PRIVATE void gl_context_exit_keep_error(PyObject *context);
/* Logs a line at debug level: `format` is a %-format for the object `about`.  Preserves the current
 * exception; a failure goes to sys.unraisablehook. */
GL_PRIVATE void gl_log_debug(PyObject *about, const char *format);

/* ---- endpoints.c ----------------------------------------------------------------------------- */

/* Converts an address to its raw form of at most GL_MAX_SOCKADDR bytes, and sets *len.  Returns
 * false, without an exception, for addresses that only Python's socket module can convert: a host
 * name that must be resolved, another family, a wrong type. */
GL_PRIVATE bool gl_sockaddr_from_object(int family, PyObject *addr, uint8_t *raw, uint32_t *len);
/* Converts a raw address of `len` bytes to the value of socket.getpeername(), a new reference; None
 * for an empty address.  NULL without an exception for an unknown family or a short address. */
GL_PRIVATE PyObject *gl_sockaddr_to_object(const uint8_t *raw, uint32_t len);

/* ---- names.c --------------------------------------------------------------------------------- */

/* Fills in the strings, the imported objects and asyncio's unbound methods of handles in G, when
 * _core is imported. */
GL_PRIVATE int gl_names_init(PyObject *module);
/* Returns the offset in bytes of the slot `name` in instances of a class with __slots__; -1,
 * without an exception, if the attribute is missing or not a slot. */
GL_PRIVATE Py_ssize_t gl_slot_offset(PyObject *cls, const char *name);
/* Imports module.attr; returns a new reference. */
GL_PRIVATE PyObject *gl_import_attr(const char *module, const char *attr);

#include "support/args.h"
