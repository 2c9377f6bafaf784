/*
 * library_table.c: the API table, and goloop_table, the one symbol that the library exports.
 *
 * cgo exports every function that it generates and all functions of runtime/cgo. Another Go
 * library in the process could bind to them by mistake. So exports.map, a version script of the
 * linker, makes everything but goloop_table local. cgo does not allow --version-script among the
 * flags in a source file; the build passes it, see build_backend/goloop_build/commands.py.
 *
 * Most functions are Go's, exported by cgo. Each waits until the Go runtime has started, so the
 * table may be used as soon as dlopen has returned.
 */
#include "_cgo_export.h"
#include "monitor_flusher_lock.h"
#include "runtime_mapped_memory.h"
#include "monitor.h"

/* gl_table.reactor_new: makes a reactor and monitors it.  Returns its number; or -errno, and there
 * is no reactor. */
static int32_t
reactor_new(gl_shared *shared)
{
    int32_t reactor = goloop_reactor_new(shared);
    if (reactor < 0)
        return reactor;
    int32_t rc = monitor_add_reactor(reactor, shared);
    if (rc == 0)
        return reactor;
    goloop_reactor_close(reactor);
    return rc;
}

/* gl_table.reactor_close: stops monitoring the reactor, then closes it. */
static int32_t
reactor_close(int32_t reactor)
{
    monitor_remove_reactor(reactor);
    return goloop_reactor_close(reactor);
}

/* The API table; gl_table in abi.h describes the functions. */
static const gl_table table = {
    .abi = GL_ABI,
    .reactor_new = reactor_new,
    .reactor_close = reactor_close,
    .turn = goloop_turn,
    .flush_stream = goloop_flush_stream,
    .flush = goloop_flush,
    .stream_open = goloop_stream_open,
    .unregister = goloop_unregister,
    .datagram_open = goloop_datagram_open,
    .datagram_set = goloop_datagram_set,
    .listener_open = goloop_listener_open,
    .watch_open = goloop_watch_open,
    .watch_set = goloop_watch_set,
    .wake_monitor = monitor_wake,
    .move_alarm = monitor_move_alarm,
    .stop_alarm = monitor_stop_alarm,
    .yield_to_flusher = flusher_yield,
    .reactor_facts = goloop_reactor_facts,
    .profile_text = goloop_profile_text,
    .block_report = goloop_block_report,
    .stack_text = goloop_stack_text,
    .trace_start = goloop_trace_start,
    .other_threads_alive = goloop_other_threads_alive,
    .system_request = goloop_system_request,
    .system_get = goloop_system_get,
    .unmap_memory = unmap_memory,
};

/* Returns the API table; the core finds this symbol with dlsym(). */
__attribute__((visibility("default"))) const gl_table *
goloop_table(void)
{
    return &table;
}
