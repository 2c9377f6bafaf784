/*
 * monitor_alarm_pace.c: how late a loop's alarm expires, and how often the monitor ticks.
 *
 *     pace         of a loop that                         alarm after, moved after
 *     quick        sleeps often                           2.2 ms, 1.1 ms
 *     sleepless    hardly sleeps                          4.4 ms, 2.6 ms
 *     far          makes few turns and defers no writes   25 ms, 10 ms
 *     slow         any other, after many alarms in vain   7.4 ms, 2.4 ms
 *
 * The loop's thread chooses the pace when it moves the alarm; the monitor counts the alarms that
 * have expired.
 */
#include "monitor_alarm_pace.h"

/* How long a write can wait in a long iteration.  A loop's alarm expires `alarm` after it was set,
 * and the first turn that ends `forward` later, or still later, sets it again.  So an iteration
 * during which it expires is older than alarm - forward, which is more than LONG_ITERATION_NS of
 * monitor.c.  From then on until the iteration's end, the monitor ticks: see pace_tick_ns(). */
static const alarm_pace quick = {2200000, 1100000};
static const alarm_pace slow = {7400000, 2400000};
/* The quick pace of a loop that hardly sleeps.  To set a timer that expires after the kernel's next
 * tick, which is at most 4 ms away, costs a tenth of an earlier one.  For a loop that sleeps the
 * earlier timer is better: with it, the kernel does not stop its tick at each sleep. */
static const alarm_pace sleepless = {4400000, 2600000};
/* The pace of a loop that makes few turns and defers no writes, for the watchdog and the samples of
 * slow iterations.  Such a loop would set an earlier alarm for each message. */
static const alarm_pace far = {25000000, 10000000, true};
/* A loop makes few turns if it polls longer for each.  A loop that sleeps more often gets the quick
 * pace: setting its alarms costs less than a kernel that stops its tick at each sleep. */
#define FEW_TURNS_NS 250000
/* The moves of the alarm after a deferred write before the pace may be `far` again. */
#define NEAR_MOVES 64
/* The time between two ticks, at a quick and at a slow pace. */
#define QUICK_TICK_NS 3400000
#define SLOW_TICK_NS 6800000
/* A loop that has polled for at least this time since its alarm was moved has slept. */
#define SLEPT_NS 100000
/* A tick takes 10 to 20 us from a loop that is busy on the same core.  So an alarm raises
 * vain_until by VAIN_ALARM_NS, and the pace is slow while this time is more than MAX_VAIN_NS from
 * now: after 50 alarms in short succession, 50 a second are quick.  A flush makes the pace quick.
 */
#define VAIN_ALARM_NS (1000000000 / 50)
#define MAX_VAIN_NS 1000000000

/* lint: allow mutable-static: of the process, as the monitor is */
static int64_t vain_until; /* atomic: ns, see VAIN_ALARM_NS */

/* Returns true if the pace is slow. */
static bool
is_slow(int64_t now)
{
    return __atomic_load_n(&vain_until, __ATOMIC_RELAXED) > now + MAX_VAIN_NS;
}

int64_t
pace_tick_ns(int64_t now)
{
    return is_slow(now) ? SLOW_TICK_NS : QUICK_TICK_NS;
}

void
pace_count_alarm(int64_t now)
{
    int64_t until = vain_until;
    if (until < now)
        until = now;
    until += VAIN_ALARM_NS;
    int64_t latest = now + MAX_VAIN_NS + VAIN_ALARM_NS;
    if (until > latest)
        until = latest;
    __atomic_store_n(&vain_until, until, __ATOMIC_RELAXED);
}

void
pace_flushed(void)
{
    __atomic_store_n(&vain_until, 0, __ATOMIC_RELAXED);
}

const alarm_pace *
pace_update(gl_shared *sh, int64_t now)
{
    uint64_t polled = sh->metrics.poll_time.sum;
    uint64_t polled_since = polled - sh->alarm_polled;
    uint64_t turns_since = sh->metrics.turns - sh->alarm_turns;
    sh->alarm_polled = polled;
    sh->alarm_turns = sh->metrics.turns;
    if (__atomic_load_n(&sh->sends_pending, __ATOMIC_RELAXED))
        sh->alarm_near_left = NEAR_MOVES;
    else if (sh->alarm_near_left > 0)
        sh->alarm_near_left--;
    if (sh->alarm_near_left == 0 && polled_since > turns_since * FEW_TURNS_NS)
        return &far;
    if (is_slow(now))
        return &slow;
    if (polled_since < SLEPT_NS)
        return &sleepless;
    return &quick;
}
