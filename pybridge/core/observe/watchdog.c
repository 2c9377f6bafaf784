/*
 * watchdog.c: reports an iteration of a loop that lasts too long, while it lasts.
 *
 *     the limit has passed    golib/watchdog.go reads the stack of the loop's thread, without the
 *                             GIL: watchdog_read_frames, watchdog_gil_holder
 *     a thread of its own     waits for the GIL and calls Loop._blocked(), which logs the report:
 *                             watchdog_report
 *     the iteration ends      the loop's thread calls Loop._block_ended() before its next poll:
 *                             gl_watchdog_block_ended
 *
 * If the report is not in the log soon, the library writes a text to stderr.  The settings and the
 * log lines are in goloop/watchdog.py.
 */
#include "observe/private.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sets the collector's time to zero at the first call in this process: a forked child has its
 * parent's. */
static void
reset_gc_time_in_child(void)
{
    long pid = (long)getpid();
    if (GL_READ(G.gc_pid) != pid) {
        GL_WRITE(G.gc_pid, pid);
        GL_WRITE(G.gc_began, 0);
        GL_WRITE(G.gc_ns, 0);
    }
}

/* Returns the time that Python's collector has used in this process, ns, with a running
 * collection. */
static int64_t
gc_time_ns(void)
{
    reset_gc_time_in_child();
    int64_t began = GL_READ(G.gc_began);
    return GL_READ(G.gc_ns) + (began ? gl_monotonic_ns() - began : 0);
}

/* ---- the monitor's thread: no GIL ---------------------------------------------------- */

/* gl_watchdog.sample: stores the frames of the loop's thread and its coroutine in *to, for the
 * profile.  Returns false, with 0 frames, if no attempt succeeded or no thread runs the loop.  The
 * frames of a chain that ends without the frame of the loop's run count too. */
static uint32_t
watchdog_sample(gl_shared *sh, gl_sample *to)
{
    int n = -1;
    for (int i = 0; i < MAX_WALK_ATTEMPTS && n < 0; i++) {
        PyThreadState *thread = GL_READ(sh->thread);
        if (thread == NULL)
            break;
        n = python_walk_frames(thread, GL_READ(sh->base), to->frame, GL_SAMPLE_FRAMES,
                               &to->coroutine);
    }
    if (n < 0)
        to->frames =
            (uint32_t)~n; /* the chain ended without the frame sh->base, or broke: 0 frames */
    else
        to->frames = (uint32_t)n;
    return n != -1;
}

/* gl_watchdog.read_frames: reads at most `cap` frames of a thread, innermost first.  Returns their
 * number; -1: the chain breaks, or this Python's frames can't be read; -2: Python ends. */
static int32_t
watchdog_read_frames(void *thread, gl_raw_frame *to, int32_t cap)
{
    uint64_t coroutine;
    if (!gl_foreign_thread_attach(NULL))
        return -2;
    int n = python_walk_frames(thread, 0, to, cap, &coroutine);
    gl_foreign_thread_detach(NULL);
    if (n < 0)
        return -1;
    return n;
}

/* gl_watchdog.gil_holder: returns the state of the thread that owns the GIL; NULL: unknown, or
 * Python ends. */
static void *
watchdog_gil_holder(void)
{
    if (!gl_foreign_thread_attach(NULL))
        return NULL;
    PyThreadState *holder = python_gil_holder();
    gl_foreign_thread_detach(NULL);
    return holder;
}

/* ---- with the GIL ---------------------------------------------------------------------- */

/* Returns the open loop with this reactor's number, a new reference; NULL, without an exception, if
 * there is none: it was closed. */
static gl_loop *
find_loop(int32_t reactor)
{
    gl_loop *found = NULL;
    gl_loop_list all = gl_loops_all(false);
    for (uint32_t i = 0; found == NULL && i < all.len; i++)
        if (GL_READ(all.item[i]->go) != NULL && all.item[i]->reactor == reactor)
            found = (gl_loop *)Py_NewRef((PyObject *)all.item[i]);
    gl_loops_drop(&all);
    return found;
}

/* gl_watchdog.report: takes the GIL and calls Loop._blocked(), on a thread of its own; drops an
 * exception.  Does nothing if Python ends or the loop was closed.  The library writes to stderr if
 * the report does not reach the log. */
static void
watchdog_report(int32_t reactor)
{
    PyGILState_STATE gil;
    if (!gl_foreign_thread_attach(&gil))
        return;
    gl_loop *loop = find_loop(reactor);
    if (loop != NULL &&
        gl_drop_result(PyObject_CallMethod((PyObject *)loop, GL_METHOD(_blocked), NULL)) < 0)
        PyErr_Clear();
    Py_XDECREF(loop);
    gl_foreign_thread_detach(&gil);
}

