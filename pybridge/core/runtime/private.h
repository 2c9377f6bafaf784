/*
 * private.h: what the files of this room alone share.
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

/* Stacks for signal handlers that wait for the next thread. */
#define GL_STACK_SPARES 4

/* ---- the state of the process ---------------------------------------------------------------- */

typedef struct gl_signals {
    sigset_t mask; /* of the calling thread */
    struct sigaction action[GL_SIGNALS];
    bool known[GL_SIGNALS];
} gl_signals;

#define GL_SEGMENTS 4

typedef struct gl_written { /* a segment of the library that is written to */
    uintptr_t at;
    size_t filled; /* bytes that come from the file; zeroes follow */
    size_t size;
} gl_written;

typedef struct gl_memory {
    uintptr_t at;
    size_t size;
} gl_memory;

typedef struct gl_image { /* the library in memory; image.c */
    gl_table_fn table;    /* NULL: not loaded */
    uintptr_t low;        /* the addresses that it occupies; 0, 0: not known */
    uintptr_t high;
    bool understood;   /* all that a restart has to undo is known */
    void *const *init; /* constructors that ld.so has not run */
    size_t init_count;
    gl_written written[GL_SEGMENTS];
    size_t written_count;
    gl_memory
        tables[GL_SEGMENTS]; /* segments that are only read: relocations, Go's tables of its */
    size_t table_count;      /* functions */
    size_t tls_size;         /* bytes of its thread-local variables */
    ptrdiff_t tls;           /* how far they are from the thread pointer */
    uint8_t *saved;          /* the filled parts before the first start; NULL before that */
} gl_image;

/* What the process knows of the library, and what a child inherits; what is true of one process
 * only lies in *gl_here.  Written by the thread that has set gl_here->opening, with the GIL,
 * under which alone it is read; exceptions stand at their fields. */
struct gl_library_state {
    gl_process unmapped; /* *gl_here, before the page is mapped and where that failed */
    char *path;          /* by gl_library_set_path, before the first loop; the GIL */
    gl_image image;
    bool forked_hook; /* the functions for a fork are registered */

    uint64_t epoch;     /* of the newest runtime that was started */
    uint64_t instances; /* runtimes that were started, here and in ancestors */
    const char *mode;
    int64_t open_ns;
    bool clock_replaced; /* found out when the extension is loaded: it takes a lock of ld.so */

    /* Written too by library_in_child, where the child has one thread yet. */
    pthread_key_t live_key; /* by which the newest runtime knows its threads; that one is */
    bool live_key_known;    /* dead if gl_here is empty */

    int argc;            /* as the constructor got them: Go reads the arguments, */
    char **argv, **envp; /* the environment and the auxiliary vector behind */

    gl_signals signals; /* while Go starts: 10 KiB, and a thread may have 32 in all */
    char why[512];      /* half a sentence, of the last failure inside of this room */
    char message[768];  /* the sentence that the caller gets, for its time with the GIL */

    pthread_key_t exit_key; /* exit.c; both written when the extension is loaded */
    bool exit_key_made;
    _Atomic(char *) stack_spare[GL_STACK_SPARES]; /* stack.c; any thread, by exchange */
};
GL_PRIVATE_DATA struct gl_library_state library;

/* What a thread knows of itself; nobody else touches it. */
struct gl_library_thread {
    uint64_t epoch;   /* whose runtime knows this thread */
    unsigned depth;   /* runs and calls under way */
    char *ours;       /* its signal stack, if it is one of ours; else NULL */
    stack_t before;   /* the one before it; valid where `ours` is not NULL */
    uintptr_t lowest; /* where its own stack ends; 0: far, or not looked up yet */
    bool lowest_known;
};
GL_PRIVATE_DATA _Thread_local struct gl_library_thread thread_here;

/* ---- process.c ------------------------------------------------------------------------------- */

/* Writes library.why, and returns it. */
__attribute__((format(printf, 1, 2))) GL_PRIVATE const char *library_why(const char *format, ...);

/* Once, when the extension is loaded: see gl_clock_is_replaced. */
GL_PRIVATE void clock_init(void);

/* ---- exit.c -------------------------------------------------------------------------- */

/* Once, when the extension is loaded. */
GL_PRIVATE void exit_init(void);
/* Called where Go starts, and in the child of a fork: gives the process's first
 * thread, if it is the caller, the value. */
GL_PRIVATE void exit_watch(void);

/* ---- image.c ------------------------------------------------------------------------- */

/* Has ld.so load the library, and asks it for the table; nothing where that is done.  A library of
 * goloop's build runs no code.  NULL, or why not. */
GL_PRIVATE const char *image_load(void);
/* Starts the Go runtime of the library that was just loaded; NULL, or why not. */
GL_PRIVATE const char *image_start(void);
/* Starts one in place of a runtime that did not survive the fork; NULL, or why not. */
GL_PRIVATE const char *image_restart(void);
/* Clears the thread-local words of the calling thread, which was registered with a dead runtime. */
GL_PRIVATE void image_forget_thread(void);
/* Lets go of the pages of the library's tables, which ld.so and the start of a runtime have
 * read from end to end, and nobody does again: a megabyte. */
GL_PRIVATE void image_leave_tables(void);

/* ---- limits.c ------------------------------------------------------------------------ */

/* NULL if a Go runtime can start, else why not.  All signals are blocked. */
GL_PRIVATE const char *limits_suffice(void);
GL_PRIVATE void file_limit_save(struct rlimit *saved);
/* Undoes what Go has done: a limit that somebody lowered meanwhile is his. */
GL_PRIVATE void file_limit_restore(const struct rlimit *saved);

/* ---- slack.c ------------------------------------------------------------------------- */

/* For the calling thread, and so for those that it makes from now on; returns what the
 * other call wants.  What cannot be changed stays. */
GL_PRIVATE long timer_slack_raise(void);
GL_PRIVATE void timer_slack_restore(long before);

/* ---- signals.c ----------------------------------------------------------------------- */

/* Blocks every signal in this thread and notes all dispositions. */
GL_PRIVATE void signals_save(gl_signals *saved);
/* Puts back every disposition that changed meanwhile, and the mask. */
GL_PRIVATE void signals_restore(gl_signals *saved);
/* Sets to SIG_DFL what points between two addresses: into a runtime that did not
 * survive the fork.  Only a thread that read a disposition while Go started and
 * installed it again later can have left such a handler. */
GL_PRIVATE void signals_forget(uintptr_t low, uintptr_t high);

/* ---- stack.c ------------------------------------------------------------------------- */

/* Gives this thread a signal stack that suffices, and takes it away again; nests.  0, or an
 * errno. */
GL_PRIVATE int stack_enter(void);
GL_PRIVATE void stack_leave(void);
/* True if the thread's own stack suffices for Go. */
GL_PRIVATE bool stack_suffices(void);

/* ---- go_calls.c ------------------------------------------------------------------------- */

/* A call that reaches Go and does nothing there: no reactor has the number -1.  Where a thread
 * has no signal stack Go installs one of its own at the thread's first call; this takes it
 * away again. */
GL_PRIVATE void library_prime_thread(const gl_table *table);
/* Makes the calling thread known to the Go runtime, under which Go changes the
 * thread's signal mask and its signal stack; this puts both back.  Only the first
 * call in a thread does anything. */
GL_PRIVATE void library_bind_thread(void);
/* What any thread may call, wrapped by a visit. */
GL_PRIVATE_DATA const gl_table go_wrappers;
