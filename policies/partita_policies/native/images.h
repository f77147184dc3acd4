/* Images of what jobs take of a GPU over time, as in the DqnGPU study (J. Oh, "A Job Placement Using
 * Reinforcement Learning in GPU Virtualization Environment", 2019, section IV.2): a row for each step
 * of time, a column for each of the four resources that it measures. The image of several jobs is
 * their sum, so that their order and number do not matter. */
#ifndef PARTITA_IMAGES_H
#define PARTITA_IMAGES_H

#include "cluster.h"

enum {
    STEPS = 8,     /* rows */
    RESOURCES = 4, /* share of the time in which a kernel runs, SMs, PCIe link and memory */
    IMAGE = STEPS * RESOURCES
};

/* Add a job that begins now to an image. `unit`: mean seconds of a job. */
void add_waiting(const Problem *problem, const Gpu *gpu, int kind, double unit, double weight,
                 float *image);

/* Add what a running job has left. */
void add_running(const Problem *problem, const Gpu *gpu, const Running *job, double unit,
                 float *image);

#endif
