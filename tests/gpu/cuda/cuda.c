/* A CUDA program without a GPU: takes memory, computes, overruns, faults, as its arguments say.
 *
 *   alloc:<MiB>      take so much more; out of memory ends it with code 1, as an uncaught CUDA
 *                    error ends a program
 *   try:<MiB>        the same, but the program handles the error and goes on
 *   free             give all of it back
 *   compute:<ms>[:<percent>]   keep the GPU busy
 *   sleep:<ms>       hold what it has
 *   wait:<ms>        do so without touching the GPU
 *   unset            forget the MPS variables, as a program may that was given them
 *   fault            an illegal access: fatal for all that share the GPU
 *   fault:sm         an exception of an SM: fatal for all, or for those of its static partition
 *   forever          compute until it is ended
 *   expect:<NAME>=<value>      fail unless the variable is so
 *
 * Started as nvidia-cuda-mps-server it is that: it holds the GPU until its daemon goes.
 * Errors are written as PyTorch's runtime writes them, for Partita reads the end of the log.
 */
#include <errno.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <signal.h>
#include <time.h>

#include "../state.h"

/* CUresult, https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html. */
enum {
    OUT_OF_MEMORY = 2, NO_DEVICE = 100, LAUNCH_FAILED = 719, MPS_CONNECTION_FAILED = 805,
    MPS_SERVER_NOT_READY = 807, MPS_MAX_CLIENTS_REACHED = 808, MPS_CLIENT_TERMINATED = 810,
    INVALID_RESOURCE_CONFIGURATION = 915, NOT_PERMITTED = 800,
};
#define MIB (1ull << 20)

static int driver = -1, mps = -1, gpu = -1;
static u64 memory, context, limit;
static unsigned busy, threads = 100; /* percent of the SMs */

static const char *name_of(int error) {
    switch (error) {
    case OUT_OF_MEMORY: return "out of memory";
    case 46: return "all CUDA-capable devices are busy or unavailable";
    case NO_DEVICE: return "no CUDA-capable device is detected";
    case LAUNCH_FAILED: return "unspecified launch failure";
    case MPS_CONNECTION_FAILED: return "MPS client failed to connect to the MPS control daemon or the MPS server";
    case MPS_SERVER_NOT_READY: return "the MPS server is not ready to accept new MPS client requests";
    case MPS_MAX_CLIENTS_REACHED: return "the hardware resources required to create MPS client have been exhausted";
    case NOT_PERMITTED: return "operation not permitted";
    case INVALID_RESOURCE_CONFIGURATION: return "invalid resource configuration";
    case MPS_CLIENT_TERMINATED: return "the MPS client has been terminated by the server";
    default: return "unknown error";
    }
}

static void die(int error) {
    fprintf(stderr, "RuntimeError: CUDA error: %s\n", name_of(error));
    exit(1);
}

