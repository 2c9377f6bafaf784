/*
 * turn.c: one iteration of the loop.
 *
 *      +--> turn: submissions flushed, poll, I/O, timers      (Go, without the GIL)
 *      |      |
 *      |    accepted connections                              (protocol factories)
 *      |      |
 *      |    the entries of the ready queue at this moment      (call_soon, tasks)
 *      |      |
 *      |    the turn's completions: I/O, then due timers       (protocols, readers)
 *      |      |
 *      +------+  callbacks that these schedule run in the next iteration
 *
 * The order is asyncio's: asyncio's poll appends readers and then due timers to the ready queue,
 * and the iteration runs the entries that the queue has then.  Accepted connections come first,
 * though: otherwise a server that is closed in this iteration would also close its accepted
 * connections (dispatch_accepted).  Their connection_made() runs in the next iteration, after the
 * tasks that this iteration wakes: a task that stops the server finds no connection whose first
 * bytes are still to be received.
 *
 * While the ready queue has entries, an iteration skips the turn unless one is needed: the loop
 * polls in every 64th iteration, after some tens of microseconds, and when writes are pending, a
 * timer is due or a connection was closed (turn_due).
 *
 * SystemExit and KeyboardInterrupt end an iteration in the middle; the remaining completions are
 * delivered first when the loop is run again.
 */
#include "loop/private.h"

#include "streams/streams.h"

/* The largest number of iterations between two polls while entries are ready. */
#define GL_POLL_EVERY 64
#define GL_POLL_TICKS 100000u /* about 30 to 60 microseconds */

/* Returns the time of a cheap clock, about 2 to 3 ticks a nanosecond; the unit depends on the
 * processor.  A thread with a clock of its own has that clock. */
static inline uint64_t
ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
    if (gl_thread_clock == NULL)
        return __builtin_ia32_rdtsc();
#endif
    return (uint64_t)gl_monotonic_ns() * 2u;
}

/* Steps a Task of the ready queue, records the step in a trace, and in debug mode logs a slow one;
 * steals the reference.  On Pythons that name a task after its construction the trace gets the new
 * task here, before its first step.  -1 if an exception ends the run of the loop. */
static inline int
run_task(gl_loop *loop, PyObject *task)
{
    gl_trace *t = gl_active_trace(loop);
    if (t != NULL) {
#if GL_TASK_NAMED_AFTER_INIT /* cr_frame_state -2 is FRAME_CREATED */
        gl_task *made = (gl_task *)task;
        if (made->coro && PyCoro_CheckExact(made->coro) &&
            ((PyCoroObject *)made->coro)->cr_frame_state == -2)
            gl_trace_task(loop, task, made->coro, made->name);
#endif
        gl_trace_add(loop, t, GL_TRACE_STEP, 0, (uintptr_t)task);
    }
    GL_PROBE(task_step, loop, task);
    if (!loop->debug)
        return gl_task_run(loop, (gl_task *)task);
    Py_INCREF(task);
    int64_t before = gl_monotonic_ns();
    int r = gl_task_run(loop, (gl_task *)task);
    if (r == 0)
        r = gl_log_slow(loop, task, before);
    Py_DECREF(task);
    return r;
}

/* ---- completions --------------------------------------------------------------- */

/* Counts a due timer as an arrival, and records its lateness from `deadline` (ns) and, for a
 * sample, its waiting time.  Reads the clock only for the first timer of a turn and for samples. */
static inline void
note_lateness(gl_loop *loop, int64_t deadline)
{
    gl_shared *sh = loop->shared;
    uint32_t weight = gl_ready_count_arrival(&loop->ready);
    if (weight != 0 || loop->timers_at == 0)
        loop->timers_at = gl_monotonic_ns();
    gl_histogram_add(&sh->metrics.timer_lateness, loop->timers_at - deadline, 1);
    /* If the timer was already due before the previous poll it was armed late: its wait is counted
     * from that poll. */
    if (weight != 0)
        gl_histogram_add(&sh->metrics.ready_wait,
                         loop->timers_at - Py_MAX(deadline, loop->polled_before), weight);
}