/* The functions that the monitor calls. */
static const gl_watchdog watchdog = {watchdog_read_frames, watchdog_gil_holder, watchdog_report,
                                     watchdog_sample};

GL_PRIVATE void
gl_watchdog_init_shared(gl_shared *sh)
{
    sh->watchdog = &watchdog;
    sh->introspection = &G.introspection_socket;
    sh->python = &G.python;
    sh->gc = &G.gc_ns;
}

GL_PRIVATE void
gl_watchdog_set_thread(gl_loop *loop)
{
    gl_shared *sh = loop->shared;
    PyThreadState *ts = PyThreadState_Get();
    clockid_t clock = 0;
    uint64_t base = 0;
    (void)python_innermost_frame(ts, &base);
    GL_WRITE(sh->base, base);
#if defined(__linux__)
    (void)pthread_getcpuclockid(pthread_self(), &clock);
#endif
    sh->native_thread = (uint32_t)ts->native_thread_id;
    GL_WRITE(sh->clock, clock);
    GL_WRITE(sh->thread, ts);
}

GL_PRIVATE_INLINE void
gl_watchdog_poll_ended(gl_loop *loop)
{
    loop->shared->gc_before = GL_READ(G.gc_ns);
}

GL_PRIVATE int
gl_watchdog_block_ended(gl_loop *loop)
{
    gl_shared *sh = loop->shared;
    int64_t since = __atomic_load_n(&sh->blocked_since, __ATOMIC_ACQUIRE);
    int64_t limit = GL_READ(sh->blocked_limit);
    int64_t ns = limit;
    if (since == sh->now)
        ns = gl_monotonic_ns() - since;
    loop->blocked_seen = since;
    loop->counts.time_blocked += (uint64_t)ns;
    PyObject *pending =
        gl_take_exception(); /* a SystemExit or KeyboardInterrupt of this iteration */
    int rc = gl_drop_result(
        PyObject_CallMethod((PyObject *)loop, GL_METHOD(_block_ended), "d", (double)ns / 1e9));
    rc = gl_unraisable_unless_leaving(rc, (PyObject *)loop);
    gl_restore_exception(pending);
    return rc;
}

/* The size of the first buffer for a text of the library. */
#define FIRST_TEXT_SIZE 4096

/* Calls a function of the API table that writes a text about `about` into a buffer of `cap` bytes.
 * Returns the length of the whole text, of which `cap` bytes at most are written; < 0: an error. */
typedef int32_t (*text_writer)(const gl_table *go, void *about, char *text, int32_t cap);

/* A text_writer: describes a blocked iteration of the loop whose reactor has the number *reactor.
 * The thread state stays attached: without a GIL the caller has the loop's lock. */
static int32_t
write_block_report(const gl_table *go, void *reactor, char *text, int32_t cap)
{
    return go->block_report(*(int32_t *)reactor, text, cap);
}

/* A text_writer: formats the Python frames of a gl_stack, as thread_stack() has read them.
 * Releases the GIL during the call. */
static int32_t
write_stack(const gl_table *go, void *stack, char *text, int32_t cap)
{
    PyThreadState *ts = PyEval_SaveThread();
    int32_t n = go->stack_text(stack, text, cap);
    PyEval_RestoreThread(ts);
    return n;
}

/* A text_writer: formats the profile of this process as JSON.  Releases the GIL during the call. */
static int32_t
write_profile(const gl_table *go, void *Py_UNUSED(unused), char *text, int32_t cap)
{
    PyThreadState *ts = PyEval_SaveThread();
    int32_t n = go->profile_text(text, cap);
    PyEval_RestoreThread(ts);
    return n;
}

/* Returns the text that `write` writes about `about` as a new str, "" if `write` fails.  Starts the
 * library in a process without one.  NULL with ImportError if that is not possible, or with
 * MemoryError. */
static PyObject *
text_from_library(text_writer write, void *about)
{
    const char *message;
    const gl_table *go = gl_library_open(&message);
    if (go == NULL)
        return PyErr_Format(PyExc_ImportError, "%s", message);
    char *text = NULL;
    int32_t cap = 0;
    int32_t n = FIRST_TEXT_SIZE;
    /* A text that is longer than the buffer is written again; it may have grown meanwhile. */
    while (n > cap) {
        cap = n + n / 8;
        char *grown = PyMem_RawRealloc(text, (size_t)cap);
        if (grown == NULL) {
            PyMem_RawFree(text);
            return PyErr_NoMemory();
        }
        text = grown;
        n = write(go, about, text, cap);
    }
    PyObject *answer = PyUnicode_DecodeUTF8(text, Py_MAX(n, 0), "replace");
    PyMem_RawFree(text);
    return answer;
}

