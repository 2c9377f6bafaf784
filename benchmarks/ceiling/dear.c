/* Runs a program whose system calls cost more, as on a machine with dear system calls.
 *
 *     dear STEPS PROGRAM [ARGUMENT ...]
 *
 * The program and its children get a seccomp filter, which allows every system call.  Before that,
 * the filter executes STEPS instructions, each a multiplication that waits for the previous one.
 * The first instruction loads an argument of the call: the kernel skips filters whose result
 * depends on the call's number alone.  Each run of the benchmarks records the cost of a system
 * call, under the filter too.  Exit status 2: the filter can't be installed.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The kernel's limit for one filter is 4,096 steps, the last of which returns. */
#define MAX_STEPS 4095

int main(int argc, char **argv)
{
    static struct sock_filter filter[MAX_STEPS + 1];
    struct sock_fprog program;
    long steps = argc > 2 ? strtol(argv[1], NULL, 10) : -1;

    if (steps < 0 || steps > MAX_STEPS) {
        fprintf(stderr, "usage: dear STEPS PROGRAM [ARGUMENT ...], with at most %d steps\n",
                MAX_STEPS);
        return 2;
    }
    for (long at = 0; at < steps; at++) {
        filter[at].code = BPF_ALU | BPF_MUL | BPF_K;
        filter[at].k = 3;
    }
    if (steps > 0) {
        filter[0].code = BPF_LD | BPF_W | BPF_ABS;
        filter[0].k = offsetof(struct seccomp_data, args);
    }
    filter[steps].code = BPF_RET | BPF_K;
    filter[steps].k = SECCOMP_RET_ALLOW;
    program.len = (unsigned short)(steps + 1);
    program.filter = filter;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("dear: the filter can't be installed");
        return 2;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
