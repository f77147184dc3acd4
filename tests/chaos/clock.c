/* A wall clock that is wrong by as much as a file says, for a process that preloads this.
 *
 * Only what people call the time is wrong (CLOCK_REALTIME, gettimeofday, time): the monotonic
 * clocks of a machine cannot be set. The file holds nanoseconds, a 64-bit integer in the
 * machine's order, and may change while the process runs: its clock jumps then.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset;

/* Follow the clock of this file; returns 0, or -1 where it cannot be had. */
int follow_clock(const char *path) {
    int file = open(path, O_RDONLY);
    if (file < 0) return -1;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return -1;
    offset = mapped;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t nanos = now->tv_sec * INT64_C(1000000000) + now->tv_nsec + *offset;
    now->tv_sec = nanos / 1000000000;
    now->tv_nsec = nanos % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    if (!failed) {
        now->tv_sec = exact.tv_sec;
        now->tv_usec = exact.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *told) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (told) *told = exact.tv_sec;
    return exact.tv_sec;
}
