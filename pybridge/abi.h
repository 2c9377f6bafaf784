/*
 * abi.h: the memory and the functions that the C extension (goloop._core) and
 * the Go library (libgoloop) share.  Includes neither Python.h nor any Go header;
 * both sides compare the sizes of GL_ABI when the library is opened.  abi_observers.h has
 * the part for metrics, watchdog, profile and trace.
 *
 * One loop has one reactor and one gl_shared block, and each of its streams one gl_stream_io.  C
 * allocates the block, the records, the two queues and the arena (never on Go's heap).  One thread
 * at a time uses them: C while Python runs, Go during a call of the API table.  Exceptions: any
 * thread may set wake_pending, and the monitor uses the shared lock (below).
 *
 * Submissions (C -> Go) are appended by C while callbacks run and decoded by Go at the start of a
 * turn, in order.  Completions (Go -> C) are filled by Go during a turn and are valid until the
 * next turn, as is the arena to which their `ptr` points.
 *
 * Identity: a registration (stream, datagram, listener, watch) is named by an id, which
 * Go chooses, and a generation, which changes each time the id is used again.
 * A submission or completion of an older generation is dropped.  C chooses the ids of timers,
 * densely from 0.
 */
#ifndef GOLOOP_ABI_H
#define GOLOOP_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#if defined(__linux__)
#include <sys/epoll.h>
#else
#include <errno.h>
#include <unistd.h>
#endif

#include "abi_observers.h"

/* The version of this interface, which both sides compare, see GL_ABI. */
#define GL_ABI_VERSION 28

/* ---- probes ------------------------------------------------------------------- */

/* A static tracepoint (USDT) for bpftrace, perf, gdb and SystemTap; it costs one nop.  A note
 * in the ELF file has its name, its address and the places of its two unsigned arguments, in the
 * format of SystemTap's sys/sdt.h, version 3:
 * https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation. */
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __clang__ /* clang's linker discards sections that no code refers to */
#define GL_PROBE_KEPT "\"aGR\""
#else
#define GL_PROBE_KEPT "\"aG\""
#endif
#define GL_PROBE(name, first, second)                                                              \
    __asm__ volatile("990: nop\n"                                                                  \
                     ".pushsection .note.stapsdt,\"\",\"note\"\n"                                  \
                     ".balign 4\n"                                                                 \
                     ".4byte 992f-991f, 994f-993f, 3\n"                                            \
                     "991: .asciz \"stapsdt\"\n"                                                   \
                     "992: .balign 4\n"                                                            \
                     "993: .8byte 990b, _.stapsdt.base, 0\n"                                       \
                     ".asciz \"goloop\", \"" #name "\", \"%c2@%0 %c3@%1\"\n"                       \
                     "994: .balign 4\n"                                                            \
                     ".popsection\n"                                                               \
                     ".ifndef _.stapsdt.base\n" /* how far prelink moved the library */            \
                     ".pushsection .stapsdt.base," GL_PROBE_KEPT                                   \
                     ",\"progbits\",.stapsdt.base,comdat\n"                                        \
                     ".weak _.stapsdt.base\n"                                                      \
                     ".hidden _.stapsdt.base\n"                                                    \
                     "_.stapsdt.base: .space 1\n"                                                  \
                     ".popsection\n"                                                               \
                     ".endif" ::"nr"(first),                                                       \
                     "nr"(second), "n"(sizeof(first)), "n"(sizeof(second)))
#else
#define GL_PROBE(name, first, second) ((void)(first), (void)(second))
#endif

/* ---- submissions ------------------------------------------------------- */

#define GL_NO_TIMER 0xFFFFFFFFu /* not the id of a timer; every smaller number can be one */

/* The kinds of submissions; a comment gives the meaning of the fields id, gen and arg. */
enum gl_submission_op {
    /* cancelled before the reactor decoded it */
    GL_SUB_NOP = 0,
    /* id: timer; arg: deadline, ns of CLOCK_MONOTONIC */
    GL_SUB_TIMER_ARM = 1,
    /* id: timer; unknown ids are ignored */
    GL_SUB_TIMER_CANCEL = 2,
    /* id, gen: stream; its gl_stream_io has changed */
    GL_SUB_STREAM = 3,
    /* id, gen: watch; arg: a direction to report once, after the kernel has just refused a call
     * in it.  If this fails, the direction is reported, and the next call returns the error. */
    GL_SUB_WATCH_WAIT = 4,
};

