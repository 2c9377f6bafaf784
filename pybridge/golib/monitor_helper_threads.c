/*
 * monitor_helper_threads.c: the threads that do what the monitor must not wait for: answers to
 * introspection clients, traces, and reports of blocks.
 */
#define _GNU_SOURCE 1
#include <poll.h>
#include <stdbool.h>

#include "_cgo_export.h"
#include "monitor.h"
#include "runtime_thread.h"

/* ---- introspection clients ---------------------------------------------------------------
 *
 * A Python thread answers clients, for which it needs the GIL.  If a client waits too long for it,
 * Go answers with the facts that it knows (introspection_poll.go), on a thread for each client. */

/* Sends a trace to the client until the client ends it; Go then closes the connection.  `ms`: the
 * time to wait before the next part; -1: there is no trace, or it has ended. */
static void
send_trace(int fd, int32_t ms)
{
    struct pollfd client = {.fd = fd, .events = POLLIN};
    while (ms >= 0) {
        bool has_ended = poll(&client, 1, ms) != 0;
        ms = goloop_trace_continue(fd, has_ended);
    }
}

/* Thread of one introspection client: answers the request on the connected socket `arg`, sends a
 * trace if the client has asked for one, and closes the socket. */
static void *
run_answer_thread(void *arg)
{
    int fd = (int)(intptr_t)arg;
    thread_set_name("goloop-answer");
    send_trace(fd, goloop_answer_client(fd));
    return NULL;
}

/* Thread of one `goloop trace` client: sends the trace of all loops to the connected socket `arg`,
 * and closes the socket. */
static void *
run_trace_thread(void *arg)
{
    int fd = (int)(intptr_t)arg;
    thread_set_name("goloop-trace");
    send_trace(fd, goloop_trace_begin(fd));
    return NULL;
}

int
monitor_start_answer(int32_t fd)
{
    return thread_start(run_answer_thread, (void *)(intptr_t)fd);
}

int
monitor_start_trace(int32_t fd)
{
    return thread_start(run_trace_thread, (void *)(intptr_t)fd);
}

/* ---- reports of blocks, which wait for the GIL ------------------------------------------- */

/* lint: allow mutable-static: of the process; constant once a block was seen */
static const gl_watchdog *watchdog;

/* Thread of one report: passes the number of the blocked loop's reactor to C, which waits for the
 * GIL. */
static void *
run_report_thread(void *reactor)
{
    thread_set_name(REPORT_THREAD_NAME);
    watchdog->report((int32_t)(intptr_t)reactor);
    return NULL;
}

void
monitor_start_report(int32_t reactor, gl_shared *sh)
{
    watchdog = sh->watchdog;
    (void)thread_start(run_report_thread, (void *)(intptr_t)reactor);
}
