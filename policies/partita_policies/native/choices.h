/* What can be started on a GPU now, and what is known about each choice.
 *
 * A choice is a set of kinds of which one job each starts on one GPU, or to wait. */
#ifndef PARTITA_CHOICES_H
#define PARTITA_CHOICES_H

#include "cluster.h"
#include "duals.h"
#include "images.h"

enum { FEATURES = 32, INPUTS = FEATURES + 3 * IMAGE, WINDOW = 64 };

/* The jobs as a whole, once for a decision. */
typedef struct {
    Programme *programmes; /* [types]: of all work */
    int *group;            /* [types][kinds]: of similar jobs, in the programme of the type */
    double *dual;          /* [types][kinds]: of a second of work */
    double *worth;         /* [types][kinds]: of a second of a waiting job's work, by the objective */
    double urgency;        /* 0: worth is the dual; 1: it is the inverse of the work left */
    double scale;          /* of worths: that of the best waiting job is 1 */
    double unit;           /* mean seconds of a job */
    double bound;          /* least seconds for all work */
    double sm, memory;     /* mean use and allocation of the waiting work */
    double longest;        /* seconds of the longest waiting job */
    double idle;           /* share of the GPUs without jobs */
    double budget;         /* largest slowdown of a job */
    double fullness;       /* share of the memory that is allocated */
    int images;            /* whether choices are described by images, too: for a network */
} View;

typedef struct {
    int32_t gpu, size; /* no jobs: wait */
    int32_t kinds[SET];
    double gain; /* worth of the work per second that it adds */
    /* Of the prediction; then the images of the GPU, of the jobs of this choice, and of the mean of the
     * other waiting jobs that fit. */
    float inputs[INPUTS];
    float score;
} Choice;

/* Write the programmes of all work to a view. */
void set_programmes(const Problem *problem, const State *state, View *view);

/* Compute the duals and sums of a view that has its programmes. */
void update_view(const Problem *problem, const State *state, View *view);

/* Find the best `most` choices of up to `size` jobs for a GPU, by their gain, among the first
 * `window` kinds that fit it, at most WINDOW. */
int choices(const Problem *problem, const State *state, const View *view, int gpu, int most,
            int size, int window, Choice *out);

/* The worth of a second of work of a job that has `left` seconds, from its dual. */
double worth_of(const View *view, double dual, double left);

/* The choice to start no job, described by this GPU. */
void waiting(const Problem *problem, const State *state, const View *view, int gpu, Choice *out);

/* The kind that adds most worth to the work on a GPU; -1 if none adds as much as `least`.
 *
 * dual, worth: [types][kinds], in place of those of the view. */
int best_kind(const Problem *problem, const State *state, const View *view, const double *dual,
              const double *worth, const Gpu *gpu, double least);

#endif
