/*
 * watchdog.c: an iteration of a loop that lasts too long is reported while it lasts.
 *
 * The library sees it (golib/watchdog.go).  Here its thread's stack is noted at once, without the
 * GIL; then a thread waits for the GIL and calls Loop._blocked(), which logs it; the loop's own
 * thread calls Loop._block_ended() before its next poll.  Where the log does not have the report
 * soon, the library writes a text to stderr.  goloop/watchdog.py has the rest.
 *
 * gl_block is written by the monitor, with its lock, and read with the GIL: `mutex` is between.
 */
#include "observe/private.h"

#include <pthread.h>
#include <unistd.h>

typedef struct gl_block {
    pthread_mutex_t mutex;
    uint64_t popped_before;   /* *popped when the iteration began [loop] */
    int64_t since, cpu_before; /* the iteration that is watched, and the thread's CPU time then */
    uint64_t begun;           /* its callbacks at the last tick, and when the last of them was new */
    int64_t begun_at;
    PyThreadState *holder_seen; /* who had the GIL at the last look, where that is known */
    uint64_t serial;
    int64_t callback_ns;      /* how long the callback of the last look had lasted */
    uint32_t looks;
    gl_stack stack[GL_LOOKS + 1];
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
    for (int i = 0; GL_READ(sh->thread) != NULL && i < WALKS_MOST && n < 0; i++)
        n = python_walk(GL_READ(sh->thread), sh->base, to->frame, GL_SAMPLE_FRAMES, &to->coroutine);
    to->frames = (uint32_t)(n < 0 ? ~n : n);
    return n != -1;
}

