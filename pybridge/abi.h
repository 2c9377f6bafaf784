/*
 * abi.h: the memory and the functions that the C extension (goloop._core) and
 * the Go library (libgoloop) share.  Neither Python.h nor any Go header is
 * included here; both sides check the sizes below when the library is opened.
 *
 * One loop has one reactor and one gl_shared block, and each of its streams one
 * gl_stream_io.  The block, the records, the two queues and the arena are allocated by C
 * (never on Go's heap) and are touched by one thread at a time: by C while Python runs,
 * by Go during a call of the table.  The exception is wake_pending, which any thread may set.
 *
 * Submissions (C -> Go) are appended by C while callbacks run and decoded by Go
 * at the start of a turn, in order.  Completions (Go -> C) are filled by Go
 * during a turn and are valid until the next turn; so is the arena that
 * their `ptr` points into.
 *
 * Identity: a registration (stream, datagram, listener, watch) is named by an id, which
 * Go chooses, and a generation, which changes each time the id is used again.
 * A submission or completion of another generation than the live one is
 * dropped.  Timer ids are chosen by C, densely from 0.
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

#define GL_ABI_VERSION 23

/* ---- probes ------------------------------------------------------------------- */

/* A place that bpftrace, perf, gdb and SystemTap find by its name (USDT), at the price of a nop.  A note
 * in the ELF file has it, and where its two unsigned arguments are then, in the format of SystemTap's
 * sys/sdt.h, version 3: https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation. */
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __clang__ /* whose linker collects sections that no code names */
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
                     ".ifndef _.stapsdt.base\n" /* by how much prelink has moved it all */         \
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

#define GL_NO_TIMER 0xFFFFFFFFu /* no timer's id; every other one can be armed */

enum gl_submission_op {
    GL_SUB_NOP = 0,          /* annihilated before it was seen */
    GL_SUB_TIMER_ARM = 1,    /* id: timer; arg: deadline, ns of CLOCK_MONOTONIC */
    GL_SUB_TIMER_CANCEL = 2, /* id: timer; unknown ids are ignored */
    GL_SUB_STREAM = 3,       /* id, gen: stream; look at its gl_stream_io */
    GL_SUB_WATCH_WAIT = 4,   /* id, gen: watch; arg: a direction to report one time, after the
                              * kernel has just refused a call in it.  Where that fails the
                              * direction is reported, and the next call brings it to light */
};

