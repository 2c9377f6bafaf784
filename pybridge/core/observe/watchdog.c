/*
 * watchdog.c: an iteration of a loop that lasts too long is reported while it lasts.
 *
 * Go's half sees it (golib/watchdog.c).  Here its thread's stack is noted at once, without the
 * GIL; then a thread waits for the GIL and calls Loop._blocked(), which logs it; the loop's own
 * thread calls Loop._block_ended() before its next poll.  Where the GIL is not to be had, a text
 * goes to stderr.  goloop/watchdog.py has the rest.
 *
 * gl_block is written by the monitor, with its lock, and read with the GIL: `mutex` is between.
 */
#include "observe/private.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define FRAMES_MAX 48

typedef struct {
    int frames;
    gl_frame frame[FRAMES_MAX]; /* innermost first */
} block_stack;

typedef struct gl_block {
    pthread_mutex_t mutex;
    uint64_t serial;
    block_stack own;          /* what the loop's thread does */
    block_stack holder;       /* and another, which kept the GIL meanwhile; else without frames */
} gl_block;

/* A forked child counts its own. */
static void
collections_own(void)
{
    long pid = (long)getpid();
    if (GL_READ(G.gc_pid) != pid) {
        GL_WRITE(G.gc_pid, pid);
        GL_WRITE(G.gc_began, 0);
        GL_WRITE(G.gc_ns, 0);
    }
}

static int64_t
collected_ns(void)
{
    collections_own();
    int64_t began = GL_READ(G.gc_began);
    return GL_READ(G.gc_ns) + (began ? gl_monotonic_ns() - began : 0);
}

/* ---- the monitor's thread: no GIL ---------------------------------------------------- */

static uint32_t
watchdog_sample(gl_shared *sh, gl_sample *to)
{
    int n = -1;
    for (int i = 0; GL_READ(sh->thread) != NULL && i < TRIES && n < 0; i++)
        n = python_walk(GL_READ(sh->thread), sh->base, to->frame, GL_SAMPLE_FRAMES, &to->coroutine);
    to->frames = (uint32_t)(n < 0 ? 0 : n);
    return n >= 0;
}

static uint32_t
watchdog_seen(gl_shared *sh, uint64_t serial)
{
    gl_block *b = sh->block;
    if (!gl_door_enter(NULL))
        return 0;
    pthread_mutex_lock(&b->mutex);
    b->serial = serial;
    b->holder.frames = 0;
    /* lint: allow python-under-mutex: the library that calls is open */
    b->own.frames = python_stack(GL_READ(sh->thread), b->own.frame, FRAMES_MAX);
    pthread_mutex_unlock(&b->mutex);
    gl_door_leave(NULL);
    return 1;
}

/* Formats into what is left of a buffer. */
__attribute__((format(printf, 4, 5))) static size_t
add_text(char *text, size_t at, size_t room, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text + at, room - at, format, args);
    va_end(args);
    return n < 0 ? at : at + (size_t)n < room ? at + (size_t)n : room - 1;
}

static size_t
add_stack(char *text, size_t at, size_t room, const block_stack *s)
{
    for (int i = s->frames; i-- > 0;)
        at = add_text(text, at, room, "  File \"%s\", line %d, in %s\n", s->frame[i].file,
                      s->frame[i].line, s->frame[i].function);
    return s->frames ? at : add_text(text, at, room, "  (its Python stack can't be told)\n");
}

static size_t
watchdog_insist(gl_shared *sh, int64_t ns, uint32_t gives_up, char *text, size_t room)
{
    gl_block *b = sh->block;
    size_t at = 0;
    if (!gl_door_enter(NULL))
        return 0;
    PyThreadState *holder = python_gil_holder();
    pthread_mutex_lock(&b->mutex);
    if (holder != NULL && holder != GL_READ(sh->thread))
        /* lint: allow python-under-mutex: the library that calls is open */
        b->holder.frames = python_stack(holder, b->holder.frame, FRAMES_MAX);
    at = add_text(text, at, room,
                  "goloop: the event loop of process %ld has been blocked for %.3f s%s\n",
                  (long)getpid(), (double)ns / 1e9,
                  gives_up ? "; the process gives up (GOLOOP_WATCHDOG_ABORT)"
                           : ", and the GIL is held");
    at = add_stack(text, at, room, &b->own);
    if (b->holder.frames > 0) {
        at = add_text(text, at, room, "another thread keeps the GIL:\n");
        at = add_stack(text, at, room, &b->holder);
    }
    pthread_mutex_unlock(&b->mutex);
    gl_door_leave(NULL);
    return at;
}

/* ---- with the GIL ---------------------------------------------------------------------- */

