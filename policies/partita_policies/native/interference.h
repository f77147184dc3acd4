/* How much jobs that share a GPU slow each other down; see docs/interference.md. */
#ifndef PARTITA_INTERFERENCE_H
#define PARTITA_INTERFERENCE_H

enum { MOST_JOBS = 128 }; /* on a GPU: the largest maxJobs of a partition */
enum { EXCLUSIVE = 0, TIME_SLICING = 1, MPS = 2 }; /* how jobs share a GPU */

typedef double LoadAmount;

/* Load of a job that is alone on the GPU. Every amount but `memory` is a share. */
typedef struct {
    LoadAmount busy;      /* of the time in which a kernel runs */
    LoadAmount sm;        /* of the SMs' throughput */
    LoadAmount pcie;      /* of the link */
    LoadAmount memory;    /* GiB in use */
    LoadAmount cache;     /* sensitivity to a shared cache */
    LoadAmount limit;     /* of the SMs that it may use */
    LoadAmount bandwidth; /* of the memory's bandwidth */
} Load;
enum { LOAD_FIELDS = 7 };

/* Resource use of an application, as `types.Step`: percent, bytes and bytes per second. */
typedef struct {
    double gpu, memory, core, pcie, bandwidth;
} Step;

/* The share of the SMs' throughput that a step uses. */
double sm_share(const Step *step);

/* The load of a step on a GPU with this many bytes per second over PCIe, 0 if unknown. */
void load_of(const Step *step, double link, double cache, double limit, Load *out);

/* The share of the time in which a GPU is busy with jobs of these loads and slowdowns. */
double utilization(const Load *loads, const double *slow, int count, int sharing);

/* The slowdown of each of at most MOST_JOBS jobs on one GPU, at least 1.
 *
 * pair_factors[i * count + j]: by how much job i beside job j is slower than predicted, as the
 * cluster has seen; NULL if it has seen nothing. */
void slowdowns(const Load *loads, int count, int sharing, const double *pair_factors, double *out);

/* The slowdowns of jobs that share one resource of size 1 fairly. */
void stretches(const double *demands, int count, double *out);

#endif
