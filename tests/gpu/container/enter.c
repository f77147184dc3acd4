/* Starts a program in a container: its process joins the cgroup first. Orphans below it become its
 * children, as those of the first process of a container.
 *
 * The tests do not do this in a child of their own process: gRPC's threads may abort such a child.
 *
 * enter CGROUP.PROCS PROGRAM [ARGUMENT...]
 */
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 3 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
        return 125;
    FILE *members = fopen(words[1], "a");
    if (!members || fprintf(members, "%d\n", (int)getpid()) < 0 || fclose(members)) {
        perror(words[1]);
        return 125;
    }
    execvp(words[2], words + 2);
    perror(words[2]);
    return 127;
}
