/* A libnvidia-ml.so.1 without a GPU: the functions that pynvml calls for Partita's agent.
 *
 * Signatures, structures and return codes are those of the NVML API reference,
 * https://docs.nvidia.com/deploy/nvml-api/: "Device Queries", "Device Commands", "Event Handling
 * Methods", "GPM Functions". What a GPU says stands in files that a test edits: see state.h.
 *
 * Keys of a GPU beside its figures: `lost 1`, `unsupported <function> <function> ...`,
 * `error <code>` or `error <code> <function> <function> ...`, `denied 1` (setting the compute mode
 * asks for root), `hang <seconds>`, `credits clients`, `recovery <action>`.
 */
#include <poll.h>
#include <sys/inotify.h>
#include <time.h>

#include "nvml.h"

enum { XID_CRITICAL_ERROR = 0x8, RECOVERY_ACTION_CHANGED = 0x8000 };
enum { GPU_RECOVERY_ACTION = 230, FIRST_WITH_RECOVERY = 565 };

typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct {
    unsigned field, scope;
    long long stamp, latency;
    unsigned type;
    Return result;
    union { unsigned number; u64 size; } value;
} FieldValue;
typedef struct { Device device; u64 type, data; unsigned instance, compute_instance; } EventData;
typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { const char *short_name, *long_name, *unit; } MetricInfo;
typedef struct { unsigned id; Return result; double value; MetricInfo info; } GpmMetric;
typedef struct { unsigned version, count; void *first, *second; GpmMetric metrics[]; } GpmGet;
typedef struct { int gpu; double occupancy; } GpmSample;
typedef struct {
    unsigned gpus;
    long seen[GPUS];
    u64 types, recovery[GPUS];
    int changes; /* inotify(7): a driver's thread sleeps until there is an event */
} EventSet;

/* NVIDIA does not say that a handle outlives nvmlShutdown. Here it does not. */
static struct { int index; } devices[2][GPUS];
static int initialised, opened;

static int is_in(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *at = strstr(names, name); at; at = strstr(at + 1, name))
        if (at[length] == 0 || at[length] == ' ') return 1;
    return 0;
}

Return text_of(Device device, const char *function, char *text, size_t size) {
    char path[4096];
    if (!initialised) return UNINITIALIZED;
    if ((size_t)((char *)device - (char *)devices[opened]) >= sizeof devices[opened]) return INVALID_ARGUMENT;
    gpu_path(path, sizeof path, device->index, "");
    /* "NVML_ERROR_GPU_IS_LOST: if the target GPU has fallen off the bus or is otherwise
     * inaccessible", at each function of "Device Queries". */
    if (read_text(path, text, size) < 0 || number_of(text, "lost", 0)) return GPU_IS_LOST;
    u64 seconds = number_of(text, "hang", 0);
    if (seconds) sleep((unsigned)seconds);
    const char *unsupported = value_of(text, "unsupported");
    if (unsupported && is_in(unsupported, function)) return NOT_SUPPORTED;
    const char *error = value_of(text, "error");
    if (error && (!strchr(error, ' ') || is_in(error, function))) return atoi(error);
    return SUCCESS;
}

static Return copy(char *to, unsigned size, const char *from) {
    if (!from) return NOT_SUPPORTED;
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

static Return driver_text(char *text, size_t size) {
    char path[4096];
    if (!initialised) return UNINITIALIZED;
    state_path(path, sizeof path, "driver");
    return read_text(path, text, size) < 0 ? DRIVER_NOT_LOADED : SUCCESS;
}

Return nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    char text[256];
    for (int gpu = 0; gpu < GPUS; gpu++) devices[opened][gpu].index = gpu;
    initialised++;
    Return found = driver_text(text, sizeof text);
    /* "Failed to initialize NVML: Unknown Error" is read in a container whose devices
     * `systemctl daemon-reload` has taken away, and not on the node: `error 999` of the driver
     * (https://github.com/NVIDIA/nvidia-container-toolkit/issues/48).
     *
     * What is open already stays open: a cgroup controls who may "open them for reading or
     * writing" (cgroups(7), "devices"). `error 999` of a GPU is the other case. */
    if (found == SUCCESS) found = (Return)number_of(text, "error", SUCCESS);
    initialised -= found != SUCCESS;
    return found;
}

Return nvmlShutdown(void) {
    if (!initialised) return UNINITIALIZED;
    if (!--initialised) opened = !opened;
    return SUCCESS;
}

Return nvmlSystemGetDriverVersion(char *version, unsigned size) {
    char text[256];
    Return found = driver_text(text, sizeof text);
    if (found != SUCCESS) return found;
    return copy(version, size, value_of(text, "version"));
}

Return nvmlSystemGetCudaDriverVersion_v2(int *version) {
    char text[256];
    Return found = driver_text(text, sizeof text);
    if (found != SUCCESS) return found;
    const char *value = value_of(text, "cuda");
    if (!value) return NOT_SUPPORTED;
    *version = atoi(value);
    return SUCCESS;
}

