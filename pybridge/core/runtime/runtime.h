/*
 * runtime.h: the public functions of this room, which loads and starts the Go library.
 *
 * These functions do not need Python.h and raise nothing.  A function that fails returns a message,
 * a whole sentence in a buffer of the process that is valid until the next call, and its caller
 * raises the message as an exception (ImportError for gl_library_open, RuntimeError for a thread
 * that cannot run a loop).
 *
 *   import of goloop         gl_library_set_path
 *   a new Loop               gl_library_open, then store gl_library_epoch()
 *   use of a Loop's reactor  epoch != gl_library_epoch(): the parent's loop
 *   a run of a Loop          between gl_library_run_begins and gl_library_run_ends
 *
 * docs/internals/fork.md has a drawing of the states at a fork.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "linkage.h"

/*
 * The state of this process only.  The kernel fills the page of this struct with zeroes in a forked
 * child, so a child cannot mistake its parent's Go runtime for its own, however it was
 * forked: os.fork, fork(3) from C, _Fork, raw clone.  A child of vfork shares the parent's memory
 * and therefore, correctly, the parent's page.
 */
typedef struct gl_process {          /* any thread, by atomic operations */
    _Atomic uint64_t epoch;          /* 0: no Go runtime in this process yet */
    _Atomic(const gl_table *) table; /* set last, once the runtime has started */
    _Atomic int opening;             /* 1 while a thread opens the library */
    _Atomic int forked_by_libc;      /* 1: a child in which libc's fork() has made the stacks and
                                      * malloc arenas of the parent's threads free for new ones */
    _Atomic int python_ended;        /* 1: Python ends, or has ended; threads/foreign_threads.c */
    _Atomic int foreign_threads;     /* number of attached ones; the end of Python waits for 0 */
    _Atomic unsigned long ending_thread; /* threading.get_ident() of the thread that ends Python */
} gl_process;

GL_PRIVATE_DATA gl_process *gl_here; /* never NULL once _core is loaded */

/* The clock of the system under this thread; NULL: the operating system's. */
GL_PRIVATE_DATA _Thread_local int64_t (*gl_thread_clock)(void);
/* Returns the time of CLOCK_MONOTONIC, or of gl_thread_clock, in ns. */
GL_PRIVATE_INLINE int64_t gl_monotonic_ns(void);

/* Returns true if a preloaded library (libfaketime) has replaced libc's clock_gettime.  Go, which
 * reads the kernel's clock directly, must then use libc's clock too: timers of two clocks expire at
 * once, or never. */
GL_PRIVATE bool gl_clock_is_replaced(void);

/* Returns the functions of this process's live Go runtime.  Any thread may call any function of it
 * except `turn`, which only a thread between gl_library_run_begins() and gl_library_run_ends() may
 * call.  The first call opens the library, as does the first call in a forked child.  If that
 * fails, returns NULL and sets *message; a later call tries again.  Needs the GIL. */
GL_PRIVATE const gl_table *gl_library_open(const char **message);

/* Returns the number of the live Go runtime: 0 before the first, another number in every forked
 * child (0 again until the child opens its own).  Loads two words. */
static inline uint64_t
gl_library_epoch(void)
{
    return atomic_load_explicit(&gl_here->epoch, memory_order_relaxed);
}

/* Returns a message if this thread has too little stack left to call Go, else NULL.  Called before
 * a loop is created; gl_library_run_begins() checks by itself. */
GL_PRIVATE const char *gl_library_stack_error(void);

/* Called before and after a run of a loop, in the thread that runs it: install a stack for signal
 * handlers (stack.c), and remove it.  Runs may nest.  The first returns NULL, or the reason why the
 * loop cannot run; only after NULL the second follows.  The first also registers the thread with
 * Go. */
GL_PRIVATE const char *gl_library_run_begins(void);
GL_PRIVATE void gl_library_run_ends(void);

/* Stores a copy of the path of libgoloop.so and, where GL_CAN_RESTART is 1, tries to load the
 * library without starting it; elsewhere the first gl_library_open() loads it.  A failure is
 * reported by gl_library_open().  Called before the first gl_library_open(). */
GL_PRIVATE void gl_library_set_path(const char *path);

/* The origin of this process's Go runtime, for diagnostics. */
typedef struct gl_library_facts {
    const char *mode; /* "unopened", "first" or "restarted" */
    const char *path; /* "" before gl_library_set_path */
    uint64_t epoch;
    uint64_t instances; /* runtimes started by this process and its ancestors */
    int64_t open_ns;    /* duration of the opening, ns; 0 while unopened */
} gl_library_facts;
/* Fills in `facts` with the origin of this process's Go runtime. */
GL_PRIVATE void gl_library_describe(gl_library_facts *facts);