static int reach(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

/* Sends a line and reads one; returns the error number in it, 0 for "ok". */
static int ask(int fd, const char *line, char *answer, size_t size) {
    size_t length = 0;
    if (write(fd, line, strlen(line)) != (ssize_t)strlen(line)) return 999;
    while (length < size - 1 && read(fd, answer + length, 1) == 1 && answer[length] != '\n')
        length++;
    answer[length] = 0;
    return strncmp(answer, "ok", 2) == 0 ? 0 : atoi(answer) ? atoi(answer) : 999;
}

static int tell_use(void) {
    char line[128], answer[128];
    snprintf(line, sizeof line, "use %llu %u\n", context + memory, busy);
    return ask(driver, line, answer, sizeof answer);
}

/* What the MPS server has to say to this client, if anything: its end. */
static void listen_to_server(int milliseconds) {
    struct pollfd one = {.fd = mps, .events = POLLIN};
    char word[64];
    if (mps < 0) {
        usleep((unsigned)milliseconds * 1000);
        return;
    }
    if (poll(&one, 1, milliseconds) <= 0) return;
    ssize_t length = read(mps, word, sizeof word - 1);
    memory = context = busy = 0;
    tell_use();
    /* "Client Early Termination": the client's next calls fail with MPS_CLIENT_TERMINATED.
     * "Error Containment": a fatal fault is reported to every client on the GPU, and each is
     * itself responsible to exit. */
    if (length > 0 && strncmp(word, "terminated", 10) == 0) die(MPS_CLIENT_TERMINATED);
    if (length > 0 && strncmp(word, "fault", 5) == 0) die(LAUNCH_FAILED);
    die(806);
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

static void open_gpu(int server) {
    char path[4096], text[4096], line[512], answer[128], uuid[128] = "";
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible || !*visible) visible = getenv("NVIDIA_VISIBLE_DEVICES");
    if (visible && strncmp(visible, "GPU-", 4) == 0)
        snprintf(uuid, sizeof uuid, "%.*s", (int)strcspn(visible, ","), visible);
    gpu = find_gpu(uuid, text, sizeof text);
    state_path(path, sizeof path, "driver.sock");
    driver = reach(path);
    if (gpu < 0 || driver < 0 || number_of(text, "lost", 0)) die(NO_DEVICE);
    char kind = server ? 'S' : 'C';
    if (!server) {
        /* "Client Attach/Detach": if no control daemon can be reached the program runs as it
         * would without MPS. */
        const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
        snprintf(path, sizeof path, "%s/clients", pipes ? pipes : "/tmp/nvidia-mps");
        mps = reach(path);
        if (mps < 0) { /* v3: each directory has a single socket */
            snprintf(path, sizeof path, "%s/control", pipes ? pipes : "/tmp/nvidia-mps");
            mps = reach(path);
        }
    }
    if (mps >= 0) {
        kind = 'M';
        const char *partition = getenv("CUDA_MPS_SM_PARTITION");
        snprintf(line, sizeof line, "connect %s\n", partition ? partition : "");
        int error = ask(mps, line, answer, sizeof answer);
        if (error) die(error == 999 ? MPS_CONNECTION_FAILED : error);
        char *rest;
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
    }
    snprintf(line, sizeof line, "open %d %c\n", gpu, kind);
    int error = ask(driver, line, answer, sizeof answer);
    if (error) die(error);
    context = server ? 0 : number_of(text, "context", 0);
}

static int take(u64 bytes) {
    u64 before = memory;
    if (limit && memory + bytes > limit) return OUT_OF_MEMORY;
    memory += bytes;
    int error = tell_use();
    if (error) memory = before;
    return error;
}

static void rest(long milliseconds) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long end = now.tv_sec * 1000 + now.tv_nsec / 1000000 + milliseconds;
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        long left = end - (now.tv_sec * 1000 + now.tv_nsec / 1000000);
        if (milliseconds >= 0 && left <= 0) return;
        listen_to_server(milliseconds < 0 || left > 100 ? 100 : (int)left);
    }
}

static void run(const char *step) {
    const char *value = strchr(step, ':');
    size_t length = value ? (size_t)(value - step) : strlen(step);
    char answer[64];
    value = value ? value + 1 : "";
#define IS(word) (length == strlen(word) && strncmp(step, word, length) == 0)
    if (IS("unset")) {
        unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
        return;
    }
    if (IS("expect")) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(value, "="), value);
        const char *is = getenv(name), *want = strchr(value, '=');
        if (!is || !want || strcmp(is, want + 1) != 0) {
            fprintf(stderr, "%s is %s\n", name, is ? is : "unset");
            exit(3);
        }
        return;
    }
    if (IS("wait")) {
        usleep((unsigned)atol(value) * 1000);
        return;
    }
    if (driver < 0) open_gpu(0);
    listen_to_server(0);
    if (IS("alloc") || IS("try")) {
        int error = take(strtoull(value, NULL, 10) * MIB);
        if (error && IS("alloc")) die(error);
        if (error) fprintf(stderr, "refused: %s\n", name_of(error));
    } else if (IS("free")) {
        memory = 0;
        tell_use();
    } else if (IS("compute") || IS("forever")) {
        const char *percent = strchr(value, ':');
        busy = percent ? (unsigned)atoi(percent + 1) : 50;
        if (busy > threads) busy = threads;
        tell_use();
        rest(IS("forever") ? -1 : atol(value));
        busy = 0;
        tell_use();
    } else if (IS("sleep")) {
        rest(atol(value));
    } else if (IS("fault")) {
        int sm = strcmp(value, "sm") == 0;
        /* 31: GPU memory page fault, 13: graphics engine exception, as of an SM */
        ask(driver, sm ? "xid 13\n" : "xid 31\n", answer, sizeof answer);
        if (mps < 0) die(700);
        const char *said = sm ? "fault sm\n" : "fault\n";
        if (write(mps, said, strlen(said)) != (ssize_t)strlen(said)) die(806);
        rest(-1);
    } else {
        fprintf(stderr, "no such step: %s\n", step);
        exit(2);
    }
}

int main(int argc, char **argv) {
    const char *name = strrchr(argv[0], '/');
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    if (strcmp(name ? name + 1 : argv[0], "nvidia-cuda-mps-server") == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_gpu(1);
        puts("ready");
        for (;;) pause();
    }
    for (int i = 1; i < argc; i++) {
        run(argv[i]);
        if (i + 1 == argc || strncmp(argv[i], "try", 3) == 0) printf("%s done\n", argv[i]);
    }
    return 0;
}
