/* The memory limits of cgroups: driver.py keeps them.
 *
 * https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "Using the NVML API"; the
 * structures are those of pynvml 13.615. "Requires CUDA 13.4": a library of an older driver does
 * not have the functions. "Setting limits is privileged; reading them is not": the key `denied 1`
 * of a GPU takes the right away.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "nvml.h"

typedef struct { const char *namespace; u64 soft, hard; } SetLimits;
typedef struct { const char *namespace; u64 soft, hard, used; } GetLimits;

static int old_driver(void) {
    char path[4096], text[256];
    state_path(path, sizeof path, "driver");
    return read_text(path, text, sizeof text) < 0 || number_of(text, "version", 0) < 615;
}

/* "NVML opens the cgroup directory": its inode names it, for the driver knows it by another path
 * than a container does. */
static Return inode_of(const char *namespace, u64 *inode) {
    struct stat folder;
    if (!namespace) return INVALID_ARGUMENT;
    if (stat(namespace, &folder) != 0 || !S_ISDIR(folder.st_mode)) return NOT_FOUND;
    *inode = folder.st_ino;
    return SUCCESS;
}

static Return ask(const char *line, char *answer, size_t size) {
    static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
    static struct sockaddr_un known;
    static int fd = -1;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    state_path(address.sun_path, sizeof address.sun_path, "driver.sock");
    ssize_t length = -1;
    pthread_mutex_lock(&busy);
    for (int again = 0; again < 2 && length <= 0; again++) {
        if (again || fd < 0 || memcmp(&known, &address, sizeof known) != 0) {
            if (fd >= 0) close(fd);
            fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            known = address;
            connect(fd, (struct sockaddr *)&address, sizeof address); /* else `send` fails */
        }
        if (send(fd, line, strlen(line), MSG_NOSIGNAL) == (ssize_t)strlen(line))
            length = read(fd, answer, size - 1);
    }
    pthread_mutex_unlock(&busy);
    if (length <= 0) return UNKNOWN;
    answer[length] = 0;
    return strncmp(answer, "ok", 2) == 0 ? SUCCESS : atoi(answer);
}

Return nvmlDeviceSetMemoryLimits_v1(Device device, SetLimits *limits) {
    char line[256], answer[256];
    u64 inode;
    if (old_driver()) return FUNCTION_NOT_FOUND;
    GPU(device);
    if (number_of(text, "denied", 0)) return NO_PERMISSION;
    Return found = inode_of(limits->namespace, &inode);
    if (found != SUCCESS) return found;
    snprintf(line, sizeof line, "set-limits %d %llu %llu %llu\n", device->index, inode,
             limits->soft, limits->hard);
    return ask(line, answer, sizeof answer);
}

Return nvmlDeviceGetMemoryLimits_v1(Device device, GetLimits *limits) {
    char line[256], answer[256];
    u64 inode;
    if (old_driver()) return FUNCTION_NOT_FOUND;
    GPU(device);
    Return found = inode_of(limits->namespace, &inode);
    if (found != SUCCESS) return found;
    snprintf(line, sizeof line, "get-limits %d %llu\n", device->index, inode);
    Return result = ask(line, answer, sizeof answer);
    if (result == SUCCESS)
        sscanf(answer, "ok %llu %llu %llu", &limits->soft, &limits->hard, &limits->used);
    return result;
}
