/* An nvidia-cuda-mps-control of our own: passes commands to the daemon, as NVIDIA's does.
 *
 * https://docs.nvidia.com/deploy/mps/latest/mpsv2-interface.html, "nvidia-cuda-mps-control":
 * `-f` and `-d` start the daemon (the program beside this one whose name ends in .py), without them
 * commands are read from stdin. What it says when there is no daemon, or one that is busy with
 * somebody else's command, is what those of Debian's package (below) say.
 *
 * Options are those of the daemons of Debian's package nvidia-cuda-mps, which were started without
 * a GPU (470.256.02, 535.261.03, 550.163.01, 555.58.02): until 550 `-f` stands alone, and with any
 * other argument the program looks for a daemon; from 555 on `-multiuser-server` may follow, and an
 * unknown option prints the help. `-M` is used with 580 (kubernetes-sigs/dra-driver-nvidia-gpu, pull
 * request 1153).
 *
 * An assumption (mps-start-stop): 580 is the first driver with `-M` and 590 with `-S`, and all later
 * ones know `-multiuser-server`. If not, another form of the same option is taken, or none.
 *
 * With protocol 3 (https://docs.nvidia.com/deploy/mps/latest/mpsv3-interface.html) the arguments
 * are the command, and `-q` stops the daemon. The driver has it from r615 on.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../state.h"

#define HELP "CUDA MPS Control for Linux/Unix.\n"

static const struct { const char *name; unsigned since; } options[] = {
    {"-f", 0}, {"-d", 0}, {"-multiuser-server", 555}, {"-M", 580}, {"-S", 590},
    {"-p", 615}, {"-m", 615}, {"-a", 615}, {"-q", 615},
};

static unsigned driver_version(void) {
    char path[4096], text[4096];
    state_path(path, sizeof path, "driver");
    return read_text(path, text, sizeof text) > 0 ? (unsigned)number_of(text, "version", 615) : 615;
}

static int knows(const char *option, unsigned driver) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strcmp(option, options[i].name) == 0) return driver >= options[i].since;
    return driver >= 615; /* a command of protocol 3, or its argument */
}

/* Sends the arguments as one line; the daemon's first line is the exit status. */
static int command(int daemon, int argc, char **argv) {
    FILE *stream = fdopen(daemon, "r+");
    char text[4096];
    fputs("3", stream);
    for (int i = 1; i < argc; i++) fprintf(stream, "\x1f%s", argv[i]);
    fputc('\n', stream);
    fflush(stream);
    if (!fgets(text, sizeof text, stream)) return 1;
    int code = atoi(text);
    while (fgets(text, sizeof text, stream)) fputs(text, code ? stderr : stdout);
    return code;
}

static int start(int argc, char **argv) {
    char self[PATH_MAX], daemon[PATH_MAX + 16];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) return 1;
    self[length] = 0;
    snprintf(daemon, sizeof daemon, "%s.py", self);
    const char *python = getenv("FAKE_MPS_PYTHON");
    char *next[16] = {python ? (char *)python : "python3", "-I", "-S", daemon};
    for (int i = 1; i < argc && i < 12; i++) next[i + 3] = argv[i];
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* unlike NVIDIA's: nothing of a test outlives it */
    execvp(next[0], next);
    perror("python3");
    return 1;
}

int main(int argc, char **argv) {
    int starts = 0, unknown = 0;
    unsigned driver = driver_version();
    for (int i = 1; i < argc; i++) {
        unknown |= !knows(argv[i], driver);
        starts |= strcmp(argv[i], "-f") == 0 || strcmp(argv[i], "-d") == 0;
    }
    if (unknown) {
        if (driver < 555) fputs("Cannot find MPS control daemon process\n", stderr);
        else fputs(HELP, stdout);
        return 1;
    }
    if (starts) return start(argc, argv);
    const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/control",
             pipes ? pipes : "/tmp/nvidia-mps");
    int daemon = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(daemon, (struct sockaddr *)&address, sizeof address) != 0) {
        fputs("Cannot find MPS control daemon process\n", stderr);
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) return command(daemon, argc, argv);
    char text[65536];
    ssize_t length;
    while ((length = read(0, text, sizeof text)) > 0)
        if (write(daemon, text, (size_t)length) != length) break; /* it has said why, and left */
    shutdown(daemon, SHUT_WR);
    int code = 0;
    while ((length = read(daemon, text, sizeof text - 1)) > 0) {
        text[length] = 0;
        if (strcmp(text, "busy\n") == 0) {
            fputs("Cannot send command to MPS control daemon process\n", stderr);
            return 1;
        }
        fputs(text, stdout);
    }
    return code;
}
