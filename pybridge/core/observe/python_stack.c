/*
 * python_stack.c: the Python stack of another thread, read without the GIL.
 *
 * For the watchdog, which tells what a thread does that may keep the GIL for ever.  The thread
 * runs on meanwhile, so that each pointer found may be stale: nothing is dereferenced.  Memory is
 * copied by process_vm_readv(2), which answers EFAULT for an address that is none, asks for no right
 * where the process is one's own, and needs no descriptor; where a sandbox refuses it there is no
 * stack.  Each code object must say that it is one; what was read counts only if its object is still
 * the same afterwards; and a chain of frames that breaks is read again.  No reference is counted,
 * nothing is written but the caller's buffer.
 *
 * The frames' layout is CPython's own business.  It is the same from 3.12 to 3.15; of a newer
 * Python, or one without the GIL, there is no stack.
 */
#include "observe/private.h"

#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <sys/uio.h>
#endif

#if PY_VERSION_HEX < 0x030C0000
typedef struct {
    void *func, *globals, *builtins, *locals;
    PyCodeObject *code;
    void *object;
    uintptr_t previous, instruction;
} frame_head;
#else
typedef struct {
    uintptr_t code;           /* from 3.14 on with flags in the lowest bits */
    uintptr_t previous;
    void *function, *globals, *builtins, *locals, *object;
    uintptr_t instruction;
} frame_head;
#endif

#if PY_VERSION_HEX < 0x03100000 && !defined(Py_GIL_DISABLED)
#define KNOWN 1
#else
#define KNOWN 0
#endif

#define FLAGS ((uintptr_t)3)
#define TRIES 5
#define LINES_MAX 65536
#define CODE_UNIT 2 /* bytes, as since 3.6 */

/* Copies n <= 4096 bytes; false where they can't be read.  By its number, for what checks memory
 * (ASan) would look at it first. */
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

/* The head of a str of one block. */
static bool
read_str(PyObject *text, PyASCIIObject *head)
{
    return read_memory((uintptr_t)text, head, sizeof *head) &&
           head->ob_base.ob_type == &PyUnicode_Type && head->state.compact && head->length >= 0;
}

/* A str as UTF-8, cut to the room. */
static bool
read_text(PyObject *text, char *to, size_t room)
{
    PyASCIIObject head, after;
    if (!read_str(text, &head))
        return false;
    size_t kind = head.state.kind, n = (size_t)head.length, out = 0;
    uintptr_t data = (uintptr_t)text +
                     (head.state.ascii ? sizeof(PyASCIIObject) : sizeof(PyCompactUnicodeObject));
    uint8_t raw[4096];
    n = n < room ? n : room;
    n = n < sizeof raw / 4 ? n : sizeof raw / 4;
    if (kind != 1 && kind != 2 && kind != 4)
        return false;
    if (n > 0 && !read_memory(data, raw, n * kind))
        return false;
    if (!read_str(text, &after) || after.length != head.length || after.hash != head.hash)
        return false;
    for (size_t i = 0; i < n && out + 5 <= room; i++) {
        uint32_t c = 0;
        memcpy(&c, raw + i * kind, kind); /* little-endian, as all that goloop is built for */
        if (c < 0x20 || c == 0x7f)
            c = '?';
        if (c < 0x80) {
            to[out++] = (char)c;
        } else if (c < 0x800) {
            to[out++] = (char)(0xC0 | c >> 6);
            to[out++] = (char)(0x80 | (c & 63));
        } else if (c < 0x10000) {
            if (c >= 0xD800 && c < 0xE000)
                c = 0xFFFD; /* half a pair */
            to[out++] = (char)(0xE0 | c >> 12);
            to[out++] = (char)(0x80 | (c >> 6 & 63));
            to[out++] = (char)(0x80 | (c & 63));
        } else {
            to[out++] = (char)(0xF0 | (c >> 18 & 7));
            to[out++] = (char)(0x80 | (c >> 12 & 63));
            to[out++] = (char)(0x80 | (c >> 6 & 63));
            to[out++] = (char)(0x80 | (c & 63));
        }
    }
    to[out] = 0;
    return true;
}

/* ---- lines -------------------------------------------------------------------------- */

/* The signed number of variable length at *p (CPython's InternalDocs/code_objects.md). */
static int
read_delta(const uint8_t **p, const uint8_t *end)
{
    unsigned value = 0, shift = 0;
    while (*p < end && shift < 30) {
        unsigned b = *(*p)++;
        value |= (b & 63) << shift;
        shift += 6;
        if (!(b & 64))
            break;
    }
    return value & 1 ? -(int)(value >> 1) : (int)(value >> 1);
}

