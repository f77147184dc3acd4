/* Duals: what a second of each job's work is worth, derived from all waiting and running work.
 *
 * If jobs could be interrupted at any time, the shortest time for all work would be the solution
 * of a linear programme. Its variables are the times for which each set of jobs that fits a GPU
 * runs. The dual of a job is the increase of the makespan for one more second of the job's work.
 * The dual value of the work that a set does in a second is at most 1, and exactly 1 for the sets
 * of the shortest schedule. A job that runs well with few others has a high dual.
 *
 * The programme has a constraint for each group of similar jobs and a variable for each set of
 * groups. The revised simplex method solves it in a few dozen steps; each adds the set with the
 * highest value at the current duals (P. Gilmore, R. Gomory, "A Linear Programming Approach to the
 * Cutting-Stock Problem", Operations Research 9, 1961). At the end the duals are scaled so that
 * the value of no set exceeds 1: they are a lower bound on the time also if it stops early. */
#ifndef PARTITA_DUALS_H
#define PARTITA_DUALS_H

#include "cluster.h"

enum {
    GROUPS = 10, /* most groups of similar jobs; ten have about a thousand sets of four jobs */
    SET = 4,     /* most jobs in a set; larger sets add little and cost time */
    SETS = 1001  /* sets of up to SET jobs of GROUPS groups */
};

/* The constraints: which sets of groups fit a GPU, and how fast their jobs run. */
typedef struct {
    int groups, sets;
    double rate[SETS][GROUPS]; /* work per second of each group in each set */
    int alone[GROUPS];         /* the set of one job of each group */
} Programme;

/* Combine kinds into at most GROUPS groups and rate all sets.
 *
 * loads, memory, work: mean load, allocated share of the GPU and seconds of work of each kind.
 * of: the group of each kind. */
void programme(Programme *out, const Load *loads, const double *memory, const double *work,
               int kinds, int sharing, int *of);

/* Compute the dual of each group from the seconds of work of each. */
void solve_duals(const Programme *programme, const double *work, double *dual);

#endif
