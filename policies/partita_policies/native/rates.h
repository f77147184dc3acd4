/* Slowdowns of sets of jobs, kept: simulated plans ask for the same ones again and again. */
#ifndef PARTITA_RATES_H
#define PARTITA_RATES_H

#include "cluster.h"

enum { WHOLE = PHASES }; /* in place of a phase: the mean of the whole run */

/* Return room for what `rates_of` keeps; NULL without memory. The caller frees it. */
Rates *new_rates(void);

/* The slowdown of each of `count` jobs of these kinds and phases on one GPU of a type. */
void rates_of(const Problem *problem, int type, const int *kinds, const int *phases, int count,
              double *out);

#endif
