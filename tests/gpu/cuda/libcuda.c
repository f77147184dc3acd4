/* A libcuda.so.1 without a GPU: the functions of the driver API that Partita calls by ctypes.
 *
 * Signatures are those of https://docs.nvidia.com/cuda/cuda-driver-api/.
 */
#include <stdint.h>

#include "client.h"

typedef struct { unsigned char bytes[16]; } UUID;
typedef u64 Address;

static int initialised, retained;

static int driver_text(char *text, size_t size) {
    char path[4096];
    state_path(path, sizeof path, "driver");
    return read_text(path, text, size) < 0 ? NO_DEVICE : 0;
}

/* The figures of the GPU that a program calls `device`. */
static int gpu_text(int device, char *text, size_t size) {
    char path[4096];
    int all[GPUS];
    if (!initialised) return NOT_INITIALIZED;
    if (device < 0 || device >= visible_gpus(all)) return INVALID_DEVICE;
    gpu_path(path, sizeof path, all[device], "");
    return read_text(path, text, size) < 0 ? INVALID_DEVICE : 0;
}

int cuInit(unsigned flags) {
    char text[256];
    if (flags) return INVALID_VALUE;
    if (initialised) return 0;
    int error = driver_text(text, sizeof text);
    if (!error) error = attach(0);
    initialised = !error;
    return error;
}

int cuGetErrorName(int error, const char **name) {
    *name = error_name(error);
    return *name ? 0 : INVALID_VALUE;
}

int cuDeviceGetCount(int *count) {
    int all[GPUS];
    if (!initialised) return NOT_INITIALIZED;
    *count = visible_gpus(all);
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    char text[4096];
    *device = ordinal;
    return gpu_text(ordinal, text, sizeof text);
}

int cuDeviceGetUuid_v2(UUID *uuid, int device) {
    char text[4096];
    int error = gpu_text(device, text, sizeof text);
    if (error) return error;
    const char *digits = value_of(text, "uuid") + strlen("GPU-");
    for (int i = 0; i < 16; i++, digits += 2) {
        digits += *digits == '-';
        unsigned byte;
        sscanf(digits, "%2x", &byte);
        uuid->bytes[i] = (unsigned char)byte;
    }
    return 0;
}

/* `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT` alone. */
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    char text[4096];
    int error = gpu_text(device, text, sizeof text);
    if (attribute != 16) return INVALID_VALUE;
    if (!error) *value = (int)number_of(text, "sms", 108);
    return error;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    char text[4096];
    int error = gpu_text(device, text, sizeof text);
    if (!error) error = open_context();
    if (error) return error;
    retained++;
    *context = &retained;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    char text[4096];
    int error = gpu_text(device, text, sizeof text);
    if (error) return error;
    if (!retained) return INVALID_CONTEXT;
    if (--retained == 0) close_context();
    return 0;
}

int cuCtxSetCurrent(void *context) {
    (void)context;
    return initialised ? 0 : NOT_INITIALIZED;
}

/* An address is that of the size that lies there. */
int cuMemAlloc_v2(Address *address, size_t bytes) {
    if (!bytes) return INVALID_VALUE;
    int error = listen_for(0);
    if (!error) error = take(bytes);
    if (error) return error;
    size_t *size = malloc(sizeof *size);
    *size = bytes;
    *address = (Address)(uintptr_t)size;
    return 0;
}

int cuMemFree_v2(Address address) {
    int error = listen_for(0);
    if (error) return error;
    size_t *size = (size_t *)(uintptr_t)address;
    give_back(*size);
    free(size);
    return 0;
}

int cuMemGetInfo_v2(size_t *available, size_t *whole) {
    u64 free = 0, total = 0;
    int error = listen_for(0);
    if (!error) error = memory_info(&free, &total);
    *available = free;
    *whole = total;
    return error;
}
