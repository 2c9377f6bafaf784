/*
 * private.h: what the files of this room alone share.
 */
#ifndef GOLOOP_RUNTIME_PRIVATE_H
#define GOLOOP_RUNTIME_PRIVATE_H

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

#if GL_CAN_COPY
#include <elf.h>
#include <link.h>
#include <sys/syscall.h>
#endif

typedef struct gl_file_limit {
    struct rlimit limit;
    bool known;
} gl_file_limit;


#ifdef NSIG
#define GL_SIGNALS NSIG
#else
#define GL_SIGNALS 65
#endif

typedef struct gl_signals {
    sigset_t mask;                        /* of the calling thread */
    struct sigaction action[GL_SIGNALS];
    bool known[GL_SIGNALS];
} gl_signals;


typedef struct gl_image {      /* the mapped file */
    const uint8_t *bytes;      /* NULL: not mapped */
    size_t size;
#if GL_CAN_COPY
    size_t initsz_at;          /* offset of DT_INIT_ARRAYSZ's value; 0: no spare from this */
    ElfW(Addr) init_at;        /* DT_INIT_ARRAY: address before relocation */
    size_t init_count;
    ElfW(Addr) low, high;      /* what its segments span, before relocation */
#endif
} gl_image;

typedef struct gl_instance {   /* a loaded copy */
    gl_table_fn table;
    uintptr_t low, high;       /* the addresses it occupies; 0, 0: not known */
    void *const *init;         /* a spare's constructors */
    size_t init_count;
} gl_instance;


/* Makes the calling thread known to the Go runtime, under which Go changes the
 * thread's signal mask and its signal stack; this puts both back.  Only the first
 * call in a thread does anything. */
GL_PRIVATE void library_bind_thread(void);

/* ---- library_exit.c -------------------------------------------------------------------------- */

/* Called where Go starts, and in the child of a fork: gives the process's first
 * thread, if it is the caller, the value. */
GL_PRIVATE void exit_watch(void);
/* Once, when the extension is loaded. */
GL_PRIVATE void exit_init(void);

/* ---- library_image.c ------------------------------------------------------------------------- */

/* Runs what ld.so would have run.  No lock of ld.so is taken. */
GL_PRIVATE void instance_start(const gl_instance *instance, int argc, char **argv, char **envp);
/* Loads a copy whose constructors have not run and can be called. */
GL_PRIVATE bool image_load_spare(const gl_image *image, gl_instance *instance, unsigned serial,
                                 char *message, size_t cap);
/* Loads a copy whose constructors have run. */
GL_PRIVATE bool image_load_copy(const gl_image *image, gl_instance *instance, unsigned serial,
                                char *message, size_t cap);
/* dlopen and what is asked of the result.  On success with `start` the Go runtime
 * of the new instance is on its way up. */
GL_PRIVATE bool instance_open(gl_instance *instance, const char *name, const gl_image *image,
                              char *message, size_t cap);
/* Maps the file.  False where it can't be opened; the message names the call. */
GL_PRIVATE bool image_map(gl_image *image, const char *path, char *message, size_t cap);

/* ---- library_limits.c ------------------------------------------------------------------------ */

/* True if a Go runtime can start; else *why is half a sentence.  All signals are
 * blocked. */
GL_PRIVATE bool limits_suffice(char *why, size_t size);
/* Undoes what Go has done: a limit that somebody lowered meanwhile is his. */
GL_PRIVATE void file_limit_restore(const gl_file_limit *saved);
GL_PRIVATE void file_limit_save(gl_file_limit *saved);

/* ---- library_signals.c ----------------------------------------------------------------------- */

/* Sets to SIG_DFL what points between two addresses: into a runtime that did not
 * survive the fork.  Only somebody who read a disposition while Go started and
 * installed it again later can have left such a handler. */
GL_PRIVATE void signals_forget(uintptr_t low, uintptr_t high);
/* Puts back every disposition that changed meanwhile, and the mask. */
GL_PRIVATE void signals_restore(gl_signals *saved);
/* Blocks every signal in this thread and notes all dispositions. */
GL_PRIVATE void signals_save(gl_signals *saved);

/* ---- library_stack.c ------------------------------------------------------------------------- */

/* True if Go may be entered from here. */
GL_PRIVATE bool stack_suffices(void);
GL_PRIVATE void stack_leave(void);
GL_PRIVATE int stack_enter(void);

/* ---- library_visit.c -------------------------------------------------------------------------- */

/* What any thread may call, wrapped by a visit. */
GL_PRIVATE_DATA const gl_table gl_visits;

#endif /* GOLOOP_RUNTIME_PRIVATE_H */
