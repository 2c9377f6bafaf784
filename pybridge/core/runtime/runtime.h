/*
 * runtime.h: the Go library as the rest of the extension sees it.
 *
 * Nothing here needs Python.h and nothing raises: what fails gives a message,
 * a whole sentence in a buffer of the process that is valid until the next call, and the
 * caller raises (ImportError in gl_library, RuntimeError for a foreign loop).
 *
 *   import of goloop         gl_library_set_path
 *   a new Loop               gl_library, then keep gl_library_epoch()
 *   every entry of a Loop    epoch != gl_library_epoch(): the parent's loop
 *   a run of a Loop          between gl_library_run_begins and gl_library_run_ends
 *
 * What happens at a fork is drawn in docs/internals/fork.md.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "linkage.h"

/*
 * What is true of this process only.  It lies in a page that the kernel gives
 * to a forked child filled with zeroes, so a child can't take its parent's Go
 * runtime for its own, however it was forked: os.fork, fork(3) from C, _Fork, raw
 * clone.  A vfork shares the parent's memory and rightly sees the parent's page.
 */
typedef struct gl_process {          /* any thread, by atomic operations */
    _Atomic uint64_t epoch;          /* 0: no Go runtime in this process yet */
    _Atomic(const gl_table *) table; /* set last, once the runtime has started */
    _Atomic int opening;             /* 1 while a thread opens the library */
    _Atomic int python_ended;        /* 1: Python ends, or has ended; threads/foreign_threads.c */
    _Atomic int foreign_threads;     /* attached ones, for which the end of Python waits */
} gl_process;

GL_PRIVATE_DATA gl_process *gl_here; /* never NULL once _core is loaded */

/* The loop's clock; in a thread with a simulated kernel that one's. */
GL_PRIVATE_DATA _Thread_local int64_t (*gl_thread_clock)(void);
GL_PRIVATE_INLINE int64_t gl_monotonic_ns(void);

/* Returns true if a preloaded library (libfaketime) has replaced libc's clock_gettime.  Go, which
 * reads the kernel's clock by itself, must not do so then: timers of two clocks expire at once, or
 * never. */
GL_PRIVATE bool gl_clock_is_replaced(void);

/* The table of this process's live Go runtime, of which any thread may call any
 * function but `turn`, which is for a thread that runs a loop.  The first call opens
 * the library, and so does the first call in a forked child.  NULL, with *message
 * set, where that fails; a later call tries again.  Needs the GIL. */
GL_PRIVATE const gl_table *gl_library(const char **message);

/* Which Go runtime is live: 0 before the first, another number in every forked
 * child (0 again until the child opens its own).  A load of two words. */
static inline uint64_t
gl_library_epoch(void)
{
    return atomic_load_explicit(&gl_here->epoch, memory_order_relaxed);
}

/* NULL, or a message where so little is left of this thread's stack that Go must not be
 * entered.  Before making a loop; run_begins looks by itself. */
GL_PRIVATE const char *gl_library_stack_short(void);

/* Stand round a run of a loop, in the thread that runs it: give it a stack for signal
 * handlers (stack.c) and take it away again.  Runs may nest.  NULL, or why
 * the run can't be. */
GL_PRIVATE const char *gl_library_run_begins(void);
GL_PRIVATE void gl_library_run_ends(void);

/* Where libgoloop.so lies; copied.  The library is loaded, if it can be, and not started.  Before
 * the first gl_library. */
GL_PRIVATE void gl_library_set_path(const char *path);

/* How this process came by its Go runtime, for diagnostics. */
typedef struct gl_library_facts {
    const char *mode; /* "unopened", "first" or "restarted" */
    const char *path; /* "" before gl_library_set_path */
    uint64_t epoch;
    uint64_t instances; /* runtimes started by this process and its ancestors */
    int64_t open_ns;    /* what opening took, ns; 0 while unopened */
} gl_library_facts;
GL_PRIVATE void gl_library_describe(gl_library_facts *facts);
