/*
 * library.c: the Go library, opened at the first loop and afresh in a forked child.
 *
 * A Go runtime does not survive fork(): its threads stay behind, and in the child a
 * garbage collection, a large allocation or a new goroutine waits for them for ever.
 * So a child never calls the runtime that it inherited.  It gets one of its own:
 *
 *     no Go runtime ever, here or in an ancestor
 *         first   dlopen of the file itself
 *     a dead runtime from the parent
 *         spare   start the copy that the parent had loaded and not started
 *         copy    where there is no spare: load a copy (library_image.c)
 *         neither: a message that names spawn and forkserver
 *
 * States of a process:
 *
 *     unopened --gl_library--> opening --> live --gl_library_before_fork--> live, spare
 *        ^                                   |                                  |
 *        +------------- in the child --------+----------- in the child ---------+
 *
 * What is of this process alone lies in *gl_here, which the kernel empties in a
 * child; what a child inherits lies in gl_lib.  The difference between the two is
 * how a child knows that the runtime it sees in gl_lib is dead.
 *
 * gl_library and gl_library_before_fork need the GIL; interpreters with a GIL of
 * their own are kept apart by gl_here->opening.
 */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "runtime/private.h"


/* Before the page is mapped, and where mapping it failed. */
static gl_process gl_here_unmapped;
GL_PRIVATE gl_process *gl_here = &gl_here_unmapped;

/* What a child inherits. */
static struct {
    char *path;
    gl_image image;
    bool forked_hook;            /* library_in_child is registered */

    uint64_t epoch;              /* of the newest instance that was started */
    uint64_t instances;          /* that were started, here and in ancestors */
    unsigned serial;             /* of the newest copy or spare */
    const char *mode;
    int64_t open_ns;

    gl_instance live;            /* the newest instance; dead if gl_here is empty */
    pthread_key_t live_key;      /* by which it knows its threads */
    bool live_key_known;

    gl_instance spare;
    bool spare_ready, spare_failed;
    char spare_error[256];

    int argc;                    /* as the constructor got them: Go reads the arguments, */
    char **argv, **envp;         /* the environment and the auxiliary vector behind */
} gl_lib;

static char gl_library_message[768];

/* The epoch whose runtime knows this thread. */
static _Thread_local uint64_t gl_thread_epoch;

/* ---- once, when _core is loaded -------------------------------------------- */

/* Gives the process its page.  ld.so passes main's own arguments. */
__attribute__((constructor)) static void
library_load(int argc, char **argv, char **envp)
{
#if GL_CAN_SPARE
    gl_lib.argc = argc;
    gl_lib.argv = argv;
    gl_lib.envp = envp;
#else
    (void)argc, (void)argv, (void)envp;
#endif
    gl_lib.mode = "unopened";
    long size = sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (page == MAP_FAILED)
        return;
#if defined(MADV_WIPEONFORK)
    /* Kernels before 4.14 don't know it; library_in_child empties the page there. */
    (void)madvise(page, (size_t)size, MADV_WIPEONFORK);
#endif
    gl_here = page;
    exit_init();
}

GL_PRIVATE void
gl_library_set_path(const char *path)
{
    free(gl_lib.path);
    gl_lib.path = strdup(path);
}

/* ---- the dead runtime, in a child ------------------------------------------- */

/* Cuts what ties this process to the inherited runtime: a handler that points into
 * it, and the value by which it would learn that the forking thread ends. */
static void
library_bury(void)
{
    if (gl_lib.live.high != 0)
        signals_forget(gl_lib.live.low, gl_lib.live.high);
    if (gl_lib.live_key_known)
        pthread_setspecific(gl_lib.live_key, NULL);
    gl_lib.live_key_known = false;
    memset(&gl_lib.live, 0, sizeof gl_lib.live);
}

/* Runs in a child of fork(3).  Other ways to fork skip it, and gl_library does the
 * same at its first call. */
static void
library_in_child(void)
{
    memset((void *)gl_here, 0, sizeof *gl_here); /* where the kernel did not */
    library_bury();
    exit_watch();
}

/* ---- opening ------------------------------------------------------------------ */

static int64_t
library_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

__attribute__((format(printf, 1, 2))) static const char *
library_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(gl_library_message, sizeof gl_library_message, format, args);
    va_end(args);
    return gl_library_message;
}

/* The keys for which this thread has a value, one bit each. */
#if defined(PTHREAD_KEYS_MAX)
#define GL_KEYS PTHREAD_KEYS_MAX
#else
#define GL_KEYS 512
#endif
#define GL_KEY_WORDS ((GL_KEYS + 63) / 64)
static void
library_keys(uint64_t set[GL_KEY_WORDS])
{
    memset(set, 0, GL_KEY_WORDS * sizeof *set);
    for (unsigned key = 0; key < GL_KEYS; key++)
        if (pthread_getspecific((pthread_key_t)key) != NULL)
            set[key / 64] |= (uint64_t)1 << key % 64;
}

