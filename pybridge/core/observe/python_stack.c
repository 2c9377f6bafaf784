/*
 * python_stack.c: the Python stack of another thread, read without the GIL.
 *
 * For the monitor, which tells what a thread does that may keep the GIL for ever.  The thread
 * runs on meanwhile, so that each pointer found may be stale: nothing is dereferenced.  Memory is
 * copied by process_vm_readv(2), which answers EFAULT for an address that is none, asks for no right
 * where the process is one's own, and needs no descriptor; where a sandbox refuses it there is no
 * stack.  No reference is counted, nothing is written but the caller's buffer.
 *
 * Here the chain of frames is walked; Go reads what the code objects say (golib/python_code.go),
 * each of which must prove to be one.  A chain that breaks is walked again.
 *
 * The frames' layout is CPython's own business.  It is the same from 3.12 to 3.15; of a newer
 * Python, or of 3.14 and later without the GIL, there is no stack.
 */
#include "observe/private.h"

#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <sys/uio.h>
#endif

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

#define OWNED_BY_GENERATOR 1
#define OWNED_BY_C 3 /* or more: between two calls of C's, no frame of Python's */
#if GL_GENERATOR_HAS_IFRAME
#define GENERATOR_FRAME offsetof(PyGenObject, gi_iframe)
#else
#define GENERATOR_FRAME (sizeof(PyObject) + 7 * sizeof(void *))
#endif

#define FLAGS ((uintptr_t)3)
#define STEPS_MAX 1000

/* False where it can't be read.  By its number, for what checks memory (ASan) would look at it
 * first. */
static bool
read_memory(uintptr_t from, void *to, size_t n)
{
#if defined(__linux__)
    struct iovec there = {(void *)from, n}, here = {to, n};
    return syscall(SYS_process_vm_readv, getpid(), &here, 1L, &there, 1L, 0L) == (long)n;
#else
    (void)from, (void)to, (void)n;
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
python_walk_frames(PyThreadState *ts, uint64_t until, gl_raw_frame *to, int room, uint64_t *coroutine)
{
    uint64_t next;
    int n = 0;
    *coroutine = 0;
    if (!GL_FRAMES_KNOWN || !python_innermost_frame(ts, &next))
        return -1;
    for (int steps = 0; next != 0 && next != until && steps < STEPS_MAX; steps++) {
        if (until == 0 && n == room)
            break;
        frame_head frame;
        if (!read_memory(next, &frame, sizeof frame))
            return -1;
        if (frame.owner < OWNED_BY_C) {
            n += n < room;
            to[n - 1] = (gl_raw_frame){frame.code & ~FLAGS, frame.instruction};
            *coroutine = frame.owner == OWNED_BY_GENERATOR ? next - GENERATOR_FRAME : 0;
        }
        next = frame.previous;
    }
    return next == until || until == 0 ? n : ~n;
}

/* ---- the stack of any thread ------------------------------------------------------------ */

static PyThreadState *
find_thread(unsigned long id)
{
    PyThreadState *ts = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    while (ts != NULL && ts->thread_id != id)
        /* lint: allow thread-states: with the GIL, or in a stopped world */
        ts = PyThreadState_Next(ts);
    return ts;
}

static void
read_stack(PyThreadState *ts, gl_stack *to)
{
    uint64_t coroutine;
    int frames = python_walk_frames(ts, 0, to->frame, GL_FRAMES, &coroutine);
    to->frames = frames > 0 ? frames : 0;
}

#ifdef GL_FREE_THREADED

typedef struct {
    unsigned long id;
    gl_stack *to;
} stack_request;

/* The list of thread states is guarded by a lock that CPython exports to nobody, and another thread
 * frees its entry at its end.  CPython holds that lock while it go_wrappers objects in a stopped world. */
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
    /* Where the system refuses to read memory, the other threads are not stopped for nothing. */
    if (GL_FRAMES_KNOWN && python_innermost_frame(PyThreadState_Get(), &frame))
        PyUnstable_GC_VisitObjects(read_stack_stopped, &request);
}

#else

/* Threads leave the list with the GIL, and new ones become its head: the list can be walked.  The
 * frames are read without the GIL, as the monitor reads them: the thread may end meanwhile. */
GL_PRIVATE void
python_thread_stack(unsigned long id, gl_stack *to)
{
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
    PyASCIIObject kind = {0}, compact = {0}, ascii = {0};
    const size_t state = offsetof(PyASCIIObject, state);
    kind.state.kind = 7, compact.state.compact = 1, ascii.state.ascii = 1;
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
    return _PyThreadState_UncheckedGet(); /* of the process, not of this thread */
#elif !GL_FRAMES_KNOWN || !GL_THREAD_STATE_SHOWS_GIL
    return NULL; /* 3.12 does not tell, and without a GIL many are attached */
#else
    PyThreadState *holder = NULL, state;
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