/* Records how long the thread waited for the GIL after the poll, which ended at `polled` (ns), and
 * the poll's events as waiting entries if that exceeded 1 ms.  Refills the budget of samples. */
static inline void
note_polled(gl_loop *loop, int64_t polled)
{
    gl_shared *sh = loop->shared;
    int64_t now = gl_monotonic_ns();
    gl_histogram_add(&sh->metrics.gil_wait, now - polled, 1);
    if (now - polled > 1000000)
        gl_histogram_add(&sh->metrics.ready_wait, now - sh->now, sh->events);
    gl_ready_refill_samples(&loop->ready, now);
}

/* Delivers one completion: runs a due timer, or passes it to the owner of its registration, a
 * transport or listener, where it records the completion in a trace, and in debug mode logs a slow
 * owner.  Drops a stale completion and a cancelled timer, and closes the socket of a stale accept.
 * -1 if an exception ends the run of the loop. */
static int
dispatch_one(gl_loop *loop, const gl_completion *c)
{
    if (c->kind == GL_CMP_TIMER) {
        PyObject *h = gl_timers_take(loop, c->id);
        if (h == NULL)
            return 0;
        note_lateness(loop, ((gl_timer_handle *)h)->deadline);
        int r = 0;
        if (!gl_handle_is_cancelled(h))
            r = gl_run_handle(loop, h);
        Py_DECREF(h);
        return r;
    }
    if (c->kind == GL_CMP_NONE)
        return 0; /* dispatch_accepted has delivered it */
    gl_reg *reg = NULL;
    if (c->id < loop->regs_cap)
        reg = &loop->regs[c->id];
    /* A forked child has a copy of the parent's completions. */
    if (reg == NULL || reg->kind == GL_REG_FREE || reg->gen != c->gen || gl_loop_is_foreign(loop)) {
        if (c->kind == GL_CMP_ACCEPT)
            gl_call_close(c->res); /* the listener was closed after the accept */
        return 0;
    }
    if (reg->kind == GL_REG_WATCH)
        return gl_watch_complete(loop, reg->fd, c);
    uint32_t kind = reg->kind;
    PyObject *owner = Py_NewRef(reg->owner);
    gl_trace *t = gl_active_trace(loop);
    if (t != NULL)
        gl_trace_completion(loop, t, c,
                            kind == GL_REG_LISTENER ? NULL : ((gl_transport *)owner)->protocol);
    int64_t before = 0;
    if (loop->debug)
        before = gl_monotonic_ns();
    int r = G.reg_ops[kind]->complete(loop, owner, c);
    if (r == 0 && before != 0 && loop->debug)
        r = gl_log_slow(loop, owner, before);
    Py_DECREF(owner);
    return r;
}

/* Delivers the remaining completions of the turn.  -1 if an exception ends the run of the loop; the
 * next run then delivers the completions after that one. */
static int
dispatch(gl_loop *loop)
{
    while (loop->shared && loop->cmp_pos < loop->shared->cmp_len) {
        gl_completion c = loop->shared->cmp[loop->cmp_pos];
        GL_WRITE(loop->cmp_pos, loop->cmp_pos + 1); /* the monitor reads it */
        if (dispatch_one(loop, &c) < 0)
            return -1;
    }
    return 0;
}

/* Delivers the connections that Go has accepted, marks their completions as delivered, and adds the
 * time to `accepting`.  In asyncio they would still be in the kernel's queue; here a ready callback
 * could close their server first, and so close connections that other processes on the same socket
 * would have served.  *starts: the number of ready entries that start these connections; 0 if the
 * ready queue got other entries too, from a protocol factory or from another thread.  -1 if an
 * exception ends the run of the loop. */