/* A call that reaches Go and does nothing there: no reactor has the number -1. */
static void
library_enter(const gl_table *table)
{
    (void)table->describe(-1, NULL, 0);
}

/* Where a thread has no signal stack Go installs one of its own at the thread's first
 * call; this takes it away again. */
static void
library_meet(const gl_table *table)
{
    stack_t before;
    bool none = sigaltstack(NULL, &before) == 0 && (before.ss_flags & SS_DISABLE);
    library_enter(table);
    if (none)
        sigaltstack(&before, NULL);
}

/* The first call into a new instance: waits until its runtime has started, and makes
 * this thread known to it.  Go keeps a thread by a pthread key, which it tells
 * nobody; it is the one that has a value only afterwards. */
static void
library_enter_first(const gl_table *table)
{
    uint64_t before[GL_KEY_WORDS], after[GL_KEY_WORDS];
    library_keys(before);
    library_meet(table);
    library_keys(after);
    gl_lib.live_key_known = false;
    for (unsigned key = 0; key < GL_KEYS && !gl_lib.live_key_known; key++)
        if ((after[key / 64] & ~before[key / 64]) >> key % 64 & 1) {
            gl_lib.live_key = (pthread_key_t)key;
            gl_lib.live_key_known = true;
        }
}

/* NULL if both sides were built from the same abi.h, else what differs. */
static const char *
library_check(const gl_table *table)
{
    if (table == NULL)
        return library_fail("The Go library %s gave no table.", gl_lib.path);
    const struct {
        const char *what;
        uint32_t go, c;
    } pairs[] = {
        {"ABI version", table->abi_version, GL_ABI_VERSION},
        {"table size", table->table_size, sizeof(gl_table)},
        {"submission size", table->submission_size, sizeof(gl_submission)},
        {"completion size", table->completion_size, sizeof(gl_completion)},
        {"shared block size", table->shared_size, sizeof(gl_shared)},
        {"stream record size", table->stream_io_size, sizeof(gl_stream_io)},
        {"endpoints size", table->endpoints_size, sizeof(gl_endpoints)},
        {"packet size", table->packet_size, sizeof(gl_packet)},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].go != pairs[i].c)
            return library_fail(
                "The Go library %s does not fit this build of goloop._core (its %s is %u, not %u); "
                "the two come from different builds: reinstall goloop.",
                gl_lib.path, pairs[i].what, (unsigned)pairs[i].go, (unsigned)pairs[i].c);
    return NULL;
}

/* dlopen of the file itself, where no instance was ever started. */
static const char *
library_open_first(gl_instance *instance)
{
    char why[512];
    if (gl_lib.image.bytes == NULL &&
        !image_map(&gl_lib.image, gl_lib.path, why, sizeof why))
        return library_fail("The Go library %s could not be opened: %s.", gl_lib.path, why);
    if (!instance_open(instance, gl_lib.path, &gl_lib.image, why, sizeof why))
        return library_fail("The Go library %s could not be opened: %s.", gl_lib.path, why);
    gl_lib.mode = "first";
    return NULL;
}

/* A runtime for a child whose parent had one. */
static const char *
library_open_again(gl_instance *instance)
{
    if (gl_lib.spare_ready) {
        /* Never a second time, come what may. */
        gl_lib.spare_ready = false;
        *instance = gl_lib.spare;
        gl_lib.mode = "spare";
        instance_start(instance, gl_lib.argc, gl_lib.argv, gl_lib.envp);
        return NULL;
    }
    char why[512];
    if (!image_load_copy(&gl_lib.image, instance, ++gl_lib.serial, why, sizeof why))
        return library_fail(
            "This process was forked from one that runs goloop, and a Go runtime of its own "
            "could not be loaded (%s); start worker processes with the 'spawn' or 'forkserver' "
            "method of multiprocessing instead of 'fork'.",
            why);
    gl_lib.mode = "copy";
    return NULL;
}

static const char *
library_open_any(gl_instance *instance)
{
    char why[160];
    if (!limits_suffice(why, sizeof why))
        return library_fail("The Go library can't be started here: %s.", why);
    /* From here on a child must not take the file for one that was never loaded. */
    bool first = gl_lib.instances++ == 0;
    const char *failed = first ? library_open_first(instance)
                               : library_open_again(instance);
    if (failed != NULL)
        gl_lib.instances--;
    return failed;
}

