/*
 * python_stack.c: reads the Python stack of another thread without the GIL.
 *
 * The monitor reports the stack of a thread that may never release the GIL.  The thread may be
 * running, so each pointer that is read may be stale, and none is dereferenced.  Memory is copied
 * by process_vm_readv(2), which returns EFAULT for an invalid address, needs no permission for the
 * process itself, and needs no descriptor.  If a sandbox refuses the call, no stack is read.  No
 * reference is counted, and only the caller's buffer is written.
 *
 * C walks the chain of frames.  Go reads names and lines from the code objects (golib/pycode),
 * after a check that each address has a code object.  The watchdog walks a broken chain again.
 *
 * The layout of frames is internal to CPython.  It is the same from 3.12 to 3.15.  For a newer
 * Python, and for 3.14 and later without the GIL, no stack is read.
 */
#include "observe/private.h"

#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <sys/uio.h>
#endif

/* The first fields of _PyInterpreterFrame. */
typedef struct {
#if GL_FRAME_LAYOUT_OF_3_11
    void *func, *globals, *builtins, *locals;
    uintptr_t code;
    void *object;
    uintptr_t previous, instruction;
    int stacktop;
    bool is_entry;
#else
    uintptr_t code; /* from 3.14 on with flags in the lowest bits */
    uintptr_t previous;
    void *function, *globals, *builtins, *locals, *object;
    uintptr_t instruction;
#if GL_FRAME_HAS_STACKTOP
    int stacktop;
#else
    void *stackpointer;
#endif
    uint16_t return_offset;
#endif
    char owner;
} frame_head;

/* Values of `owner`. */
#define OWNED_BY_GENERATOR 1
#define OWNED_BY_C 3 /* or more: an entry frame of C between Python frames */
#if GL_GENERATOR_HAS_IFRAME
#define GENERATOR_FRAME offsetof(PyGenObject, gi_iframe)
#else
#define GENERATOR_FRAME (sizeof(PyObject) + 7 * sizeof(void *))
#endif

/* The lowest bits of the word `code`, which are flags in some versions. */
#define FLAGS ((uintptr_t)3)
/* The maximum number of frames in a walk, since a changing chain can become a circle. */
#define MAX_STEPS 1000

/* Copies memory of this process; returns false if it can't be read.  The system call is made by its
 * number, because AddressSanitizer checks the arguments of the C library's function. */
static bool
read_memory(uintptr_t from, void *to, size_t n)
{
#if defined(__linux__)
    struct iovec remote = {(void *)from, n};
    struct iovec local = {to, n};
    return syscall(SYS_process_vm_readv, getpid(), &local, 1L, &remote, 1L, 0L) == (long)n;
#else
    (void)from;
    (void)to;
    (void)n;
    return false;
#endif
}

GL_PRIVATE bool
python_innermost_frame(PyThreadState *ts, uint64_t *frame)
{
#if GL_THREAD_HAS_CFRAME
    uintptr_t cframe;
    return read_memory((uintptr_t)&ts->cframe, &cframe, sizeof cframe) &&
           read_memory(cframe + offsetof(_PyCFrame, current_frame), frame, sizeof *frame);
#else
    return read_memory((uintptr_t)&ts->current_frame, frame, sizeof *frame);
#endif
}

GL_PRIVATE int
python_walk_frames(PyThreadState *ts, uint64_t until, gl_raw_frame *to, int cap,
                   uint64_t *coroutine)
{
    uint64_t next;
    int n = 0;
    *coroutine = 0;
    if (!GL_FRAMES_KNOWN || !python_innermost_frame(ts, &next))
        return -1;
    for (int steps = 0; next != 0 && next != until && steps < MAX_STEPS; steps++) {
        if (until == 0 && n == cap)
            break;
        frame_head frame;
        if (!read_memory(next, &frame, sizeof frame))
            return -1;
        if (frame.owner < OWNED_BY_C) {
            if (n < cap)
                n++;
            to[n - 1] = (gl_raw_frame){frame.code & ~FLAGS, frame.instruction};
            *coroutine = 0;
            if (frame.owner == OWNED_BY_GENERATOR)
                *coroutine = next - GENERATOR_FRAME;
        }
        next = frame.previous;
    }
    if (next != until && until != 0)
        return ~n;
    return n;
}

/* ---- the stack of any thread ------------------------------------------------------------ */

/* Returns the thread state with this threading.get_ident(), borrowed; NULL, without an exception,
 * if there is none.  Called with the GIL or in a stopped world. */
static PyThreadState *
find_thread(unsigned long id)
{
    PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    while (ts != NULL && ts->thread_id != id)
        /* lint: allow thread-states: with the GIL, or in a stopped world */
        ts = PyThreadState_Next(ts);
    return ts;
}