static int
dispatch_accepted(gl_loop *loop, uint64_t *starts)
{
    int64_t began = gl_monotonic_ns();
    uint64_t total = gl_ready_total(&loop->ready);
    uint64_t start_entries = loop->start_entries;
    for (uint32_t i = loop->cmp_pos; loop->shared && i < loop->shared->cmp_len; i++) {
        if (loop->shared->cmp[i].kind != GL_CMP_ACCEPT)
            continue;
        gl_completion c = loop->shared->cmp[i];
        loop->shared->cmp[i].kind = GL_CMP_NONE;
        if (dispatch_one(loop, &c) < 0)
            return -1;
    }
    if (loop->shared) {
        loop->accepts_seen = loop->shared->metrics.connections_accepted;
        loop->shared->accepting += gl_monotonic_ns() - began;
    }
    start_entries = loop->start_entries - start_entries;
    if (gl_ready_total(&loop->ready) - total == start_entries)
        *starts = start_entries;
    return 0;
}

GL_PRIVATE void
dispatch_drop(gl_loop *loop)
{
    while (loop->cmp_pos < loop->shared->cmp_len) {
        const gl_completion *c = &loop->shared->cmp[loop->cmp_pos++];
        if (c->kind == GL_CMP_ACCEPT)
            gl_call_close(c->res);
    }
}

/* ---- the turn --------------------------------------------------------------------- */

/* Tells the monitor that the loop may sleep, and stops an alarm that would expire meanwhile. */
static inline void
pause_monitor(gl_loop *loop)
{
    gl_monitor_pause(loop);
    if (__atomic_load_n(&loop->shared->alarm_unneeded, __ATOMIC_RELAXED))
        loop->go->stop_alarm(loop->shared);
}

/* Ends the poll of a turn for the monitor and for threads that wait for the turn's end; moves the
 * alarm if that is due.  Returns the time.  Without the GIL: a thread that has it blocks the loop
 * from now on. */
static inline int64_t
end_poll(gl_loop *loop, int64_t timeout)
{
    if (timeout != 0)
        gl_monitor_resume(loop);
    __atomic_store_n(&loop->in_turn, 0, __ATOMIC_RELEASE);
    int64_t now = gl_monotonic_ns();
    if (now >= loop->shared->alarm_due)
        loop->go->move_alarm(loop->shared, now);
    return now;
}

/* Calls Go for a turn, without the GIL: decodes submissions, sends, polls for `timeout` ns (0: does
 * not wait; -1: without a limit), receives and expires timers.  The completions are in the shared
 * block afterwards, and the state of the last turn (eager sends, retired timer ids, clocks) is
 * reset.  Returns 0; -1 with RuntimeError in a forked child, OSError (EBADF by _descriptors_lost():
 * a descriptor of the loop itself was closed), or the exception of a Python signal handler, which
 * runs here.  lint: allow check-commit: a loop that runs can't be closed */
static int
turn(gl_loop *loop, int64_t timeout)
{
    if (gl_loop_is_foreign(loop)) {
        gl_loop_check_usable(loop);
        return -1;
    }
    if (loop->large_wanted)
        gl_large_refill(loop);
    int32_t n;
    int64_t polled;
    uint32_t retired = loop->timers.retired_len;
    loop->turns++;
#ifdef GL_FREE_THREADED
    if (timeout != 0 && !gl_inbox_set_sleeping(loop))
        timeout = 0;
#endif
    GL_WRITE(loop->sleeping, timeout != 0);
    loop->dirty = 0;
    loop->sends_deferred = 0;
    if (loop->forced_polls_left > 0)
        loop->forced_polls_left--;
    /* Both: if another thread forks before the turn, the child's dispatch_drop reads them. */
    loop->shared->cmp_len = 0;
    GL_WRITE(loop->cmp_pos, 0);
    loop->polled_before = loop->shared->now;
    gl_shared_lock(loop);
    if (timeout != 0)
        pause_monitor(loop);
    GL_WRITE(loop->in_turn, 1);
    Py_BEGIN_ALLOW_THREADS
    n = loop->go->turn(loop->reactor, timeout);
    polled = end_poll(loop, timeout);
    Py_END_ALLOW_THREADS
#ifdef GL_FREE_THREADED
    if (timeout != 0)
        gl_inbox_set_awake(loop);
#endif
    gl_streams_release_sent(loop);
    gl_shared_unlock(loop);
    GL_WRITE(loop->sleeping, 0);
    loop->since_poll = 0;
    loop->last_poll_ticks = ticks();
    loop->timers_at = 0;
    loop->share = 0;
    loop->eager_sends_left = loop->shared->eager_sends;
    gl_watchdog_poll_ended(loop);
    note_polled(loop, polled);
    gl_timers_free_retired(&loop->timers, retired);
    if (n == -EBADF)
        return gl_drop_result(PyObject_CallMethod((PyObject *)loop, GL_METHOD(_descriptors_lost),
                                                  "ii", loop->shared->poll_fd,
                                                  loop->shared->wake_fd));
    if (n < 0)
        return gl_set_oserror(-n);
    gl_submissions_trim(loop);
    return PyErr_CheckSignals();
}

