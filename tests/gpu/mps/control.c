/* An nvidia-cuda-mps-control of our own: passes commands to the daemon, as NVIDIA's does.
 *
 * https://docs.nvidia.com/deploy/mps/latest/mpsv2-interface.html, "nvidia-cuda-mps-control":
 * `-f` and `-d` start the daemon (the program beside this one whose name ends in .py), without them commands are read
 * from stdin. What it says when there is no daemon, or one that is busy with somebody else's
 * command, is as people meet it; no document lists it.
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
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-f") == 0 || strcmp(argv[i], "-d") == 0) return start(argc, argv);
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
