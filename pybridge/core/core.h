/*
 * core.h: what the files of goloop._core share.
 *
 * The extension is one translation unit: core.c includes every other .c file of
 * this folder, so everything below is static and the compiler sees it whole.
 * Each concept has a file of its own:
 *
 *   library.c    the Go library: opened at the first loop, afresh in a forked child
 *   names.c      interned strings and the objects imported from asyncio
 *   report.c     exceptions that nobody awaits
 *   handle.c     Handle and TimerHandle
 *   ready.c      the ready queue
 *   timers.c     timer ids and who waits for them
 *   lease.c      whose a descriptor is, and until when; lease.h draws it
 *   calls.c      the system calls on leased descriptors, which a test can make fail
 *   registry.c   registrations (stream, listener, watch) by id, and what uses an fd
 *   loop.c       the Loop type
 *   turn.c       one iteration: turn, completions, ready queue
 *   loops.c      all loops of the process, and what is sent before a fork and at exit
 *   watch.c      add_reader and its kin
 *   sockop.c     sock_recv, sock_recv_into, sock_sendall as coroutines
 *   stream*.c, pipe*.c, endpoints.c   the transports of streams and pipes; stream.h says
 *                which has what
 *   large.c      buffers for large receives
 *   datagram*.c  the datagram transport; datagram.h says which has what
 *   listener.c   accepting connections
 *   openssl.c    the libssl behind Python's ssl module
 *   tls.c        the data path of TLS
 *   resolve.c    getaddrinfo on threads of the Go library's C part
 *   signal_notes.c   what the wakeup fd's pipe says, and the handlers that are for it
 *   tasks.h      Task and Future, and the files that make them
 *
 * Every function needs the GIL unless it says otherwise.  Functions that return
 * int give 0, or -1 with an exception set.
 */
#ifndef GOLOOP_CORE_H
#define GOLOOP_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "lease.h"

/* Marks a function from which no way leads to Python, so that it may stand between the check
 * that a loop is usable and what relies on it.  tools/lint_c.py holds each to it; any other
 * function may run Python. */
#define GL_NO_PYTHON

/* ---- objects that are made once, at import (names.c) ---------------------- */

/* The interned strings: G.s_NAME is the str "NAME". */
#define GL_STRINGS(X)                                                          \
    X(_asyncio_future_blocking) X(_attach) X(_detach) X(_callback)             \
    X(_fatal_error) X(add_done_callback) X(buffer_updated)                     \
    X(call_exception_handler) X(call_soon) X(cancelled) X(close) X(connection_lost) \
    X(connection_made) X(context) X(data_received) X(detach) X(done)           \
    X(eof_received) X(exception) X(fileno) X(get_buffer) X(get_debug)          \
    X(getpeername) X(getsockname) X(handle) X(loop) X(message)                 \
    X(pause_writing) X(peername) X(protocol) X(resume_writing) X(result)       \
    X(set_exception) X(set_result) X(sockname) X(socket) X(source_traceback)   \
    X(transport) X(_call_connection_lost) X(_start) X(_sock) X(name) X(asyncgen) \
    X(future) X(task) X(slow_callback_duration) X(_loop) X(gettimeout) X(send) \
    X(throw) X(_accept_failed) X(_log_slow) X(_forget_server_client)       \
    X(_check_thread) X(_check_callback) X(debug) X(warning) X(recv) X(recv_into) \
    X(_run) X(set) X(callback)                                                 \
    X(family) X(type) X(proto) X(setblocking) X(create_future) X(join) X(_sync) \
    X(_deliver_held) X(_maybe_resume_protocol) X(_close_if_sent)                \
    X(_maybe_pause_protocol) X(datagram_received) X(error_received) X(sendto) \
    X(_wake_waiter) X(pipe) X(_decref_socketios) X(raw)

