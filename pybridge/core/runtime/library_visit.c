/*
 * library_visit.c: the table of functions that the rest of the extension calls.
 *
 * Any thread may come to Go: one that runs a loop, one that closes one, one whose
 * garbage collection finds one.  A thread that runs a loop has prepared itself
 * (gl_library_run); a call from anywhere else is a visit, which prepares the thread
 * for its time: a signal stack (library_stack.c), and Go's acquaintance with the
 * thread (library_bind_thread).
 *
 * Used by library.c only.
 */
#include "runtime/private.h"

#include <errno.h>


typedef struct gl_visit {
    bool stack;               /* else no memory for one: signals wait */
    sigset_t mask;
} gl_visit;

/* Every signal but those that a fault raises. */
static void
visit_block(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

static void
visit_begin(gl_visit *visit)
{
    visit->stack = stack_enter() == 0;
    if (!visit->stack)
        visit_block(&visit->mask);
    library_bind_thread();
}

static void
visit_end(gl_visit *visit)
{
    if (visit->stack)
        stack_leave();
    else
        pthread_sigmask(SIG_SETMASK, &visit->mask, NULL);
}

#define GL_VISIT(type, call)                                                                   \
    {                                                                                          \
        gl_visit visit;                                                                        \
        visit_begin(&visit);                                                                \
        const gl_table *go = atomic_load_explicit(&gl_here->table, memory_order_acquire);      \
        type result = go != NULL ? go->call : -EBADF;                                          \
        visit_end(&visit);                                                                  \
        return result;                                                                         \
    }

static int32_t
visit_reactor_new(gl_shared *shared) GL_VISIT(int32_t, reactor_new(shared))

static int32_t
visit_reactor_close(int32_t reactor) GL_VISIT(int32_t, reactor_close(reactor))

/* Only a run takes turns. */
static int32_t
visit_turn(int32_t reactor, int64_t timeout)
{
    return atomic_load_explicit(&gl_here->table, memory_order_relaxed)->turn(reactor, timeout);
}

static int32_t
visit_flush_stream(int32_t reactor, uint32_t id, uint32_t gen)
    GL_VISIT(int32_t, flush_stream(reactor, id, gen))

static int32_t
visit_flush(int32_t reactor) GL_VISIT(int32_t, flush(reactor))

static int32_t
visit_stream_open(int32_t reactor, int32_t fd, gl_stream_io *io, uint32_t flags, uint32_t *id,
                  uint32_t *gen)
    GL_VISIT(int32_t, stream_open(reactor, fd, io, flags, id, gen))

static int32_t
visit_stream_close(int32_t reactor, uint32_t id, uint32_t gen, uint32_t flags)
    GL_VISIT(int32_t, stream_close(reactor, id, gen, flags))

static int32_t
visit_datagram_open(int32_t reactor, int32_t fd, const int32_t *owner, uint32_t want,
                    uint32_t *id, uint32_t *gen)
    GL_VISIT(int32_t, datagram_open(reactor, fd, owner, want, id, gen))

static int32_t
visit_datagram_set(int32_t reactor, uint32_t id, uint32_t gen, uint32_t want)
    GL_VISIT(int32_t, datagram_set(reactor, id, gen, want))

static int32_t
visit_datagram_close(int32_t reactor, uint32_t id, uint32_t gen, uint32_t flags)
    GL_VISIT(int32_t, datagram_close(reactor, id, gen, flags))

static int32_t
visit_listener_open(int32_t reactor, int32_t fd, const int32_t *owner, int32_t backlog,
                    uint32_t flags, uint32_t *id, uint32_t *gen)
    GL_VISIT(int32_t, listener_open(reactor, fd, owner, backlog, flags, id, gen))

static int32_t
visit_listener_close(int32_t reactor, uint32_t id, uint32_t gen, uint32_t flags)
    GL_VISIT(int32_t, listener_close(reactor, id, gen, flags))

static int32_t
visit_watch_open(int32_t reactor, int32_t fd, uint32_t want, uint32_t once, uint32_t *id,
                 uint32_t *gen)
    GL_VISIT(int32_t, watch_open(reactor, fd, want, once, id, gen))

static int32_t
visit_watch_set(int32_t reactor, uint32_t id, uint32_t gen, uint32_t want, uint32_t once)
    GL_VISIT(int32_t, watch_set(reactor, id, gen, want, once))

static int32_t
visit_watch_close(int32_t reactor, uint32_t id, uint32_t gen)
    GL_VISIT(int32_t, watch_close(reactor, id, gen))

static int32_t
visit_resolve(int32_t reactor, uint32_t request, const char *host, const char *service,
              int32_t flags, int32_t family, int32_t socktype, int32_t protocol)
    GL_VISIT(int32_t,
             resolve(reactor, request, host, service, flags, family, socktype, protocol))

static int32_t
visit_wake(int32_t reactor) GL_VISIT(int32_t, wake(reactor))

static int32_t
visit_describe(int32_t reactor, char *out, int32_t cap)
    GL_VISIT(int32_t, describe(reactor, out, cap))

#undef GL_VISIT

_Static_assert(sizeof(gl_table) == 8 * sizeof(uint32_t) + 18 * sizeof(void (*)(void)),
               "each function of the table needs its visit");

GL_PRIVATE const gl_table gl_visits = {
    .abi_version = GL_ABI_VERSION,
    .table_size = sizeof(gl_table),
    .submission_size = sizeof(gl_submission),
    .completion_size = sizeof(gl_completion),
    .shared_size = sizeof(gl_shared),
    .stream_io_size = sizeof(gl_stream_io),
    .endpoints_size = sizeof(gl_endpoints),
    .packet_size = sizeof(gl_packet),
    .reactor_new = visit_reactor_new,
    .reactor_close = visit_reactor_close,
    .turn = visit_turn,
    .flush_stream = visit_flush_stream,
    .flush = visit_flush,
    .stream_open = visit_stream_open,
    .stream_close = visit_stream_close,
    .datagram_open = visit_datagram_open,
    .datagram_set = visit_datagram_set,
    .datagram_close = visit_datagram_close,
    .listener_open = visit_listener_open,
    .listener_close = visit_listener_close,
    .watch_open = visit_watch_open,
    .watch_set = visit_watch_set,
    .watch_close = visit_watch_close,
    .resolve = visit_resolve,
    .wake = visit_wake,
    .describe = visit_describe,
};
