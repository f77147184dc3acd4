/* The processes on a GPU, and what each uses of it. */
#include "nvml.h"

typedef struct { unsigned pid; u64 used; unsigned instance, compute_instance; } ProcessInfo;
typedef struct { ProcessInfo info; u64 protected; } LongProcessInfo;
typedef struct { unsigned pid; u64 stamp; unsigned sm, memory, encoder, decoder; } ProcessUse;

/* "This function returns information only about compute running processes"; MPS clients are told
 * of by nvmlDeviceGetMPSComputeRunningProcesses ("Device Queries"). `size` is that of an entry. */
static Return list(Device device, unsigned *count, void *infos, int clients, size_t size) {
    Process all[PROCESSES];
    int found = read_processes(device->index, all);
    unsigned wanted = 0, room = *count;
    if (!size) return FUNCTION_NOT_FOUND;
    for (int i = 0; i < found; i++) {
        if ((all[i].kind == 'M') != clients) continue;
        ProcessInfo info = {all[i].pid, all[i].memory, ~0u, ~0u};
        if (infos && wanted < room) memcpy((char *)infos + wanted * size, &info, sizeof info);
        wanted++;
    }
    *count = wanted;
    return wanted > room || (wanted && !infos) ? INSUFFICIENT_SIZE : SUCCESS;
}

/* The size of an entry of version 3: it is missing before 510 and in 535.98, and longer from 535.43
 * on until then (https://github.com/XuehaiPan/nvitop/pull/89). */
static size_t v3_size(void) {
    char version[256];
    int major = 0, minor = 0;
    nvmlSystemGetDriverVersion(version, sizeof version);
    sscanf(version, "%d.%d", &major, &minor);
    if (major < 510 || (major == 535 && minor == 98)) return 0;
    return major == 535 && minor >= 43 && minor < 98 ? sizeof(LongProcessInfo) : sizeof(ProcessInfo);
}

Return nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned *count, void *infos) {
    GPU(device);
    return list(device, count, infos, 0, sizeof(ProcessInfo));
}

Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, void *infos) {
    GPU(device);
    return list(device, count, infos, 0, v3_size());
}

Return nvmlDeviceGetMPSComputeRunningProcesses_v2(Device device, unsigned *count, void *infos) {
    GPU(device);
    return list(device, count, infos, 1, sizeof(ProcessInfo));
}

Return nvmlDeviceGetMPSComputeRunningProcesses_v3(Device device, unsigned *count, void *infos) {
    GPU(device);
    return list(device, count, infos, 1, v3_size());
}

/* "NVML_ERROR_NOT_FOUND: if sample entries are not found" ("vGPU Management").
 *
 * What MPS's clients compute is the server's: reported of tools that read this function
 * (https://github.com/NVIDIA/dcgm-exporter/issues/388, "only reports the overall usage of the MPS
 * daemon itself"; kubernetes-sigs/dra-driver-nvidia-gpu, issue 1143). With the key `credits clients`
 * it is each client's own. */
Return nvmlDeviceGetProcessUtilization(Device device, ProcessUse *uses, unsigned *count,
                                       u64 since) {
    GPU(device);
    Process all[PROCESSES];
    int found = read_processes(device->index, all);
    const char *credits = value_of(text, "credits");
    int by_client = credits && strcmp(credits, "clients") == 0;
    unsigned wanted = 0, room = *count, of_clients = 0;
    for (int i = 0; i < found; i++)
        if (all[i].kind == 'M') of_clients += all[i].sm;
    for (int i = 0; i < found; i++) {
        if (all[i].kind == (by_client ? 'S' : 'M')) continue;
        unsigned sm = all[i].kind == 'S' ? of_clients : all[i].sm;
        if (uses && wanted < room)
            uses[wanted] = (ProcessUse){all[i].pid, since + 1, sm > 100 ? 100 : sm, 0, 0, 0};
        wanted++;
    }
    *count = wanted;
    if (!wanted) return NOT_FOUND;
    return uses && wanted <= room ? SUCCESS : INSUFFICIENT_SIZE;
}