/* _block(): describes the current or the last blocked iteration by a tuple: Go's report ("" in a
 * forked child), the iteration's duration in seconds (0.0: it has ended), the collector's time in
 * it, and whether the loop has not had an event yet.  NULL with RuntimeError for a closed loop,
 * also if another thread closes it meanwhile, or with an exception of text_from_library(). */
static PyObject *
loop__block(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    if (self->shared == NULL) {
        gl_loop_check_usable(self);
        return NULL;
    }
    PyObject *text;
    if (gl_loop_is_foreign(self))
        text = PyUnicode_FromString("");
    else
        text = text_from_library(write_block_report, &self->reactor);
    if (text == NULL)
        return NULL;
    gl_shared *sh = self->shared;
    if (sh == NULL) {
        Py_DECREF(text);
        gl_loop_check_usable(self);
        return NULL;
    }
    int64_t since = __atomic_load_n(&sh->blocked_since, __ATOMIC_ACQUIRE);
    double seconds = 0.0;
    if (since != self->blocked_seen)
        seconds = (double)(gl_monotonic_ns() - since) / 1e9;
    bool starting = GL_READ(sh->metrics.events_per_turn.sum) == 0;
    return Py_BuildValue("(NddO)", text, seconds, (double)(gc_time_ns() - sh->gc_before) / 1e9,
                         starting ? Py_True : Py_False);
}

/* _set_report_state(serial, state): sets the state of the report with this number,
 * GL_REPORT_REQUESTED or GL_REPORT_LOGGED; ignored for an older report.  Returns None, as the
 * setters below do.  RuntimeError for a closed loop. */
static PyObject *
loop__set_report_state(gl_loop *self, PyObject *args)
{
    unsigned long long serial;
    unsigned state;
    if (!PyArg_ParseTuple(args, "KI:_set_report_state", &serial, &state) ||
        gl_loop_check_usable(self) < 0)
        return NULL;
    if (serial == self->shared->metrics.blocked_spells)
        __atomic_store_n(&self->shared->report_state, state, __ATOMIC_RELEASE);
    Py_RETURN_NONE;
}

/* Converts seconds to ns; 0 (no limit) for NaN, for negative numbers and if the result exceeds 64
 * bits. */
static int64_t
ns_from_seconds(double seconds)
{
    if (seconds > 0.0 && seconds < 9e9)
        return (int64_t)(seconds * 1e9);
    return 0;
}

/* _set_watchdog(limit, end): sets the limits in seconds after which an iteration is reported, and
 * after which the library aborts the process; 0: no limit.  Each setter writes only its own
 * settings, so that threads can set different settings at the same time. */
static PyObject *
loop__set_watchdog(gl_loop *self, PyObject *args)
{
    double limit, end;
    if (!PyArg_ParseTuple(args, "dd:_set_watchdog", &limit, &end) || gl_loop_check_usable(self) < 0)
        return NULL;
    GL_WRITE(self->shared->blocked_limit, ns_from_seconds(limit));
    GL_WRITE(self->shared->blocked_end, ns_from_seconds(end));
    Py_RETURN_NONE;
}

/* Stores a time in seconds in the field of gl_shared at `offset`, in ns.  Returns None, or NULL
 * with TypeError or RuntimeError. */
static PyObject *
store_seconds(gl_loop *self, PyObject *arg, size_t offset)
{
    double seconds = PyFloat_AsDouble(arg);
    if ((seconds == -1.0 && PyErr_Occurred()) || gl_loop_check_usable(self) < 0)
        return NULL;
    int64_t *field = (int64_t *)(void *)((char *)self->shared + offset);
    GL_WRITE(*field, ns_from_seconds(seconds));
    Py_RETURN_NONE;
}

/* _set_slow_limit(slow): sets the flight recorder's limit in seconds; 0: no limit. */
static PyObject *
loop__set_slow_limit(gl_loop *self, PyObject *arg)
{
    return store_seconds(self, arg, offsetof(gl_shared, slow_limit));
}

/* _set_busy_poll(seconds): sets the time for which the loop polls without sleeping before it
 * sleeps; 0: none; None: the time that a sleep costs. */
static PyObject *
loop__set_busy_poll(gl_loop *self, PyObject *arg)
{
    if (arg == Py_None) {
        if (gl_loop_check_usable(self) < 0)
            return NULL;
        GL_WRITE(self->shared->busy_poll, -1);
        Py_RETURN_NONE;
    }
    return store_seconds(self, arg, offsetof(gl_shared, busy_poll));
}

/* _set_sampling(every, number): sets the interval of the profile's samples in seconds (0: no
 * samples), and the loop's number in reports. */