/* A record that C appends for the reactor's next turn. */
typedef struct gl_submission {
    uint32_t op;  /* gl_submission_op, which says the meaning of the other fields */
    uint32_t id;  /* a registration's or a timer's */
    uint32_t gen; /* the registration's generation */
    uint32_t unused;
    int64_t arg;
} gl_submission;

/* ---- streams ------------------------------------------------------------- */

/* A piece to send, laid out like struct iovec. */
typedef struct gl_vector {
    const void *base;
    size_t len;
} gl_vector;

/* The bits of gl_stream_io.want. */
#define GL_WANT_READ 1u         /* receive */
#define GL_WANT_SHUT 2u         /* shutdown(SHUT_WR) once the queue is empty */
#define GL_WANT_RECEIVE_IN_C 4u /* together with READ: C receives by itself on GL_CMP_READY */
/* C waits for the report that bytes were sent: a turn that has sent some does not block, so that
 * its GL_CMP_WROTE arrives at once. */
#define GL_WANT_REPORT 8u
/* Like GL_WANT_RECEIVE_IN_C, in an eager turn: few streams are ready, see eager_sends. */
#define GL_WANT_RECEIVE_IN_EAGER_TURN 16u

/* The bits of gl_stream_io.state. */
/* The kernel accepted less than it was given; Go continues by itself once the socket is
 * writable. */
#define GL_STATE_BLOCKED 1u
#define GL_STATE_READ_END 2u   /* receiving has stopped for good: end of file, or an error */
#define GL_STATE_SHUT 4u       /* the writing half was shut down */
#define GL_STATE_DEAD 8u       /* a send failed; Go sends no more */
#define GL_STATE_PIPE 16u      /* a call has shown that this is not a socket */
#define GL_STATE_WATCH_END 32u /* opened with GL_OPEN_WATCH_END */

/*
 * The write queue of a stream, the requests of C and the state of the stream: one record
 * for both sides, in C's memory.  stream_open gives its address to Go, unregister takes it
 * back.
 *
 *      0          head                                tail          cap
 *      | sent      | to be sent, in order              |             |
 *      +- C may free these        +- the first may be sent in part: Go advances its base
 *
 * bytes in the queue = appended - sent
 *
 * "C" is the thread that has the GIL, while no turn is in progress; "Go" is the thread that
 * is in a call of the table.  The two never overlap, so nothing here is atomic.  Another
 * thread may have the GIL during a turn, though: it reads `sent` and `state`, whose
 * values may be a moment old, and writes nothing before the turn ends (threads/shared_lock.c).
 */
typedef struct gl_stream_io {
    /* C, which moves and grows it.  The bytes of a piece stay alive and unchanged until the
     * piece is sent, or unregister returns. */
    gl_vector *iov;
    /* C; the address at which the object that owns the descriptor keeps its number, or NULL;
     * see stream_open */
    const int32_t *owner;
    /* C: total of bytes */
    uint64_t appended;
    /* C: capacity of iov */
    uint32_t cap;
    /* C: pieces appended */
    uint32_t tail;
    /* C: GL_WANT_ */
    uint32_t want;
    /* set by C when it submits a GL_SUB_STREAM, cleared by Go when it decodes the submission */
    uint32_t listed;
    /* Go: pieces sent.  C resets it to 0, together with tail, if they are equal or when it
     * moves the pieces to the front. */
    uint32_t head;
    /* Go: GL_STATE_; 0 at stream_open */
    uint32_t state;
    /* Go: total of bytes */
    uint64_t sent;
} gl_stream_io;

/* ---- completions ------------------------------------------------------- */

/* The kinds of completions.  A comment begins with the kind of registration, and gives the meaning
 * of the fields res, ptr and arg. */
