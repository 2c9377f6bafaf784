/*
 * go_calls.c: the table of functions that the rest of the extension calls.
 *
 * Any thread may call Go: a thread that runs a loop, that closes a loop, or whose garbage
 * collection frees a loop.  A thread that runs a loop is prepared by gl_library_run_begins(); the
 * wrappers here prepare all other threads for the time of one call: with a signal stack (stack.c),
 * and a registration of the thread with Go (library_bind_thread).
 */
#include "runtime/private.h"

#include <errno.h>

GL_PRIVATE void
library_prime_thread(const gl_table *table)
{
    stack_t before;
    bool none = sigaltstack(NULL, &before) == 0 && (before.ss_flags & SS_DISABLE);
    (void)table->reactor_facts(-1, NULL, 0);
    if (none)
        sigaltstack(&before, NULL);
}

GL_PRIVATE void
library_bind_thread(void)
{
    const gl_table *table = atomic_load_explicit(&gl_here->table, memory_order_acquire);
    uint64_t epoch = gl_library_epoch();
    if (thread_here.epoch == epoch || table == NULL)
        return;
    /* All signals stay blocked while Go's small signal stack may be installed. */
    sigset_t all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    if (thread_here.epoch != 0)
        image_forget_thread(); /* the thread has forked, and another one has started the runtime */
    library_prime_thread(table);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    thread_here.epoch = epoch;
}

/* The state of one call that go_call_end() restores. */
typedef struct gl_go_call {
    bool stack; /* false: no memory for one, so signals are blocked */
    sigset_t mask;
} gl_go_call;

/* Blocks all signals in this thread except those that a fault raises; stores the old mask. */
static void
go_call_block_signals(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

/* Prepares the calling thread for a call of Go: installs a signal stack or, without memory for one,
 * blocks signals, and registers the thread.  go_call_end() follows. */
static void
go_call_begin(gl_go_call *call)
{
    call->stack = stack_enter() == 0;
    if (!call->stack)
        go_call_block_signals(&call->mask);
    library_bind_thread();
}

/* Restores the signal stack or the signal mask that the thread had before go_call_begin(). */
static void
go_call_end(gl_go_call *call)
{
    if (call->stack)
        stack_leave();
    else
        pthread_sigmask(SIG_SETMASK, &call->mask, NULL);
}

/* Parameters and arguments of several functions. */
#define BY_ID (int32_t reactor, uint32_t id, uint32_t gen), (reactor, id, gen)

/* The result, name, parameters and arguments of every function except those below. */
#define GL_GO_CALLS(X)                                                                             \
    X(int32_t, reactor_new, (gl_shared * shared), (shared))                                        \
    X(int32_t, reactor_close, (int32_t reactor), (reactor))                                        \
    X(int32_t, flush_stream, BY_ID)                                                                \
    X(int32_t, flush, (int32_t reactor), (reactor))                                                \
    X(int32_t, stream_open,                                                                        \
      (int32_t reactor, int32_t fd, gl_stream_io *io, uint32_t flags, uint32_t *id,                \
       uint32_t *gen),                                                                             \
      (reactor, fd, io, flags, id, gen))                                                           \
    X(int32_t, unregister, BY_ID)                                                                  \
    X(int32_t, datagram_open,                                                                      \
      (int32_t reactor, int32_t fd, int32_t *owner, uint32_t want, uint32_t *id, uint32_t *gen),   \
      (reactor, fd, owner, want, id, gen))                                                         \
    X(int32_t, datagram_set, (int32_t reactor, uint32_t id, uint32_t gen, uint32_t want),          \
      (reactor, id, gen, want))                                                                    \
    X(int32_t, listener_open,                                                                      \
      (int32_t reactor, int32_t fd, int32_t *owner, int32_t backlog, uint32_t flags, uint32_t *id, \
       uint32_t *gen),                                                                             \
      (reactor, fd, owner, backlog, flags, id, gen))                                               \
    X(int32_t, watch_open,                                                                         \
      (int32_t reactor, int32_t fd, uint32_t want, uint32_t once, uint32_t *id, uint32_t *gen),    \
      (reactor, fd, want, once, id, gen))                                                          \
    X(int32_t, watch_set,                                                                          \
      (int32_t reactor, uint32_t id, uint32_t gen, uint32_t want, uint32_t once),                  \
      (reactor, id, gen, want, once))                                                              \
    X(int32_t, wake_monitor, (int32_t reactor), (reactor))                                         \
    X(int32_t, yield_to_flusher, (gl_shared * shared), (shared))                                   \
    X(int32_t, reactor_facts, (int32_t reactor, char *out, int32_t cap), (reactor, out, cap))      \
    X(int32_t, profile_text, (char *out, int32_t cap), (out, cap))                                 \
    X(int32_t, block_report, (int32_t reactor, char *out, int32_t cap), (reactor, out, cap))       \
    X(int32_t, stack_text, (gl_stack * stack, char *out, int32_t cap), (stack, out, cap))          \
    X(int32_t, trace_start, (int32_t fd), (fd))                                                    \
    X(int32_t, other_threads_alive, (int32_t self), (self))                                        \
    X(int32_t, system_request, (char *buffer, int32_t size), (buffer, size))                       \
    X(int32_t, system_get, (gl_system * system), (system))

/* Defines the wrapper of a function: prepares the thread, calls the live runtime's function (-EBADF
 * if there is none) and restores the thread. */
#define DEFINE(type, name, parameters, arguments)                                                  \
    static type go_call_##name parameters                                                          \
    {                                                                                              \
        gl_go_call call;                                                                           \
        go_call_begin(&call);                                                                      \
        const gl_table *go = atomic_load_explicit(&gl_here->table, memory_order_acquire);          \
        type result = -EBADF;                                                                      \
        if (go != NULL)                                                                            \
            result = go->name arguments;                                                           \
        go_call_end(&call);                                                                        \
        return result;                                                                             \
    }
#define X(...) DEFINE(__VA_ARGS__)
GL_GO_CALLS(X)
#undef X
#undef DEFINE

/* Calls `turn` of the live runtime, which must exist, without the preparations of the other calls,
 * since a thread that runs a loop has made them. */
static int32_t
go_call_turn(int32_t reactor, int64_t timeout)
{
    return atomic_load_explicit(&gl_here->table, memory_order_relaxed)->turn(reactor, timeout);
}

/* Call `move_alarm` and `stop_alarm`, which do not enter Go, and so need no preparations. */
static int32_t
go_call_move_alarm(gl_shared *shared, int64_t now)
{
    return atomic_load_explicit(&gl_here->table, memory_order_relaxed)->move_alarm(shared, now);
}

static int32_t
go_call_stop_alarm(gl_shared *shared)
{
    return atomic_load_explicit(&gl_here->table, memory_order_relaxed)->stop_alarm(shared);
}

/* `unmap_memory` has none: image.c calls it while there is no live runtime. */
_Static_assert(sizeof(gl_table) == 8 * sizeof(uint32_t) + (24 + 1) * sizeof(void (*)(void)),
               "each function of the table needs a wrapper");

GL_PRIVATE const gl_table go_wrappers = {.abi = GL_ABI,
                                         .turn = go_call_turn,
                                         .move_alarm = go_call_move_alarm,
                                         .stop_alarm = go_call_stop_alarm,
#define X(type, name, ...) .name = go_call_##name,
                                         GL_GO_CALLS(X)
#undef X
};
#undef BY_ID