struct gl_globals {
#define X(n) PyObject *s_##n;
    GL_STRINGS(X)
#undef X
    PyObject *empty_tuple;
    PyObject *kw_loop;            /* ("loop",) */
    PyObject *kw_context;         /* ("context",) */
    /* asyncio's and the stdlib's */
    PyObject *asyncio_Handle, *asyncio_TimerHandle, *asyncio_Transport;
    PyObject *asyncio_BufferedProtocol;
    PyObject *asyncio_Future;     /* the C-accelerated class */
    PyObject *asyncio_CancelledError, *asyncio_InvalidStateError;
    PyObject *TransportSocket;    /* asyncio.trsock.TransportSocket */
    PyObject *extract_stack;      /* asyncio.format_helpers.extract_stack */
    PyObject *logger;             /* asyncio.log.logger */
    PyObject *socket_socket;      /* socket.socket */
    PyObject *gaierror;           /* socket.gaierror */
    PyObject *AddressFamily, *SocketKind; /* socket's enums */
    PyObject *format_callback_source; /* asyncio.format_helpers._format_callback_source */
    PyObject *format_handle;      /* asyncio.base_events._format_handle */
    PyObject *Handle_run, *Handle_cancel, *TimerHandle_cancel; /* asyncio's, unbound */
    bool format_takes_debug;
};
static struct gl_globals G;

/* ---- Handle and TimerHandle (handle.c) ------------------------------------ */

/* The head of all is asyncio.Handle's own slots, so that asyncio's methods and anybody's
 * attribute access work on them; names.c checks the offsets.  Python can write or delete
 * them: C takes from them objects, of any kind or NULL, and never more (handle.c).  Only
 * the fields behind the slots are ours alone. */
#if PY_VERSION_HEX < 0x030C0000
#define GL_HANDLE_WEAKREFS PyObject *weakrefs; /* later versions keep it before the object */
#else
#define GL_HANDLE_WEAKREFS
#endif
#define GL_HANDLE_HEAD                                                         \
    PyObject_HEAD                                                              \
    PyObject *args;          /* unless arg[] holds them */                     \
    PyObject *callback;                                                        \
    PyObject *cancelled;                                                       \
    PyObject *context;                                                         \
    PyObject *loop;                                                            \
    PyObject *repr;          /* of these two NULL reads as None */             \
    PyObject *source_traceback;                                                \
    GL_HANDLE_WEAKREFS

typedef struct {
    GL_HANDLE_HEAD
} gl_handle_head;

#define GL_INLINE_ARGS 2
typedef struct {
    int8_t nargs;             /* -1: the arguments are those in the head */
    PyObject *arg[GL_INLINE_ARGS];
} gl_handle_args;

typedef struct {
    GL_HANDLE_HEAD
    gl_handle_args inl;
} gl_handle;

typedef struct {
    GL_HANDLE_HEAD
    PyObject *scheduled;      /* asyncio.TimerHandle's slots; this one is not used */
    PyObject *when;
    gl_handle_args inl;
    int64_t deadline;         /* ns of CLOCK_MONOTONIC */
    struct gl_loop *armed_by; /* borrowed; valid while `timer` is an id */
    uint32_t timer;           /* id in timers.c, or GL_NO_TIMER */
    uint32_t submission;      /* where its arming lies in the submission queue, if it
                               * is still there */
} gl_timer_handle;

typedef struct gl_handle_gate gl_handle_gate;

typedef struct {
    GL_HANDLE_HEAD
    PyObject *lock;           /* the slot of asyncio's class; not used */
    gl_handle_args inl;
    unsigned long running;    /* the thread that runs the callback, or 0 */
    gl_handle_gate *gate;     /* where others wait for its end, or NULL */
} gl_threadsafe_handle;

static PyTypeObject *gl_handle_type, *gl_timer_handle_type;
/* What call_soon_threadsafe returns since CPython 3.14; NULL before. */
static PyTypeObject *gl_threadsafe_handle_type;

/* ---- deep nesting -------------------------------------------------------------- */

#define GL_DEALLOC_DIRECT 32
static int gl_dealloc_depth; /* of any thread: it only says when to be careful */