enum gl_completion_kind {
    GL_CMP_NONE = 0,
    /* stream; ptr: arena, arg: bytes (> 0); res: 0, or i + 1 if ptr is gl_shared.large[i] */
    GL_CMP_DATA = 1,
    /* stream; reading has stopped for good */
    GL_CMP_EOF = 2,
    /* stream; res: errno; reading has stopped for good */
    GL_CMP_READ_ERROR = 3,
    /* stream; arg: bytes that left the write queue; the stream record's `sent` includes them.  Only
     * with GL_WANT_REPORT, or if the kernel had refused bytes of the stream: after each turn C
     * looks at the records of the streams that it wrote to */
    GL_CMP_WROTE = 4,
    /* stream; res: errno; arg: bytes sent before the error and not yet reported; the rest of
     * the queue is not sent */
    GL_CMP_WRITE_ERROR = 5,
    /* listener; res: the new fd (non-blocking, close-on-exec); ptr: gl_endpoints in the arena;
     * arg: 0, or the errno of GL_LISTEN_NODELAY */
    GL_CMP_ACCEPT = 6,
    /* listener; res: errno; arg: 1 if the listener backs off and retries by itself (EMFILE,
     * ENFILE, ENOBUFS, ENOMEM): when a registration of this process ends, and otherwise after
     * 10 ms, doubling to 1 s; reported at most once a second; 0 if it stopped */
    GL_CMP_ACCEPT_ERROR = 7,
    /* watch; res: GL_READABLE | GL_WRITABLE, only requested directions (an error or hang-up
     * counts as both); arg: 1 if the fd was closed while `want` directions were watched and
     * a duplicate is open: the watch has ended;
     * datagram; res: GL_WRITABLE;
     * stream that C reads; res: GL_READABLE */
    GL_CMP_READY = 8,
    /* id: timer, which has expired and is no longer armed */
    GL_CMP_TIMER = 9,
    /* datagram; ptr: gl_packet in the arena; arg: bytes (>= 0) */
    GL_CMP_DATAGRAM = 10,
    /* datagram; res: errno; receiving continues */
    GL_CMP_DATAGRAM_ERROR = 11,
};

/* The directions of a descriptor, as bits. */
#define GL_READABLE 1u
#define GL_WRITABLE 2u

/* A record that a turn returns to C. */
typedef struct gl_completion {
    uint32_t kind; /* gl_completion_kind, which says the meaning of the other fields */
    uint32_t id;   /* a registration's or a timer's */
    uint32_t gen;  /* the registration's generation */
    int32_t res;
    void *ptr;
    int64_t arg;
} gl_completion;

/* The two raw socket addresses (struct sockaddr, as the kernel returned them) of an
 * accepted connection; a length is 0 if the kernel returned none. */
#define GL_MAX_SOCKADDR 128
typedef struct gl_endpoints {
    uint32_t peer_len;
    uint32_t local_len;
    uint8_t peer[GL_MAX_SOCKADDR];
    uint8_t local[GL_MAX_SOCKADDR];
} gl_endpoints;

/* The header of a datagram in the arena: its sender's address, of length 0 if unknown. */
typedef struct gl_packet {
    uint32_t addr_len;
    uint8_t addr[GL_MAX_SOCKADDR];
} gl_packet;

/* Maximum size of a received datagram (asyncio's max_size).  The arena has room for one of
 * them, with its gl_packet, after its capacity. */
#define GL_MAX_PACKET (256u * 1024u)
#define GL_ARENA_SLACK (GL_MAX_PACKET + 256u)

/* ---- the block of one loop ---------------------------------------------- */

#define GL_DEADLINE_NONE INT64_MAX /* gl_shared.next_deadline: no timer is armed */
#define GL_MAX_LARGE 2             /* number of buffers in gl_shared.large */

/* The bits of gl_shared.flags. */
/* C has not run the loop for a while: the next turn checks whether its descriptors are still its
 * own, and returns -EBADF if not. */
#define GL_CHECK_FDS 2u
#define GL_JSON 4u /* the watchdog writes JSON to stderr; set by C before reactor_new */
/* The clock is libc's clock_gettime, which a preloaded library has replaced, and not the
 * kernel's; set by C before reactor_new. */
