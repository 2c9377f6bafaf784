/*
 * library_limits.c: the limit of open files stays what the program set.
 *
 * Go raises the soft RLIMIT_NOFILE to the hard one when it starts, and children
 * of the process inherit that.  A program may count on its limit (select() and
 * its 1024 descriptors, a child that closes "all" of them), so the limit is read
 * before Go starts and put back after.
 *
 * In between, for a millisecond, another thread of C can see the raised limit,
 * and can fork or set a limit of its own; the latter stays.
 *
 * Used by library.c only.
 */
#include <stdbool.h>
#include <sys/resource.h>

typedef struct gl_file_limit {
    struct rlimit limit;
    bool known;
} gl_file_limit;

static void
gl_file_limit_save(gl_file_limit *saved)
{
    saved->known = getrlimit(RLIMIT_NOFILE, &saved->limit) == 0;
}

/* Undoes what Go has done: a limit that somebody lowered meanwhile is his. */
static void
gl_file_limit_restore(const gl_file_limit *saved)
{
    struct rlimit now;
    if (saved->known && getrlimit(RLIMIT_NOFILE, &now) == 0 &&
        now.rlim_max == saved->limit.rlim_max && now.rlim_cur > saved->limit.rlim_cur)
        (void)setrlimit(RLIMIT_NOFILE, &saved->limit);
}
