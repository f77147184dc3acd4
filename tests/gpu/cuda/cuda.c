/* A CUDA program without a GPU: takes memory, computes, overruns, faults, as its arguments say.
 *
 *   alloc:<MiB>      take so much more; out of memory ends it with code 1, as an uncaught CUDA
 *                    error ends a program
 *   try:<MiB>        the same, but the program handles the error and goes on
 *   compute:<ms>[:<percent>]   keep the GPU busy
 *   sleep:<ms>       hold what it has
 *   wait:<ms>        do so without touching the GPU
 *   fill             take all that is given, print how many MiB it has now, and go on
 *   unset            forget its MPS limit, as a program may that was given it
 *   clear            forget all variables
 *   set:<NAME>=<value>         set one, as of MPS; before it first uses the GPU
 *   fork[:<n>]       do what follows in n children, each a client of its own, and wait for them;
 *                    the exit code is the highest
 *   meet             hold what it has until all other children have come as far, or have ended
 *   fault            an illegal access: fatal for all that share the GPU
 *   fault:sm         an exception of an SM: fatal for all, or for those of its static partition
 *   forever          compute until it is ended
 *   sigterm:<ms>     handle SIGTERM: use the GPU for so much longer, then exit with code 0
 *   expect:<NAME>=<value>      fail unless the variable is so
 *
 * Started as nvidia-cuda-mps-server it is that: it holds the GPU until its daemon goes.
 * Errors are written as PyTorch's runtime writes them, for Partita reads the end of the log.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "client.h"

static void die(int error) {
    const char *text = error_text(error);
    fprintf(stderr, "RuntimeError: CUDA error: %s\n", text ? text : "unknown error");
    exit(1);
}

static void require(int error) {
    if (error) die(error);
}

static volatile sig_atomic_t got_sigterm;
static long saving; /* milliseconds from SIGTERM to the exit */

static void on_sigterm(int number) { got_sigterm = number; }

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void rest(long milliseconds) {
    long end = now() + milliseconds, exit_at = 0;
    for (;;) {
        if (got_sigterm && !exit_at) {
            puts("SIGTERM");
            exit_at = now() + saving;
        }
        if (exit_at && now() >= exit_at) {
            compute(0); /* it waits for its kernels before it exits */
            puts("saved");
            exit(0);
        }
        long left = end - now();
        if (milliseconds >= 0 && left <= 0) return;
        require(listen_for(milliseconds < 0 || left > 100 ? 100 : (int)left));
    }
}

static void fill(void) {
    for (u64 step = 1024; step; step /= 2)
        for (int error = 0; !error;) {
            error = take(step * MIB);
            if (error && error != OUT_OF_MEMORY) die(error);
        }
    printf("has %llu MiB\n", taken() / MIB);
}

/* All variables but the one that only the double needs. */
static void clear_variables(void) {
    const char *folder = getenv("FAKE_GPU_DIR");
    char copy[4096] = "";
    if (folder) snprintf(copy, sizeof copy, "%s", folder);
    clearenv();
    if (*copy) setenv("FAKE_GPU_DIR", copy, 1);
}

static int children, *there; /* how many were forked, and have met or ended */

/* Returns in the children; the parent waits for them and exits. */
static void fork_children(int count) {
    children = count;
    there = mmap(NULL, sizeof *there, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (there == MAP_FAILED) exit(1);
    for (int i = 0; i < count; i++)
        if (fork() == 0) {
            forget();
            return;
        }
    int status, code = 0;
    for (pid_t child; count; count -= child > 0) {
        child = waitpid(-1, &status, WNOHANG);
        int ended = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (child > 0) __atomic_add_fetch(there, 1, __ATOMIC_SEQ_CST);
        if (child > 0 && ended > code) code = ended;
        if (child == 0) rest(20);
    }
    exit(code);
}

static void meet(void) {
    if (!there) return;
    __atomic_add_fetch(there, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(there, __ATOMIC_SEQ_CST) < children) rest(20);
}

static void run(const char *step) {
    const char *value = strchr(step, ':');
    size_t length = value ? (size_t)(value - step) : strlen(step);
    value = value ? value + 1 : "";
#define IS(word) (length == strlen(word) && strncmp(step, word, length) == 0)
    if (IS("unset")) {
        unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
        return;
    }
    if (IS("clear")) {
        clear_variables();
        return;
    }
    if (IS("set")) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(value, "="), value);
        setenv(name, strchr(value, '=') + 1, 1);
        return;
    }
    if (IS("fork")) {
        fork_children(*value ? atoi(value) : 1);
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
    if (IS("sigterm")) {
        struct sigaction action = {.sa_handler = on_sigterm, .sa_flags = SA_RESTART};
        saving = atol(value);
        sigaction(SIGTERM, &action, NULL);
        return;
    }
    if (IS("wait")) {
        usleep((unsigned)atol(value) * 1000);
        return;
    }
    if (!has_context()) {
        require(attach(0));
        require(open_context());
    }
    require(listen_for(0));
    if (IS("alloc") || IS("try")) {
        int error = take(strtoull(value, NULL, 10) * MIB);
        if (error && IS("alloc")) die(error);
        if (error) fprintf(stderr, "refused: %s\n", error_text(error));
    } else if (IS("fill")) {
        fill();
    } else if (IS("meet")) {
        meet();
    } else if (IS("compute") || IS("forever")) {
        const char *percent = strchr(value, ':');
        compute(percent ? (unsigned)atoi(percent + 1) : 50);
        rest(IS("forever") ? -1 : atol(value));
        compute(0);
    } else if (IS("sleep")) {
        rest(atol(value));
    } else if (IS("fault")) {
        die(fault(strcmp(value, "sm") == 0));
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
        require(attach(1));
        require(open_context());
        puts("ready");
        for (;;) pause();
    }
    for (int i = 1; i < argc; i++) {
        run(argv[i]);
        if (i + 1 == argc || strncmp(argv[i], "try", 3) == 0) printf("%s done\n", argv[i]);
    }
    return 0;
}