#define GL_CLOCK_IS_LIBC 8u

/* The values of gl_shared.fence_state. */
#define GL_FENCE_REQUESTED 1u /* set by the monitor: membarrier(2) is not available any more */
#define GL_FENCE_IN_USE 2u    /* set by C, with the GIL: each lock has a fence now */

/* The shared block of a loop.  A comment names the side that writes the field, if only one does. */
typedef struct gl_shared {
    gl_submission *sub; /* grown by C; Go sets sub_len to 0 once decoded */
    gl_completion *cmp; /* fixed capacity; Go sets cmp_len in each turn */
    /* fixed capacity; followed by GL_ARENA_SLACK bytes, into which the last datagram of a
     * turn may extend */
    uint8_t *arena;
    uint32_t sub_len;
    uint32_t sub_cap;
    uint32_t cmp_len;
    uint32_t cmp_cap;
    uint64_t arena_cap;
    /* ns of CLOCK_MONOTONIC: set by Go at the end of the poll, and by C when the loop starts to
     * run */
    int64_t now;
    /* set by Go in each turn: the earliest armed deadline, or GL_DEADLINE_NONE; C lowers it when
     * it submits an earlier one */
    int64_t next_deadline;
    /* set by Go: the completion queue was too short for all events; the next turn must not
     * block */
    uint32_t more;
    uint32_t wake_pending; /* atomic: 1 from the first wake-up until the turn that consumed it */
    int32_t wake_fd;       /* set by reactor_new, like wake_token and poll_fd: for gl_wake_up */
    uint32_t flags;        /* GL_CHECK_FDS and the following */
    uint64_t wake_token;
    int32_t poll_fd;
    uint32_t events; /* set by Go in each turn: completions other than timers */
    /* set by Go in each turn: the number of eager sends until the next turn */
    uint32_t eager_sends;
    /* C, before reactor_new: the limit of Go's sendPolicy; -1: Go measures */
    int32_t fixed_eager_limit;
    int32_t clock; /* C: clockid_t of the processor time of the thread that runs the loop */
    uint32_t native_thread; /* C: that thread's id in the kernel */
    /* Totals for goloop.diagnostics(): polls, receives and sends in both languages, wake-ups. */
    uint64_t polls, recvs, sends, wakeups;
    uint64_t exposed_sends; /* C: writes that were sent at once because user code has the socket */
    /* Total ns for which the loop has run, and for which it was outside the poll.  While the loop
     * runs, or is outside the poll, the value is negative, and the present time has to be added.
     * C, and Go at the start and the end of a poll. */
    int64_t ran, busy;
    int64_t accepting; /* C: total ns spent on starting accepted connections */
    /* Buffers of large_size bytes for streams that lately received much at once, which saves
     * a copy from the arena.  C fills the slots before a turn (NULL: none); the bytes of a
     * GL_CMP_DATA with res = i + 1 are at large[i], which belongs to C again. */
    uint8_t *large[GL_MAX_LARGE];
    uint64_t large_size;
    /* The shared lock, see below. */
    uint32_t lock_depth;     /* atomic: written by C with the GIL, and by Go in a call from C */
    uint32_t flusher_lock;   /* atomic: id of the monitor's thread while it wants or has the lock,
                              * and briefly of the waiting thread: a futex, see yield_to_flusher */
    uint32_t fence_state;    /* atomic: 0: membarrier(2) is available; or GL_FENCE_... */
    uint32_t loop_active;    /* atomic, C: the loop runs, and is not inside a poll; it may be
                              * waiting for the GIL after one */
    uint32_t sends_pending;  /* atomic: set by C with a GL_SUB_STREAM, cleared by Go when it
                              * decodes the submissions */
    uint32_t monitor_parked; /* atomic: the monitor sleeps until wake_monitor is called */
    /* C: maxima since the last turn, in which Go reads and resets them */
    uint64_t max_ready, max_timers;
    gl_metrics metrics;
    /* The watchdog; at each tick the monitor compares the time since `now` with blocked_limit. */
    const gl_watchdog *watchdog; /* set by C before reactor_new */
    int64_t blocked_limit;       /* atomic, C: ns; 0: no reports */
    int64_t blocked_end;         /* atomic, C: ns after which the process is aborted; 0: never */
    int64_t blocked_since;       /* atomic, the monitor: `now` of the last reported iteration, so
                                  * that it is reported once */
    uint32_t report_state;       /* atomic: the bits are set by C, and reset by the monitor */
    uint32_t number;             /* C: number of the loop, in reports */
    gl_introspection_socket *introspection; /* set by C before reactor_new; one for the process */
    const gl_python *python;                /* set by C before reactor_new; one for the process */
    void *thread;                           /* atomic, C: the PyThreadState that runs the loop */
    uint64_t base;          /* C: address of the frame that runs the loop; frames above it
                             * belong to the loop's callbacks */
    int64_t sample_every;   /* atomic, C: ns; 0: never */
    int64_t slow_limit;     /* atomic, C: ns; longer iterations are recorded; 0: none */
    int64_t busy_poll;      /* atomic, C: ns of polling without sleeping before a sleep; 0: none;
                             * < 0: twice what a sleep costs */
    const int64_t *gc;      /* C: total ns of garbage collection in this process */
    int64_t gc_before;      /* C: the value of *gc at the start of the iteration */
    const uint64_t *popped; /* C: total of entries of the ready queue that were run */
    const uint32_t *handed; /* C: completions of the turn that were delivered */
    gl_trace *trace;        /* atomic, Go: NULL while no client traces; its memory is never
                             * freed */
    /* The alarm, see move_alarm; of the library. */
    int64_t alarm_due; /* ns of CLOCK_MONOTONIC; a turn that ends now or later calls move_alarm */
    int64_t alarm_at;  /* atomic: ns of CLOCK_MONOTONIC; the alarm does not expire before */
    int32_t alarm;     /* atomic: number of the POSIX timer, which wakes the monitor; -1: none */
    uint32_t alarm_unneeded;  /* atomic: the alarm expired while the loop slept; a turn that may
                               * sleep calls stop_alarm before */
    uint32_t alarm_is_far;    /* the alarm expires too late for a pending write: C calls move_alarm
                               * when it defers one */
    uint32_t alarm_near_left; /* the next moves of the alarm that must not make it far */
    uint64_t alarm_polled;    /* metrics.poll_time.sum when the alarm was moved */
    uint64_t alarm_turns;     /* metrics.turns then */
} gl_shared;