static PyObject *
loop__set_sampling(gl_loop *self, PyObject *args)
{
    double every;
    unsigned number;
    if (!PyArg_ParseTuple(args, "dI:_set_sampling", &every, &number) ||
        gl_loop_check_usable(self) < 0)
        return NULL;
    GL_WRITE(self->shared->sample_every, ns_from_seconds(every));
    GL_WRITE(self->shared->number, number);
    Py_RETURN_NONE;
}

/* ---- the collector ------------------------------------------------------------------------- */

/* _note_collection(phase, info), an entry of gc.callbacks: adds the time of a collection to the
 * collector's time, and records the start or end of the collection in the traces of this thread's
 * loops.  `phase` is "start" or "stop".  Returns None. */
static PyObject *
record_collection(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    int64_t now = gl_monotonic_ns();
    bool begins = nargs > 0 && PyUnicode_Check(args[0]) &&
                  PyUnicode_CompareWithASCIIString(args[0], "start") == 0;
    reset_gc_time_in_child();
    gl_trace_gc(begins);
    if (begins) {
        GL_WRITE(G.gc_began, now);
    } else if (GL_READ(G.gc_began)) {
        GL_WRITE(G.gc_ns, GL_READ(G.gc_ns) + now - GL_READ(G.gc_began));
        GL_WRITE(G.gc_began, 0);
    }
    Py_RETURN_NONE;
}

/* _collected(): returns the time that the collector has used in this process, in seconds. */
static PyObject *
collector_seconds(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyFloat_FromDouble((double)gc_time_ns() / 1e9);
}

/* _thread_stack(ident): returns the stack of the thread with this threading.get_ident() as a str,
 * read as the watchdog reads it; empty if there is no such thread, if the stack changes meanwhile,
 * or if this Python's frames can't be read.  Starts the library in a process without one;
 * ImportError if that is not possible. */
static PyObject *
thread_stack(PyObject *Py_UNUSED(module), PyObject *ident)
{
    unsigned long id = PyLong_AsUnsignedLong(ident);
    if (id == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    gl_stack s = {.python = (uintptr_t)&G.python};
    python_thread_stack(id, &s);
    return text_from_library(write_stack, &s);
}

/* _profile(): returns the samples of this process, as JSON.  Starts the library in a process
 * without one; ImportError if that is not possible. */
static PyObject *
profile_json(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return text_from_library(write_profile, NULL);
}

/* _set_introspection_socket(fd): sets the listening introspection socket of this process; -1: no
 * socket.  The fd stays the caller's.  OSError, and the previous socket stays set, if the fd is not
 * open. */
static PyObject *
set_introspection_socket(PyObject *Py_UNUSED(module), PyObject *fd_object)
{
    struct stat status = {0};
    int fd = (int)PyLong_AsLong(fd_object);
    if (PyErr_Occurred())
        return NULL;
    if (fd >= 0 && fstat(fd, &status) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    GL_WRITE(G.introspection_socket.dev, status.st_dev);
    GL_WRITE(G.introspection_socket.ino, status.st_ino);
    GL_WRITE(G.introspection_socket.listener, fd);
    Py_RETURN_NONE;
}

static PyMethodDef watchdog_table[] = {
    {"_block", GL_NOARGS(loop__block), NULL},
    {"_set_report_state", (PyCFunction)loop__set_report_state, METH_VARARGS, NULL},
    {"_set_watchdog", (PyCFunction)loop__set_watchdog, METH_VARARGS, NULL},
    {"_set_slow_limit", GL_ONEARG(loop__set_slow_limit), NULL},
    {"_set_busy_poll", GL_ONEARG(loop__set_busy_poll), NULL},
    {"_set_sampling", (PyCFunction)loop__set_sampling, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
GL_PRIVATE PyMethodDef *const gl_watchdog_methods = watchdog_table;

static PyMethodDef watchdog_functions[] = {
    {"_set_introspection_socket", GL_ONEARG(set_introspection_socket),
     PyDoc_STR("Set the introspection socket: a listening socket's number, or -1.")},
    {"_note_collection", GL_FAST(record_collection),
     PyDoc_STR("Measure a collection; an entry of gc.callbacks.")},
    {"_thread_stack", GL_ONEARG(thread_stack), PyDoc_STR("Return the Python stack of a thread.")},
    {"_profile", GL_NOARGS(profile_json),
     PyDoc_STR("Return the samples of this process, as JSON.")},
    {"_collected", GL_NOARGS(collector_seconds),
     PyDoc_STR("Return the seconds that Python's collector has taken, by _note_collection().")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_watchdog_init(PyObject *module)
{
    python_fill_layout(&G.python);
    G.introspection_socket.listener = -1;
    return PyModule_AddFunctions(module, watchdog_functions);
}
