/*
 * module.c: the module goloop._core, one translation unit of the files of all rooms.
 *
 * The import runs no Go; the first Loop starts the library.
 */
#define GL_AMALGAMATION

/* First: Python.h sets the feature macros of the C library, differently in each version. */
#include "support/support.h"

#include "runtime/process.c"
#include "runtime/library.c"
#include "runtime/signals.c"
#include "runtime/stack.c"
#include "runtime/limits.c"
#include "runtime/slack.c"
#include "runtime/image.c"
#include "runtime/exit.c"
#include "runtime/go_calls.c"

#include "loop/loop.h"
#include "datagrams/datagrams.h"
#include "listeners/listeners.h"

#include "support/names.c"
#include "support/objects.c"
#include "support/method_calls.c"
#include "support/args.c"
#include "support/report.c"
#include "support/endpoints.c"

#include "state/loop_state.c"
#include "state/native_rule.c"
#include "state/loops.c"

#include "threads/stop_world.c"
#include "threads/lock.c"
#include "threads/guard.c"
#include "threads/shared_lock.c"
#include "threads/submissions.c"
#include "threads/foreign_threads.c"

#include "fds/calls.c"
#include "fds/lease.c"
#include "fds/registry.c"
#include "fds/receive_buffers.c"

#include "observe/metrics.c"
#include "observe/python_stack.c"
#include "observe/watchdog.c"
#include "observe/trace.c"
#include "observe/stopped_world.c"

#include "queue/ready.c"
#include "queue/handle.c"
#include "queue/handle_views.c"
#include "queue/handle_run.c"
#include "queue/timers.c"
#include "queue/scheduling.c"
#include "queue/inbox.c"

#include "tasks/current_task_ft.c"
#include "tasks/current_task.c"
#include "tasks/task_registry.c"
#include "tasks/future_callbacks.c"
#include "tasks/future.c"
#include "tasks/future_iter.c"
#include "tasks/task_cancel.c"
#include "tasks/wakeup.c"
#include "tasks/task_step.c"
#include "tasks/task.c"
#include "tasks/create_task.c"
#include "tasks/probe.c"

#include "watch/older_waiters.c"
#include "watch/watch.c"
#include "watch/watch_methods.c"
#include "watch/sockop_calls.c"
#include "watch/sockop.c"

#include "transports/transport_registration.c"
#include "transports/transport_failure.c"
#include "transports/transport_schedule.c"
#include "transports/transport.c"
#include "transports/transport_type.c"

#include "streams/stream_paths.c"
#include "streams/stream.c"
#include "streams/stream_io.c"
#include "streams/stream_write.c"
#include "streams/stream_reader.c"
#include "streams/stream_read.c"
#include "streams/stream_failed_send.c"
#include "streams/stream_first_receive.c"
#include "streams/stream_type.c"

#include "listeners/listener.c"

#include "datagrams/datagram.c"
#include "datagrams/datagram_send.c"
#include "datagrams/datagram_receive.c"

#include "tls/openssl.c"
#include "tls/tls_records.c"
#include "tls/tls_write.c"
#include "tls/tls_read.c"
#include "tls/tls.c"

#include "loop/turn.c"
#include "loop/call_soon.c"
#include "loop/loop_type.c"

/* set_library_path(path): passes the path, a str, bytes or os.PathLike, to gl_library_set_path(),
 * which tries to load the library.  Returns None, also if it can't be loaded; NULL with TypeError
 * or another exception for a wrong path. */
static PyObject *
core_set_library_path(PyObject *Py_UNUSED(module), PyObject *path)
{
    PyObject *bytes;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    gl_library_set_path(PyBytes_AS_STRING(bytes));
    Py_DECREF(bytes);
    Py_RETURN_NONE;
}

/* library_info(): returns the facts of gl_library_describe() as a new dict. */
static PyObject *
core_library_info(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    gl_library_facts f;
    gl_library_describe(&f);
    return Py_BuildValue("{ssss sKsKsL}", "mode", f.mode, "path", f.path, "epoch",
                         (unsigned long long)f.epoch, "instances", (unsigned long long)f.instances,
                         "open_ns", (long long)f.open_ns);
}

#if GL_HAS_SET_WAKEUP_FD
/* swap_wakeup_fd(fd): like signal.set_wakeup_fd(), but without its checks, and without a change of
 * the current warn_on_full_buffer.  Returns the previous fd, -1 for none.  NULL with the exception
 * of a wrong argument. */
static PyObject *
core_swap_wakeup_fd(PyObject *Py_UNUSED(module), PyObject *arg)
{
    long fd = PyLong_AsLong(arg);
    if (fd == -1 && PyErr_Occurred())
        return NULL;
    return PyLong_FromLong(PySignal_SetWakeupFd((int)fd));
}
#endif

#ifdef GL_FREE_THREADED
/* _in_child(): resets the locks that other threads of the parent may have had, in a forked child:
 * G.loops_mutex and those of every listed loop.  Returns None. */