/*
 * The shared lock.  The monitor is a thread of the library that sends pending writes while Python,
 * in the same iteration, computes or waits.  It does the work of a call of `flush`.  Meanwhile no
 * thread of C may use the submissions or a stream's record, or be in a call.  The lock is biased to
 * C:
 *
 *     C, or Go in a call, with the GIL         the monitor
 *
 *     lock_depth = lock_depth + 1              flusher_lock = its thread's id, if it was 0
 *     (a compiler barrier keeps the order)     membarrier(2): a full barrier in every thread of
 *     if flusher_lock: yield_to_flusher                       the process
 *     ... submissions, records, calls ...      if that succeeded, and lock_depth == 0: flush
 *     lock_depth = lock_depth - 1              flusher_lock = 0
 *
 *     yield_to_flusher: lock_depth = 0; lock flusher_lock as a mutex; lock_depth = 1; unlock it
 *
 * So one of the two always sees the other, and C pays two stores and a load, without a locked
 * instruction.  Without membarrier C executes a fence in between (`fence_state`).  A kernel may
 * start to refuse membarrier (a seccomp filter, a restored process): the monitor then sends
 * nothing, sets fence_state to GL_FENCE_REQUESTED, and continues once C, with the GIL, has seen
 * this value and set GL_FENCE_IN_USE.  A turn has the lock from its start to its end; the lock is
 * recursive; C never runs Python and never releases the GIL while it has the lock, except during
 * the turn, for whose end other threads wait (threads/shared_lock.c).
 *
 * `loop_active` and `monitor_parked` follow the same rule: the monitor sets monitor_parked,
 * executes a membarrier and checks whether a loop is active; a loop sets loop_active and checks
 * whether the monitor is parked.  A monitor that is not parked wakes up for each loop's alarm.
 */

