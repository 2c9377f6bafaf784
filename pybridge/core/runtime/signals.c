/*
 * signals.c: keeps Go's hands off the signals of the process.
 *
 * A Go runtime that starts inside a C program installs handlers for SIGSEGV,
 * SIGBUS, SIGFPE, SIGPIPE and SIGURG, and forwards to what was there before only
 * in part: a crash in C under SIG_DFL would print goroutines and exit with 2
 * instead of dying of SIGSEGV, a program that set SIGPIPE to SIG_DFL to die of it
 * would not.  goloop needs none of these handlers: pre-emption by signal is off
 * (asyncpreemptoff=1, set when the library is built), EPIPE is an errno, and a fault
 * in Go ends the process as a fault in any extension does.  So the dispositions are
 * read before Go starts and put back after, SIG_DFL included.
 *
 * Go's own threads inherit the mask of the thread that starts the runtime.  It
 * starts with every signal blocked, so that the signals of the process keep going
 * to its Python threads and never run a handler on a Go stack.  (Go unblocks the
 * fault signals, SIGCHLD and SIGPROF in its threads all the same.)
 */
#include "runtime/private.h"

static uintptr_t
signal_handler(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) ? (uintptr_t)action->sa_sigaction
                                           : (uintptr_t)action->sa_handler;
}

GL_PRIVATE void
signals_save(gl_signals *saved)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved->mask);
    for (int sig = 1; sig < GL_SIGNALS; sig++)
        saved->known[sig] = sigaction(sig, NULL, &saved->action[sig]) == 0;
}

GL_PRIVATE void
signals_restore(gl_signals *saved)
{
    for (int sig = 1; sig < GL_SIGNALS; sig++) {
        struct sigaction now;
        if (!saved->known[sig] || sigaction(sig, NULL, &now) != 0)
            continue;
        struct sigaction *was = &saved->action[sig];
        uintptr_t handler = signal_handler(was);
        if (signal_handler(&now) == handler)
            continue; /* at most Go has added SA_ONSTACK, which is wanted */
        /* A signal that comes while this thread is in Go finds a goroutine's
         * small stack, which a handler of C must not use. */
        if (handler != (uintptr_t)SIG_DFL && handler != (uintptr_t)SIG_IGN)
            was->sa_flags |= SA_ONSTACK;
        sigaction(sig, was, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &saved->mask, NULL);
}

GL_PRIVATE void
signals_forget(uintptr_t low, uintptr_t high)
{
    for (int sig = 1; sig < GL_SIGNALS; sig++) {
        struct sigaction now;
        if (sigaction(sig, NULL, &now) != 0)
            continue;
        uintptr_t handler = signal_handler(&now);
        if (handler < low || handler >= high)
            continue;
        const struct sigaction plain = {.sa_handler = SIG_DFL};
        sigaction(sig, &plain, NULL);
    }
}
