#include "images.h"

#include <math.h>

static const double REACH = 4;    /* mean durations that an image covers */
static const double BRIGHT = 0.2; /* of a whole GPU. Assumed: with 1 the images outweigh the few
                                     numbers of the prediction, which say more */

/* Add a job that is in a phase, with some work of it left, if it is not slowed down. */
static void add(const Problem *problem, const Gpu *gpu, int kind, int phase, double left,
                double unit, double weight, float *image) {
    const Outlook *outlook = outlook_of(problem, gpu, kind);
    const Kind *asked = problem->kind + kind;
    double capacity = fmax(1, (double)gpu->free.capacity);
    weight *= BRIGHT;
    double memory = asked->alone ? 1 : fmin(1, asked->memory / capacity), end = left;
    for (int step = 0; step < STEPS; step++, image += RESOURCES) {
        double at = (step + 0.5) * (REACH / STEPS) * unit;
        while (at >= end && !asked->lasting) {
            if (++phase >= outlook->phases) return;
            end += outlook->phase[phase].seconds;
        }
        const Load *load = &outlook->phase[phase].load;
        image[0] += (float)(weight * load->busy);
        image[1] += (float)(weight * load->sm);
        image[2] += (float)(weight * load->pcie);
        image[3] += (float)(weight * memory);
    }
}

void add_waiting(const Problem *problem, const Gpu *gpu, int kind, double unit, double weight,
                 float *image) {
    add(problem, gpu, kind, 0, outlook_of(problem, gpu, kind)->phase[0].seconds, unit, weight,
        image);
}

void add_running(const Problem *problem, const Gpu *gpu, const Running *job, double unit,
                 float *image) {
    add(problem, gpu, job->kind, job->phase, job->left, unit, 1, image);
}