/* Ends the reactor's current or next wait.  The thread that has set wake_pending calls it.
 * epoll identifies a polled file by number and file, so a number that now belongs to another
 * file is left alone.  Returns false if the eventfd or the epoll instance was closed. */
static inline bool
gl_wake_up(const gl_shared *shared)
{
#if defined(__linux__)
    struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = shared->wake_token};
    return epoll_ctl(shared->poll_fd, EPOLL_CTL_MOD, shared->wake_fd, &e) == 0;
#else
    const uint64_t one = 1;
    ssize_t n;
    do {
        n = write(shared->wake_fd, &one, sizeof one);
    } while (n < 0 && errno == EINTR);
    return n > 0 || errno == EAGAIN;
#endif
}

/* ---- the functions ------------------------------------------------------- */

/* Flag of stream_open: do not receive; readiness to read is reported as GL_CMP_EOF. */
#define GL_OPEN_WATCH_END 1u
/* Flag of listener_open: its connections are TCP, and each gets TCP_NODELAY. */
#define GL_LISTEN_NODELAY 1u
/* The system under a thread: its system calls (a gl_calls, fds/lease.h) and its clock; NULL: those
 * of the operating system. */
typedef struct gl_system {
    const void *calls;
    int64_t (*clock)(void);
} gl_system;
/* The version and the sizes that both sides must agree on. */
#define GL_ABI                                                                                     \
    {GL_ABI_VERSION,    sizeof(gl_table),     sizeof(gl_submission), sizeof(gl_completion),        \
     sizeof(gl_shared), sizeof(gl_stream_io), sizeof(gl_endpoints),  sizeof(gl_packet)}

/*
 * The API table.  Every function returns a value >= 0 or -errno.  None of them runs Python or
 * keeps a pointer beyond the lifetimes stated here.  A reactor is used by one thread at
 * a time.
 */