/* Frees `self`, untracked, by `free_it` (what `dealloc`, its type's own, does): at once,
 * and far down in a chain of such objects by way of CPython's trashcan, so that a long
 * chain does not overflow the stack.  The trashcan costs four calls, this two additions. */
static inline void
gl_dealloc_nested(PyObject *self, destructor dealloc, destructor free_it)
{
    if (gl_dealloc_depth < GL_DEALLOC_DIRECT) {
        gl_dealloc_depth++;
        free_it(self);
        gl_dealloc_depth--;
        return;
    }
    Py_TRASHCAN_BEGIN(self, dealloc)
    free_it(self);
    Py_TRASHCAN_END
}

/* ---- tables ----------------------------------------------------------------- */

typedef struct gl_ready {     /* ready.c: a ring of owned references */
    PyObject **slot;          /* NULL once closed */
    size_t capacity;          /* a power of two; 0 once closed */
    size_t head, count;
} gl_ready;

enum gl_reg_kind {
    GL_REG_FREE = 0,
    GL_REG_STREAM,
    GL_REG_LISTENER,
    GL_REG_WATCH,
    GL_REG_DATAGRAM,
};

typedef struct gl_reg {       /* registry.c: by id */
    PyObject *owner;          /* owned while registered; of a watch: NULL */
    uint32_t gen;
    uint32_t kind;
    int fd;                   /* watch: index in fds */
} gl_reg;

/* One direction of a watched fd (watch.c). */
typedef struct gl_place {
    PyObject *waiter;         /* owned: a Handle, or a Future that waits once; or NULL */
    PyObject *sock;           /* owned: the socket that a Future's owner waits for, or NULL */
    uint64_t turn;            /* in which it was taken: what that turn found is not for it */
    bool once;
} gl_place;

enum { GL_READING, GL_WRITING };

typedef struct gl_watch {
    gl_place place[2];
    PyObject *file;           /* owned: the object that add_reader/_writer got, or NULL */
    uint32_t id, gen;         /* of the registration, while `watched` */
    int fd;
    bool watched;
    bool late;                /* in the loop's late_watches */
} gl_watch;

typedef struct gl_fd {        /* registry.c: what uses a number */
    PyObject *transport;      /* borrowed: a gl_stream or gl_datagram, or NULL */
    gl_watch *watch;          /* owned, kept until the loop closes; or NULL */
} gl_fd;

/* The table of numbers is a tree, which grows by what is open, not by the highest number.
 * Entries stay where they are until the loop closes. */
#define GL_FD_LEAF 64
#define GL_FD_BRANCH 512
typedef struct gl_fd_leaf {
    gl_fd fd[GL_FD_LEAF];
} gl_fd_leaf;
typedef struct gl_fd_branch {
    gl_fd_leaf *leaf[GL_FD_BRANCH];
} gl_fd_branch;
typedef struct gl_fds {
    gl_fd_branch **branch;
    int branches;
} gl_fds;

typedef struct gl_timer_chunk gl_timer_chunk;
typedef struct gl_timers {    /* timers.c */
    gl_timer_chunk **chunk;
    uint32_t chunks;
    uint32_t first_free;      /* the lowest chunk that has a free id */
    uint32_t armed;
    uint32_t *limbo;          /* cancelled ids that Go may still report */
    uint32_t limbo_len, limbo_cap;
} gl_timers;

/* ---- Loop (loop.c) ------------------------------------------------------------ */