static gl_loop *
loop_of_reactor(int32_t reactor)
{
    gl_loop *found = NULL;
    gl_loop_list all = gl_loops_all(false);
    for (uint32_t i = 0; found == NULL && i < all.len; i++)
        if (GL_READ(all.item[i]->go) != NULL && all.item[i]->reactor == reactor)
            found = (gl_loop *)Py_NewRef((PyObject *)all.item[i]);
    gl_loops_drop(&all);
    return found;
}

/* Notes that Python knows. */
static void
note_told(gl_loop *loop)
{
    GL_GUARD(loop);
    if (loop->shared != NULL)
        __atomic_store_n(&loop->shared->blocked_told, 1u, __ATOMIC_RELEASE);
}

/* A thread of its own.  What fails is told by `insist`. */
static void
watchdog_tell(int32_t reactor)
{
    PyGILState_STATE gil;
    if (!gl_door_enter(&gil))
        return;
    gl_loop *loop = loop_of_reactor(reactor);
    PyObject *told = loop ? PyObject_CallMethod((PyObject *)loop, "_blocked", NULL) : NULL;
    if (told == Py_True)
        note_told(loop);
    PyErr_Clear();
    Py_XDECREF(told);
    Py_XDECREF(loop);
    gl_door_leave(&gil);
}

static const gl_watchdog watchdog = {watchdog_seen, watchdog_tell, watchdog_insist,
                                     watchdog_sample};

GL_PRIVATE int
gl_watchdog_open(gl_shared *sh)
{
    /* Not zeroed as a whole: the frames are 43 KB, which most loops never touch. */
    gl_block *b = PyMem_RawMalloc(sizeof *b);
    if (b == NULL)
        return -1;
    pthread_mutex_init(&b->mutex, NULL);
    b->serial = 0;
    b->own.frames = b->holder.frames = 0;
    sh->block = b;
    sh->watchdog = &watchdog;
    sh->asker = &G.asker;
    sh->python = &G.python, sh->gc = &G.gc_ns;
    return 0;
}

GL_PRIVATE void
gl_watchdog_close(gl_shared *sh)
{
    PyMem_RawFree(sh->block);
}

GL_PRIVATE void
gl_watchdog_runs(gl_loop *loop)
{
    gl_shared *sh = loop->shared;
    PyThreadState *ts = PyThreadState_Get();
    clockid_t clock = 0;
    (void)python_innermost(ts, &sh->base);
#if defined(__linux__)
    (void)pthread_getcpuclockid(pthread_self(), &clock);
#endif
    sh->clock = (int32_t)clock;
    GL_WRITE(sh->thread, ts);
}

GL_PRIVATE_INLINE void
gl_watchdog_polled(gl_loop *loop)
{
    loop->shared->gc_before = GL_READ(G.gc_ns);
}

GL_PRIVATE int
gl_watchdog_ended(gl_loop *loop)
{
    gl_shared *sh = loop->shared;
    int64_t since = __atomic_load_n(&sh->blocked_since, __ATOMIC_ACQUIRE), limit = sh->blocked_limit;
    int64_t ns = since == sh->now ? gl_monotonic_ns() - since : limit;
    loop->blocked_seen = since;
    loop->counts.time_blocked += (uint64_t)ns;
    PyObject *leaves = gl_take_exception(); /* the loop, and the iteration */
    int rc = gl_done(PyObject_CallMethod((PyObject *)loop, "_block_ended", "d", (double)ns / 1e9));
    rc = gl_unraisable_unless_leaving(rc, (PyObject *)loop);
    gl_restore_exception(leaves);
    return rc;
}

