/*
 * abi_observers.h: the part of abi.h for metrics, the watchdog, the profile and the trace.
 *
 * The loop works without them.  gl_shared (abi.h) contains gl_metrics and has pointers to the other
 * structs.  "Go" is the thread that is inside a call of the API table, "C" any other thread of the
 * loop, and "the monitor" the library's thread of golib/monitor.c.
 */
#ifndef GOLOOP_ABI_OBSERVERS_H
#define GOLOOP_ABI_OBSERVERS_H

#include <stdint.h>
#include <time.h>

/* ---- metrics -------------------------------------------------------------- */

/* Counts values (ns, or plain numbers) by size.  Bucket i < 8 counts the value i; after these,
 * eight buckets share each power of two: floor(log2 v) = i / 8 + 2, and i % 8 are the
 * three bits that follow the first.  The last bucket also counts all greater values. */
#define GL_BUCKETS 320
typedef struct gl_histogram {
    uint64_t count; /* number of values */
    uint64_t sum;   /* the sum of all values */
    uint64_t max;   /* the greatest value */
    uint64_t bucket[GL_BUCKETS];
} gl_histogram;

/* The side that works on the shared block writes its fields; any thread may read at any time, and
 * can then see one field of a histogram newer than another.  Python unpacks the whole struct by the
 * table in goloop/_internal/observe/metric_registry.py, which has the same names in the same order,
 * so that only metrics may be added here. */
typedef struct gl_metrics {
    /* Go: number of turns */
    uint64_t turns;
    /* Go: from the end of a poll to the start of the next */
    gl_histogram iteration_time;
    /* Go: time inside the poll */
    gl_histogram poll_time;
    /* C: waiting times of sampled entries, see queue/ready.c */
    gl_histogram ready_wait;
    /* C: time from the deadline of a timer to its call */
    gl_histogram timer_lateness;
    /* C: time to get the GIL back after a poll */
    gl_histogram gil_wait;
    /* Go: completions */
    gl_histogram events_per_turn;
    /* Go: maxima of the last one or two minutes */
    uint64_t ready_max, timers_max;
    /* both: bytes received from and accepted by the kernel */
    uint64_t bytes_received;
    uint64_t bytes_sent;
    /* both: receives, and flushes of a transport, that moved at least one byte */
    uint64_t reads;
    uint64_t writes;
    /* the monitor: number of its flushes that sent something */
    uint64_t late_writes;
    /* Go: attempts of busy polling, the ones that found an event, and their time in ns */
    uint64_t busy_polls;
    uint64_t busy_poll_hits;
    uint64_t busy_poll_time;
    /* Go: number of accepted connections */
    uint64_t connections_accepted;
    /* the monitor: number of iterations that it reported as blocked */
    uint64_t blocked_spells;
} gl_metrics;

/* ---- stacks of Python ---------------------------------------------------- */

/* The layout of CPython's code objects and strings: addresses of types, offsets in bytes, and
 * the bits of a str's state.  Written by C once. */
typedef struct gl_python {
    uint64_t code_type, none_type, str_type, bytes_type;
    uint64_t str_kind, str_compact, str_ascii;
    uint32_t object_type, qualname, filename, linetable, firstlineno, code_size;
    uint32_t str_length, str_hash, str_state, ascii_data, data, bytes_length, bytes_data, unused;
} gl_python;

/* A frame that was read without the GIL: the addresses of a code object and of an instruction.
 * Either may be invalid by now. */
typedef struct gl_raw_frame {
    uint64_t code, instruction;
} gl_raw_frame;

/* A request for the function names of a thread's frames. */
#define GL_FRAMES 48
typedef struct gl_stack {
    /* address of a gl_python */
    uint64_t python;
    /* number of frames in `frame`, innermost first */
    int64_t frames;
    gl_raw_frame frame[GL_FRAMES];
} gl_stack;

/* The activity of a loop's thread at one moment, and the time span that the sample represents. */
#define GL_SAMPLE_FRAMES 64
typedef struct gl_sample {
    /* ns: the moment, and the start of the span, which is empty for a sample of slow_limit */
    int64_t at, since;
    /* ns of processor time of the thread since its start; 0: unknown */
    int64_t cpu;
    /* ns inside the poll since the loop started */
    uint64_t polled;
    /* address of the outermost coroutine; 0: a callback runs, or nothing */
    uint64_t coroutine;
    /* gl_shared.now of the iteration */
    int64_t iteration;
    /* differs between two callbacks */
    uint64_t serial;
    /* gl_shared.number */
    int32_t loop;
    /* number of frames; the last one, the outermost, is the callback or the task's coroutine */
    uint32_t frames;
    gl_raw_frame frame[GL_SAMPLE_FRAMES]; /* innermost first */
} gl_sample;

