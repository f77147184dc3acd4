/* Packing of jobs by alignment; see partita_policies/tetris.py. */
#include <math.h>

#include "fit.h"

enum { USES = 3 };

/* Waiting jobs of one request. */
typedef struct {
    Kind asks;         /* of each of its GPUs, and of their node */
    double uses[USES]; /* of a profile: percent of the SMs, percent of a second resource, bytes of
                          PCIe a second */
    double penalty;    /* epsilon times the remaining work */
    int gpus;
    int priority;
    int waiting; /* jobs left */
    int shape;   /* row of `allowed` */
} TetrisClass;

typedef struct {
    FreeGPU free;
    double left[USES];
    double bandwidth; /* PCIe bytes a second; 0 if unknown */
    int shared; /* some of them end */
    int open;   /* a job may still start here */
    int node;
    int unused;
} TetrisGPU;

typedef struct {
    TetrisClass *classes;
    TetrisGPU *gpus;
    const unsigned char *allowed;
    int64_t *host; /* [nodes][HOST] not allocated, or NULL if unknown */
    double *room; /* memory of each class, or infinity once no job of it waits */
    int class_count, gpu_count;
} Packing;

static int least_loaded(const Packing *p) {
    int best = -1;
    for (int g = 0; g < p->gpu_count; g++) {
        const TetrisGPU *one = &p->gpus[g], *other = &p->gpus[best < 0 ? g : best];
        if (one->open && (best < 0 || one->free.jobs < other->free.jobs ||
                          (one->free.jobs == other->free.jobs &&
                           one->free.memory > other->free.memory)))
            best = g;
    }
    return best;
}

static int64_t *host_of(const Packing *p, int g) {
    return p->host ? p->host + p->gpus[g].node * HOST : NULL;
}

static int fits(const Packing *p, const TetrisClass *job, int g) {
    return has_room(&job->asks, &p->gpus[g].free, host_of(p, g)) &&
           p->allowed[job->shape * p->gpu_count + g];
}

/* The GPUs of a job: g and the first others of its node that it fits. Returns whether there are
 * enough. */
static int enough(const Packing *p, const TetrisClass *job, int g, int *chosen) {
    int found = 0;
    chosen[found++] = g;
    for (int other = 0; other < p->gpu_count && found < job->gpus; other++)
        if (other != g && p->gpus[other].node == p->gpus[g].node && p->gpus[other].free.slots > 0 &&
            fits(p, job, other))
            chosen[found++] = other;
    return found == job->gpus;
}

static double alignment(const TetrisClass *job, const TetrisGPU *gpu) {
    double score = -job->penalty;
    double whole = (double)gpu->free.capacity;
    if (whole > 0)
        score += (job->asks.alone ? whole : (double)job->asks.memory) *
                 (double)gpu->free.memory / (whole * whole);
    for (int i = 0; i < USES; i++) {
        double all = i < USES - 1 ? 100.0 : gpu->bandwidth;
        if (all > 0 && gpu->left[i] > 0)
            score += job->uses[i] * gpu->left[i] / (all * all);
    }
    return score;
}

/* The best of the first `window` classes that fit a GPU, of the highest priority; -1: none fits. */
static int best_class(const Packing *p, int first, int g, int window, int *chosen) {
    const TetrisGPU *gpu = &p->gpus[g];
    double highest = -INFINITY;
    int best = -1, found = 0, priority = 0;
    for (int c = first; c < p->class_count && found < window; c++) {
        if (p->room[c] > gpu->free.memory)
            continue;
        const TetrisClass *job = &p->classes[c];
        if (found && job->priority != priority)
            break;
        if (gpu->shared && (job->uses[0] > gpu->left[0] || job->uses[1] > gpu->left[1] ||
                            job->uses[2] > gpu->left[2]))
            continue;
        if (!fits(p, job, g) || (job->gpus > 1 && !enough(p, job, g, chosen)))
            continue;
        found++;
        priority = job->priority;
        double score = alignment(job, gpu);
        if (score > highest) {
            highest = score;
            best = c;
        }
    }
    return best;
}

static void take(const TetrisClass *job, TetrisGPU *gpu, int64_t *host) {
    hold(&job->asks, &gpu->free, host, 1);
    gpu->shared = 1;
    gpu->open = !gpu->free.alone && gpu->free.slots > 0 && gpu->free.clients > 0;
    for (int i = 0; i < USES; i++)
        gpu->left[i] -= job->uses[i];
}

/* Start jobs until none fits: each time the best one for the GPU with the fewest jobs, then the
 * most free memory.
 *
 * classes: by descending priority, then in queue order.
 * allowed[shape * gpu_count + gpu]: whether jobs of this shape may use the GPU.
 * host[node * HOST + i]: free resources of the node, or NULL if unknown.
 * room: scratch space of one number for each class.
 * started: the class and the GPU of each start; a job on several GPUs has several in a row.
 * Returns the number of those pairs. */
int tetris(TetrisClass *classes, int class_count, TetrisGPU *gpus, int gpu_count,
           const unsigned char *allowed, int64_t *host, int window, double *room, int *started) {
    const Packing p = {classes, gpus, allowed, host, room, class_count, gpu_count};
    int pairs = 0, first = 0;
    for (int c = 0; c < class_count; c++)
        room[c] = (double)classes[c].asks.memory;
    while (first < class_count) {
        int g = least_loaded(&p);
        if (g < 0)
            break;
        int *chosen = started + pairs; /* has room for the GPUs of one more job */
        int c = best_class(&p, first, g, window, chosen);
        if (c < 0) {
            gpus[g].open = 0; /* what does not fit now does not fit later */
            continue;
        }
        TetrisClass *job = &classes[c];
        int count = job->gpus;
        enough(&p, job, g, chosen);
        for (int i = count - 1; i >= 0; i--) { /* spread the chosen GPUs to pairs, from behind */
            int of = chosen[i];
            take(job, &gpus[of], i ? NULL : host_of(&p, of)); /* one node has all of them */
            chosen[2 * i] = c;
            chosen[2 * i + 1] = of;
        }
        pairs += 2 * count;
        if (--job->waiting == 0)
            room[c] = INFINITY;
        while (first < class_count && classes[first].waiting == 0)
            first++;
    }
    return pairs / 2;
}
