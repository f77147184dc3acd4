#include "interference.h"

#include <math.h>

static const double SWITCH_OVERHEAD = 1.071; /* interference.py has the sources */
static const double CACHE_STRENGTH = 0.579;
static const double CACHE_EXPONENT = 0.949;
static const double CACHE_BOUND = 1.5;
static const double CACHE_FULL = 2.73; /* GiB of two jobs from which on the bound applies */
static const double SM_OF_BUSY = 0.84;
static const double SM_SATURATION = 0.6;
static const double ENOUGH = 1e-9;
static const double GIB = 1 << 30;

double sm_share(const Step *step) {
    double busy = fmin(step->gpu / 100, 1);
    return step->core ? fmin(busy, step->core / (100 * SM_SATURATION)) : SM_OF_BUSY * busy;
}

void load_of(const Step *step, double link, double cache, double limit, Load *out) {
    *out = (Load){
        .busy = fmin(step->gpu / 100, 1),
        .sm = sm_share(step),
        .pcie = link ? fmin(step->pcie / link, 1) : 0,
        .memory = step->memory / GIB,
        .cache = cache,
        .limit = limit,
        .bandwidth = fmin(step->bandwidth / 100, 1),
    };
}

/* Waiting extends the time in which a job's kernels run, not the rest of its time. Under MPS
 * kernels overlap at random. Otherwise they take turns. */
double utilization(const Load *loads, const double *slow, int count, int sharing) {
    double idle = 1, turns = 0;
    for (int i = 0; i < count; i++) {
        idle *= (1 - loads[i].busy) / slow[i];
        turns += loads[i].busy / slow[i];
    }
    return sharing == MPS ? 1 - idle : fmin(1, (count > 1 ? SWITCH_OVERHEAD : 1) * turns);
}

/* A job that uses the resource for a share d of its time waits for it in proportion to d: its
 * slowdown is 1 + k d, with the k for which the resource is exactly full. */
void stretches(const double *demands, int count, double *out) {
    double total = 0, k = 0, share[MOST_JOBS];
    for (int i = 0; i < count; i++) {
        total += demands[i];
        share[i] = demands[i];
    }
    /* Newton's method for the inverse of the sum, which is nearly linear. Its curvature prevents
     * overshooting. The first step is exact if all demands are equal. */
    while (total > 1 + ENOUGH) {
        double squares = 0;
        for (int i = 0; i < count; i++) squares += share[i] * share[i];
        k += total * (total - 1) / squares;
        total = 0;
        for (int i = 0; i < count; i++) total += share[i] = demands[i] / (1 + k * demands[i]);
    }
    for (int i = 0; i < count; i++) out[i] = 1 + k * demands[i];
}

/* Add the slowdown that the other jobs' use of the cache adds to each job. */
static void add_cache_misses(const Load *loads, int count, double *out) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            double both = loads[i].cache * loads[i].busy * loads[j].cache * loads[j].busy;
            if (!both) continue;
            double memory = loads[i].memory + loads[j].memory;
            /* `pow` takes most of the time here, and nearly all pairs are at the bound. */
            both *= memory > CACHE_FULL ? CACHE_BOUND
                                        : fmin(CACHE_STRENGTH * pow(memory, CACHE_EXPONENT), CACHE_BOUND);
            out[i] += both;
            out[j] += both;
        }
}

void slowdowns(const Load *loads, int count, int sharing, const double *pair_factors, double *out) {
    double demand[MOST_JOBS], link[MOST_JOBS], by_sm[MOST_JOBS], by_memory[MOST_JOBS];
    for (int i = 0; i < count; i++) demand[i] = loads[i].pcie;
    stretches(demand, count, link);
    if (sharing == MPS) {
        for (int i = 0; i < count; i++) demand[i] = fmin(loads[i].sm, loads[i].limit);
        stretches(demand, count, by_sm);
        for (int i = 0; i < count; i++) demand[i] = loads[i].bandwidth;
        stretches(demand, count, by_memory);
        for (int i = 0; i < count; i++) {
            double kernels = fmax(by_sm[i], loads[i].sm / loads[i].limit);
            out[i] = fmax(kernels, by_memory[i]) + link[i] - 1;
        }
        add_cache_misses(loads, count, out);
    } else {
        double overhead = count > 1 ? SWITCH_OVERHEAD : 0;
        for (int i = 0; i < count; i++) demand[i] = loads[i].busy * overhead;
        stretches(demand, count, by_sm);
        for (int i = 0; i < count; i++) out[i] = by_sm[i] + link[i] - 1;
    }
    if (!pair_factors) return;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < count; j++)
            if (i != j) out[i] *= pair_factors[i * count + j];
        out[i] = fmax(1, out[i]);
    }
}