/* A ring of samples that Go has not counted yet.  The monitor writes; Go reads under the monitor's
 * lock. */
#define GL_MAX_SAMPLES 32
typedef struct gl_samples {
    uint32_t written, counted; /* atomic: totals */
    gl_sample sample[GL_MAX_SAMPLES];
} gl_samples;

/* ---- the trace ------------------------------------------------------------ */

/* The trace of a loop is a ring of records, which C writes while a client traces the loop.  `what`
 * packs four fields, from the highest bit down: 4 bits of kind (GL_TRACE_...), 4 bits that
 * depend on the kind, 8 bits of the iteration's number, 48 bits of an address or a number.
 *
 * STEP, CALL, NATIVE and EVENT last until the next record of one of the kinds STEP to STOP. */
#define GL_TRACE_STEP 1u   /* a step of the task at the address */
#define GL_TRACE_CALL 2u   /* a callback; the address of its code object */
#define GL_TRACE_NATIVE 3u /* a callback in C; the address of its name */
/* A completion.  The 4 bits: enum gl_completion_kind; the address of the name of the protocol's
 * class, or 0. */
#define GL_TRACE_EVENT 4u
#define GL_TRACE_TURN 5u /* a turn starts */
#define GL_TRACE_WAKE 6u /* a turn ended; the number is the ns since the end of its poll */
#define GL_TRACE_STOP 7u /* the loop stopped running */
/* A task was created.  MORE records follow with its coroutine, as in STEP, and its name. */
#define GL_TRACE_TASK 8u
#define GL_TRACE_GC 9u    /* the 4 bits: 1: a garbage collection starts, 0: it ends */
#define GL_TRACE_MADE 10u /* a connection was made; a MORE record has its protocol's class name */
#define GL_TRACE_LOST 11u /* a connection was lost; a MORE record has its protocol's class name */
/* `ticks` and the 48 bits are bytes that continue the record before.  The 4 bits: 1: `ticks` is
 * the number in a default name. */
#define GL_TRACE_MORE 0u
#define GL_TRACE_RECORDS (1u << 18)
typedef struct gl_record {
    uint64_t ticks, what;
} gl_record;

/* The ring.  C overwrites the oldest records and never waits; Go follows and counts the records
 * that it missed. */
typedef struct gl_trace {
    uint64_t written, unused[7]; /* atomic, C: total */
    gl_record record[GL_TRACE_RECORDS];
} gl_trace;

/* Reads the cheapest clock of the processor; Go calibrates it against CLOCK_MONOTONIC. */
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

/* ---- the watchdog --------------------------------------------------------- */

#define GL_BLOCK_STACKS 4 /* stacks of a blocked iteration: after 1, 2, 4 and 8 times the limit */

struct gl_shared;

/* Functions of C that the monitor calls about an iteration that lasts long.  The monitor holds its
 * lock while it calls them, so they are quick, do not block, need no GIL and call no function of
 * the API table.  `report` is the exception: it runs on a thread of its own, without the lock. */
typedef struct gl_watchdog {
    /* Reads at most `cap` frames of a thread (a PyThreadState) into `to`, innermost first.  Returns
     * their number; -1: the chain of frames is inconsistent or can't be read; -2: Python has
     * ended. */
    int32_t (*read_frames)(void *thread, gl_raw_frame *to, int32_t cap);
    /* Returns the thread that owns the GIL (a PyThreadState), or NULL if it is unknown or Python
     * has ended. */
    void *(*gil_holder)(void);
    /* Reports the reactor's long iteration to Python.  Called on a thread of its own; waits for the
     * GIL.  Does nothing if Python or the loop has ended. */
    void (*report)(int32_t reactor);
    /* Stores the frames of the loop's thread and its coroutine in a sample.  Returns 0, with 0
     * frames, if they can't be read. */
    uint32_t (*sample)(struct gl_shared *shared, gl_sample *to);
} gl_watchdog;

/* The bits of gl_shared.report_state. */
#define GL_REPORT_REQUESTED 1u /* the report was handed to the log */
#define GL_REPORT_LOGGED 2u    /* the log has written the report */

/* The introspection socket of this process, written by C.  Python answers its clients; Go answers
 * them while Python does not.  Atomic. */
typedef struct gl_introspection_socket {
    int32_t listener;  /* the fd, or -1 */
    uint64_t dev, ino; /* identity of its file */
} gl_introspection_socket;

/* ---- thread names --------------------------------------------------------- */

/* The names of the library's C threads in the kernel. */
#define GO_THREAD_NAME "goloop-go"
#define MONITOR_THREAD_NAME "goloop-monitor"
#define REPORT_THREAD_NAME "goloop-report"
#define STDERR_THREAD_NAME "goloop-stderr"

#endif /* GOLOOP_ABI_OBSERVERS_H */
