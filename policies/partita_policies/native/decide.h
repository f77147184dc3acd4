/* The policy: the choices with the best scores of a network, compared by simulated plans.
 *
 * The score of a choice is its gain (`Choice.gain`) and the output of a network with two hidden
 * layers. Without weights the gain alone decides. */
#ifndef PARTITA_DECIDE_H
#define PARTITA_DECIDE_H

#include "choices.h"

enum { HIDDEN = 32, WEIGHTS = FEATURES * HIDDEN + HIDDEN + HIDDEN * HIDDEN + HIDDEN + HIDDEN + 1 };

typedef struct {
    const float *weights; /* [WEIGHTS], or NULL */
    double sharpness;     /* factor of the scores before the softmax of a training */
    double urgency;       /* as in `View` */
    double completion;    /* weight of the mean completion time of a plan, of 1 */
    double budget;        /* largest slowdown */
    int64_t work;         /* bound of the rates of sets computed for plans; 0: no plans */
} Settings;

/* A record of the choices of a simulation, for a training. */
typedef struct {
    float *features; /* [rows][FEATURES] */
    float *gain;     /* [rows] */
    int32_t *first;  /* [decisions + 1]: first row of each decision */
    int32_t *chosen; /* [decisions]: row */
    double *time, *total; /* [decisions] */
    int32_t rows, decisions;
    int32_t most_rows, most_decisions;
} Record;

typedef struct {
    int32_t kind, gpu;
} Placement;

/* Decide what to start now, and start it in `state`. Sample from the softmax of the scores if there
 * is `random`, else take the best. Return the number of placements; -1: a score is no number; -2: no
 * memory. */
int decide(const Problem *problem, State *state, const Settings *settings, View *view,
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
