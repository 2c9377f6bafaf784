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
#define GL_CAN_COPY 1
#include <elf.h>
#include <link.h>
#include <sys/syscall.h>
#else
#define GL_CAN_COPY 0
#endif

/* Spares rest on ld.so passing (argc, argv, envp) to constructors and on what
 * DT_INIT_ARRAYSZ means to it: tried with glibc on these two. */
#if defined(__linux__) && defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#define GL_CAN_SPARE 1
#else
#define GL_CAN_SPARE 0
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
    sigset_t mask;             /* of the calling thread */
    struct sigaction action[GL_SIGNALS];
    bool known[GL_SIGNALS];
} gl_signals;

#define GL_TABLES 4
typedef struct gl_image {      /* the mapped file */
    const uint8_t *bytes;      /* NULL: not mapped */
    size_t size;
#if GL_CAN_COPY
    size_t initsz_at;          /* offset of DT_INIT_ARRAYSZ's value; 0: no spare from this */
    ElfW(Addr) init_at;        /* DT_INIT_ARRAY: address before relocation */
    size_t init_count;
    ElfW(Addr) low, high;      /* what its segments span, before relocation */
    struct { ElfW(Addr) at; size_t size; } table[GL_TABLES]; /* segments that are only read: */
    unsigned tables;           /* relocations, and Go's tables of its functions */
#endif
} gl_image;

typedef struct gl_instance {   /* a loaded copy */
    gl_table_fn table;
    uintptr_t low, high;       /* the addresses it occupies; 0, 0: not known */
    void *const *init;         /* a spare's constructors */
    size_t init_count;
} gl_instance;

/* What the process knows of the library, and what a child inherits; what is true of one process
 * only lies in *gl_here.  Written by the thread that has set gl_here->opening, with the GIL,
 * under which alone it is read; exceptions stand at their fields. */
struct gl_library_state {
    gl_process unmapped;         /* *gl_here, before the page is mapped and where that failed */
    char *path;                  /* by gl_library_set_path, before the first loop; the GIL */
    gl_image image;
    bool forked_hook;            /* the functions for a fork are registered */

    uint64_t epoch;              /* of the newest instance that was started */
    uint64_t instances;          /* that were started, here and in ancestors */
    unsigned serial;             /* of the newest copy or spare */
    const char *mode;
    int64_t open_ns;

    /* Written too by library_in_child, where the child has one thread yet. */
    gl_instance live;            /* the newest instance; dead if gl_here is empty */
    pthread_key_t live_key;      /* by which it knows its threads */
    bool live_key_known;

    gl_instance spare;
    bool spare_ready, spare_failed;
    char spare_error[256];

    int argc;                    /* as the constructor got them: Go reads the arguments, */
    char **argv, **envp;         /* the environment and the auxiliary vector behind */

    gl_signals signals;          /* while Go starts: 10 KiB, and a thread may have 32 in all */
    char why[512];               /* half a sentence, of the last failure inside of this room */
    char message[768];           /* the sentence that the caller gets, for its time with the GIL */

    pthread_key_t exit_key;      /* exit.c; both written when the extension is loaded */
    bool exit_key_made;
    _Atomic(char *) stack_spare[GL_STACK_SPARES]; /* stack.c; any thread, by exchange */
};
GL_PRIVATE_DATA struct gl_library_state library;

/* What a thread knows of itself; nobody else touches it. */
struct gl_library_thread {
    uint64_t epoch;              /* whose runtime knows this thread */
    unsigned depth;              /* runs and calls under way */
    char *ours;                  /* its signal stack, if it is one of ours; else NULL */
    stack_t before;              /* the one before it; valid where `ours` is not NULL */
    uintptr_t lowest;            /* where its own stack ends; 0: far, or not looked up yet */
    bool lowest_known;
};
GL_PRIVATE_DATA _Thread_local struct gl_library_thread thread_here;

/* ---- process.c ------------------------------------------------------------------------------- */

/* Writes library.why, and returns it. */
__attribute__((format(printf, 1, 2))) GL_PRIVATE const char *library_why(const char *format, ...);

/* ---- exit.c -------------------------------------------------------------------------- */

/* Once, when the extension is loaded. */
GL_PRIVATE void exit_init(void);
/* Called where Go starts, and in the child of a fork: gives the process's first
 * thread, if it is the caller, the value. */
GL_PRIVATE void exit_watch(void);

/* ---- image.c: all return NULL, or why not -------------------------------------------- */

/* Maps the file at library.path as library.image; nothing where it is. */
GL_PRIVATE const char *image_map(void);
/* dlopen and what is asked of the result.  On success with constructors that run the Go
 * runtime of the new instance is on its way up. */
GL_PRIVATE const char *instance_open(gl_instance *instance, const char *name);
/* Loads a copy whose constructors have run. */
GL_PRIVATE const char *image_load_copy(gl_instance *instance);
/* Loads a copy whose constructors have not run and can be called. */
GL_PRIVATE const char *image_load_spare(gl_instance *instance);
/* Lets go of the pages of the instance's tables, which ld.so and the start of a runtime have
 * read from end to end, and nobody does again: a megabyte. */
GL_PRIVATE void instance_leave_tables(const gl_instance *instance);
/* Runs what ld.so would have run.  No lock of ld.so is taken. */
GL_PRIVATE void instance_start(const gl_instance *instance);

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

/* ---- visit.c ------------------------------------------------------------------------- */

/* A call that reaches Go and does nothing there: no reactor has the number -1.  Where a thread
 * has no signal stack Go installs one of its own at the thread's first call; this takes it
 * away again. */
GL_PRIVATE void library_meet(const gl_table *table);
/* Makes the calling thread known to the Go runtime, under which Go changes the
 * thread's signal mask and its signal stack; this puts both back.  Only the first
 * call in a thread does anything. */
GL_PRIVATE void library_bind_thread(void);
/* What any thread may call, wrapped by a visit. */
GL_PRIVATE_DATA const gl_table visits;
