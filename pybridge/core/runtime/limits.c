/*
 * limits.c: checks that the limits of the process allow a Go runtime before it starts.
 *
 * Go ends the process if it cannot create a thread, reserve address space or install a signal
 * stack, and it requests nearly all of these resources when it starts.  Just before, the same
 * resources are therefore requested here and released; a failure becomes a message.  (Another
 * thread may still take the resources in the meantime.)
 *
 * Later Go needs little: a few megabytes of heap within its reservation, and no further threads,
 * because golib/runtime_gomaxprocs.go has created all that it runs on.
 *
 * The limit of open files is a separate problem: Go raises the soft limit to the hard limit when it
 * starts, and children of the process inherit the raised limit.  The limit is read before the start
 * and restored afterwards.  In between, for a millisecond, another thread of C can see the raised
 * limit, fork, or set another limit, which is then not overwritten.
 */
#include "runtime/private.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

GL_PRIVATE void
file_limit_save(struct rlimit *saved)
{
    if (getrlimit(RLIMIT_NOFILE, saved) != 0) {
        saved->rlim_cur = RLIM_INFINITY;
        saved->rlim_max = RLIM_INFINITY;
    }
}

GL_PRIVATE void
file_limit_restore(const struct rlimit *saved)
{
    struct rlimit now;
    if (getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_max == saved->rlim_max &&
        now.rlim_cur > saved->rlim_cur)
        (void)setrlimit(RLIMIT_NOFILE, saved);
}

/* ---- the resources that Go will request ------------------------------------------ */

/* Go 1.26 reserves 1.13 GiB and uses a few MB of it. */
#define GL_GO_SPACE ((size_t)5 << 28)
/* The number of Go's threads and the monitor, and the address space that libc reserves for each
 * thread beside the stack (an arena of malloc). */
#define GL_GO_THREADS 10
#define GL_THREAD_SPACE ((size_t)64 << 20)

/* Reserves and releases the address space of Go with threads of `stack` bytes.  In a child of
 * libc's fork() the threads use the arenas that the parent's threads have left.  Returns 0, or the
 * number of bytes that could not be reserved.  After mlockall(MCL_FUTURE) a reservation counts as
 * locked memory. */
static size_t
limits_space(size_t stack)
{
    size_t size = GL_GO_SPACE + GL_GO_THREADS * stack;
    if (library.instances == 0 || !gl_here->forked_by_libc)
        size += GL_GO_THREADS * GL_THREAD_SPACE;
    void *probe = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe == MAP_FAILED)
        return size;
    munmap(probe, size);
    return 0;
}

/* The function of a test thread: waits for `start_lock`, which is unlocked once all test threads
 * have been created. */
static void *
limits_thread(void *start_lock)
{
    pthread_mutex_lock(start_lock);
    pthread_mutex_unlock(start_lock);
    return NULL;
}

/* Creates and joins GL_GO_THREADS threads with stacks of `size` bytes.  Returns 0, or an errno.
 * The stacks have libc's size, because they also contain thread-local variables, but are not from
 * libc's cache.  In a forked child the cached stacks may be those of threads that used libc's
 * resolver.  Then glibc acquires a lock at the end of the thread which no thread of the child may
 * be able to release, see goloop/_internal/net/resolver_threads.py. */
static int
limits_threads(pthread_attr_t *attributes, size_t size)
{
    pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[GL_GO_THREADS];
    int n = 0;
    int err = 0;
    char *stacks = mmap(NULL, GL_GO_THREADS * size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        return errno;
    pthread_mutex_lock(&start_lock);
    while (n < GL_GO_THREADS && err == 0) {
        err = pthread_attr_setstack(attributes, stacks + (size_t)n * size, size);
        if (err == 0)
            err = pthread_create(&threads[n], attributes, limits_thread, &start_lock);
        if (err == 0)
            n++;
    }
    pthread_mutex_unlock(&start_lock);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    munmap(stacks, GL_GO_THREADS * size);
    return err;
}

GL_PRIVATE const char *
why_go_cannot_start(void)
{
    int err = stack_enter();
    if (err != 0)
        return library_set_reason("a stack for signal handlers could not be allocated: %s",
                                  strerror(err));
    stack_leave();
    pthread_attr_t attributes;
    size_t stack = 8u << 20;
    err = pthread_attr_init(&attributes);
    if (err != 0)
        return library_set_reason("the size of a thread's stack could not be read: %s",
                                  strerror(err));
    pthread_attr_getstacksize(&attributes, &stack);
    size_t missing = limits_space(stack);
    if (missing == 0)
        err = limits_threads(&attributes, stack);
    pthread_attr_destroy(&attributes);
    if (missing != 0)
        return library_set_reason("the process has less than %zu MiB of address space left "
                                  "(RLIMIT_AS; RLIMIT_MEMLOCK after mlockall)",
                                  missing >> 20);
    if (err != 0)
        return library_set_reason("%d threads could not be started: %s", GL_GO_THREADS,
                                  strerror(err));
    return NULL;
}
