/* The processes on a GPU, and what each uses of it. */
#include "nvml.h"

typedef struct { unsigned pid; u64 used; unsigned instance, compute_instance; } ProcessInfo;
typedef struct { unsigned pid; u64 stamp; unsigned sm, memory, encoder, decoder; } ProcessUse;

/* "Processes with a compute context on a device", and with "a MPS compute context" (nvml.h,
 * NVIDIA/nvidia-settings). A client of MPS is in both, as nvidia-smi has it as "M+C", its server as
 * "C" (https://docs.nvidia.com/deploy/nvidia-smi/, "Processes"; the page in driver.py shows both).
 *
 * Keys of a GPU: `entry <bytes>` is the size of an entry, as no driver is known to have; with
 * `lists <n>` only n MPS clients are listed, as a reader of too short entries sees it
 * (https://github.com/NVIDIA/go-nvml/issues/75). */
static Return list(Device device, const char *text, unsigned *count, void *infos, int clients) {
    Process all[PROCESSES];
    int found = read_processes(device->index, all);
    unsigned most = (unsigned)number_of(text, "lists", PROCESSES);
    unsigned wanted = 0, of_clients = 0, room = *count;
    size_t size = number_of(text, "entry", sizeof(ProcessInfo));
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

/* Version 2, which has the same entries in each driver. Version 3 is missing, as in 495 and 535.98;
 * from 535.43 to 535.86 it has entries of 32 bytes (https://github.com/XuehaiPan/nvitop/pull/89). */
#define LIST(function, clients)                                                  \
    Return function(Device device, unsigned *count, void *infos) {               \
        GPU(device);                                                             \
        return list(device, text, count, infos, clients);                        \
    }
LIST(nvmlDeviceGetComputeRunningProcesses_v2, 0)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 1)

/* "NVML_ERROR_NOT_FOUND: if sample entries are not found" ("vGPU Management").
 *
 * What MPS's clients compute is the server's: it is the active process for NVML
 * (https://docs.nvidia.com/deploy/mps/latest/common-tasks.html, "nvidia-cuda-mps-server"), and so
 * is reported of tools that read this function (https://github.com/NVIDIA/dcgm-exporter/issues/388;
 * kubernetes-sigs/dra-driver-nvidia-gpu, issue 1143). With the key `credits clients` it is each
 * client's own. */
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
