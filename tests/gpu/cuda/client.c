#include "client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

static int driver = -1, mps = -1, gpu = -1, opened, ended;
static u64 memory, context, limit;
static unsigned busy, threads = 100; /* percent of the SMs */

static const struct { int error; const char *name, *text; } errors[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "all CUDA-capable devices are busy or unavailable"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {MPS_CONNECTION_FAILED, "CUDA_ERROR_MPS_CONNECTION_FAILED",
     "MPS client failed to connect to the MPS control daemon or the MPS server"},
    {MPS_RPC_FAILURE, "CUDA_ERROR_MPS_RPC_FAILURE", "the remote procedural call between the MPS "
     "server and the MPS client failed"},
    {MPS_SERVER_NOT_READY, "CUDA_ERROR_MPS_SERVER_NOT_READY",
     "the MPS server is not ready to accept new MPS client requests"},
    {MPS_MAX_CLIENTS_REACHED, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
     "the hardware resources required to create MPS client have been exhausted"},
    {MPS_CLIENT_TERMINATED, "CUDA_ERROR_MPS_CLIENT_TERMINATED",
     "the MPS client has been terminated by the server"},
    {INVALID_RESOURCE_CONFIGURATION, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
     "invalid resource configuration"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const char *error_name(int error) {
    if (!error) return "CUDA_SUCCESS";
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) return errors[i].name;
    return NULL;
}

const char *error_text(int error) {
    if (!error) return "no error";
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) return errors[i].text;
    return NULL;
}

