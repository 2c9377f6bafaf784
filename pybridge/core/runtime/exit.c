/*
 * exit.c: lets a process end whose first thread has ended.
 *
 * A process lives as long as one thread of it does, and a Go runtime's threads
 * never end.  In a process forked by a thread other than main that matters: when
 * the thread's function returns, the forked process would stay for ever, where
 * without Go libc would have called exit(0) with its last thread.  So the thread
 * that is the first of its process carries a value whose destructor waits for the
 * other threads, Go's excepted, and calls exit(0).
 *
 * Go's threads are known by their signal mask: they start with everything blocked
 * (signals.c), of which Go unblocks a fixed set; those of C, and those of Python that
 * look names up, by their names.
 *
 * The key is made when _core is loaded, so it is older than Go's own key, and
 * its destructor runs before Go's.
 *
 * Does nothing but on Linux.
 */
#include "runtime/private.h"

#if defined(__linux__)

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RESOLVE_THREAD_NAME "goloop-resolve" /* goloop/_internal/net/lookups.py */

/* True if the thread is of another's making than the library's, and still there. */
static bool
exit_counts(const char *tid)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/self/task/%.20s/status", tid);
    FILE *file = fopen(name, "re");
    if (file == NULL)
        return false;
    char line[256];
    bool found = false, by_name = false;
    unsigned long long mask = 0;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        by_name |= strcmp(line, "Name:\t" RESOLVE_THREAD_NAME "\n") == 0 ||
                   strcmp(line, "Name:\t" STDERR_THREAD_NAME "\n") == 0 ||
                   strcmp(line, "Name:\t" MONITOR_THREAD_NAME "\n") == 0;
        found = sscanf(line, "SigBlk: %llx", &mask) == 1;
    }
    fclose(file);
#define GL_BIT(sig) (1ull << ((sig)-1))
    const unsigned long long blocked = GL_BIT(SIGHUP) | GL_BIT(SIGINT) | GL_BIT(SIGQUIT) |
                                       GL_BIT(SIGUSR1) | GL_BIT(SIGUSR2) | GL_BIT(SIGPIPE) |
                                       GL_BIT(SIGALRM) | GL_BIT(SIGTERM) | GL_BIT(SIGWINCH) |
                                       GL_BIT(64);
    const unsigned long long unblocked = GL_BIT(SIGSEGV) | GL_BIT(SIGCHLD) | GL_BIT(SIGPROF);
#undef GL_BIT
    return found && !by_name && !((mask & blocked) == blocked && (mask & unblocked) == 0);
}

/* True while a thread lives that is neither the caller nor Go's.  Where /proc can't
 * be read it stays true: rather a process too many than one ended too early. */
static bool
exit_others(void)
{
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL)
        return true;
    long self = syscall(SYS_gettid);
    bool others = false;
    struct dirent *entry;
    while (!others && (entry = readdir(tasks)) != NULL)
        if (entry->d_name[0] != '.' && atol(entry->d_name) != self)
            others = exit_counts(entry->d_name);
    closedir(tasks);
    return others;
}

static void
exit_destructor(void *unused)
{
    (void)unused;
    if (syscall(SYS_gettid) != getpid() || gl_here->table == NULL)
        return; /* no Go here that would keep the process */
    while (exit_others()) {
        struct timespec pause = {0, 10 * 1000 * 1000};
        nanosleep(&pause, NULL);
    }
    exit(0);
}

GL_PRIVATE void
exit_init(void)
{
    library.exit_key_made = pthread_key_create(&library.exit_key, exit_destructor) == 0;
}

GL_PRIVATE void
exit_watch(void)
{
    if (library.exit_key_made && syscall(SYS_gettid) == getpid())
        pthread_setspecific(library.exit_key, gl_here);
}

#else

GL_PRIVATE void exit_init(void) {}
GL_PRIVATE void exit_watch(void) {}

#endif
