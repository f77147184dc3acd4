/* Whole decisions and whole workloads, for Python. */
#ifndef PARTITA_PLAY_H
#define PARTITA_PLAY_H

#include "decide.h"

/* Jobs that arrive. */
typedef struct {
    int32_t kind;
    int32_t unused;
    double time;
} Arrival;

/* Decide on a snapshot. `since` has the seconds since the start of each running job, [gpus]
 * [JOBS]. As `decide`. */
int decide_once(const Problem *problem, State *state, const Settings *settings,
                const double *since, Placement *out);

/* Simulate a workload on idle GPUs to its end. `seed` 0: the best choices, without chance. `result`:
 * makespan and sum of the completion times. As `decide`. */
int play(const Problem *problem, const State *initial, const Arrival *arrivals, int count,
         const Settings *settings, uint64_t seed, Record *record, double *result);

#endif