Return nvmlDeviceGetCount_v2(unsigned *count) {
    char text[4096];
    if (!initialised) return UNINITIALIZED;
    *count = 0;
    for (int gpu = 0; gpu < GPUS; gpu++) *count += read_gpu(gpu, text, sizeof text) >= 0;
    return SUCCESS;
}

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    char text[4096];
    if (!initialised) return UNINITIALIZED;
    for (int gpu = 0; gpu < GPUS; gpu++) {
        if (read_gpu(gpu, text, sizeof text) < 0 || index--) continue;
        *device = (Device)&devices[opened][gpu];
        return SUCCESS;
    }
    return INVALID_ARGUMENT;
}

/* "This API causes NVML to initialize the target GPU", with what that may fail ("Device Queries"). */
Return nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    char text[4096];
    if (!initialised) return UNINITIALIZED;
    int gpu = find_gpu(uuid, text, sizeof text);
    if (gpu < 0) return NOT_FOUND;
    *device = (Device)&devices[opened][gpu];
    return text_of(*device, __func__, text, sizeof text);
}

Return nvmlDeviceGetUUID(Device device, char *uuid, unsigned size) {
    GPU(device);
    return copy(uuid, size, value_of(text, "uuid"));
}

Return nvmlDeviceGetName(Device device, char *name, unsigned size) {
    GPU(device);
    return copy(name, size, value_of(text, "name"));
}

/* A GPU that uses the node's memory has none to tell of: on a GB10 this function is `unsupported`
 * (https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/1073). */
Return nvmlDeviceGetMemoryInfo(Device device, Memory *memory) {
    GPU(device);
    Process all[PROCESSES];
    int count = read_processes(device->index, all);
    memory->total = number_of(text, "memory", 0);
    memory->used = number_of(text, "reserved", 0);
    for (int i = 0; i < count; i++) memory->used += all[i].memory;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

Return nvmlDeviceGetUtilizationRates(Device device, Utilization *use) {
    GPU(device);
    Process all[PROCESSES];
    unsigned sum = 0;
    int count = read_processes(device->index, all);
    for (int i = 0; i < count; i++) sum += all[i].sm;
    /* The time with a kernel (nvmlUtilization_t): at least as much as all programs together. */
    use->gpu = (unsigned)number_of(text, "utilization", sum > 100 ? 100 : sum);
    use->memory = 0;
    return SUCCESS;
}

Return nvmlDeviceGetPcieThroughput(Device device, unsigned counter, unsigned *value) {
    GPU(device);
    *value = (unsigned)number_of(text, counter ? "pcie_rx" : "pcie_tx", 0);
    return SUCCESS;
}

#define FIGURE(function, key, otherwise)                  \
    Return function(Device device, unsigned *value) {     \
        GPU(device);                                      \
        *value = (unsigned)number_of(text, key, otherwise); \
        return SUCCESS;                                   \
    }
FIGURE(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation", 4)
FIGURE(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width", 16)
FIGURE(nvmlDeviceGetArchitecture, "architecture", 7)
FIGURE(nvmlDeviceGetNumGpuCores, "cores", 6912)
/* 2 is "vGPU inside virtual machine" (nvmlGpuVirtualizationMode_t). */
FIGURE(nvmlDeviceGetVirtualizationMode, "virtualization", 0)

/* "The following new functionality is exposed on NVIDIA display drivers version 565 Production or
 * later: ... new event type nvmlEventTypeGpuRecoveryAction ... new fieldId to query GPU recovery
 * action" (NVML, "Change Log"). */
static int tells_recovery(void) {
    char driver[4096];
    return driver_text(driver, sizeof driver) == SUCCESS
        && number_of(driver, "version", 0) >= FIRST_WITH_RECOVERY;
}

/* "Recovery action flag": https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/, "Error Recovery
 * and Response Flags". */
Return nvmlDeviceGetFieldValues(Device device, int count, FieldValue *values) {
    GPU(device);
    for (int i = 0; i < count; i++) {
        int known = values[i].field == GPU_RECOVERY_ACTION && tells_recovery();
        values[i].result = known ? SUCCESS : NOT_SUPPORTED;
        values[i].value.number = (unsigned)number_of(text, "recovery", 0);
    }
    return SUCCESS;
}

Return nvmlDeviceGetMigMode(Device device, unsigned *now, unsigned *pending) {
    GPU(device);
    *now = *pending = (unsigned)number_of(text, "mig", 0);
    return SUCCESS;
}

Return nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    GPU(device);
    *major = (int)number_of(text, "capability_major", 8);
    *minor = (int)number_of(text, "capability_minor", 0);
    return SUCCESS;
}

Return nvmlDeviceGetComputeMode(Device device, unsigned *mode) {
    GPU(device);
    *mode = (unsigned)read_mode(device->index);
    return SUCCESS;
}

/* "Requires root permissions" ("Device Commands"). */
Return nvmlDeviceSetComputeMode(Device device, unsigned mode) {
    GPU(device);
    char path[4096];
    if (number_of(text, "denied", 0)) return NO_PERMISSION;
    gpu_path(path, sizeof path, device->index, ".mode");
    FILE *file = fopen(path, "w");
    if (!file) return NO_PERMISSION;
    fprintf(file, "%u\n", mode);
    fclose(file);
    return SUCCESS;
}

static long count_xids(int gpu, long wanted, unsigned *xid) {
    char path[4096], text[4096];
    gpu_path(path, sizeof path, gpu, ".xids");
    if (read_text(path, text, sizeof text) < 0) return 0;
    long count = 0;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line && count++ == wanted && xid) *xid = (unsigned)atoi(line);
    return count;
}

static u64 event_types(void) {
    return XID_CRITICAL_ERROR | (tells_recovery() ? RECOVERY_ACTION_CHANGED : 0);
}

Return nvmlDeviceGetSupportedEventTypes(Device device, u64 *types) {
    GPU(device);
    *types = event_types();
    return SUCCESS;
}

Return nvmlEventSetCreate(EventSet **set) {
    char path[4096];
    if (!initialised) return UNINITIALIZED;
    *set = calloc(1, sizeof **set);
    state_path(path, sizeof path, "");
    (*set)->changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    inotify_add_watch((*set)->changes, path, IN_MODIFY | IN_MOVED_TO | IN_DELETE);
    return SUCCESS;
}

Return nvmlEventSetFree(EventSet *set) {
    close(set->changes);
    free(set);
    return SUCCESS;
}

/* "this call starts recording of events ...; all events that occurred before this call was made
 * are not recorded" ("Event Handling Methods"). */
Return nvmlDeviceRegisterEvents(Device device, u64 types, EventSet *set) {
    GPU(device);
    if (types & ~event_types()) return NOT_SUPPORTED;
    set->gpus |= 1u << device->index;
    set->types = types;
    set->seen[device->index] = count_xids(device->index, -1, NULL);
    set->recovery[device->index] = number_of(text, "recovery", 0);
    return SUCCESS;
}

/* The next event of a GPU; 0 if there is none. A recovery action that is taken back is none here:
 * whether it is one is not documented, and the agent asks every 5 s as well. */
static u64 next_event(EventSet *set, int gpu, unsigned *xid) {
    char path[4096], text[4096];
    gpu_path(path, sizeof path, gpu, "");
    if (read_text(path, text, sizeof text) > 0) {
        u64 recovery = number_of(text, "recovery", 0), last = set->recovery[gpu];
        set->recovery[gpu] = recovery;
        if (recovery && recovery != last && set->types & RECOVERY_ACTION_CHANGED) return RECOVERY_ACTION_CHANGED;
    }
    if (count_xids(gpu, set->seen[gpu], xid) <= set->seen[gpu]) return 0;
    set->seen[gpu]++;
    return set->types & XID_CRITICAL_ERROR;
}

static u64 milliseconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000 + (u64)now.tv_nsec / 1000000;
}

