/* Preloaded into a worker: its clock of day is as far off as a file says, and nothing else is.

   The file holds one 64-bit number, seconds to add; it is looked at on every call. libfaketime does more than
   that: with its elapsed clocks left alone, version 0.9.10 makes every time.sleep() of Python fail. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CASSQ_WALL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        shift = found;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!real_clock_gettime)
        begin();
    int failed = real_clock_gettime(clock, at);
    if (!failed && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *shift;
    return failed;
}

time_t time(time_t *kept) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (kept)
        *kept = at.tv_sec;
    return at.tv_sec;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
