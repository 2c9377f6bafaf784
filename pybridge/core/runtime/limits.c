/*
 * limits.c: a Go runtime starts only where the limits of the process allow it.
 *
 * Go ends the process where it gets no thread, no address space or no signal stack,
 * and it asks for most of what it will ever need when it starts.  So just before,
 * the same is asked for here and given back; what is refused becomes a message.
 * (What another thread takes in the meantime can't be helped.)
 *
 * Later Go needs next to nothing: a few megabytes of heap within what it reserved,
 * and no further thread, as golib/gomaxprocs.go has made the few that it runs on.
 *
 * The limit of open files is another matter: Go raises the soft one to the hard one
 * when it starts, and children of the process inherit that.  It is read before and
 * put back after.  In between, for a millisecond, another thread of C can see the
 * raised limit, and can fork or set a limit of its own; the latter stays.
 */
#include "runtime/private.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

GL_PRIVATE void
file_limit_save(struct rlimit *saved)
{
    if (getrlimit(RLIMIT_NOFILE, saved) != 0)
        saved->rlim_cur = saved->rlim_max = RLIM_INFINITY;
}

GL_PRIVATE void
file_limit_restore(const struct rlimit *saved)
{
    struct rlimit now;
    if (getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_max == saved->rlim_max &&
        now.rlim_cur > saved->rlim_cur)
        (void)setrlimit(RLIMIT_NOFILE, saved);
}

/* ---- what Go will ask for ------------------------------------------------------ */

/* Go 1.26 reserves 1.13 GiB, of which it uses a few MB. */
#define GL_GO_SPACE ((size_t)5 << 28)
/* Its threads and the monitor, and what libc reserves for each beside the stack (an arena of
 * malloc). */
#define GL_GO_THREADS 10
#define GL_THREAD_SPACE ((size_t)64 << 20)

/* 0, or the bytes that could not be reserved.  After mlockall(MCL_FUTURE) a reservation counts as
 * locked memory. */
static size_t
limits_space(size_t stack)
{
    size_t size = GL_GO_SPACE + GL_GO_THREADS * (GL_THREAD_SPACE + stack);
    void *probe = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe == MAP_FAILED)
        return size;
    munmap(probe, size);
    return 0;
}

/* Waits until all its fellows are there. */
static void *
limits_thread(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* 0, or why so many threads can't be.  Their stacks have libc's size, for thread-local
 * variables lie there too, but are not libc's own: those that it keeps in a forked child may be of
 * threads that used its resolver, and then glibc takes a lock at the end of a thread that nobody
 * may be there to release, see goloop/_internal/net/resolver_threads.py. */
static int
limits_threads(pthread_attr_t *attributes, size_t size)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[GL_GO_THREADS];
    int n = 0;
    int err = 0;
    char *stacks = mmap(NULL, GL_GO_THREADS * size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        return errno;
    pthread_mutex_lock(&gate);
    while (n < GL_GO_THREADS && err == 0) {
        err = pthread_attr_setstack(attributes, stacks + (size_t)n * size, size);
        if (err == 0)
            err = pthread_create(&threads[n], attributes, limits_thread, &gate);
        if (err == 0)
            n++;
    }
    pthread_mutex_unlock(&gate);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    munmap(stacks, GL_GO_THREADS * size);
    return err;
}

GL_PRIVATE const char *
limits_suffice(void)
{
    int err = stack_enter();
    if (err != 0)
        return library_why("no stack for signal handlers can be had: %s", strerror(err));
    stack_leave();
    pthread_attr_t attributes;
    size_t stack = 8u << 20;
    if ((err = pthread_attr_init(&attributes)) != 0)
        return library_why("the size of a thread's stack is not known: %s", strerror(err));
    pthread_attr_getstacksize(&attributes, &stack);
    size_t missing = limits_space(stack);
    if (missing != 0)
        return library_why("the process has less than %zu MiB of address space left "
                           "(RLIMIT_AS; RLIMIT_MEMLOCK after mlockall)",
                           missing >> 20);
    err = limits_threads(&attributes, stack);
    pthread_attr_destroy(&attributes);
    if (err != 0)
        return library_why("%d threads can't be started: %s", GL_GO_THREADS, strerror(err));
    return NULL;
}
