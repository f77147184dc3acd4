/* Kernels of the fake libcuda.so.1: those of `acceptance/kernels.py`, by their names. Their code is
 * not compiled. A kernel runs from its launch until the context is synchronised.
 */
#include <stdint.h>
#include <time.h>

#include "client.h"

static const char *const KERNELS[] = {"spin", "fault_trap", "fault_misaligned", "fault_address"};
enum { SPIN, TRAP, MISALIGNED, ADDRESS, COUNT };

static struct timespec until; /* when the last kernel is over */
static int failed;            /* error of a kernel, which all later calls get */

static long milliseconds_left(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long left = (until.tv_sec - now.tv_sec) * 1000 + (until.tv_nsec - now.tv_nsec) / 1000000;
    return left > 0 ? left : 0;
}

int cuModuleLoadData(void **module, const void *image) {
    *module = &failed;
    return image && has_context() ? 0 : INVALID_CONTEXT;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    if (module != &failed) return INVALID_VALUE;
    for (int i = 0; i < COUNT; i++) {
        if (strcmp(name, KERNELS[i]) == 0) {
            *function = (void *)&KERNELS[i];
            return 0;
        }
    }
    return 500; /* CUDA_ERROR_NOT_FOUND */
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   void *stream, void **parameters, void **extra) {
    (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared, (void)stream, (void)extra;
    int error = failed ? failed : listen_for(0);
    if (error) return error;
    int kernel = (int)((const char *const *)function - KERNELS);
    if (kernel != SPIN) {
        failed = fault(kernel != ADDRESS); /* told by the next call */
        return 0;
    }
    u64 nanoseconds = *(u64 *)parameters[0];
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(nanoseconds / 1000000000);
    until.tv_nsec += (long)(nanoseconds % 1000000000);
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    return compute(grid_x < 100 ? grid_x : 100);
}

int cuCtxSynchronize(void) {
    if (!has_context()) return INVALID_CONTEXT;
    int error = failed;
    while (!error) {
        long left = milliseconds_left();
        error = listen_for(left < 100 ? (int)left : 100);
        if (!left) break;
    }
    compute(0);
    return error;
}

/* https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "Known Limitations": managed memory does not count against the limits of cgroups. */
int cuMemAllocManaged(u64 *address, size_t bytes, unsigned flags) {
    (void)flags;
    int error = listen_for(0);
    *address = (u64)(uintptr_t)address;
    return bytes ? error : INVALID_VALUE;
}

int cuMemsetD8_v2(u64 address, unsigned char value, size_t bytes) {
    (void)address, (void)value, (void)bytes;
    return listen_for(0);
}
