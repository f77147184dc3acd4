/* Jobs that wait for and run on the GPUs of a cluster, and how they go on.
 *
 * Jobs of one kind have the same demand and request. Time and work are in seconds; work is the
 * time of a run without co-located jobs. Memory is in bytes. */
#ifndef PARTITA_CLUSTER_H
#define PARTITA_CLUSTER_H

#include "fit.h"
#include "interference.h"

enum {
    PHASES = 6, /* most phases of a run */
    JOBS = 48   /* most jobs on a GPU, as many as MPS has clients there */
};

typedef struct {
    Load load;
    double seconds;
} Phase;

/* How a job of a kind runs on a type of GPU. */
typedef struct {
    Phase phase[PHASES];
    Load mean;
    double duration;
    int32_t phases;
    int32_t allowed; /* whether the kind may use this product */
} Outlook;

typedef struct {
    int32_t kind, phase;
    double left;  /* work of this phase */
    double speed; /* work per second, unless `stale` */
} Running;

typedef struct {
    FreeGPU free;
    int32_t type, node;
    double since; /* time of every `left` */
    double next;  /* time when the next phase ends */
    Running jobs[JOBS];
} Gpu;

typedef struct Rates Rates; /* see rates.h */

/* What stays the same during a decision or a simulation. */
typedef struct {
    int32_t kinds, types, gpus, nodes, applications;
    int32_t sharing;        /* as in interference.h */
    const Kind *kind;       /* [kinds] */
    const Outlook *outlook; /* [types][kinds] */
    const double *factors;   /* [applications][applications] of the cluster's co-runs, or NULL */
    const double *spreads;   /* likewise: what is not known of each pair, or NULL */
    const uint8_t *eligible; /* [kinds][nodes], or NULL if every kind may use every node */
    Rates *rates;            /* slowdowns that are kept, or NULL */
} Problem;

typedef struct {
    Gpu *gpu;         /* [gpus] */
    int32_t *waiting; /* [kinds] jobs, all of which end */
    int64_t *host;    /* [nodes][HOST] not allocated, or NULL if unknown */
    int32_t queued;   /* sum of `waiting` */
    int32_t running;  /* jobs that end */
    double now;
    double total;    /* seconds that jobs spent here so far, in sum */
    double makespan; /* time of the last end so far */
} State;

/* Bytes of the GPUs of a type, at least 1. */
double capacity_of(const Problem *problem, const State *state, int type);

const Outlook *outlook_of(const Problem *problem, const Gpu *gpu, int kind);

/* The slowdown of each of `count` jobs of these kinds and loads on one GPU. */
void slower(const Problem *problem, const int *kinds, const Load *loads, int count, double *out);

/* What the node of a GPU has left; NULL if unknown. */
int64_t *host_of(const State *state, const Gpu *gpu);

/* Whether one more job of a kind fits a GPU whose node has this much left. */
int fits(const Problem *problem, const Gpu *gpu, const int64_t *host, int kind);

/* Start a waiting job of a kind that fits. */
void start(const Problem *problem, State *state, Gpu *gpu, int kind);

/* Go on until the first end of a job, or at most to a time. Return the GPU where it ended, or -1.
 */
int go_on(const Problem *problem, State *state, double until);

/* Let the jobs of a GPU run from their starts until now. `since` has the seconds since each start.
 * A job that should have ended has some work left. */
void catch_up(const Problem *problem, Gpu *gpu, const double *since);

/* Seconds of work that a running job has left. */
double left_of(const Problem *problem, const Gpu *gpu, const Running *job);

/* Average load of what a running job has left, and its seconds. */
double rest_of(const Problem *problem, const Gpu *gpu, const Running *job, Load *mean);

#endif
