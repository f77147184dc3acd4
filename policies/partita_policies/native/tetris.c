/* Packing of jobs by alignment; see partita_policies/tetris.py. */
#include <math.h>
#include <stdlib.h>

#include "fit.h"

enum { USES = 3 };

typedef struct {
    Kind asks;         /* of each of its GPUs, and of their node */
    double uses[USES]; /* of a profile: percent of the SMs, percent of a second resource, bytes of
                          PCIe a second */
    double seconds;    /* of a run; NaN if unknown */
    int gpus;
    int priority;
    int number; /* of its class: jobs with the same request and the same uses */
    int shape;  /* row of `allowed` */
} TetrisJob;

/* Waiting jobs of one request. */
typedef struct {
    const TetrisJob *like;
    int first, last; /* of its jobs that have not started, in queue order; first -1: none */
    double penalty;  /* epsilon times the remaining work */
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
    const TetrisJob *jobs;
    TetrisClass *classes;
    int *next; /* job of the class of each job; -1: none */
    TetrisGPU *gpus;
    const unsigned char *allowed;
    int64_t *host; /* [nodes][HOST] not allocated, or NULL if unknown */
    double *room; /* memory of each class, or infinity once no job of it waits */
    int job_count, class_count, gpu_count;
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

static int fits(const Packing *p, const TetrisJob *job, int g) {
    return has_room(&job->asks, &p->gpus[g].free, host_of(p, g)) &&
           p->allowed[job->shape * p->gpu_count + g];
}

/* The GPUs of a job: g and the first others of its node that it fits. Returns whether there are
 * enough. */
static int enough(const Packing *p, const TetrisJob *job, int g, int *chosen) {
    int found = 0;
    chosen[found++] = g;
    for (int other = 0; other < p->gpu_count && found < job->gpus; other++)
        if (other != g && p->gpus[other].node == p->gpus[g].node && p->gpus[other].free.slots > 0 &&
            fits(p, job, other))
            chosen[found++] = other;
    return found == job->gpus;
}

static double alignment(const TetrisJob *job, double penalty, const TetrisGPU *gpu) {
    double score = -penalty;
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
        const TetrisJob *job = p->classes[c].like;
        if (found && job->priority != priority)
            break;
        if (gpu->shared && (job->uses[0] > gpu->left[0] || job->uses[1] > gpu->left[1] ||
                            job->uses[2] > gpu->left[2]))
            continue;
        if (!fits(p, job, g) || (job->gpus > 1 && !enough(p, job, g, chosen)))
            continue;
        found++;
        priority = job->priority;
        double score = alignment(job, p->classes[c].penalty, gpu);
        if (score > highest) {
            highest = score;
            best = c;
        }
    }
    return best;
}

static void take(const TetrisJob *job, TetrisGPU *gpu, int64_t *host) {
    hold(&job->asks, &gpu->free, host, 1);
    gpu->shared = 1;
    gpu->open = !gpu->free.alone && gpu->free.slots > 0 && gpu->free.clients > 0;
    for (int i = 0; i < USES; i++)
        gpu->left[i] -= job->uses[i];
}

/* Divide the jobs into classes, in the order of their first ones. slots: a hash table of so many
 * numbers of classes, a power of two above the number of jobs. */
static void find_classes(Packing *p, int *slots, unsigned size) {
    for (unsigned i = 0; i < size; i++) slots[i] = -1;
    for (int j = 0; j < p->job_count; j++) {
        unsigned at = (unsigned)p->jobs[j].number & (size - 1);
        while (slots[at] >= 0 && p->classes[slots[at]].like->number != p->jobs[j].number)
            at = (at + 1) & (size - 1);
        p->next[j] = -1;
        if (slots[at] < 0) {
            slots[at] = p->class_count;
            p->classes[p->class_count++] = (TetrisClass){p->jobs + j, j, j, 0};
        } else {
            TetrisClass *known = p->classes + slots[at];
            p->next[known->last] = j;
            known->last = j;
        }
    }
}

