/*
 * library.c: the Go library, which is loaded at import, started with the first loop, and started
 * again in a forked child.
 *
 * A Go runtime does not survive fork(): the child does not have its threads, and a garbage
 * collection, a large allocation or a new goroutine would wait for them for ever.  A child
 * therefore never calls the inherited runtime.  It starts one of its own:
 *
 *     no Go runtime ever, here or in an ancestor
 *         first      start the library
 *     a dead runtime from the parent
 *         restarted  unmap its memory, restore the library's memory to its state before the
 *                    start, and start it (image.c); if that fails: a message that names spawn
 *                    and forkserver
 *
 * The state of this process alone is in *gl_here, which the kernel clears in a
 * child; the state that a child inherits is in `library`.  By the difference between the two
 * a child detects that the runtime in `library` is dead.
 *
 * gl_library_open needs the GIL; gl_here->opening excludes interpreters with a GIL of their own.
 */
#include "runtime/private.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- once, when _core is loaded -------------------------------------------- */

/* Maps the page of *gl_here, when ld.so loads _core, and initialises the clock and exit.c.  ld.so
 * passes main's own arguments.  Without memory gl_here stays at library.unmapped, and
 * library_open() fails. */
__attribute__((constructor)) static void
library_load(int argc, char **argv, char **envp)
{
#if GL_CAN_RESTART
    library.argc = argc;
    library.argv = argv;
    library.envp = envp;
#else
    (void)argc;
    (void)argv;
    (void)envp;
#endif
    library.mode = "unopened";
    clock_init();
    long size = sysconf(_SC_PAGESIZE);
    void *page =
        mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
    free(library.path);
    library.path = strdup(path);
#if GL_CAN_RESTART
    /* After a failure the first loop tries again and raises the reason. */
    if (library.path != NULL && image_load() == NULL)
        image_release_tables();
#endif
}

/* ---- the dead runtime, in a child ------------------------------------------- */

/* Removes the links of this process to the inherited runtime: sets signal handlers that point into
 * it to SIG_DFL, and deletes the pthread key by which the runtime would be notified of the end of a
 * thread.  Does nothing if no runtime was inherited. */
static void
library_abandon_inherited(void)
{
    if (library.instances != 0 && library.image.high != 0)
        signals_reset_dead_handlers(library.image.low, library.image.high);
    if (library.live_key_known)
        pthread_key_delete(library.live_key);
    library.live_key_known = false;
}

/* The pthread_atfork handler for the child of libc's fork(): clears the page of *gl_here, but sets
 * forked_by_libc, removes the signal handlers and the pthread key of the parent's runtime, and
 * calls exit_install_wait().  _Fork() and a raw clone do not call this handler.  For them the
 * kernel clears the page, and the first gl_library_open() of the child removes the handlers and the
 * key (library_open). */
static void
library_in_child(void)
{
    memset((void *)gl_here, 0, sizeof *gl_here); /* the kernel does not support MADV_WIPEONFORK */
    atomic_store(&gl_here->forked_by_libc, 1);
    library_abandon_inherited();
    exit_install_wait();
}

/* ---- opening ------------------------------------------------------------------ */

/* Writes a whole sentence to library.message, and returns it. */
__attribute__((format(printf, 1, 2))) static const char *
library_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(library.message, sizeof library.message, format, args);
    va_end(args);
    return library.message;
}

#if defined(PTHREAD_KEYS_MAX)
#define GL_KEYS PTHREAD_KEYS_MAX
#else
#define GL_KEYS 512
#endif

/* Makes the first call into a new runtime: waits until it has started, registers this thread, and
 * stores the pthread key under which Go stores its threads.  Go does not export the key, which is
 * the one that has a value only after the call. */
static void
library_enter_first(const gl_table *table)
{
    bool before[GL_KEYS]; /* the keys for which this thread had a value */
    for (unsigned key = 0; key < GL_KEYS; key++)
        before[key] = pthread_getspecific((pthread_key_t)key) != NULL;
    library_prime_thread(table);
    library.live_key_known = false;
    for (unsigned key = 0; key < GL_KEYS && !library.live_key_known; key++)
        if (!before[key] && pthread_getspecific((pthread_key_t)key) != NULL) {
            library.live_key = (pthread_key_t)key;
            library.live_key_known = true;
        }
}

/* Returns NULL if both sides were built from the same abi.h, else a message with the difference, or
 * one for a missing table. */
static const char *
library_check(const gl_table *table)
{
    if (table == NULL)
        return library_fail("The Go library %s returned no function table; reinstall goloop.",
                            library.path);
    static const uint32_t ours[] = GL_ABI;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (table->abi[i] != ours[i])
            return library_fail(
                "The Go library %s does not fit this build of goloop._core (number %zu of its ABI "
                "is %u, not %u); the two come from different builds: reinstall goloop.",
                library.path, i, (unsigned)table->abi[i], (unsigned)ours[i]);
    return NULL;
}

/* Loads the library and starts it in a process without any earlier runtime.  Returns NULL, or a
 * message. */