static int reach(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

static ssize_t read_line(int fd, char *line, size_t size) {
    size_t length = 0;
    while (length < size - 1 && read(fd, line + length, 1) == 1 && line[length] != '\n') length++;
    line[length] = 0;
    return (ssize_t)length;
}

/* Sends a line and reads one; returns the error number in it, 0 for "ok". */
static int ask(int fd, const char *line, char *answer, size_t size) {
    if (send(fd, line, strlen(line), MSG_NOSIGNAL) != (ssize_t)strlen(line)) return UNKNOWN;
    do read_line(fd, answer, size);
    while (strncmp(answer, "end ", 4) == 0); /* the answer tells it again */
    return strncmp(answer, "ok", 2) == 0 ? 0 : atoi(answer) ? atoi(answer) : UNKNOWN;
}

static int tell_use(void) {
    char line[128], answer[128];
    snprintf(line, sizeof line, "use %llu %u\n", context + memory, busy);
    return ask(driver, line, answer, sizeof answer);
}

static int end(int error) {
    ended = error;
    memory = context = busy = 0;
    if (opened) tell_use();
    return error;
}

int listen_for(int milliseconds) {
    struct pollfd both[] = {{.fd = mps, .events = POLLIN}, {.fd = driver, .events = POLLIN}};
    char word[64];
    if (ended) return ended;
    if (poll(both, 2, milliseconds) <= 0) return 0;
    if (both[1].revents) {
        read_line(driver, word, sizeof word);
        return end(strncmp(word, "end ", 4) == 0 ? atoi(word + 4) : UNKNOWN);
    }
    read_line(mps, word, sizeof word);
    /* "Client Early Termination": the client's next calls fail with MPS_CLIENT_TERMINATED.
     * "Error Containment": a fatal fault is reported to every client on the GPU, and each is
     * itself responsible to exit. */
    if (strncmp(word, "terminated", 10) == 0) return end(MPS_CLIENT_TERMINATED);
    /* An assumption (sm-fault): it is LAUNCH_FAILED. Partita goes by the fault, not by this error. */
    if (strncmp(word, "fault", 5) == 0) return end(LAUNCH_FAILED);
    /* An assumption (mps-status): a client whose server is gone gets MPS_RPC_FAILURE. If it is no error
     * of MPS, its job is charged for its end, unless the agent has reported that MPS ended. */
    return end(MPS_RPC_FAILURE);
}

/* Appendix "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ordinals and UUIDs, as in CUDA_VISIBLE_DEVICES,
 * of which an entry that cannot be seen hides the rest. One device is visible to a job: 0.
 * Observed: https://github.com/NVIDIA/k8s-device-plugin, release 0.15.0-rc.2, "Set MPS memory limit by
 * device index and not device UUID". */
#define DROPPED (~0ull)
static u64 own_limit(const char *text) {
    u64 found = 0;
    char copy[512], *rest = copy, *entry;
    if (!text) return 0;
    snprintf(copy, sizeof copy, "%s", text);
    while ((entry = strsep(&rest, ","))) {
        char *equals = strchr(entry, '=');
        if (!equals || equals - entry != 1 || *entry != '0') return DROPPED;
        char *unit;
        found = strtoull(equals + 1, &unit, 10) * (*unit == 'G' ? 1024 : 1) * MIB;
    }
    return found;
}

/* "Client Attach/Detach": if no control daemon can be reached the program runs as it would
 * without MPS. */
static int attach_mps(void) {
    char path[4096], line[512], answer[128], *rest;
    const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(path, sizeof path, "%s/clients", pipes ? pipes : "/tmp/nvidia-mps");
    mps = reach(path);
    if (mps < 0) { /* v3: each directory has a single socket */
        snprintf(path, sizeof path, "%s/control", pipes ? pipes : "/tmp/nvidia-mps");
        mps = reach(path);
    }
    if (mps < 0) return 0;
    const char *partition = getenv("CUDA_MPS_SM_PARTITION");
    snprintf(line, sizeof line, "connect %s\n", partition ? partition : "");
    int error = ask(mps, line, answer, sizeof answer);
    if (error) return error == UNKNOWN ? MPS_CONNECTION_FAILED : error;
    u64 servers = strtoull(answer + 2, &rest, 10) * MIB;
    u64 mine = own_limit(getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"));
    /* The same appendix: the client's limit "will only further constrain". */
    limit = !servers || (mine && mine < servers) ? mine : servers;
    /* "Per-GPU Compute and Memory Limits with MPS" (ai-dynamo/dynamo), "Client-Side Per-GPU
     * Limits": an entry for a GPU that cannot be seen drops the namespace's limit, too. */
    if (mine == DROPPED) limit = 0;
    /* The smaller of the two counts (kai-scheduler/gpu-fractioning, mpsns/manager.go). */
    const char *own = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    threads = (unsigned)strtod(rest, NULL);
    if (own && atoi(own) > 0 && (unsigned)atoi(own) < threads) threads = (unsigned)atoi(own);
    return 0;
}

int visible_gpus(int *found) {
    char text[4096];
    int count = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible || !*visible) visible = getenv("NVIDIA_VISIBLE_DEVICES");
    int named = visible && strncmp(visible, "GPU-", 4) == 0;
    for (int number = 0; number < GPUS; number++) {
        if (read_gpu(number, text, sizeof text) < 0 || number_of(text, "lost", 0)) continue;
        const char *uuid = value_of(text, "uuid");
        if (!named || (uuid && strstr(visible, uuid))) found[count++] = number;
    }
    return count;
}

/* The key `cuinit <ms>` of a GPU: so long a program initialises CUDA. 6.6 s are reported with
 * confidential computing and no persistence daemon, 0.5 s else (NVIDIA/nvtrust, issue 113).
 *
 * An assumption (mps-status): each program initialises as slowly, also beside an MPS server, which takes so
 * long to start. If only the first one on a GPU does, a canary is never slow for this reason. */
static void initialise_slowly(void) {
    char text[4096];
    if (read_gpu(gpu, text, sizeof text) > 0) usleep((useconds_t)number_of(text, "cuinit", 0) * 1000);
}

int attach(int server) {
    char path[4096], line[128], answer[128];
    int all[GPUS];
    state_path(path, sizeof path, "driver.sock");
    if (driver < 0) driver = reach(path);
    if (!visible_gpus(all) || driver < 0) return NO_DEVICE;
    gpu = all[0];
    initialise_slowly();
    int error = server ? 0 : attach_mps();
    if (error) return error;
    snprintf(line, sizeof line, "attach %d %c\n", gpu, server ? 'S' : mps >= 0 ? 'M' : 'C');
    return ask(driver, line, answer, sizeof answer);
}

int open_context(void) {
    char answer[128];
    if (gpu < 0) return NOT_INITIALIZED;
    if (ended || opened) return ended;
    int error = ask(driver, "open\n", answer, sizeof answer);
    if (error) return error;
    opened = 1;
    context = strtoull(answer + 2, NULL, 10);
    return 0;
}

void close_context(void) {
    char answer[128];
    if (opened) ask(driver, "close\n", answer, sizeof answer);
    memory = context = busy = 0;
    opened = 0;
}

int has_context(void) { return opened; }

void forget(void) {
    if (driver >= 0) close(driver);
    if (mps >= 0) close(mps);
    driver = mps = gpu = -1;
    opened = ended = 0;
    memory = context = limit = busy = 0;
    threads = 100;
}

int take(u64 bytes) {
    u64 before = memory;
    if (ended) return ended;
    if (!opened) return INVALID_CONTEXT;
    if (limit && memory + bytes > limit) return OUT_OF_MEMORY;
    memory += bytes;
    int error = tell_use();
    if (error) memory = before;
    return error;
}

void give_back(u64 bytes) {
    memory -= bytes;
    tell_use();
}

u64 taken(void) { return memory; }

int compute(unsigned percent) {
    busy = percent < threads ? percent : threads;
    return tell_use();
}

int memory_info(u64 *free, u64 *total) {
    char answer[128];
    if (ended) return ended;
    if (!opened) return INVALID_CONTEXT;
    int error = ask(driver, "info\n", answer, sizeof answer);
    if (error) return error;
    sscanf(answer, "ok %llu %llu", free, total);
    /* "Per-GPU Compute and Memory Limits with MPS", "Verify what a client gets": MPS's limit is
     * reported as free memory, and the whole GPU as total. */
    if (limit && limit - memory < *free) *free = limit - memory;
    return 0;
}

int fault(int of_sm) {
    char answer[64];
    /* 31: GPU memory page fault, 13: graphics engine exception, as of an SM */
    ask(driver, of_sm ? "xid 13\n" : "xid 31\n", answer, sizeof answer);
    if (mps < 0) return end(ILLEGAL_ADDRESS);
    const char *said = of_sm ? "fault sm\n" : "fault\n";
    if (send(mps, said, strlen(said), MSG_NOSIGNAL) < 0) return end(MPS_RPC_FAILURE);
    int error;
    while (!(error = listen_for(1000)));
    return error;
}
