/*
 * table.c: the table of functions, and goloop_table, which returns it: the one
 * symbol that the library exports.
 *
 * cgo exports every function that it generates and all of runtime/cgo's.  That
 * is an invitation to any other Go library in the process to be mistaken for
 * this one, so exports.a, a linker script among the LDFLAGS of library.go, makes
 * everything but goloop_table local.  (cgo allows no --version-script among the
 * flags in a source file, but does allow input files named *.a.)
 *
 * The functions are Go's, exported by cgo: each waits until the Go runtime has
 * started, so the table may be used as soon as dlopen has returned.
 */
#include "_cgo_export.h"

/* cgo has no const. */
static int32_t
resolve(int32_t reactor, uint32_t request, const char *host, const char *service,
        int32_t flags, int32_t family, int32_t socktype, int32_t protocol)
{
    return goloop_resolve(reactor, request, (char *)host, (char *)service,
                          flags, family, socktype, protocol);
}

static int32_t
stream_open(int32_t reactor, int32_t fd, const int32_t *owner, uint32_t flags, uint32_t *id,
            uint32_t *gen)
{
    return goloop_stream_open(reactor, fd, (int32_t *)owner, flags, id, gen);
}

static int32_t
datagram_open(int32_t reactor, int32_t fd, const int32_t *owner, uint32_t want, uint32_t *id,
              uint32_t *gen)
{
    return goloop_datagram_open(reactor, fd, (int32_t *)owner, want, id, gen);
}

static int32_t
listener_open(int32_t reactor, int32_t fd, const int32_t *owner, int32_t backlog, uint32_t *id,
              uint32_t *gen)
{
    return goloop_listener_open(reactor, fd, (int32_t *)owner, backlog, id, gen);
}

static const gl_table table = {
    .abi_version = GL_ABI_VERSION,
    .table_size = sizeof(gl_table),
    .submission_size = sizeof(gl_submission),
    .completion_size = sizeof(gl_completion),
    .shared_size = sizeof(gl_shared),
    .endpoints_size = sizeof(gl_endpoints),
    .packet_size = sizeof(gl_packet),
    .reactor_new = goloop_reactor_new,
    .reactor_close = goloop_reactor_close,
    .turn = goloop_turn,
    .flush_stream = goloop_flush_stream,
    .flush = goloop_flush,
    .stream_open = stream_open,
    .stream_close = goloop_stream_close,
    .datagram_open = datagram_open,
    .datagram_set = goloop_datagram_set,
    .datagram_close = goloop_datagram_close,
    .listener_open = listener_open,
    .listener_close = goloop_listener_close,
    .watch_open = goloop_watch_open,
    .watch_set = goloop_watch_set,
    .watch_close = goloop_watch_close,
    .resolve = resolve,
    .wake = goloop_wake,
    .describe = goloop_describe,
};

__attribute__((visibility("default"))) const gl_table *
goloop_table(void)
{
    return &table;
}
