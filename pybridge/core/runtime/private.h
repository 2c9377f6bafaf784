/*
 * private.h: declarations of this room's own files.
 */
#pragma once

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif

#include "runtime/runtime.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

#if defined(__linux__)
#include <elf.h>
#include <link.h>
#include <sys/syscall.h>
#endif

/* A start in a child needs the arguments that glibc passes to constructors (argc, argv, envp), and
 * the place of a library's thread-local variables: tested on these two architectures. */
#if defined(__linux__) && defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#define GL_CAN_RESTART 1
#else
#define GL_CAN_RESTART 0
#endif

#ifdef NSIG
#define GL_SIGNALS NSIG
#else
#define GL_SIGNALS 65
#endif

/* Number of unused signal stacks that are cached for the next thread. */
#define GL_STACK_SPARES 4

/* ---- the state of the process ---------------------------------------------------------------- */

/* The signal handlers of the process, saved while Go starts. */
typedef struct gl_signals {
    sigset_t mask; /* the mask of the calling thread */
    struct sigaction action[GL_SIGNALS];
    bool known[GL_SIGNALS];
} gl_signals;

/* The maximum number of segments of each kind in the library's file. */
#define GL_SEGMENTS 4

typedef struct gl_written { /* a segment of the library that is written to */
    uintptr_t at;
    size_t filled; /* bytes that come from the file; zeroes follow */
    size_t size;
} gl_written;

/* A range of addresses. */
typedef struct gl_memory {
    uintptr_t at;
    size_t size;
} gl_memory;

typedef struct gl_image { /* the library in memory; image.c */
    gl_table_fn table;    /* NULL: not loaded */
    uintptr_t low;        /* lowest address of the library; 0 if not known */
    uintptr_t high;
    bool understood;   /* all memory that a restart has to restore is known */
    void *const *init; /* constructors that ld.so has not run */
    size_t init_count;
    gl_written written[GL_SEGMENTS];
    size_t written_count;
    gl_memory tables[GL_SEGMENTS]; /* read-only segments: relocations, Go's function tables */
    size_t table_count;
    size_t tls_size; /* bytes of the library's thread-local variables */
    ptrdiff_t tls;   /* their distance from the thread pointer */
    uint8_t *saved;  /* copy of the filled parts, made before the first start; NULL before it */
} gl_image;

/* The state of the library that a child inherits; *gl_here has the state of one process only.
 * Written, with the GIL, by the thread that has set gl_here->opening; read with the GIL.  The
 * comments of the fields name the exceptions. */
struct gl_library_state {
    gl_process unmapped; /* *gl_here, before the page is mapped and where that failed */
    char *path;          /* the file libgoloop.so; NULL until gl_library_set_path() */
    gl_image image;
    bool forked_hook; /* the functions for a fork are registered */

    uint64_t epoch;      /* number of the newest runtime that was started */
    uint64_t instances;  /* number of runtimes that were started, here and in ancestors */
    const char *mode;    /* "unopened", "first" or "restarted"; inherited, unlike gl_here->table */
    int64_t open_ns;     /* duration of the last opening, ns */
    bool clock_replaced; /* set when the extension is loaded, because it needs a lock of ld.so */

    /* The pthread key under which the newest runtime (dead if gl_here is empty) stores its threads.
     * Also written by library_in_child, while the child has only one thread. */
    pthread_key_t live_key;
    bool live_key_known;

    /* The arguments of the constructor.  Go reads argv, the environment, and the auxiliary vector
     * that follows the environment. */
    int argc;
    char **argv;
    char **envp;

    gl_signals signals; /* used while Go starts; 10 KiB, too large for a stack of 32 KiB */
    char why[512];      /* half a sentence: the reason for this room's last failure */
    char message[768];  /* a sentence for the caller, valid while it has the GIL */

    pthread_key_t exit_key; /* exit.c; this and the next field are written at import */
    bool exit_key_made;
    _Atomic(char *) stack_spare[GL_STACK_SPARES]; /* stack.c; any thread, by exchange */
};
GL_PRIVATE_DATA struct gl_library_state library;

/* The state of a thread, used by that thread only. */
struct gl_library_thread {
    uint64_t epoch;   /* number of the runtime with which this thread is registered */
    unsigned depth;   /* number of nested runs and calls */
    char *ours;       /* the thread's signal stack if goloop allocated it; else NULL */
    stack_t before;   /* the signal stack before that; valid if `ours` is not NULL */
    uintptr_t lowest; /* lowest address of the thread's own stack; 0: unknown, or not read yet */
    bool lowest_known;
};
GL_PRIVATE_DATA _Thread_local struct gl_library_thread thread_here;

/* ---- process.c ------------------------------------------------------------------------------- */

/* Writes half a sentence, the reason for a failure, to library.why, and returns it. */
__attribute__((format(printf, 1, 2))) GL_PRIVATE const char *library_set_reason(const char *format,
                                                                                ...);

