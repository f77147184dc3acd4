/* The policy: the choices with the best scores of a network, compared by simulated plans.
 *
 * The score of a choice is its gain (`Choice.gain`) and the output of a network with two hidden
 * layers. Without weights the gain alone decides. */
#ifndef PARTITA_DECIDE_H
#define PARTITA_DECIDE_H

#include "choices.h"

enum { HIDDEN = 32, WEIGHTS = INPUTS * HIDDEN + HIDDEN + HIDDEN * HIDDEN + HIDDEN + HIDDEN + 1 };

typedef struct {
    const float *weights; /* [WEIGHTS], or NULL */
    double sharpness;     /* factor of the scores before the softmax of a training */
    double urgency;       /* as in `View` */
    double completion;    /* weight of the mean completion time of a plan, of 1 */
    double budget;        /* largest slowdown */
    int64_t work;         /* bound of the rates of sets computed for plans; 0: no plans */
} Settings;

/* A record of the choices of a simulation, for a training. */
typedef struct Record {
    float *inputs;   /* [rows][INPUTS] */
    float *gain;     /* [rows] */
    float *cost;     /* [rows]: what the rest of the simulation costs after the choice; NaN: not tried */
    int32_t *first;  /* [decisions + 1]: first row of each decision */
    int32_t *chosen; /* [decisions]: row */
    double *unit;    /* [decisions]: `unit` of the view */
    int32_t rows, decisions;
    int32_t most_rows, most_decisions;
    int32_t tried;   /* most choices of a decision that are tried */
    int32_t runs;    /* of each trial: the first without chance; the best one counts */
    uint64_t seed;   /* of the runs of this decision's trials: the same for all its choices */
    double chance;   /* that the choices of a decision are tried */
    const Settings *target; /* the settings by which a trial goes on */
    double (*cost_of)(const struct Record *record, const Problem *problem, const State *state,
                      const View *view, const Choice *choice);
    const void *of_trials; /* what `cost_of` needs */
} Record;

typedef struct {
    int32_t kind, gpu;
} Placement;

/* Decide what to start now, and start it in `state`. Sample from the softmax of the scores if there
 * is `random`, else take the best. Return the number of placements; -1: a score is no number; -2: no
 * memory. */
int decide(const Problem *problem, State *state, const Settings *settings, const View *view,
           uint64_t *random, Record *record, Placement *out);

/* Numbers of a reproducible sequence, uniform between 0 and 1. */
double uniform(uint64_t *random);

/* Compare choices by plans. Return the index of the one with which the best plan begins, and write what
 * else that plan starts now to `starts`, for at most `queued` jobs; -1: there is too little work left
 * for plans, or no memory. */
int best_plan(const Problem *problem, const State *state, const Settings *settings,
              const View *view, const Choice *const *some, int count, Placement *starts,
              int *started);

#endif