/* Returns true if this iteration polls although the ready queue has entries: a poll is requested
 * (dirty, forced_polls_left), GL_POLL_EVERY iterations or GL_POLL_TICKS have passed, Go has more
 * events, or a timer is due.  Increments `since_poll`, unless a poll is requested. */
static inline bool
turn_due(gl_loop *loop)
{
    if (loop->dirty || loop->forced_polls_left)
        return true;
    loop->since_poll++;
    if (loop->since_poll >= GL_POLL_EVERY || loop->shared->more)
        return true;
    if (loop->shared->next_deadline != GL_DEADLINE_NONE &&
        loop->shared->next_deadline <= gl_monotonic_ns())
        return true;
    return ticks() - loop->last_poll_ticks > GL_POLL_TICKS;
}

/* Makes a turn after all completions of the last one were delivered.  A loop with ready entries, or
 * one that stops or is a guest, makes it only if one is due, and without waiting.  Records the
 * beginning of the turn and the end of its poll in a trace.  -1 with the exception of turn(). */
static inline int
turn_if_due(gl_loop *loop)
{
    bool busy = loop->ready.count != 0 || loop->unscheduled_ends != NULL ||
                GL_READ(loop->stopping) || loop->guest_mode == GL_GUEST_RUNNING;
    if (busy && !turn_due(loop)) {
        GL_WRITE(loop->cmp_pos, loop->shared->cmp_len);
        return 0;
    }
    gl_trace *t = gl_active_trace(loop);
    if (t != NULL)
        gl_trace_add(loop, t, GL_TRACE_TURN, 0, 0);
    int r = turn(loop, busy ? 0 : -1);
    t = gl_active_trace(loop); /* a client may have started the trace during the turn */
    if (t != NULL)
        gl_trace_add(loop, t, GL_TRACE_WAKE, 0, (uint64_t)(gl_monotonic_ns() - loop->shared->now));
    return r;
}

/* Removes the first entry of the ready queue, and steps the task or runs the handle; records its
 * waiting time if it is a sample.  -1 if an exception ends the run of the loop. */
static inline int
run_next_entry(gl_loop *loop)
{
    gl_entry next = gl_ready_pop(&loop->ready);
    PyObject *entry = next.object;
    if (next.sample)
        gl_histogram_add(&loop->shared->metrics.ready_wait,
                         gl_monotonic_ns() - gl_sample_time(next.sample),
                         gl_sample_weight(next.sample));
    if (gl_is_task(entry))
        return run_task(loop, entry);
    if (loop->current_task_stale)
        gl_clear_stale_current_task(loop);
    int r = 0;
    if (!gl_handle_is_cancelled(entry))
        r = gl_run_handle(loop, entry);
    if (Py_REFCNT(entry) > 1)
        gl_handle_track(entry); /* the caller or an exception handler refers to it */
    Py_DECREF(entry);
    return r;
}

/* Runs one iteration: reports the end of a blocked iteration, makes a turn if one is due, and
 * delivers accepted connections, the entries that the ready queue had then, and the other
 * completions.  Without the GIL it first offers the loop's lock to waiting threads, and moves
 * posted Handles to the ready queue.  -1 with the exception that ends the run of the loop; the
 * remaining entries and completions are for the next run.  lint: allow check-commit: a loop that
 * runs can't be closed */