/* "eventData: Stores XID error for the device in the event of nvmlEventTypeXidCriticalError,
 * eventData is 0 for any other event" (`nvmlEventData_t`). */
/* "NVML_ERROR_TIMEOUT: if no event arrived in specified timeout"; "NVML_ERROR_GPU_IS_LOST". */
Return nvmlEventSetWait_v2(EventSet *set, EventData *data, unsigned milliseconds) {
    struct pollfd changes = {.fd = set->changes, .events = POLLIN};
    for (u64 now = milliseconds_now(), until = now + milliseconds;; now = milliseconds_now()) {
        char ignored[4096];
        while (read(set->changes, ignored, sizeof ignored) > 0) {}
        for (int gpu = 0; gpu < GPUS; gpu++) {
            unsigned xid = 0;
            if (!(set->gpus >> gpu & 1)) continue;
            GPU((Device)&devices[opened][gpu]);
            u64 type = next_event(set, gpu, &xid);
            if (type) {
                *data = (EventData){(Device)&devices[opened][gpu], type, xid, ~0u, ~0u};
                return SUCCESS;
            }
        }
        if (now >= until) return TIMEOUT;
        poll(&changes, 1, (int)(until - now));
    }
}

Return nvmlGpmQueryDeviceSupport(Device device, GpmSupport *support) {
    GPU(device);
    support->supported = value_of(text, "occupancy") != NULL;
    return SUCCESS;
}

Return nvmlGpmSampleAlloc(GpmSample **sample) {
    GPU((Device)&devices[opened][0]);
    *sample = calloc(1, sizeof **sample);
    return SUCCESS;
}

Return nvmlGpmSampleFree(GpmSample *sample) {
    free(sample);
    return SUCCESS;
}

Return nvmlGpmSampleGet(Device device, GpmSample *sample) {
    GPU(device);
    const char *value = value_of(text, "occupancy");
    if (!value) return NOT_SUPPORTED;
    *sample = (GpmSample){device->index, atof(value)};
    return SUCCESS;
}

Return nvmlGpmMetricsGet(GpmGet *get) {
    GpmSample *first = get->first, *second = get->second;
    for (unsigned i = 0; i < get->count; i++) {
        GpmMetric *metric = &get->metrics[i];
        metric->result = metric->id == 3 ? SUCCESS : NOT_SUPPORTED; /* SM_OCCUPANCY */
        metric->value = (first->occupancy + second->occupancy) / 2;
    }
    return SUCCESS;
}