typedef struct gl_submission {
    uint32_t op;
    uint32_t id;
    uint32_t gen;
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
#define GL_WANT_READ 1u   /* receive */
#define GL_WANT_SHUT 2u   /* shutdown(SHUT_WR) once the queue is empty */
#define GL_WANT_DIRECT 4u /* with READ: C receives by itself when a GL_CMP_READY says so */
#define GL_WANT_REPORT                                                                             \
    8u                  /* somebody waits to hear that bytes have left: a turn that has            \
                         * sent some does not block, so that its GL_CMP_WROTE comes at             \
                         * once.  Else it may come with whatever turn returns next */
#define GL_WANT_FEW 16u /* as GL_WANT_DIRECT in a turn in which few streams are ready */

/* The bits of gl_stream_io.state. */
#define GL_STATE_BLOCKED                                                                           \
    1u                         /* the kernel took less than it was given; Go sends on by itself    \
                                * once there is room */
#define GL_STATE_READ_END 2u   /* nothing more is received: the end, or an error */
#define GL_STATE_SHUT 4u       /* the writing half was shut down */
#define GL_STATE_DEAD 8u       /* a send failed; nothing more is sent */
#define GL_STATE_PIPE 16u      /* a call has shown that this is no socket */
#define GL_STATE_WATCH_END 32u /* opened with GL_OPEN_WATCH_END */

/*
 * What a stream has to send, what C wants of it and what has come of that: one record
 * for both sides, in C's memory, whose address stream_open gives to Go and forget
 * takes back.
 *
 *      0          head                                tail          cap
 *      | gone      | to be sent, in order              |             |
 *      +- C may let go of these    +- the first in part: Go moves its base
 *
 * bytes in the queue = appended - sent
 *
 * "C" is whatever thread has the GIL, while no turn is on; "Go" is the thread that
 * is in a call of the table.  The two never overlap, so nothing here is atomic.  But
 * another thread may have the GIL during a turn: it reads `sent` and `state`, whose
 * values may be a moment old, and writes nothing before the turn is over (threads/shared_lock.c).
 */
typedef struct gl_stream_io {
    gl_vector *iov;       /* C, which moves and grows it.  The bytes of a piece stay alive
                           * and unchanged until it is gone, or forget returns */
    const int32_t *owner; /* C; may be NULL: where the object that owns the descriptor
                           * keeps its number, see stream_open */
    uint64_t appended;    /* C: bytes, in all */
    uint32_t cap;         /* C: room in iov */
    uint32_t tail;        /* C: pieces appended */
    uint32_t want;        /* C: GL_WANT_ */
    uint32_t listed;      /* set by C when it has submitted a GL_SUB_STREAM, cleared by Go
                           * when it decodes that */
    uint32_t head;        /* Go: pieces gone.  C takes it back to 0, with tail, where they
                           * are equal or it moves the pieces to the front */
    uint32_t state;       /* Go: GL_STATE_; 0 at stream_open */
    uint64_t sent;        /* Go: bytes, in all */
} gl_stream_io;

/* ---- completions ------------------------------------------------------- */

enum gl_completion_kind {
    GL_CMP_NONE = 0,
    GL_CMP_DATA = 1,            /* stream; ptr: arena, arg: bytes (> 0); res: 0, or
                                 * i + 1 where ptr is gl_shared.large[i] */
    GL_CMP_EOF = 2,             /* stream; reading has stopped for good */
    GL_CMP_READ_ERROR = 3,      /* stream; res: errno; reading has stopped for good */
    GL_CMP_WROTE = 4,           /* stream; arg: bytes that left the write queue since
                                 * the last report (of any kind); the record says the same */
    GL_CMP_WRITE_ERROR = 5,     /* stream; res: errno; arg: bytes that had left before
                                 * the error and were not yet reported; the rest of
                                 * the queue is not looked at any more */
    GL_CMP_ACCEPT = 6,          /* listener; res: the new fd (non-blocking, close-on-
                                 * exec); ptr: gl_endpoints in the arena; arg: 0, or the
                                 * errno of GL_LISTEN_NODELAY */
    GL_CMP_ACCEPT_ERROR = 7,    /* listener; res: errno; arg: 1 where the listener backs
                                 * off and goes on by itself (EMFILE, ENFILE, ENOBUFS, ENOMEM):
                                 * when a registration of this process ends, and otherwise
                                 * after 10 ms, doubling to 1 s; reported once a second at
                                 * most; 0 where it stopped */
    GL_CMP_READY = 8,           /* watch; res: GL_READABLE | GL_WRITABLE, only directions
                                 * that were asked for (an error or hang-up counts as both);
                                 * arg: 1 where the number was closed while `want` directions
                                 * were watched and a duplicate is open: not watched any more;
                                 * datagram; res: GL_WRITABLE;
                                 * stream that C reads; res: GL_READABLE */
    GL_CMP_TIMER = 9,           /* id: timer, due and no longer armed */
    GL_CMP_DATAGRAM = 10,       /* datagram; ptr: gl_packet in the arena; arg: bytes (>= 0) */
    GL_CMP_DATAGRAM_ERROR = 11, /* datagram; res: errno; receiving goes on */
};

#define GL_READABLE 1u
#define GL_WRITABLE 2u

typedef struct gl_completion {
    uint32_t kind;
    uint32_t id;
    uint32_t gen;
    int32_t res;
    void *ptr;
    int64_t arg;
} gl_completion;

/* The two raw socket addresses (struct sockaddr, as the kernel gave them) of an
 * accepted connection; a length is 0 where the kernel gave none. */
#define GL_SOCKADDR_MAX 128
typedef struct gl_endpoints {
    uint32_t peer_len;
    uint32_t local_len;
    uint8_t peer[GL_SOCKADDR_MAX];
    uint8_t local[GL_SOCKADDR_MAX];
} gl_endpoints;

/* What stands before the bytes of a datagram: its sender's address, of length 0
 * where it has none. */
typedef struct gl_packet {
    uint32_t addr_len;
    uint8_t addr[GL_SOCKADDR_MAX];
} gl_packet;

/* The most bytes of one datagram that are received (asyncio's max_size); the arena
 * has room for so many, and a gl_packet, behind its capacity. */
#define GL_PACKET_MAX (256u * 1024u)
#define GL_ARENA_SLACK (GL_PACKET_MAX + 256u)

/* ---- metrics -------------------------------------------------------------- */

/* How many values (ns, or numbers) of which size there were.  Bucket i < 8 has the values
 * i; behind, eight buckets share each power of two: floor(log2 v) = i / 8 + 2, and i % 8 are the
 * three bits that follow.  The last one has all that is greater. */
#define GL_BUCKETS 320
typedef struct gl_histogram {
    uint64_t count, sum, most;
    uint64_t bucket[GL_BUCKETS];
} gl_histogram;

/* Counted by whoever is at work on the block; read by any thread at any time, which may see
 * one value of a histogram more than another.  Python unpacks the whole of it by the table in
 * goloop/_internal/observe/catalogue.py, which has the same names in the same order; nothing else may
 * stand here. */
typedef struct gl_metrics {
    uint64_t turns;                 /* Go */
    gl_histogram iteration_time;    /* Go: from the end of a poll to the beginning of the next */
    gl_histogram poll_time;         /* Go: in the poll */
    gl_histogram ready_wait;        /* C: of a sample, see queue/ready.c */
    gl_histogram timer_lateness;    /* C */
    gl_histogram gil_wait;          /* C: to have the GIL back after a poll */
    gl_histogram events_per_turn;   /* Go: completions */
    uint64_t ready_max, timers_max; /* Go: the most of the last minute or two */
    uint64_t bytes_received;        /* both: what the kernel gave and took */
    uint64_t bytes_sent;
    uint64_t reads;                /* both: receives, and flushes of a transport, that moved */
    uint64_t writes;               /* something */
    uint64_t late_writes;          /* the monitor: how often it has sent something */
    uint64_t connections_accepted; /* Go */
    uint64_t blocked_spells;       /* the monitor: how many iterations were reported */
} gl_metrics;

/* ---- stacks of Python ---------------------------------------------------- */

/* Where CPython keeps what tells of a code object: types by address, offsets in bytes, and the
 * bits of a str's state.  C's, constant. */
typedef struct gl_python {
    uint64_t code_type, none_type, str_type, bytes_type;
    uint64_t str_kind, str_compact, str_ascii;
    uint32_t object_type, qualname, filename, linetable, firstlineno, code_size;
    uint32_t str_length, str_hash, str_state, ascii_data, data, bytes_length, bytes_data, unused;
} gl_python;

/* A frame as it was found without the GIL: a code object's address and that of the instruction,
 * neither of them sure to be one. */
typedef struct gl_raw_frame {
    uint64_t code, instruction;
} gl_raw_frame;

/* Asks for the names of a thread's frames. */
#define GL_FRAMES 48
typedef struct gl_stack {
    uint64_t python; /* a gl_python's address */
    int64_t frames;
    gl_raw_frame frame[GL_FRAMES];
} gl_stack;

/* What a loop's thread did at one moment, and the time that it stands for. */
#define GL_SAMPLE_FRAMES 64
typedef struct gl_sample {
    int64_t at, since;  /* ns; the time that it stands for, which may be none (slow_limit) */
    int64_t cpu;        /* ns of the thread's processor time, in all; 0: not known */
    uint64_t polled;    /* ns in the poller, in all */
    uint64_t coroutine; /* the outermost one's address, 0: a callback runs, or nothing */
    int64_t iteration;  /* gl_shared.now */
    uint64_t serial;    /* another one: another callback */
    int32_t loop;       /* gl_shared.number */
    uint32_t frames;    /* the outermost, in the last place, is the callback or the task's */
    gl_raw_frame frame[GL_SAMPLE_FRAMES]; /* innermost first */
} gl_sample;

/* Samples that Go has not counted yet.  The monitor writes, Go reads with its lock. */
#define GL_SAMPLES_MOST 32
typedef struct gl_samples {
    uint32_t written, counted; /* atomic: how many */
    gl_sample sample[GL_SAMPLES_MOST];
} gl_samples;

/* ---- the trace ------------------------------------------------------------ */

/* Records of a loop's actions while a client traces it.  The fields of gl_record.what, from the top:
 * 4 bits of one of these kinds, 4 bits of details, 8 of the iteration's number, 48 of an address or a
 * number.  STEP, CALL, NATIVE and EVENT last until the next record of the kinds 1 to 7.
 * MORE continues the record before it: `ticks` and the low bits are bytes of a text; detail 1:
 * `ticks` is the number in a default name. */
#define GL_TRACE_MORE 0u
#define GL_TRACE_STEP 1u   /* a step of a task */
#define GL_TRACE_CALL 2u   /* a callback of this code object */
#define GL_TRACE_NATIVE 3u /* a callback in C of this name */
#define GL_TRACE_EVENT 4u  /* detail: gl_completion_kind; name of the protocol's class, or 0 */
#define GL_TRACE_TURN 5u   /* the loop calls the library */
#define GL_TRACE_WAKE 6u   /* the call returned, this number of ns after the poll */
#define GL_TRACE_STOP 7u   /* the loop stops */
#define GL_TRACE_TASK 8u   /* a new task; MORE: a STEP-like word of its coroutine, its name */
#define GL_TRACE_GC 9u     /* the collector; detail: 1 begins, 0 ends */
#define GL_TRACE_MADE 10u  /* a new connection; in a MORE record the name of its protocol's class */
#define GL_TRACE_LOST 11u  /* a lost connection; as MADE */
#define GL_TRACE_RECORDS (1u << 18)
typedef struct gl_record {
    uint64_t ticks, what;
} gl_record;

/* C overwrites the oldest, and never waits; Go reads behind it, and counts what it has missed. */
typedef struct gl_trace {
    uint64_t written, unused[7]; /* atomic, C: how many */
    gl_record record[GL_TRACE_RECORDS];
} gl_trace;

/* The cheapest clock; Go compares it with CLOCK_MONOTONIC. */
static inline uint64_t
gl_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

/* ---- the block of one loop ---------------------------------------------- */

struct gl_shared;

#define GL_LOOKS 4 /* stacks of a block: at 1, 2, 4 and 8 times the limit */

/* What the monitor asks of C about an iteration that lasts long.  Each is quick, blocks nowhere, has no
 * GIL and calls no function of the table, but `tell`: the monitor waits, with its lock. */
typedef struct gl_watchdog {
    /* The frames of a thread, innermost first: how many; -1: its chain breaks; -2: Python has ended. */
    int32_t (*walk)(void *thread, gl_raw_frame *to, int32_t room);
    /* The thread that has the GIL, or NULL where that can't be told. */
    void *(*holder)(void);
    /* Reports what is new of it, on a thread made for that, which may wait for the GIL. */
    void (*tell)(int32_t reactor);
    /* Notes in a sample what the thread does; 0 where that can't be told. */
    uint32_t (*sample)(struct gl_shared *shared, gl_sample *to);
} gl_watchdog;

/* Where clients ask about this process: Python answers, or Go where Python doesn't.  Atomic, C's. */
typedef struct gl_asker {
    int32_t listener; /* a socket, or -1; and which file it is */
    uint64_t dev, ino;
} gl_asker;

#define GL_DEADLINE_NONE INT64_MAX
#define GL_LARGE_MAX 2
#define GL_NO_RING 1u /* make no system calls in batches (GOLOOP_IO_URING=0) */
/* C has not run the loop for a while: the next turn checks that the descriptors are still its own, and
 * returns -EBADF if they are not. */
#define GL_LOOK 2u
#define GL_JSON 4u /* the watchdog's texts for stderr are JSON, set by C before reactor_new */
/* The clock is libc's clock_gettime, which a preloaded library has replaced, and not the kernel's;
 * set by C before reactor_new. */
#define GL_CLOCK_OF_C 8u
#define GL_REPORT_WAITS 1u /* the log is asked to take the report, */
#define GL_REPORTED 2u     /* and has it */
typedef struct gl_shared {
    gl_submission *sub; /* grown by C; Go sets sub_len to 0 once decoded */
    gl_completion *cmp; /* of fixed capacity; Go sets cmp_len in each turn */
    uint8_t *arena;     /* of fixed capacity; GL_ARENA_SLACK bytes follow, into
                         * which the last datagram of a turn may reach */
    uint32_t sub_len;
    uint32_t sub_cap;
    uint32_t cmp_len;
    uint32_t cmp_cap;
    uint64_t arena_cap;
    int64_t now;           /* set by Go at the end of the poll, and by C when the loop begins
                            * to run: ns of CLOCK_MONOTONIC */
    int64_t next_deadline; /* set by Go in each turn: the earliest armed deadline or
                            * GL_DEADLINE_NONE; C lowers it when it submits an arm */
    uint32_t more;         /* set by Go: work was left over for lack of room; the
                            * next turn must not block */
    uint32_t wake_pending; /* atomic: 1 from the first wake until the turn that saw it */
    int32_t wake_fd;       /* set by reactor_new, like the next two: for gl_wake_up */
    uint32_t flags;        /* GL_NO_RING, set by C before reactor_new; GL_LOOK */
    uint64_t wake_token;
    int32_t poll_fd;
    uint32_t events; /* set by Go in each turn: completions that are no timers */
    int32_t clock;   /* C: the processor time of the thread that runs the loop, a clockid_t */
    uint32_t native_thread; /* C: that thread's number in the system */
    /* counters, for goloop.diagnostics() */
    uint64_t polls, recvs, sends, wakeups;
    int64_t ran, busy; /* ns in all that the loop has run, and outside the poll; < 0 while it does
                        * so: the clock is to be added.  C, and Go where a poll begins and ends */
    int64_t accepting; /* C: ns that it took to begin with those accepted, in all */
    /* Buffers of large_size bytes for streams that lately received much at once, so
     * that these bytes need not be copied out of the arena.  C fills the slots before
     * a turn (NULL: none); a GL_CMP_DATA with res = i + 1 has its bytes at large[i],
     * which is C's again. */
    uint8_t *large[GL_LARGE_MAX];
    uint64_t large_size;
    /* The monitor, see below. */
    uint32_t holds;  /* atomic: written by C with the GIL, and by Go in a call of C's */
    uint32_t guest;  /* atomic: the monitor's thread while it wants the reactor, or has it,
                      * and briefly the waiter's: a futex, see yield_to_flusher */
    uint32_t fenced; /* atomic: 1: there is no membarrier any more; 2: C has seen that */
    uint32_t awake;  /* atomic, C: the loop runs, and does not wait in a poll.  It may
                      * wait for the GIL after one */
    uint32_t unsent; /* atomic: C sets it with a GL_SUB_STREAM, Go clears it when it
                      * decodes the submissions */
    uint32_t parked; /* atomic: the monitor sleeps until somebody calls watch */
    uint64_t ready_most, timers_most; /* C: since the last turn, where Go takes them back */
    gl_metrics metrics;
    /* The watchdog; the monitor looks at each tick whether now - `now` is more than it should. */
    const gl_watchdog *watchdog; /* set by C before reactor_new */
    int64_t blocked_limit;       /* atomic, C: ns; 0: nothing is reported */
    int64_t blocked_end;         /* atomic, C: ns, after which the process gives up; 0: never */
    int64_t blocked_since;       /* atomic, the monitor: `now` of the iteration that was last
                                  * reported; it is not reported again */
    uint32_t blocked_told; /* atomic: GL_REPORT_WAITS and GL_REPORTED are C's; the monitor sets 0 */
    uint32_t number;       /* C's: of the loop, in reports */
    gl_asker *asker;       /* set by C before reactor_new; of the process */
    const gl_python *python; /* likewise */
    void *thread;            /* atomic, C: the PyThreadState that runs the loop */
    uint64_t base;          /* C: the frame that runs it; what is called from there is the loop's */
    int64_t sample_every;   /* atomic, C: ns; 0: never */
    int64_t slow_limit;     /* atomic, C: ns; a longer iteration is recorded; 0: none */
    const int64_t *gc;      /* C's: ns that Python's collector took in this process */
    int64_t gc_before;      /* C: when the iteration began */
    const uint64_t *popped; /* C's: entries of the ready queue that were run, in all */
    const uint32_t *handed; /* C's: completions of the turn that were */
    gl_trace *trace;        /* atomic, Go: NULL while nobody traces; its memory stays */
} gl_shared;

/*
 * The monitor is a thread of the library's that sends what was written while Python, in the same
 * iteration, computes or waits.  It does what a call of `flush` would do, and so it must be
 * alone: no thread of C's may be at work on the submissions or on a record, or in a call.
 *
 *     C, or Go in a call, with the GIL         the monitor
 *
 *     holds = holds + 1                        guest = its thread's id, where it was 0
 *     (the compiler keeps the order)           membarrier(2): every thread of the process
 *     if guest: yield_to_flusher                                      has seen it, and is seen
 *     ... submissions, records, calls ...      if that went, and holds == 0: flush
 *     holds = holds - 1                        guest = 0
 *
 *     yield_to_flusher: holds = 0; take guest as a mutex; holds = 1; give guest back
 *
 * So one of the two always sees the other, and C pays two stores and a load, none of them
 * locked.  Without membarrier C has a fence in between (`fenced`).  A kernel may refuse it later
 * on (a seccomp filter, a restored process): the monitor sends nothing, sets fenced to 1, and
 * goes on once C, which has then seen it with the GIL, has made a 2 of it.  A turn holds from its
 * beginning to its end; holds nest; C never runs Python and never gives up the GIL under one,
 * but for the turn, whose end other threads wait for (threads/shared_lock.c).
 *
 * `awake` and `parked` are kept by the same rule: the monitor sets parked, has a membarrier,
 * and looks whether somebody is awake; a loop sets awake, and looks whether it is parked.
 */

/* Ends the reactor's wait, or its next one; whoever has set wake_pending calls it.  epoll knows what
 * it polls by number and file, so whatever has either number by now is left alone.  False where
 * somebody has closed what would wake it. */
static inline bool
gl_wake_up(const gl_shared *shared)
{
#if defined(__linux__)
    struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = shared->wake_token};
    return epoll_ctl(shared->poll_fd, EPOLL_CTL_MOD, shared->wake_fd, &e) == 0;
#else
    const uint64_t one = 1;
    ssize_t n;
    while ((n = write(shared->wake_fd, &one, sizeof one)) < 0 && errno == EINTR)
        ;
    return n > 0 || errno == EAGAIN;
#endif
}