typedef struct gl_loop {
    PyObject_HEAD
    PyObject *weakrefs;
    struct gl_loop *next_loop, *prev_loop; /* loops.c */
    const gl_table *go;       /* NULL once closed */
    gl_shared *shared;
    int32_t reactor;
    uint64_t epoch;           /* of the library; another one: we are in a forked child */
    unsigned long thread_id;  /* 0 while not running */
    char closed, stopping, debug;
    char running;             /* _run() is on the stack */
    char in_turn;             /* Go is running (the GIL is released) */
    char sleeping;            /* ... and may block: a push must wake it */
    char dirty;               /* submissions wait that must not wait long (writes) */
    char releasing;           /* loop_release() is on a stack */
    char replaced;            /* somebody has set call_soon on the instance */
    char lingering;           /* current_task.c: an entry without a task is left */
    PyObject *task_factory;   /* or NULL, or None */
    gl_submission *late;      /* made by a stranger's thread while Go was running */
    uint32_t late_len, late_cap;
    gl_ready ready;
    uint32_t cmp_pos;         /* completions already handled */
    gl_timers timers;
    gl_reg *regs;
    uint32_t regs_cap;
    gl_fds fds;
    gl_watch **late_watches;  /* to be told to Go in the loop's own thread */
    uint32_t late_watches_len, late_watches_cap;
    PyObject **held;          /* sockets kept open until who waited for them has run */
    uint32_t held_len, held_cap;
    PyObject *large[GL_LARGE_MAX]; /* large.c: bytes objects that Go may receive into */
    bool large_wanted;
    uint32_t large_idle;      /* turns since one was of use */
    PyObject *resolving;      /* dict: request number -> future */
    uint32_t next_request;
    uint8_t *scratch;         /* sockop.c: received into, then copied */
    PyObject *current_handle; /* what runs now, for debug and diagnostics */
    uint32_t since_poll;      /* iterations since the last turn */
    uint64_t last_poll_ticks;
    uint64_t iterations;
} gl_loop;

static PyTypeObject *gl_loop_type;
#define gl_loop_check(o) PyObject_TypeCheck((o), gl_loop_type)

/* Raises RuntimeError for a closed loop, or one that belongs to a parent process. */
static int gl_loop_check_usable(gl_loop *self);
/* True in a process that the loop does not belong to: Go must not be called. */
static inline bool gl_loop_is_foreign(gl_loop *self);

/* Appends a submission; amortised O(1). */
static int gl_submit(gl_loop *loop, uint32_t op, uint32_t id, uint32_t gen,
                     const void *ptr, int64_t arg);

/* Schedules callable(arg) (arg may be NULL: no argument) in `context` (NULL: a copy
 * of the current one), as call_soon does, without giving out the handle. */
static int gl_call_soon(gl_loop *loop, PyObject *callable, PyObject *arg,
                        PyObject *context);

/* Hands an exception to loop.call_exception_handler as asyncio words it, with the keys
 * whose values are not NULL.  -1 where the handler raised. */
static int gl_report_exception_object(gl_loop *loop, const char *message,
                                      PyObject *exc, PyObject *transport,
                                      PyObject *protocol);
/* The same with the exception that is set, for what a callback raised outside of
 * asyncio's own try blocks: it goes where a Handle would send it.  -1, and it stays set,
 * for SystemExit and KeyboardInterrupt. `protocol` may be NULL for None. */
static int gl_report_stray(gl_loop *loop, const char *message, PyObject *transport,
                           PyObject *protocol);
/* What asyncio's _fatal_error tells before it closes: to the handler, or where quiet to
 * the log of the debug mode. `protocol` may be NULL for None. */
static int gl_report_fatal(gl_loop *loop, bool quiet, const char *message, PyObject *exc,
                           PyObject *transport, PyObject *protocol);

/* OSError (of the right subclass) from an errno, as an object. */
static PyObject *gl_oserror(int err);
/* The same, set as the current exception; returns -1. */
static int gl_set_oserror(int err);
/* The current exception as an owned object (cleared), and back. */
static PyObject *gl_take_exception(void);
static void gl_restore_exception(PyObject *exc);
/* PyContext_Exit that keeps an exception which is set. */
static void gl_context_exit(PyObject *context);
/* The general form: a context dict with up to two further keys. */
static int gl_report(gl_loop *loop, PyObject *message, PyObject *exc, PyObject *key1,
                     PyObject *value1, PyObject *key2, PyObject *value2,
                     PyObject *source_traceback);

/* ---- registry.c -------------------------------------------------------------- */