/* NULL, or why there is no runtime. */
static const char *
library_open(void)
{
    if (gl_lib.path == NULL)
        return library_fail("goloop._core was not told where the Go library lies.");
    if (gl_here == &gl_here_unmapped)
        return library_fail("goloop could not map a page of memory when it was imported.");
    if (!gl_lib.forked_hook) {
        int err = pthread_atfork(NULL, NULL, library_in_child);
        if (err != 0)
            return library_fail("pthread_atfork: %s.", strerror(err));
        gl_lib.forked_hook = true;
    }
    int64_t start = library_clock();
    library_bury();
    exit_watch();

    gl_instance instance;
    static gl_signals signals; /* 10 KiB, and a thread may have 32 in all */
    gl_file_limit files;
    signals_save(&signals);
    file_limit_save(&files);
    const char *failed = library_open_any(&instance);
    const gl_table *table = NULL;
    if (failed == NULL) {
        gl_lib.live = instance;
        table = instance.table();
        failed = library_check(table);
        if (failed == NULL)
            library_enter_first(table);
        else
            atomic_store(&gl_here->unfit, 1);
    }
    file_limit_restore(&files);
    signals_restore(&signals);
    if (failed != NULL)
        return failed;

    gl_lib.open_ns = library_clock() - start;
    uint64_t epoch = ++gl_lib.epoch;
    gl_thread_epoch = epoch;
    atomic_store(&gl_here->epoch, epoch);
    atomic_store(&gl_here->table, table);
    return NULL;
}

static bool
library_try_lock(void)
{
    int idle = 0;
    return atomic_compare_exchange_strong(&gl_here->opening, &idle, 1);
}

GL_PRIVATE const gl_table *
gl_library(const char **message)
{
    if (atomic_load_explicit(&gl_here->table, memory_order_acquire) != NULL)
        return &gl_visits;
    while (!library_try_lock())
        sched_yield(); /* another interpreter opens it; a matter of milliseconds */
    const char *failed = NULL;
    if (atomic_load(&gl_here->unfit))
        failed = gl_library_message; /* it runs, and can't be unloaded or started again */
    else if (atomic_load(&gl_here->table) == NULL)
        failed = library_open();
    atomic_store(&gl_here->opening, 0);
    if (failed != NULL) {
        *message = failed;
        return NULL;
    }
    return &gl_visits;
}

GL_PRIVATE void
library_bind_thread(void)
{
    const gl_table *table = atomic_load_explicit(&gl_here->table, memory_order_acquire);
    uint64_t epoch = gl_library_epoch();
    if (gl_thread_epoch == epoch || table == NULL)
        return;
    /* Go unblocks SIGCHLD, SIGPROF and the fault signals in a thread that it meets,
     * for as long as the thread lives.  No other comes while Go's small signal stack
     * may be in place. */
    sigset_t all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    library_meet(table);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    gl_thread_epoch = epoch;
}

GL_PRIVATE const char *
gl_library_stack_short(void)
{
    return stack_suffices()
               ? NULL
               : "This thread has too little stack left for a loop of goloop, which wants 16 KiB; "
                 "give the thread more by threading.stack_size().";
}

GL_PRIVATE const char *
gl_library_run_begins(void)
{
    const char *failed = gl_library_stack_short();
    if (failed != NULL)
        return failed;
    int err = stack_enter();
    if (err != 0)
        return library_fail("goloop could not give this thread a stack for signal handlers, "
                               "which running a loop needs: %s.",
                               strerror(err));
    library_bind_thread();
    return NULL;
}

GL_PRIVATE void
gl_library_run_ends(void)
{
    stack_leave();
}

/* ---- before a fork --------------------------------------------------------------- */

GL_PRIVATE void
gl_library_before_fork(void)
{
    if (gl_here->table == NULL || gl_lib.spare_ready || gl_lib.spare_failed || !library_try_lock())
        return;
    if (!gl_lib.spare_ready && gl_lib.argv != NULL) {
        gl_instance spare;
        if (image_load_spare(&gl_lib.image, &spare, ++gl_lib.serial, gl_lib.spare_error,
                                sizeof gl_lib.spare_error)) {
            gl_lib.spare = spare;
            gl_lib.spare_error[0] = '\0';
            gl_lib.spare_ready = true;
        } else {
            gl_lib.spare_failed = true; /* not at every fork again */
        }
    }
    atomic_store(&gl_here->opening, 0);
}

/* ---- diagnostics -------------------------------------------------------------------- */

GL_PRIVATE void
gl_library_describe(gl_library_facts *facts)
{
    bool open = gl_here->table != NULL;
    *facts = (gl_library_facts){
        .mode = open ? gl_lib.mode : "unopened",
        .path = gl_lib.path ? gl_lib.path : "",
        .spare_error = gl_lib.spare_error,
        .epoch = gl_library_epoch(),
        .instances = gl_lib.instances,
        .spare_ready = gl_lib.spare_ready,
        .open_ns = open ? gl_lib.open_ns : 0,
    };
}
