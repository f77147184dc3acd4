/* Packing of jobs by alignment; see partita_policies/tetris.py. */
#ifndef PARTITA_TETRIS_H
#define PARTITA_TETRIS_H

enum { USES = 3, HOSTS = 3 };

/* Waiting jobs of one request. */
typedef struct {
    double memory;      /* bytes on each GPU */
    double uses[USES];  /* of a profile: percent of the SMs, percent of a second resource, bytes of
                           PCIe a second */
    double penalty;     /* epsilon times the remaining work */
    double host[HOSTS]; /* CPU, memory and storage of the node */
    int slots, clients;
    int alone; /* its GPUs must be idle, and it gets all of their memory */
    int gpus;
    int priority;
    int waiting; /* jobs left */
    int shape;   /* row of `allowed` */
    int unused;
} TetrisClass;

typedef struct {
    double free, memory; /* bytes; at most `free` of `memory` can be allocated */
    double left[USES];
    double bandwidth; /* PCIe bytes a second; 0 if unknown */
    int slots, clients;
    int jobs;   /* on it */
    int shared; /* some of them end */
    int open;   /* a job may still start here */
    int node;
} TetrisGPU;

/* Start jobs until none fits: each time the best one for the GPU with the fewest jobs, then the
 * most free memory.
 *
 * classes: by descending priority, then in queue order.
 * allowed[shape * gpu_count + gpu]: whether jobs of this shape may use the GPU.
 * host[node * HOSTS + i]: free resources of the node.
 * room: scratch space of one number for each class.
 * started: the class and the GPU of each start; a job on several GPUs has several in a row.
 * Returns the number of those pairs. */
int tetris(TetrisClass *classes, int class_count, TetrisGPU *gpus, int gpu_count,
           const unsigned char *allowed, double *host, int window, double *room, int *started);

#endif