/* -1 where it is not known. */
static int64_t
cpu_ns(gl_shared *sh)
{
    struct timespec t;
    clockid_t clock = GL_READ(sh->clock);
    if (clock == 0 || clock_gettime(clock, &t) != 0)
        return -1;
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Since the poll. */
static uint64_t
callbacks_begun(gl_shared *sh)
{
    const gl_block *b = sh->block;
    return GL_READ(*sh->popped) - GL_READ(b->popped_before) + GL_READ(*sh->handed);
}

static void
watchdog_watch(gl_shared *sh, int64_t since, int64_t now)
{
    gl_block *b = sh->block;
    uint64_t begun = callbacks_begun(sh);
    if (!gl_door_enter(NULL))
        return;
    pthread_mutex_lock(&b->mutex);
    if (b->since != since) {
        b->since = b->begun_at = since;
        b->cpu_before = cpu_ns(sh);
    } else if (begun != b->begun) {
        b->begun_at = now;
    }
    b->begun = begun;
    sh->blocked_held = sh->blocked_held && python_gil_holder() == b->holder_seen;
    pthread_mutex_unlock(&b->mutex);
    gl_door_leave(NULL);
}

static uint32_t
watchdog_seen(gl_shared *sh, uint64_t serial, uint32_t look)
{
    gl_block *b = sh->block;
    gl_stack *s = &b->stack[look];
    if (!gl_door_enter(NULL))
        return 0;
    PyThreadState *holder = python_gil_holder(), *own = GL_READ(sh->thread);
    pthread_mutex_lock(&b->mutex);
    if (look < GL_LOOKS) {
        b->serial = serial;
        b->holder_seen = holder;
        sh->blocked_held = holder != NULL;
        b->looks = look + 1;
        b->callback_ns = gl_monotonic_ns() - b->begun_at;
        b->stack[GL_LOOKS].frames = 0;
    } else {
        own = holder == own ? NULL : holder;
    }
    /* lint: allow python-under-mutex: the library that calls is open */
    s->frames = python_stack(own, s->frame, GL_FRAMES);
    s->ns = gl_monotonic_ns() - b->since;
    pthread_mutex_unlock(&b->mutex);
    gl_door_leave(NULL);
    return 1;
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

/* A thread of its own.  What fails stderr gets. */
static void
watchdog_tell(int32_t reactor)
{
    PyGILState_STATE gil;
    if (!gl_door_enter(&gil))
        return;
    gl_loop *loop = loop_of_reactor(reactor);
    if (loop != NULL && gl_done(PyObject_CallMethod((PyObject *)loop, "_blocked", NULL)) < 0)
        PyErr_Clear();
    Py_XDECREF(loop);
    gl_door_leave(&gil);
}

static const gl_watchdog watchdog = {watchdog_watch, watchdog_seen, watchdog_tell,
                                     watchdog_sample};

GL_PRIVATE int
gl_watchdog_open(gl_shared *sh)
{
    /* Not zeroed as a whole: the frames are 108 KB, which most loops never touch. */
    gl_block *b = PyMem_RawMalloc(sizeof *b);
    if (b == NULL)
        return -1;
    memset(b, 0, offsetof(gl_block, stack));
    pthread_mutex_init(&b->mutex, NULL);
    sh->block = b;
    sh->stacks = b->stack;
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
    sh->native_thread = (uint32_t)ts->native_thread_id;
    GL_WRITE(sh->clock, clock);
    GL_WRITE(sh->thread, ts);
}

GL_PRIVATE_INLINE void
gl_watchdog_polled(gl_loop *loop)
{
    gl_shared *sh = loop->shared;
    sh->gc_before = GL_READ(G.gc_ns);
    GL_WRITE(((gl_block *)sh->block)->popped_before, *sh->popped);
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
appended(PyObject *list, PyObject *entry)
{
    if (list != NULL && (entry == NULL || PyList_Append(list, entry) < 0))
        Py_CLEAR(list);
    Py_XDECREF(entry);
    return list;
}

/* [(function, file, line)], innermost last. */
static PyObject *
stack_list(const gl_stack *s)
{
    PyObject *list = PyList_New(0);
    for (int i = s->frames; list != NULL && i-- > 0;) {
        const gl_frame *f = &s->frame[i];
        list = appended(list, Py_BuildValue("(ssi)", f->function, f->file, f->line));
    }
    return list;
}

/* _block(): what is known of the present block, or of the last: its number, how long it has
 * lasted in seconds (0.0: it has ended), how much of that the collector had, the CPU time or None,
 * callbacks, seconds of the one at the last look, a stack for each look, and the GIL's holder's. */
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
    double seconds = since == self->blocked_seen ? 0.0 : (double)(gl_monotonic_ns() - since) / 1e9;
    int64_t cpu = copy->cpu_before >= 0 ? cpu_ns(self->shared) - copy->cpu_before : -1;
    PyObject *stacks = PyList_New(0);
    for (uint32_t i = 0; stacks != NULL && copy->looks > 0 && i <= copy->looks; i++) {
        gl_stack *s = &copy->stack[i < copy->looks ? i : GL_LOOKS];
        stacks = appended(stacks, Py_BuildValue("(dN)", (double)s->ns / 1e9, stack_list(s)));
    }
    PyObject *result = Py_BuildValue(
        "(KddNKdN)", (unsigned long long)copy->serial, seconds,
        (double)(collected_ns() - self->shared->gc_before) / 1e9,
        cpu < 0 ? Py_NewRef(Py_None) : PyFloat_FromDouble((double)cpu / 1e9),
        (unsigned long long)callbacks_begun(self->shared), (double)copy->callback_ns / 1e9,
        stacks);
    PyMem_RawFree(copy);
    return result;
}

/* _block_told(serial, how): GL_REPORT_WAITS or GL_REPORTED. */
static PyObject *
loop__block_told(gl_loop *self, PyObject *args)
{
    unsigned long long serial;
    unsigned how;
    if (!PyArg_ParseTuple(args, "KI:_block_told", &serial, &how) || gl_loop_check_usable(self) < 0)
        return NULL;
    if (serial == self->shared->metrics.blocked_spells)
        __atomic_store_n(&self->shared->blocked_told, how, __ATOMIC_RELEASE);
    Py_RETURN_NONE;
}

/* _set_watchdog(limit, end, every, slow, number): seconds; 0: none; and the loop's number in reports. */
static PyObject *
loop__set_watchdog(gl_loop *self, PyObject *args)
{
    double limit, end, every, slow;
    unsigned number;
    if (!PyArg_ParseTuple(args, "ddddI:_set_watchdog", &limit, &end, &every, &slow, &number) ||
        gl_loop_check_usable(self) < 0)
        return NULL;
    __atomic_store_n(&self->shared->blocked_limit, (int64_t)(limit * 1e9), __ATOMIC_RELAXED);
    __atomic_store_n(&self->shared->blocked_end, (int64_t)(end * 1e9), __ATOMIC_RELAXED);
    __atomic_store_n(&self->shared->sample_every, (int64_t)(every * 1e9), __ATOMIC_RELAXED);
    __atomic_store_n(&self->shared->slow_limit, (int64_t)(slow * 1e9), __ATOMIC_RELAXED);
    GL_WRITE(self->shared->number, number);
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
    gl_stack *s = PyMem_RawCalloc(1, sizeof *s);
    if (s == NULL)
        return PyErr_NoMemory();
    PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    while (ts != NULL && ts->thread_id != id)
        ts = PyThreadState_Next(ts);
    Py_BEGIN_ALLOW_THREADS
    s->frames = python_stack(ts, s->frame, GL_FRAMES);
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
    {"_block_told", (PyCFunction)loop__block_told, METH_VARARGS, NULL},
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