static PyObject *
core_in_child(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    memset(&G.loops_mutex, 0, sizeof G.loops_mutex);
    for (gl_loop *loop = G.first_loop; loop != NULL; loop = loop->next_loop)
        gl_lock_forget_others(loop);
    Py_RETURN_NONE;
}
#endif

/* _thread_ident(): returns the identity that the C library and the kernel know of this thread.
 * threading.get_ident() and _thread.get_ident() return a greenlet's after gevent or eventlet have
 * replaced them. */
static PyObject *
core_thread_ident(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromUnsignedLong(PyThread_get_thread_ident());
}

/* The number of this thread; 0 before the first call of core_thread_number().
 * lint: allow mutable-static: each thread uses its own */
static _Thread_local uint64_t thread_number;

/* _thread_number(): returns the number of this thread, which no other thread of the process gets,
 * unlike its identity, which a new thread gets after its end. */
static PyObject *
core_thread_number(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (thread_number == 0)
        thread_number = __atomic_add_fetch(&G.threads_numbered, 1, __ATOMIC_RELAXED);
    return PyLong_FromUnsignedLongLong(thread_number);
}

static PyMethodDef core_methods[] = {
#ifdef GL_FREE_THREADED
    {"_in_child", core_in_child, METH_NOARGS,
     PyDoc_STR("For os.register_at_fork(after_in_child=).")},
#endif
    {"_refuse_foreign_threads", gl_foreign_thread_close, METH_NOARGS,
     PyDoc_STR("For atexit: refuses foreign threads and waits for the attached ones.")},
#if GL_HAS_SET_WAKEUP_FD
    {"swap_wakeup_fd", core_swap_wakeup_fd, METH_O,
     PyDoc_STR("swap_wakeup_fd(fd) -> int: sets the process's wakeup fd, returns the old.")},
#endif
    {"_thread_ident", core_thread_ident, METH_NOARGS,
     PyDoc_STR("_thread_ident() -> int: the real thread's identity, with gevent or eventlet too.")},
    {"_thread_number", core_thread_number, METH_NOARGS,
     PyDoc_STR("_thread_number() -> int: a number that only this thread ever has.")},
    {"set_library_path", core_set_library_path, METH_O,
     PyDoc_STR(
         "set_library_path(path): the file of the Go library; call it before the first loop.")},
    {"library_info", core_library_info, METH_NOARGS,
     PyDoc_STR("library_info() -> dict: how and when this process loaded the Go library.")},
    {NULL, NULL, 0, NULL},
};

/* Py_mod_create: returns the module.  A process has only one, because its state belongs to the
 * process: a program that imports goloop again, after it has removed it from sys.modules, gets the
 * same one.  NULL with ImportError in a subinterpreter, since the module's objects belong to the
 * interpreter that created them, or with another exception. */
static PyObject *
core_create(PyObject *spec, PyModuleDef *Py_UNUSED(def))
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "goloop._core cannot be loaded in a subinterpreter: run the loop in the "
                        "main interpreter, or in a process of its own");
        return NULL;
    }
    if (G.module != NULL)
        return Py_NewRef(G.module);
    PyObject *name = PyObject_GetAttrString(spec, "name");
    if (name == NULL)
        return NULL;
    PyObject *module = PyModule_NewObject(name);
    Py_DECREF(name);
    return module;
}

/* In order: each may use the objects of those before it. */
static int (*const inits[])(PyObject *module) = {
    gl_names_init,         gl_calls_init,     gl_lease_init,       gl_metrics_init,
    gl_watchdog_init,      gl_trace_init,     gl_shared_lock_init, gl_stop_world_init,
    gl_stopped_world_init, gl_native_init,    gl_tasks_init,       gl_handle_init_types,
    gl_sockop_init_type,   gl_loop_init_type, gl_stream_init_type, gl_listener_init_type,
    gl_datagram_init_type, gl_tls_init_type,
};

/* Initialises all rooms in the order of `inits`, and adds abi_version. */
static int
init_rooms(PyObject *module)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(inits); i++)
        if (inits[i](module) < 0)
            return -1;
    return PyModule_AddIntConstant(module, "abi_version", GL_ABI_VERSION);
}

/* Py_mod_exec: initialises the module, unless an earlier import has.  After a failure, such as an
 * interrupt, the next import begins with an empty state, and the objects of this one are not
 * freed. */
static int
core_exec(PyObject *module)
{
    if (G.module != NULL)
        return 0;
    if (init_rooms(module) < 0) {
        memset(&G, 0, sizeof G);
        return -1;
    }
    G.module = Py_NewRef(module);
    return 0;
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_create, core_create},
    {Py_mod_exec, core_exec},
#if GL_HAS_MULTIPLE_INTERPRETERS_SLOT
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef GL_FREE_THREADED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "goloop._core",
    .m_doc = PyDoc_STR("The native half of goloop."),
    .m_methods = core_methods,
    .m_slots = core_slots,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&core_module);
}
