/*
 * signals.c: saves the signal handlers of the process before Go starts, and restores them
 * afterwards.
 *
 * A Go runtime that starts in a C program installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGPIPE
 * and SIGURG, and forwards signals to the earlier handlers only in part: a crash in C under
 * SIG_DFL would print goroutines and exit with 2 instead of ending the process by SIGSEGV, and a
 * program that has set SIGPIPE to SIG_DFL would survive a SIGPIPE.  goloop needs none of these
 * handlers: pre-emption by signal is off (asyncpreemptoff=1, set when the library is built), EPIPE
 * is an errno, and a fault in Go ends the process like a fault in any extension.  Therefore the
 * dispositions are read before Go starts and restored afterwards, SIG_DFL included.
 *
 * Go's own threads inherit the mask of the thread that starts the runtime.  That thread blocks
 * every signal, so that the kernel delivers the signals of the process to its Python threads, or
 * keeps them pending while these block them, and no handler runs in a thread of Go.  (Go would
 * unblock the fault signals, SIGCHLD and SIGPROF: the build removes that from its runtime, see
 * build_backend/goloop_build/commands.py.)
 */
#include "runtime/private.h"

/* Returns the address of a disposition's handler, SIG_DFL or SIG_IGN. */
static uintptr_t
signal_handler(const struct sigaction *action)
{
    if (action->sa_flags & SA_SIGINFO)
        return (uintptr_t)action->sa_sigaction;
    return (uintptr_t)action->sa_handler;
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
            continue; /* Go may have added SA_ONSTACK, which is needed anyway */
        /* In Go the handler would run on the stack of a goroutine, which is large, but has no guard
         * page. */
        if (handler != (uintptr_t)SIG_DFL && handler != (uintptr_t)SIG_IGN)
            was->sa_flags |= SA_ONSTACK;
        sigaction(sig, was, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &saved->mask, NULL);
}

GL_PRIVATE void
signals_reset_dead_handlers(uintptr_t low, uintptr_t high)
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