typedef struct gl_table {
    uint32_t abi[8]; /* GL_ABI */

    /* Makes a reactor over `shared`; returns its number (>= 0). */
    int32_t (*reactor_new)(gl_shared *shared);
    /* Ends the reactor and closes its own fds; registered fds are left to C. */
    int32_t (*reactor_close)(int32_t reactor);

    /* Makes one turn: decode and flush submissions, poll (timeout in ns; < 0: until
     * something happens or a timer is due), accept, receive, expire timers.
     * Returns the number of completions.  EINTR ends the wait early (0 or more
     * completions) so that C can handle signals. */
    int32_t (*turn)(int32_t reactor, int64_t timeout_ns);
    /* Decodes all submissions and sends the write queue of this stream now.  Progress is in
     * the record, and no GL_CMP_WROTE reports it.  Returns the -errno of a failed send of this
     * stream, and a GL_CMP_WRITE_ERROR in the next turn reports it too, unless C ends the stream
     * before.  Fills no completion. */
    int32_t (*flush_stream)(int32_t reactor, uint32_t id, uint32_t gen);
    /* Decodes all submissions and sends the write queues of all streams.  Their
     * GL_CMP_WROTE, if any, follow with the next turn. */
    int32_t (*flush)(int32_t reactor);

    /* Registers a stream.  The owner of a stream (in its record), datagram socket or listener is
     * the address at which the object that owns the descriptor keeps its number, or NULL.  Before
     * each call on the descriptor Go compares the two numbers, and treats a difference as EBADF:
     * the owner has closed the descriptor or given it away, and the number may belong to another
     * file.  C keeps that memory, and the record, until the registration is closed.  Pieces that
     * are queued already wait for a GL_SUB_STREAM. */
    int32_t (*stream_open)(int32_t reactor, int32_t fd, gl_stream_io *io, uint32_t flags,
                           uint32_t *id, uint32_t *gen);
    /* Ends a registration of any kind and removes it from the poller.  The write queue of a stream
     * is not sent: call flush_stream first.  An fd that its owner has closed is not an error. */
    int32_t (*unregister)(int32_t reactor, uint32_t id, uint32_t gen);

    /* Registers a datagram socket.  `want`: GL_READABLE receives, GL_WRITABLE reports GL_CMP_READY
     * in each turn while the socket is writable; datagram_set replaces both (0: removed from the
     * poller).  C sends by itself. */
    int32_t (*datagram_open)(int32_t reactor, int32_t fd, int32_t *owner, uint32_t want,
                             uint32_t *id, uint32_t *gen);
    int32_t (*datagram_set)(int32_t reactor, uint32_t id, uint32_t gen, uint32_t want);

    /* Registers a listening socket, which accepts at once.  `backlog`: maximum of accepts per
     * turn. */
    int32_t (*listener_open)(int32_t reactor, int32_t fd, int32_t *owner, int32_t backlog,
                             uint32_t flags, uint32_t *id, uint32_t *gen);

    /* Registers a watch of any pollable fd.  `want`: directions reported in each turn while
     * ready (level-triggered); `once`: directions reported once, then removed.
     * watch_set replaces both masks (0, 0: stays registered, without reports), and registers the
     * fd again if the kernel has dropped it. */
    int32_t (*watch_open)(int32_t reactor, int32_t fd, uint32_t want, uint32_t once, uint32_t *id,
                          uint32_t *gen);
    int32_t (*watch_set)(int32_t reactor, uint32_t id, uint32_t gen, uint32_t want, uint32_t once);

    /* Wakes the monitor; called if gl_shared.monitor_parked is set.  Returns 0. */
    int32_t (*wake_monitor)(int32_t reactor);
    /* Moves the loop's alarm forward: the monitor looks at the loop if no further call comes in
     * time.  The thread that runs the loop calls it when a run begins, at the end of a turn from
     * shared->alarm_due on, and for a deferred write if shared->alarm_is_far.  `now`: the time of
     * CLOCK_MONOTONIC in ns.  Returns 0. */
    int32_t (*move_alarm)(gl_shared *shared, int64_t now);
    /* Stops the alarm until the next call of move_alarm.  Returns 0. */
    int32_t (*stop_alarm)(gl_shared *shared);
    /* Releases the shared lock to the monitor and takes it back, when flusher_lock was seen set:
     * waits until the monitor is done, which takes a few system calls that do not block, and lends
     * the monitor this thread's priority meanwhile. */
    int32_t (*yield_to_flusher)(gl_shared *shared);

    /* Texts in UTF-8: facts about the reactor and the Go runtime (JSON), the sampling profile of
     * the process (JSON, golib/profile), the watchdog's report of a loop's current or last block,
     * and the names of a stack's frames (golib/watchdog.go).  Each function writes at most `cap`
     * bytes and returns the length of the whole text. */
    int32_t (*reactor_facts)(int32_t reactor, char *out, int32_t cap);
    int32_t (*profile_text)(char *out, int32_t cap);
    int32_t (*block_report)(int32_t reactor, char *out, int32_t cap);
    int32_t (*stack_text)(gl_stack *stack, char *out, int32_t cap);
    /* Starts a thread that sends a trace of all loops to a connected socket, and closes the socket
     * at the end.  After an error the fd still belongs to the caller. */
    int32_t (*trace_start)(int32_t fd);
    /* Returns 1 if any thread is alive but `self` (a thread id) and the library's; else 0. */
    int32_t (*other_threads_alive)(int32_t self);
    /* Answers a request to another system than the operating system in its buffer of `size` bytes
     * (golib/system.go). */
    int32_t (*system_request)(char *buffer, int32_t size);
    /* Stores in *system the system calls and the clock that the calling thread uses from now on.
     * -ENOSYS where the library has no other system than the operating system. */
    int32_t (*system_get)(gl_system *system);
    /* Unmaps the memory of a runtime that did not survive a fork.  Called in the child, before the
     * library's memory is restored.  Returns 0. */
    int32_t (*unmap_memory)(void);
} gl_table;

/* The one function that the Go library exports. */
typedef const gl_table *(*gl_table_fn)(void);
#define GL_TABLE_SYMBOL "goloop_table"

#endif /* GOLOOP_ABI_H */