static const char *
library_start_first(void)
{
    const char *why = image_load();
    if (why != NULL)
        return library_fail("The Go library %s could not be opened: %s.", library.path, why);
    /* The table comes from a C function, which can be called before Go runs. */
    const char *misfit = library_check(library.image.table());
    if (misfit != NULL)
        return misfit;
    why = image_start();
    if (why != NULL)
        return library_fail("The Go library %s could not be started: %s.", library.path, why);
    library.mode = "first";
    return NULL;
}

/* Starts a new runtime in a process that has inherited a dead one.  Returns NULL, or a message. */
static const char *
library_start_again(void)
{
    const char *why = image_restart();
    if (why != NULL)
        return library_fail(
            "This process was forked from one that runs goloop, and a Go runtime of its own "
            "could not be started (%s); start worker processes with the 'spawn' or 'forkserver' "
            "method of multiprocessing instead of 'fork'.",
            why);
    library.mode = "restarted";
    return NULL;
}

/* Starts the library, for the first time or again in a child, if the limits of the process allow
 * it.  In a child first unmaps the memory of the inherited runtime.  Returns NULL, or a message. */
static const char *
library_start(void)
{
    if (library.instances != 0)
        image_unmap_runtime(); /* the limits count this memory, too */
    const char *why = why_go_cannot_start();
    if (why != NULL)
        return library_fail("The Go library can't be started here: %s.", why);
    /* Counted before the start, so that a child forked during it knows that the library was
     * started. */
    library.instances++;
    const char *failed;
    if (library.instances == 1)
        failed = library_start_first();
    else
        failed = library_start_again();
    if (failed != NULL)
        library.instances--;
    return failed;
}

/* Starts a runtime in this process, registers this thread with it, and stores its epoch and table
 * in *gl_here.  First registers library_in_child(), once, and removes what a child has inherited.
 * Restores the thread's timer slack and signal mask, the limit of open files and the signal
 * handlers, which Go or the start changes.  Returns NULL, or a message. */
static const char *
library_open(void)
{
    if (library.path == NULL)
        return library_fail("The path of the Go library is not set; import goloop, not "
                            "goloop._core.");
    if (gl_here == &library.unmapped)
        return library_fail("goloop could not map a page of memory when it was imported.");
    if (!library.forked_hook) {
        int err = pthread_atfork(NULL, NULL, library_in_child);
        if (err != 0)
            return library_fail("pthread_atfork: %s.", strerror(err));
        library.forked_hook = true;
    }
    int64_t start = gl_monotonic_ns();
    library_abandon_inherited();
    exit_install_wait();

    struct rlimit files;
    signals_save(&library.signals);
    file_limit_save(&files);
    long slack = timer_slack_raise();
    const char *failed = library_start();
    const gl_table *table = NULL;
    if (failed == NULL) {
        table = library.image.table();
        library_enter_first(table);
        image_release_tables();
    }
    /* Restored only after the first call of Go, which waits until golib/runtime_gomaxprocs.go has
     * created its threads: a waiting thread may be the one that creates them. */
    timer_slack_restore(slack);
    file_limit_restore(&files);
    signals_restore(&library.signals);
    if (failed != NULL)
        return failed;

    library.open_ns = gl_monotonic_ns() - start;
    uint64_t epoch = ++library.epoch;
    thread_here.epoch = epoch;
    atomic_store(&gl_here->epoch, epoch);
    atomic_store(&gl_here->table, table);
    return NULL;
}

/* Sets gl_here->opening and returns true; returns false if another thread opens the library. */
static bool
library_try_lock(void)
{
    int idle = 0;
    return atomic_compare_exchange_strong(&gl_here->opening, &idle, 1);
}

GL_PRIVATE const gl_table *
gl_library_open(const char **message)
{
    if (atomic_load_explicit(&gl_here->table, memory_order_acquire) != NULL)
        return &go_wrappers;
    while (!library_try_lock())
        sched_yield(); /* another interpreter opens the library, for some milliseconds */
    const char *failed = NULL;
    if (atomic_load(&gl_here->table) == NULL)
        failed = library_open();
    atomic_store(&gl_here->opening, 0);
    if (failed != NULL) {
        *message = failed;
        return NULL;
    }
    return &go_wrappers;
}

GL_PRIVATE const char *
gl_library_stack_error(void)
{
    if (stack_suffices())
        return NULL;
    return "This thread has less stack left than the 16 KiB that a loop of goloop needs; set a "
           "larger one by threading.stack_size().";
}

GL_PRIVATE const char *
gl_library_run_begins(void)
{
    const char *failed = gl_library_stack_error();
    if (failed != NULL)
        return failed;
    int err = stack_enter();
    if (err != 0)
        return library_fail("goloop could not allocate this thread's stack for signal handlers, "
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

/* ---- diagnostics -------------------------------------------------------------------- */

GL_PRIVATE void
gl_library_describe(gl_library_facts *facts)
{
    *facts = (gl_library_facts){
        .mode = "unopened",
        .path = "",
        .epoch = gl_library_epoch(),
        .instances = library.instances,
    };
    if (library.path != NULL)
        facts->path = library.path;
    if (gl_here->table != NULL) {
        facts->mode = library.mode;
        facts->open_ns = library.open_ns;
    }
}