/* ---- the functions ------------------------------------------------------- */
/* Flags of stream_open. */
#define GL_OPEN_WATCH_END 1u /* receive nothing: readiness to read is GL_CMP_EOF */
/* Flag of listener_open. */
#define GL_LISTEN_NODELAY 1u /* its connections are TCP: each gets TCP_NODELAY */
/* Replace a thread's system calls (a gl_calls, fds/lease.h) and its clock; NULL: not replaced. */
typedef struct gl_simulation_hooks {
    const void *calls;
    int64_t (*clock)(void);
} gl_simulation_hooks;
/* What both sides must have alike. */
#define GL_ABI                                                                                     \
    {GL_ABI_VERSION,    sizeof(gl_table),     sizeof(gl_submission), sizeof(gl_completion),        \
     sizeof(gl_shared), sizeof(gl_stream_io), sizeof(gl_endpoints),  sizeof(gl_packet)}

/*
 * Every function returns a value >= 0 or -errno.  None of them runs Python, none
 * keeps a pointer beyond what is said above.  A reactor is used by one thread at
 * a time.
 */
typedef struct gl_table {
    uint32_t abi[8]; /* GL_ABI */

    /* Makes a reactor over `shared`; returns its number (>= 0). */
    int32_t (*reactor_new)(gl_shared *shared);
    /* Closes the reactor's own fds; registered fds are left to C. */
    int32_t (*reactor_close)(int32_t reactor);

    /* One turn: decode and flush submissions, poll (timeout in ns; < 0: until
     * something happens or a timer is due), accept, receive, expire timers.
     * Returns the number of completions.  EINTR ends the wait early (0 or more
     * completions) so that C can look at signals. */
    int32_t (*turn)(int32_t reactor, int64_t timeout_ns);
    /* Decodes all submissions and sends what this stream has queued, now. The
     * record tells what has left, and no GL_CMP_WROTE does; an error is reported by a
     * GL_CMP_WRITE_ERROR in the next turn.  Fills no completion. */
    int32_t (*flush_stream)(int32_t reactor, uint32_t id, uint32_t gen);
    /* Decodes all submissions and sends what every stream has queued. WROTE
     * reports follow with the next turn. */
    int32_t (*flush)(int32_t reactor);

    /* `owner`, of a stream (in its record), datagram socket or listener, may be NULL: where the
     * object that owns the descriptor keeps its number.  Go compares the two before each call
     * on the descriptor, and takes a difference for EBADF: its owner has closed it or given it
     * away, and the number may be anybody's.  C keeps that memory, and the record, until the
     * registration is closed.  What is queued already waits for a GL_SUB_STREAM. */
    int32_t (*stream_open)(int32_t reactor, int32_t fd, gl_stream_io *io, uint32_t flags,
                           uint32_t *id, uint32_t *gen);
    /* Ends a registration of any kind: it leaves the poller.  What a stream has queued is not
     * sent: call flush_stream first.  An fd that its owner closed meanwhile is no error. */
    int32_t (*forget)(int32_t reactor, uint32_t id, uint32_t gen);

    /* A datagram socket.  `want`: GL_READABLE receives, GL_WRITABLE reports GL_CMP_READY
     * in each turn while the kernel has room; datagram_set replaces both (0 leaves the
     * poller).  Sending is C's own. */
    int32_t (*datagram_open)(int32_t reactor, int32_t fd, int32_t *owner, uint32_t want,
                             uint32_t *id, uint32_t *gen);
    int32_t (*datagram_set)(int32_t reactor, uint32_t id, uint32_t gen, uint32_t want);

    /* `backlog`: at most so many accepts per turn. Listening starts at once. */
    int32_t (*listener_open)(int32_t reactor, int32_t fd, int32_t *owner, int32_t backlog,
                             uint32_t flags, uint32_t *id, uint32_t *gen);

    /* A watch on any pollable fd.  `want`: directions reported in each turn while
     * ready (level-triggered); `once`: directions reported once, then forgotten.
     * watch_open makes the registration, watch_set replaces both masks (0, 0:
     * stays registered but silent), and registers the number afresh if the kernel has
     * forgotten it. */
    int32_t (*watch_open)(int32_t reactor, int32_t fd, uint32_t want, uint32_t once, uint32_t *id,
                          uint32_t *gen);
    int32_t (*watch_set)(int32_t reactor, uint32_t id, uint32_t gen, uint32_t want, uint32_t once);

    /* Wakes the monitor, whose gl_shared.parked was seen set. */
    int32_t (*watch)(int32_t reactor);
    /* For a holder that has seen a guest: waits until the monitor is done, which takes some
     * system calls that do not block, and lends it this thread's priority meanwhile. */
    int32_t (*yield_to_flusher)(gl_shared *shared);

    /* Texts in UTF-8: facts about the reactor and the Go runtime (JSON), the sampling profile of the
     * process (JSON, golib/profile.go), the watchdog's report of a loop's current or last block, and
     * the names of a stack's frames (golib/watchdog.go).  Each function writes at most `cap` bytes
     * and returns the length of the whole text. */
    int32_t (*reactor_facts)(int32_t reactor, char *out, int32_t cap);
    int32_t (*profile_text)(char *out, int32_t cap);
    int32_t (*block_report)(int32_t reactor, char *out, int32_t cap);
    int32_t (*stack_text)(gl_stack *stack, char *out, int32_t cap);
    /* Starts a thread that sends a trace of all loops to a connected socket, then closes it. */
    int32_t (*trace_start)(int32_t fd);
    /* Returns 1 if any thread is alive but `self` (a thread id) and the library's; else 0. */
    int32_t (*other_threads_alive)(int32_t self);
    /* Answers a request to a simulated kernel in its buffer (golib/simulation_requests_linux.go). */
    int32_t (*simulation_request)(char *buffer, int32_t size);
    /* Sets the system calls and the clock that the calling thread uses from now on. */
    int32_t (*simulation_hooks)(gl_simulation_hooks *hooks);
} gl_table;

/* The one function that the Go library exports. */
typedef const gl_table *(*gl_table_fn)(void);
#define GL_TABLE_SYMBOL "goloop_table"
/* The names of the library's C threads on Linux. */
#define MONITOR_THREAD_NAME "goloop-monitor"
#define REPORT_THREAD_NAME "goloop-report"
#define STDERR_THREAD_NAME "goloop-stderr"

#endif /* GOLOOP_ABI_H */
