/* What the parts of the fake NVML share. */
#ifndef PARTITA_FAKE_NVML_H
#define PARTITA_FAKE_NVML_H

#include "../state.h"

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
    NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15, UNKNOWN = 999,
};

typedef int Return;
typedef struct { int index; } *Device;

/* The figures of a GPU; `function` is the caller. */
Return text_of(Device device, const char *function, char *text, size_t size);

Return nvmlSystemGetDriverVersion(char *version, unsigned size);

#define GPU(device)                                                   \
    char text[4096];                                                  \
    Return checked = text_of(device, __func__, text, sizeof text);    \
    if (checked != SUCCESS) return checked

#endif