static PyObject *
stack_list(const block_stack *s)
{
    PyObject *list = PyList_New(0);
    for (int i = s->frames; list != NULL && i-- > 0;) {
        const gl_frame *f = &s->frame[i];
        PyObject *entry = Py_BuildValue("(ssi)", f->function, f->file, f->line);
        if (entry == NULL || PyList_Append(list, entry) < 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

/* _block(): what is known of the present block, or of the last: its number, how long it has
 * lasted in seconds (0.0: it has ended), how much of that the collector had, the stack, innermost
 * last, and that of another thread that keeps the GIL. */
static PyObject *
loop__block(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    if (self->shared == NULL) {
        gl_loop_check_usable(self);
        return NULL;
    }
    gl_block *copy = PyMem_RawMalloc(sizeof *copy), *b = self->shared->block;
    if (copy == NULL)
        return PyErr_NoMemory();
    pthread_mutex_lock(&b->mutex);
    memcpy(copy, b, sizeof *copy);
    pthread_mutex_unlock(&b->mutex);
    int64_t since = __atomic_load_n(&self->shared->blocked_since, __ATOMIC_ACQUIRE);
    double seconds = 0.0;
    if (since != self->blocked_seen)
        seconds = (double)(gl_monotonic_ns() - since) / 1e9;
    double gc = (double)(collected_ns() - self->shared->gc_before) / 1e9;
    PyObject *result = NULL, *own = stack_list(&copy->own), *holder = stack_list(&copy->holder);
    if (own != NULL && holder != NULL)
        result = Py_BuildValue("(KddOO)", (unsigned long long)copy->serial, seconds, gc, own,
                               holder);
    Py_XDECREF(own);
    Py_XDECREF(holder);
    PyMem_RawFree(copy);
    return result;
}

/* _set_watchdog(limit, end, every, slow): seconds; 0: none. */
static PyObject *
loop__set_watchdog(gl_loop *self, PyObject *args)
{
    double limit, end, every, slow;
    if (!PyArg_ParseTuple(args, "dddd:_set_watchdog", &limit, &end, &every, &slow) ||
        gl_loop_check_usable(self) < 0)
        return NULL;
    __atomic_store_n(&self->shared->blocked_limit, (int64_t)(limit * 1e9), __ATOMIC_RELAXED);
    __atomic_store_n(&self->shared->blocked_end, (int64_t)(end * 1e9), __ATOMIC_RELAXED);
    __atomic_store_n(&self->shared->sample_every, (int64_t)(every * 1e9), __ATOMIC_RELAXED);
    __atomic_store_n(&self->shared->slow_limit, (int64_t)(slow * 1e9), __ATOMIC_RELAXED);
    Py_RETURN_NONE;
}

/* ---- the collector ------------------------------------------------------------------------- */

/* For gc.callbacks. */
static PyObject *
note_collection(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    int64_t now = gl_monotonic_ns();
    collections_own();
    if (nargs > 0 && PyUnicode_Check(args[0]) &&
        PyUnicode_CompareWithASCIIString(args[0], "start") == 0) {
        GL_WRITE(G.gc_began, now);
    } else if (GL_READ(G.gc_began)) {
        GL_WRITE(G.gc_ns, GL_READ(G.gc_ns) + now - GL_READ(G.gc_began));
        GL_WRITE(G.gc_began, 0);
    }
    Py_RETURN_NONE;
}

static PyObject *
collected(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyFloat_FromDouble((double)collected_ns() / 1e9);
}

/* _thread_stack(ident): as the watchdog reads it, without the GIL; for tests. */
static PyObject *
thread_stack(PyObject *Py_UNUSED(module), PyObject *ident)
{
    unsigned long id = PyLong_AsUnsignedLong(ident);
    if (id == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    block_stack *s = PyMem_RawCalloc(1, sizeof *s);
    if (s == NULL)
        return PyErr_NoMemory();
    PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    while (ts != NULL && ts->thread_id != id)
        ts = PyThreadState_Next(ts);
    Py_BEGIN_ALLOW_THREADS
    s->frames = python_stack(ts, s->frame, FRAMES_MAX);
    Py_END_ALLOW_THREADS
    PyObject *list = stack_list(s);
    PyMem_RawFree(s);
    return list;
}

#define PROFILE_MAX (1 << 20)

/* _profile(): what was sampled in this process, as JSON; opens the Go library. */
static PyObject *
profile(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    const char *message;
    const gl_table *go = gl_library(&message);
    char *text = go ? PyMem_RawMalloc(PROFILE_MAX) : NULL;
    if (text == NULL)
        return go ? PyErr_NoMemory() : PyErr_Format(PyExc_ImportError, "%s", message);
    int32_t n;
    Py_BEGIN_ALLOW_THREADS
    n = go->describe(GL_PROFILE, text, PROFILE_MAX);
    Py_END_ALLOW_THREADS
    PyObject *told = PyUnicode_DecodeUTF8(text, n < 0 || n > PROFILE_MAX ? 0 : n, "replace");
    PyMem_RawFree(text);
    return told;
}

static PyMethodDef watchdog_table[] = {
    {"_block", GL_NOARGS(loop__block), NULL},
    {"_set_watchdog", (PyCFunction)loop__set_watchdog, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
GL_PRIVATE PyMethodDef *const gl_watchdog_methods = watchdog_table;

static PyMethodDef watchdog_functions[] = {
    {"_note_collection", GL_FAST(note_collection), PyDoc_STR("For gc.callbacks.")},
    {"_thread_stack", GL_ONEARG(thread_stack),
     PyDoc_STR("The Python stack of a thread, read without the GIL; for tests.")},
    {"_profile", GL_NOARGS(profile), PyDoc_STR("What was sampled in this process, as JSON.")},
    {"_collected", GL_NOARGS(collected),
     PyDoc_STR("Seconds that Python's collector has taken since _note_collection is called.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_watchdog_init(PyObject *module)
{
    python_layout(&G.python);
    return PyModule_AddFunctions(module, watchdog_functions);
}