static int
iterate(gl_loop *loop)
{
    loop->counts.iterations++;
#ifdef GL_FREE_THREADED
    gl_lock_offer(loop);
    if (loop->shared == NULL || gl_loop_is_foreign(loop))
        return gl_loop_check_usable(loop);
    if (gl_inbox_any(loop) && gl_inbox_join(loop) < 0)
        return -1;
#endif
    if (GL_READ(loop->shared->blocked_since) != loop->blocked_seen &&
        gl_watchdog_block_ended(loop) < 0)
        return -1;
    if (loop->unscheduled_ends != NULL)
        gl_transports_retry_unscheduled_ends(loop);
    if (loop->cmp_pos >= loop->shared->cmp_len && turn_if_due(loop) < 0)
        return -1;
#ifdef GL_FREE_THREADED
    if (gl_inbox_any(loop) && gl_inbox_join(loop) < 0)
        return -1;
#endif
    loop->shared->max_ready = Py_MAX(loop->shared->max_ready, loop->ready.count);
    size_t todo = loop->ready.count;
    uint64_t first_start = gl_ready_total(&loop->ready);
    uint64_t starts = 0;
    if (loop->shared->metrics.connections_accepted != loop->accepts_seen &&
        dispatch_accepted(loop, &starts) < 0)
        return -1;
    for (; todo && loop->ready.count; todo--) {
        if (run_next_entry(loop) < 0)
            return -1;
    }
    if (loop->current_task_stale)
        gl_clear_stale_current_task(loop);
    if (loop->kept_sockets_len)
        gl_kept_sockets_release(loop);
    if (dispatch(loop) < 0)
        return -1;
    if (starts != 0 && loop->ready.head == first_start)
        gl_ready_move_to_end(&loop->ready, starts);
    gl_ready_trim(&loop->ready);
    return 0;
}

/* Begins a run: this thread becomes the owner, for the watchdog too.  Starts the metrics' clocks,
 * drops the samples of entries that were queued while the loop did not run, and resumes the
 * monitor.  The first iteration polls, and its turn checks the descriptors (GL_CHECK_FDS). */
static void
run_begins(gl_loop *self)
{
    GL_WRITE(self->running, PyThread_get_thread_ident());
    if (self->thread_id == 0) /* a bare _run() */
        GL_WRITE(self->thread_id, self->running);
    self->since_poll = GL_POLL_EVERY;
    int64_t now = gl_monotonic_ns();
    GL_WRITE(self->shared->now, now);
    self->shared->ran -= now;
    self->shared->busy -= now;
    self->shared->flags |= GL_CHECK_FDS;
    for (size_t i = 0; i < self->ready.count; i++) /* entries waited because the loop did not run */
        self->ready.slot[(self->ready.head + i) & (self->ready.capacity - 1)].sample = 0;
    gl_watchdog_set_thread(self);
    gl_watchdog_poll_ended(self);
    gl_monitor_resume(self);
    self->go->move_alarm(self->shared, now);
}

/* Ends a run: this thread is not the owner any more, and `thread_id` is `thread_before`, its value
 * before the run.  Clears `stopping` and a stale current task, records the end in a trace, stops
 * the metrics' clocks, pauses the monitor, reports the end of a blocked iteration, sends pending
 * writes, and closes the sockets that were closed while they were kept open.  -1 with the exception
 * of the report.  Keeps the exception that ended the run. */
static int
run_ends(gl_loop *self, unsigned long thread_before)
{
    if (self->current_task_stale)
        gl_clear_stale_current_task(self);
    gl_ready_track_kept(&self->ready);
    GL_WRITE(self->thread_id, thread_before);
    GL_WRITE(self->running, 0);
#ifdef GL_FREE_THREADED
    gl_inbox_drop_spare_references(self);
#endif
    GL_WRITE(self->stopping, 0);
    gl_monitor_pause(self);
    gl_trace *trace = gl_active_trace(self); /* read once: a client's thread may end the trace */
    if (trace != NULL)
        gl_trace_add(self, trace, GL_TRACE_STOP, 0, 0);
    int64_t now = gl_monotonic_ns();
    self->shared->ran += now;
    self->shared->busy += now;
    int r = 0;
    if (GL_READ(self->shared->blocked_since) != self->blocked_seen)
        r = gl_watchdog_block_ended(self);
    /* Pending writes are sent now, because the loop may never run again. */
    if (self->dirty && self->go && !gl_loop_is_foreign(self)) {
        self->dirty = 0;
        gl_reactor_api(self)->flush(self->reactor);
    }
    gl_kept_sockets_run_ends(self);
    return r;
}

