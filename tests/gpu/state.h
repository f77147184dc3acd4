/* What the parts of the fake GPU share: files in the folder that FAKE_GPU_DIR names.
 *
 *   driver            "version 580.95.05", "cuda 13010", "error 999"; the last two may be left out;
 *                     absent: no driver is loaded
 *   gpu-<n>           one GPU: a "key value" a line, written by a test, read at every change
 *   gpu-<n>.processes "pid memory sm kind" a line; kind is C, M (an MPS client) or S (the server);
 *                     written by driver.py, or by a test that needs no programs
 *   gpu-<n>.mode      the compute mode, a number
 *   gpu-<n>.xids      an Xid a line, only ever added to
 *   gpu-<n>.wedged    there while MPS is wedged on the GPU: see driver/driver.py
 *   mps               how MPS misbehaves: see mps/daemon.py and driver/driver.py
 *   driver.sock       where programs and NVML reach driver.py
 *   cgroup/           stands for /sys/fs/cgroup: see driver/cgroups.py; absent: no cgroup v2
 *   toolkit           which container toolkit there is: see toolkit.py
 */
#ifndef PARTITA_FAKE_GPU_STATE_H
#define PARTITA_FAKE_GPU_STATE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS 16
#define PROCESSES 128

typedef unsigned long long u64;

typedef struct {
    unsigned pid;
    u64 memory;
    unsigned sm;
    char kind;
} Process;

static inline void state_path(char *path, size_t size, const char *name) {
    const char *folder = getenv("FAKE_GPU_DIR");
    snprintf(path, size, "%s/%s", folder ? folder : "/var/lib/fake-gpu", name);
}

static inline void gpu_path(char *path, size_t size, int gpu, const char *suffix) {
    char name[64];
    snprintf(name, sizeof name, "gpu-%d%s", gpu, suffix);
    state_path(path, size, name);
}

/* Reads a small file as text; returns its length, -1 where there is none. */
static inline long read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    long length = read(fd, text, size - 1);
    close(fd);
    if (length < 0) return -1;
    text[length] = 0;
    return length;
}

/* Finds "key value" in such a text. */
static inline const char *value_of(const char *text, const char *key) {
    static __thread char value[4096];
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            size_t end = strcspn(line + length + 1, "\n");
            if (end >= sizeof value) end = sizeof value - 1;
            memcpy(value, line + length + 1, end);
            value[end] = 0;
            return value;
        }
    }
    return NULL;
}

static inline u64 number_of(const char *text, const char *key, u64 otherwise) {
    const char *value = value_of(text, key);
    return value ? strtoull(value, NULL, 10) : otherwise;
}

/* Reads what a GPU says; -1 where this container does not have it. NVIDIA's CDI devices bring the
 * device files of one GPU and /dev/nvidiactl, and NVML lists no GPU without its file
 * (https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html,
 * "GPU Enumeration"); without such files all GPUs are there. */
static inline long read_gpu(int gpu, char *text, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "/dev/fake-nvidia%d", gpu);
    if (access("/dev/fake-nvidiactl", F_OK) == 0 && access(path, F_OK) != 0) return -1;
    gpu_path(path, sizeof path, gpu, "");
    return read_text(path, text, size);
}

/* The processes on a GPU, by the PIDs of the node. */
static inline int read_processes(int gpu, Process *found) {
    char path[4096], text[16384];
    gpu_path(path, sizeof path, gpu, ".processes");
    if (read_text(path, text, sizeof text) < 0) return 0;
    int count = 0;
    char *rest = text, *line;
    while (count < PROCESSES && (line = strsep(&rest, "\n"))) {
        Process *p = &found[count];
        count += sscanf(line, "%u %llu %u %c", &p->pid, &p->memory, &p->sm, &p->kind) == 4;
    }
    return count;
}

/* The GPU of this UUID, of the first one where none is asked for; -1 where there is none. */
static inline int find_gpu(const char *uuid, char *text, size_t size) {
    for (int gpu = 0; gpu < GPUS; gpu++) {
        if (read_gpu(gpu, text, size) < 0) continue;
        const char *is = value_of(text, "uuid");
        if (!uuid || !*uuid || (is && strcmp(is, uuid) == 0)) return gpu;
    }
    return -1;
}

static inline int read_mode(int gpu) {
    char path[4096], text[64];
    gpu_path(path, sizeof path, gpu, ".mode");
    return read_text(path, text, sizeof text) < 0 ? 0 : atoi(text);
}

#endif
