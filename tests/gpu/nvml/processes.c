/* The processes on a GPU, and what each uses of it. */
#include "nvml.h"

typedef struct { unsigned pid; u64 used; unsigned instance, compute_instance; } ProcessInfo;
typedef struct { ProcessInfo info; u64 protected; } LongProcessInfo;
typedef struct { unsigned pid; u64 stamp; unsigned sm, memory, encoder, decoder; } ProcessUse;

/* "Processes with a compute context on a device", and with "a MPS compute context" (nvml.h,
 * NVIDIA/nvidia-settings). A client of MPS is in both lists, as nvidia-smi has it as "M+C", its server
 * as "C" (https://docs.nvidia.com/deploy/nvidia-smi/, "Processes"; the page named in driver.py shows
 * both). `size` is that of an entry.
 *
 * Keys of a GPU: `entry <bytes>` is the size for every version, as no driver is known to have; with
 * `lists <n>` only n MPS clients are listed, as a reader of too short entries sees it
 * (https://github.com/NVIDIA/go-nvml/issues/75). */
static Return list(Device device, const char *text, unsigned *count, void *infos, int clients,
                   size_t size) {
    Process all[PROCESSES];
    int found = read_processes(device->index, all);
    unsigned wanted = 0, of_clients = 0, room = *count, most = (unsigned)number_of(text, "lists", PROCESSES);
    if (!size) return FUNCTION_NOT_FOUND;
    size = number_of(text, "entry", size);
    for (int i = 0; i < found; i++) {
        int client = all[i].kind == 'M';
        if (clients > client || (client && of_clients++ >= most)) continue;
        ProcessInfo info = {all[i].pid, all[i].memory, ~0u, ~0u};
        if (infos && wanted < room) memcpy((char *)infos + wanted * size, &info, sizeof info);
        wanted++;
    }
    *count = wanted;
    return wanted > room || (wanted && !infos) ? INSUFFICIENT_SIZE : SUCCESS;
}

/* The size of an entry of version 3, 0 where it is missing: before 510, in 535.98, and longer from
 * 535.43 on until then (https://github.com/XuehaiPan/nvitop/pull/89). Version 2 has always the same
 * (https://github.com/NVIDIA/nvidia-settings, src/nvml.h, 495.29 to 610.43). */
static size_t v3_size(void) {
    char version[256];
    int major = 0, minor = 0;
    nvmlSystemGetDriverVersion(version, sizeof version);
    sscanf(version, "%d.%d", &major, &minor);
    if (major < 510 || (major == 535 && minor == 98)) return 0;
    return major == 535 && minor >= 43 && minor < 98 ? sizeof(LongProcessInfo) : sizeof(ProcessInfo);
}

#define LIST(function, clients, size)                                            \
    Return function(Device device, unsigned *count, void *infos) {               \
        GPU(device);                                                             \
        return list(device, text, count, infos, clients, size);                  \
    }
LIST(nvmlDeviceGetComputeRunningProcesses_v2, 0, sizeof(ProcessInfo))
LIST(nvmlDeviceGetComputeRunningProcesses_v3, 0, v3_size())
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 1, sizeof(ProcessInfo))
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 1, v3_size())

/* "NVML_ERROR_NOT_FOUND: if sample entries are not found" ("vGPU Management").
 *
 * What MPS's clients compute is the server's: it is the active process for NVML
 * (https://docs.nvidia.com/deploy/mps/latest/common-tasks.html, "nvidia-cuda-mps-server"), and so it is
 * reported of tools that read this function (https://github.com/NVIDIA/dcgm-exporter/issues/388, "only reports the overall usage of the MPS
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