/* loop._run(): runs the loop until it is stopped, and returns None.  In guest mode it runs one
 * iteration, in the thread that began the run, and returns None if the run has ended, else True if
 * the next iteration need not wait, or False.  NULL with the exception that ended the run, or with
 * RuntimeError if the loop can't be used or runs already, or if this thread has too little stack.
 */
static PyObject *
loop__run(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    if (gl_loop_check_usable(self) < 0)
        return NULL;
    bool guest_mode = self->guest_mode;
    bool goes_on = self->guest_mode == GL_GUEST_IDLE && gl_loop_runs_here(self);
    const char *message = "This event loop is already running";
    if (!self->running || goes_on)
        message = gl_library_run_begins();
    if (message != NULL) {
        PyErr_SetString(PyExc_RuntimeError, message);
        return NULL;
    }
    unsigned long thread_before = self->thread_id; /* noted by Python, but before a bare _run() */
    if (!goes_on)
        run_begins(self);
    self->guest_mode = guest_mode ? GL_GUEST_RUNNING : 0;
    int r;
    do {
        r = iterate(self);
    } while (r == 0 && !guest_mode && !GL_READ(self->stopping));
    bool ends = r < 0 || !guest_mode || GL_READ(self->stopping);
    if (ends)
        r |= run_ends(self, thread_before);
    if (!guest_mode)
        self->guest_mode = 0;
    else if (ends)
        self->guest_mode = GL_GUEST_REQUESTED;
    else
        self->guest_mode = GL_GUEST_IDLE;
    gl_library_run_ends();
    if (ends)
        return gl_none_or_null(r);
    return PyBool_FromLong(self->ready.count || self->unscheduled_ends || self->dirty ||
                           self->forced_polls_left || self->shared->more);
}

/* loop._poll(), in guest mode: makes the turn of the next iteration, in any thread, and returns
 * None.  The turn waits without a limit unless entries are ready or the loop stops; a push ends the
 * wait.  Makes no turn if completions are undelivered.  NULL with RuntimeError outside guest mode,
 * inside an iteration, or if this thread has too little stack, or with the exception of turn(). */
static PyObject *
loop__poll(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    const char *message = "loop._poll() requires guest mode and an idle loop";
    if (self->guest_mode == GL_GUEST_IDLE)
        message = gl_library_run_begins();
    if (message != NULL) {
        PyErr_SetString(PyExc_RuntimeError, message);
        return NULL;
    }
    self->guest_mode = GL_GUEST_RUNNING;
    gl_ready_wake_at_next_push(&self->ready);
    bool busy = self->ready.count || self->unscheduled_ends || GL_READ(self->stopping);
    int r = 0;
    if (self->cmp_pos >= self->shared->cmp_len)
        r = turn(self, busy ? 0 : -1);
    self->guest_mode = GL_GUEST_IDLE;
    gl_library_run_ends();
    return gl_none_or_null(r);
}

/* loop._end_run(), in guest mode: ends the run without another iteration, in any thread, because
 * the thread that began the run has ended.  Returns None; does nothing if the loop does not run.
 * NULL with RuntimeError inside an iteration or a poll, or with the exception of run_ends(). */
static PyObject *
loop__end_run(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    if (!self->running)
        Py_RETURN_NONE;
    if (self->guest_mode != GL_GUEST_IDLE) {
        PyErr_SetString(PyExc_RuntimeError, "loop._end_run() requires guest mode and an idle loop");
        return NULL;
    }
    self->guest_mode = 0;
    return gl_none_or_null(run_ends(self, 0));
}

static PyMethodDef turn_table[] = {
    {"_run", GL_NOARGS(loop__run), NULL},
    {"_poll", GL_NOARGS(loop__poll), NULL},
    {"_end_run", GL_NOARGS(loop__end_run), NULL},
    {NULL, NULL, 0, NULL},
};
GL_PRIVATE PyMethodDef *const turn_methods = turn_table;