/* Stores the result of gl_clock_is_replaced(), when the extension is loaded: false if ld.so does
 * not know the files, and on systems without glibc. */
GL_PRIVATE void clock_init(void);

/* ---- exit.c -------------------------------------------------------------------------- */

/* Prepares exit_install_wait(), once, when the extension is loaded.  After a failure
 * exit_install_wait() does nothing. */
GL_PRIVATE void exit_init(void);
/* Called when Go starts, and in the child of a fork.  If the caller is the process's first thread,
 * the end of its function waits for all other threads except the library's and then ends the
 * process. */
GL_PRIVATE void exit_install_wait(void);

/* ---- image.c ------------------------------------------------------------------------- */

/* Loads the library by ld.so, without running its constructors, and finds its table and the
 * addresses of its parts; does nothing if it is loaded.  Returns NULL, or the reason for the
 * failure, valid until the next failure, as image_start() and image_restart() do. */
GL_PRIVATE const char *image_load(void);
/* Saves the memory that a restart needs, and starts the Go runtime of the loaded library, in a
 * process without an earlier one.  Does nothing where GL_CAN_RESTART is 0: ld.so has started it. */
GL_PRIVATE const char *image_start(void);
/* Unmaps, in a forked child, the memory that the inherited runtime has mapped.  A second call does
 * nothing, nor does the first for a library that can't be started again. */
GL_PRIVATE void image_unmap_runtime(void);
/* Restores the library's memory and starts a new Go runtime in a forked child, in place of the
 * inherited one. */
GL_PRIVATE const char *image_restart(void);
/* Clears the library's thread-local words of the calling thread, which was registered with a dead
 * runtime.  Does nothing if their place is not known. */
GL_PRIVATE void image_forget_thread(void);
/* Releases the pages of the library's tables, about a megabyte: ld.so and the start of a runtime
 * have read them from end to end, and they are rarely read again. */
GL_PRIVATE void image_release_tables(void);

/* ---- limits.c ------------------------------------------------------------------------ */

/* Returns NULL if the process can create the signal stack, the address space and the threads that
 * Go needs, else the reason (library.why).  Called with all signals blocked. */
GL_PRIVATE const char *why_go_cannot_start(void);
/* Stores the limit of open files, before Go raises it; infinity if it can't be read. */
GL_PRIVATE void file_limit_save(struct rlimit *saved);
/* Undoes Go's change: restores the soft limit of open files if it is higher than before.  A limit
 * that other code has lowered in the meantime, or whose hard limit it has changed, stays. */
GL_PRIVATE void file_limit_restore(const struct rlimit *saved);

/* ---- slack.c ------------------------------------------------------------------------- */

/* Raises the timer slack of the calling thread, which its new threads inherit.  Returns the
 * previous slack in ns, the argument of timer_slack_restore(), or 0 if nothing was changed. */
GL_PRIVATE long timer_slack_raise(void);
/* Sets the slack that timer_slack_raise() returned; 0: does nothing. */
GL_PRIVATE void timer_slack_restore(long before);

/* ---- signals.c ----------------------------------------------------------------------- */

/* Blocks every signal in this thread, and saves the mask and the dispositions of all signals. */
GL_PRIVATE void signals_save(gl_signals *saved);
/* Restores every disposition whose handler has changed since signals_save(), with SA_ONSTACK added,
 * and the mask of the thread. */
GL_PRIVATE void signals_restore(gl_signals *saved);
/* Sets handlers in the address range [low, high), the code of a runtime that did not survive the
 * fork, to SIG_DFL.  Such a handler exists only if a thread read a disposition while Go started and
 * installed it again later. */
GL_PRIVATE void signals_reset_dead_handlers(uintptr_t low, uintptr_t high);

/* ---- stack.c ------------------------------------------------------------------------- */

/* Installs a large signal stack for this thread, unless an outer call has installed it.  Returns 0,
 * or an errno; only after 0 stack_leave() follows. */
GL_PRIVATE int stack_enter(void);
/* Ends a stack_enter(); the outermost one restores the thread's previous signal stack.  It changes
 * nothing if none was installed, if the thread runs on the stack, or if other code has installed
 * another one. */
GL_PRIVATE void stack_leave(void);
/* Returns true if the thread's own stack is large enough for Go, or if its size is unknown. */
GL_PRIVATE bool stack_suffices(void);

/* ---- go_calls.c ------------------------------------------------------------------------- */

/* Registers the calling thread with Go by a call without an effect (no reactor has the number -1).
 * If a thread has no signal stack, Go installs its own at the thread's first call; this function
 * removes it. */
GL_PRIVATE void library_prime_thread(const gl_table *table);
/* Registers the calling thread with the live Go runtime, at its first call in each runtime; does
 * nothing without a live runtime.  Go changes the thread's signal mask and signal stack meanwhile;
 * this function restores both. */
GL_PRIVATE void library_bind_thread(void);
/* The functions that any thread may call, each wrapped by go_call_begin() and go_call_end(). */
GL_PRIVATE_DATA const gl_table go_wrappers;