/* The line of the instruction at a byte offset, or 0. */
static int
line_of(const uint8_t *table, size_t n, int line, long offset)
{
    const uint8_t *p = table, *end = table + n;
    long at = 0;
    while (p < end) {
        unsigned head = *p++, code = head >> 3 & 15;
        if (code == 13 || code == 14)
            line += read_delta(&p, end);
        else if (code >= 10 && code <= 12)
            line += (int)code - 10;
        at += (long)((head & 7) + 1) * CODE_UNIT;
        if (offset < at)
            return code == 15 ? 0 : line;
        while (p < end && !(*p & 128))
            p++;
    }
    return 0;
}

static int
read_line(const PyCodeObject *code, uintptr_t address, uintptr_t instruction)
{
    PyVarObject head;
    uintptr_t first = address + offsetof(PyCodeObject, co_code_adaptive);
    uintptr_t table = (uintptr_t)code->co_linetable;
    if (!read_memory(table, &head, sizeof head) || head.ob_base.ob_type != &PyBytes_Type ||
        head.ob_size < 0 || head.ob_size > LINES_MAX)
        return 0;
    size_t n = (size_t)head.ob_size;
    uint8_t *bytes = malloc(n + 1);
    if (bytes == NULL)
        return 0;
    int line = 0;
    size_t got = 0;
    while (got < n) {
        size_t k = n - got < 4096 ? n - got : 4096;
        if (!read_memory(table + offsetof(PyBytesObject, ob_sval) + got, bytes + got, k))
            break;
        got += k;
    }
    if (got == n)
        line = line_of(bytes, n, code->co_firstlineno,
                       instruction < first ? 0 : (long)(instruction - first));
    free(bytes);
    return line;
}

/* ---- frames -------------------------------------------------------------------------- */

/* 1: a frame of Python's; 0: one between two calls of C; -1: nonsense. */
static int
read_frame(const frame_head *frame, python_frame *to)
{
    PyCodeObject code;
    uintptr_t address = (uintptr_t)frame->code & ~FLAGS;
    if (!read_memory(address, &code, offsetof(PyCodeObject, co_code_adaptive)))
        return -1;
    PyTypeObject *type = ((PyObject *)&code)->ob_type;
    if (type != &PyCode_Type)
        return type == Py_TYPE(Py_None) ? 0 : -1;
    if (!read_text(code.co_qualname, to->function, sizeof to->function) ||
        !read_text(code.co_filename, to->file, sizeof to->file))
        return -1;
    if (to->file[0] == '<' && strncmp(to->file, "<shim>", 6) == 0)
        return 0;
    to->line = read_line(&code, address, frame->instruction);
    PyCodeObject after;
    if (!read_memory(address, &after, offsetof(PyCodeObject, co_code_adaptive)))
        return -1;
    bool same = ((PyObject *)&after)->ob_type == type && after.co_qualname == code.co_qualname &&
                after.co_filename == code.co_filename && after.co_linetable == code.co_linetable;
    return same ? 1 : -1;
}

/* How many frames, or -1 where the chain breaks. */
static int
read_walk(PyThreadState *ts, python_frame *to, int room)
{
    PyThreadState state;
    uintptr_t next = 0;
    if (!read_memory((uintptr_t)ts, &state, sizeof state))
        return -1;
#if PY_VERSION_HEX < 0x030D0000
    if (!read_memory((uintptr_t)&state.cframe->current_frame, &next, sizeof next))
        return -1;
#else
    next = (uintptr_t)state.current_frame;
#endif
    int n = 0;
    for (int steps = 0; next != 0 && n < room && steps < 4 * room; steps++) {
        frame_head frame;
        if (!read_memory(next, &frame, sizeof frame))
            return -1;
        int what = read_frame(&frame, &to[n]);
        if (what < 0)
            return -1;
        n += what;
        next = frame.previous;
    }
    return n;
}

GL_PRIVATE int
python_stack(PyThreadState *ts, python_frame *to, int room)
{
    int n = -1;
    if (!KNOWN || ts == NULL)
        return 0;
    for (int i = 0; i < TRIES && n < 0; i++) {
        const struct timespec moment = {0, 50000};
        if (i > 0)
            nanosleep(&moment, NULL); /* lint: allow python-under-mutex: 200 us in all */
        n = read_walk(ts, to, room);
    }
    return n < 0 ? 0 : n;
}

GL_PRIVATE PyThreadState *
python_gil_holder(void)
{
#if PY_VERSION_HEX < 0x030C0000
    return _PyThreadState_UncheckedGet(); /* of the process, not of this thread */
#elif PY_VERSION_HEX < 0x030D0000
    return NULL; /* 3.12 tells nobody */
#else
    if (!KNOWN)
        return NULL;
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