/* Reads the frames of a thread into `to`; no frames if the chain breaks. */
static void
read_stack(PyThreadState *ts, gl_stack *to)
{
    uint64_t coroutine;
    int frames = python_walk_frames(ts, 0, to->frame, GL_FRAMES, &coroutine);
    to->frames = Py_MAX(frames, 0);
}

#ifdef GL_FREE_THREADED

/* The arguments of read_stack_stopped(). */
typedef struct {
    unsigned long id;
    gl_stack *to;
} stack_request;

/* A gcvisitobjects_t that reads the stack of `arg`, a stack_request, and ends the visit.  A lock
 * that CPython does not export guards the list of thread states, and another thread frees its entry
 * at its end.  CPython has this lock while PyUnstable_GC_VisitObjects() visits objects in a stopped
 * world. */
static int
read_stack_stopped(PyObject *Py_UNUSED(first), void *arg)
{
    stack_request *request = arg;
    PyThreadState *ts = find_thread(request->id);
    if (ts != NULL)
        read_stack(ts, request->to);
    return 0;
}

GL_PRIVATE void
python_thread_stack(unsigned long id, gl_stack *to)
{
    stack_request request = {id, to};
    uint64_t frame;
    /* The other threads are stopped only if the system allows reading memory. */
    if (GL_FRAMES_KNOWN && python_innermost_frame(PyThreadState_Get(), &frame))
        gl_visit_stopped_world(read_stack_stopped, &request);
}

#else

GL_PRIVATE void
python_thread_stack(unsigned long id, gl_stack *to)
{
    /* The list can be walked with the GIL: entries are removed only with the GIL, and new entries
     * become its head.  The frames are read without the GIL, as by the monitor, so the thread may
     * end meanwhile. */
    PyThreadState *ts = find_thread(id);
    if (ts == NULL)
        return;
    Py_BEGIN_ALLOW_THREADS
    read_stack(ts, to);
    Py_END_ALLOW_THREADS
}

#endif

GL_PRIVATE void
python_fill_layout(gl_python *to)
{
    PyASCIIObject kind = {0};
    PyASCIIObject compact = {0};
    PyASCIIObject ascii = {0};
    const size_t state = offsetof(PyASCIIObject, state);
    /* All bits of one bit field are set in each, to get the field's mask. */
    kind.state.kind = 7;
    compact.state.compact = 1;
    ascii.state.ascii = 1;
    *to = (gl_python){
        .code_type = (uintptr_t)&PyCode_Type,
        .none_type = (uintptr_t)Py_TYPE(Py_None),
        .str_type = (uintptr_t)&PyUnicode_Type,
        .bytes_type = (uintptr_t)&PyBytes_Type,
        .object_type = offsetof(PyObject, ob_type),
        .qualname = offsetof(PyCodeObject, co_qualname),
        .filename = offsetof(PyCodeObject, co_filename),
        .linetable = offsetof(PyCodeObject, co_linetable),
        .firstlineno = offsetof(PyCodeObject, co_firstlineno),
        .code_size = offsetof(PyCodeObject, co_code_adaptive),
        .str_length = offsetof(PyASCIIObject, length),
        .str_hash = offsetof(PyASCIIObject, hash),
        .str_state = state,
        .ascii_data = sizeof(PyASCIIObject),
        .data = sizeof(PyCompactUnicodeObject),
        .bytes_length = offsetof(PyVarObject, ob_size),
        .bytes_data = offsetof(PyBytesObject, ob_sval),
    };
    memcpy(&to->str_kind, (char *)&kind + state, sizeof to->str_kind);
    memcpy(&to->str_compact, (char *)&compact + state, sizeof to->str_compact);
    memcpy(&to->str_ascii, (char *)&ascii + state, sizeof to->str_ascii);
}

GL_PRIVATE PyThreadState *
python_gil_holder(void)
{
#if GL_CURRENT_THREAD_IS_GLOBAL
    return _PyThreadState_UncheckedGet(); /* the GIL's owner, on any thread */
#elif !GL_FRAMES_KNOWN || !GL_THREAD_STATE_SHOWS_GIL
    return NULL; /* 3.12 does not store it, and without a GIL several threads are attached */
#else
    PyThreadState *holder = NULL;
    PyThreadState state;
    PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    for (int i = 0; ts != NULL && holder == NULL && i < 10000; i++) {
        if (!read_memory((uintptr_t)ts, &state, sizeof state))
            break;
        if (state.state == 1) /* _Py_THREAD_ATTACHED */
            holder = ts;
        ts = state.next;
    }
    return holder;
#endif
}