static int by_priority(const void *one, const void *other) {
    const TetrisClass *a = one, *b = other;
    int higher = b->like->priority - a->like->priority;
    return higher ? higher : a->first - b->first;
}

/* Set the penalties. The alignment that counts for epsilon is that with the largest GPU when it is
 * idle, in shares of that GPU; the work of a class is the mean if unknown. */
static void set_penalties(const Packing *p, double weight) {
    double memory = 0, bandwidth = 0, all_sizes = 0, known_work = 0;
    int known = 0;
    for (int g = 0; g < p->gpu_count; g++) {
        memory = fmax(memory, (double)p->gpus[g].free.capacity);
        bandwidth = fmax(bandwidth, p->gpus[g].bandwidth);
    }
    for (int c = 0; c < p->class_count; c++) {
        const TetrisJob *job = p->classes[c].like;
        double size = job->asks.alone ? 1 : (double)job->asks.memory / (memory > 0 ? memory : 1);
        double link = job->uses[2] / (bandwidth > 0 ? bandwidth : INFINITY);
        size += job->uses[0] / 100 + job->uses[1] / 100 + link;
        double work = p->classes[c].penalty = job->seconds * size * job->gpus;
        all_sizes += size;
        if (work > 0) {
            known_work += work;
            known++;
        }
    }
    double mean = known ? known_work / known : 1;
    double epsilon = weight * (all_sizes / p->class_count) / mean;
    for (int c = 0; c < p->class_count; c++) {
        double work = p->classes[c].penalty;
        p->classes[c].penalty = epsilon * (isnan(work) ? mean : work);
    }
}

/* Start jobs until none fits: each time the best one for the GPU with the fewest jobs, then the
 * most free memory.
 *
 * jobs: in queue order.
 * allowed[shape * gpu_count + gpu]: whether jobs of this shape may use the GPU.
 * host[node * HOST + i]: free resources of the node, or NULL if unknown.
 * window: how many classes are compared.
 * weight: of the remaining work.
 * started: the job and the GPU of each start; a job on several GPUs has several in a row.
 * Returns the number of those pairs; -1 if there is no memory. */
int tetris(const TetrisJob *jobs, int job_count, TetrisGPU *gpus, int gpu_count,
           const unsigned char *allowed, int64_t *host, int window, double weight, int *started) {
    unsigned size = 2;
    while (size <= (unsigned)job_count) size *= 2;
    int *scratch = malloc(sizeof(int) * (job_count + size));
    TetrisClass *classes = malloc(sizeof(TetrisClass) * job_count);
    double *room = malloc(sizeof(double) * job_count);
    Packing p = {jobs, classes, scratch, gpus, allowed, host, room, job_count, 0, gpu_count};
    int pairs = scratch && classes && room ? 0 : -2, first = 0;
    if (!pairs) {
        find_classes(&p, scratch + job_count, size);
        qsort(classes, p.class_count, sizeof(TetrisClass), by_priority);
        set_penalties(&p, weight);
    }
    for (int c = 0; c < p.class_count; c++)
        room[c] = (double)classes[c].like->asks.memory;
    while (first < p.class_count) {
        int g = least_loaded(&p);
        if (g < 0)
            break;
        int *chosen = started + pairs; /* has room for the GPUs of one more job */
        int c = best_class(&p, first, g, window, chosen);
        if (c < 0) {
            gpus[g].open = 0; /* what does not fit now does not fit later */
            continue;
        }
        const TetrisJob *job = classes[c].like;
        int count = job->gpus, number = classes[c].first;
        enough(&p, job, g, chosen);
        for (int i = count - 1; i >= 0; i--) { /* spread the chosen GPUs to pairs, from behind */
            int of = chosen[i];
            take(job, &gpus[of], i ? NULL : host_of(&p, of)); /* one node has all of them */
            chosen[2 * i] = number;
            chosen[2 * i + 1] = of;
        }
        pairs += 2 * count;
        classes[c].first = p.next[number];
        if (classes[c].first < 0)
            room[c] = INFINITY;
        while (first < p.class_count && classes[first].first < 0)
            first++;
    }
    free(scratch), free(classes), free(room);
    return pairs / 2;
}