/* Notes a registration under the id that Go gave; takes a new reference to owner. */
static int gl_reg_set(gl_loop *loop, uint32_t id, uint32_t gen, uint32_t kind,
                      PyObject *owner, int fd);
/* Forgets it (gives the reference, which may be NULL, to the caller, or drops it).  Any later
 * completion of it is ignored. */
static PyObject *gl_reg_take(gl_loop *loop, uint32_t id, uint32_t gen);
static void gl_reg_clear(gl_loop *loop, uint32_t id, uint32_t gen);
/* The entry of a number, or NULL where there is none. */
static inline gl_fd *gl_fd_find(gl_loop *loop, int fd);
/* The same, made if need be; NULL with OSError (EBADF: nothing is open) or MemoryError. */
static gl_fd *gl_fd_get(gl_loop *loop, int fd);
/* The fd of an int or of an object with fileno(), as asyncio's selectors find it;
 * -1 with ValueError. */
static int gl_fd_from_object(PyObject *o);
/* RuntimeError if a live transport uses the number (asyncio's words). `named` is what the
 * user passed, for the message; NULL: the number. */
static int gl_fd_ensure_no_transport(gl_loop *loop, int fd, PyObject *named);
/* Notes who uses a number, or with NULL forgets `transport` there if it is still noted. */
static int gl_fd_set_transport(gl_loop *loop, int fd, PyObject *transport);
static void gl_fd_forget_transport(gl_loop *loop, int fd, PyObject *transport);
/* Whether a transport keeps others from its number: it is open, and the number is its. */
static bool gl_transport_blocks(PyObject *transport);
/* True where the caller must not enter Go: another thread runs the loop. */
static inline bool gl_loop_is_elsewhere(gl_loop *loop);

/* Makes a blocked turn return; any thread that has the GIL (turn.c). */
static void gl_wake(gl_loop *loop);

/* ---- watch.c ------------------------------------------------------------------- */

/* Takes the number away from its watch before a transport or listener is registered.  What
 * it held is put in `out`, to be given to gl_watch_drop once no state is half-way. */
static void gl_watch_release(gl_loop *loop, int fd, gl_watch *out);
static void gl_watch_drop(gl_watch *out);
/* Tells Go what other threads have asked for. */
static void gl_watches_join_late(gl_loop *loop);
/* Ends the hold on the sockets that were ready in the last turn. */
static void gl_held_release(gl_loop *loop);

/* ---- loops.c --------------------------------------------------------------------- */

/* Which loops have a reactor. */
static void gl_loops_add(gl_loop *loop);
static void gl_loops_remove(gl_loop *loop);
/* Sends what all of them have queued. */
static void gl_loops_flush(void);

/* ---- stream.c, datagram.c, listener.c: called by turn.c --------------------------- */

/* Handles one completion of a live registration. 0, or -1 where SystemExit or
 * KeyboardInterrupt leaves the loop. `owner` is kept alive by the caller. */
static int gl_stream_complete(gl_loop *loop, PyObject *owner, const gl_completion *c);
static int gl_listener_complete(gl_loop *loop, PyObject *owner, const gl_completion *c);
static int gl_datagram_complete(gl_loop *loop, PyObject *owner, const gl_completion *c);
/* Loop.close(): detaches every registered transport and listener from the reactor
 * before it goes (their finalizers must not call Go afterwards). */
static void gl_stream_orphan(PyObject *owner);
static void gl_listener_orphan(PyObject *owner);
static void gl_datagram_orphan(PyObject *owner);

/* tls.c: the protocol that a stream under TLS has, and how it is fed. */
static PyTypeObject *gl_tls_type;
static int gl_tls_receive(PyObject *protocol, const char *data, Py_ssize_t n);

static int gl_stream_init_type(PyObject *module);
static int gl_pipe_init_types(PyObject *module);
static int gl_listener_init_type(PyObject *module);
static int gl_datagram_init_type(PyObject *module);

#endif /* GOLOOP_CORE_H */
