/* The runs of a simulation between two decisions: their paces, parts and memory.
 *
 * partita_policies/simulator/runs.py owns the arrays and makes the calls. Times and work are in
 * seconds, memory is in bytes. Work is the time of a run alone on a GPU of speed 1. A part of a run
 * is a sequence of equal steps of its application: the load of a GPU changes only when a part ends
 * or a run starts or ends, so paces are computed only then. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "interference.h"

static const double INSTANT = 1e-6; /* events so close are simultaneous: rounding parts none */

typedef struct {
    int32_t run, gpu;
    double limit; /* share of the SMs that the run may use here */
    double pace;  /* seconds that a second of work takes, as far as this GPU matters */
} Place;

typedef struct {
    const Step *step; /* [steps] of equal work; the last one of a lasting run has no end */
    double duration, cache;
    double done;        /* work done at `since` */
    double since, pace; /* seconds that a second of work takes; 0 before the first one */
    double ends;        /* when its current part does, at this pace */
    int64_t memory;     /* in use on each of its GPUs */
    int64_t ceiling;    /* most that it may have there */
    int32_t steps, part, next; /* first step of the current part and of the next one */
    int32_t place, places;     /* first one and number */
    int32_t active;
} Run;

typedef struct {
    double speed, link; /* bytes per second over PCIe, 0 if unknown */
    double next;        /* when the first part of a run here ends */
    int64_t memory;
    int64_t version; /* number of the event that set `next` */
    int32_t count, changed;
    int32_t places[MOST_JOBS]; /* of its runs, in the order of their starts */
} GPU;

typedef struct {
    double time, busy;
    int64_t memory;
    int32_t gpu, unused;
} Reading;

typedef struct {
    double now, horizon; /* horizon: end of this instant */
    int64_t versions;
    int32_t sharing, gpus;
    int32_t changes, asked, answered, finishes, readings, most_readings; /* lengths of arrays */
    GPU *gpu;          /* [gpus] */
    Run *run;          /* one of each job */
    Place *place;      /* one of each job and each of its GPUs */
    int32_t *changed;  /* [gpus] whose paces are to be computed */
    int32_t *asking;   /* runs that request memory */
    int32_t *finished; /* runs that finished since `advance` was called ... */
    double *finish;    /* ... and when */
    Reading *reading;  /* [most_readings] */
} Simulation;

static void change(Simulation *s, int gpu) {
    if (s->gpu[gpu].changed) return;
    s->gpu[gpu].changed = 1;
    s->changed[s->changes++] = gpu;
}

static void begin_part(Run *run, int step) {
    run->part = run->next = step;
    const Step *first = run->step + step;
    for (const Step *other = first; run->next < run->steps; run->next++, other++)
        if (other->gpu != first->gpu || other->memory != first->memory ||
            other->core != first->core || other->pcie != first->pcie ||
            other->bandwidth != first->bandwidth)
            return;
}

static int64_t wanted(const Run *run) { return (int64_t)run->step[run->part].memory; }

static double end_of_part(const Run *run) { return run->duration * run->next / run->steps; }

/* Start a run, whose steps, places, and constants are set, with some of its work done. */
void begin_run(Simulation *s, int number, double done) {
    Run *run = s->run + number;
    int step = done > 0 && done < run->duration ? (int)(done / run->duration * run->steps) : 0;
    begin_part(run, step < run->steps ? step : run->steps - 1);
    run->done = done;
    run->pace = 0;
    run->since = s->now;
    run->ends = INFINITY;
    run->memory = 0;
    run->active = 1;
    for (int i = run->place; i < run->place + run->places; i++) {
        GPU *gpu = s->gpu + s->place[i].gpu;
        s->place[i].pace = 0;
        s->place[i].run = number;
        gpu->places[gpu->count++] = i;
        change(s, s->place[i].gpu);
    }
    s->asking[s->asked++] = number;
}

/* End a run. */
void end_run(Simulation *s, int number) {
    Run *run = s->run + number;
    run->active = 0;
    for (int i = run->place; i < run->place + run->places; i++) {
        GPU *gpu = s->gpu + s->place[i].gpu;
        int kept = 0;
        for (int j = 0; j < gpu->count; j++)
            if (gpu->places[j] != i) gpu->places[kept++] = gpu->places[j];
        gpu->count = kept;
        change(s, s->place[i].gpu);
    }
}

static int64_t used(const Simulation *s, const GPU *gpu) {
    int64_t sum = 0;
    for (int i = 0; i < gpu->count; i++) sum += s->run[s->place[gpu->places[i]].run].memory;
    return sum;
}

/* Grant the memory that a run requests, if it may have it and it is free. */
static int grant(Simulation *s, Run *run) {
    int64_t bytes = wanted(run);
    if (bytes > run->ceiling) return 0;
    for (int i = run->place; i < run->place + run->places; i++) {
        const GPU *gpu = s->gpu + s->place[i].gpu;
        if (bytes + used(s, gpu) - run->memory > gpu->memory) return 0;
    }
    run->memory = bytes;
    return 1;
}

static int loads_on(const Simulation *s, const GPU *gpu, Load *loads) {
    for (int i = 0; i < gpu->count; i++) {
        const Place *place = s->place + gpu->places[i];
        const Run *run = s->run + place->run;
        load_of(run->step + run->part, gpu->link, run->cache, place->limit, loads + i);
    }
    return gpu->count;
}

/* Set the pace that one of its GPUs permits: the slowest GPU counts. */
static void set_pace(Simulation *s, Place *place, double pace) {
    Run *run = s->run + place->run;
    place->pace = pace;
    for (int i = run->place; i < run->place + run->places; i++)
        pace = fmax(pace, s->place[i].pace);
    if (pace == run->pace && run->ends != INFINITY) return;
    if (run->pace) run->done += (s->now - run->since) / run->pace;
    run->since = s->now;
    run->pace = pace;
    double left = end_of_part(run) - run->done;
    run->ends = left > 0 ? s->now + left * pace : s->now;
}

static void set_paces(Simulation *s, const GPU *gpu) {
    Load loads[MOST_JOBS];
    double slow[MOST_JOBS];
    slowdowns(loads, loads_on(s, gpu, loads), s->sharing, NULL, slow);
    for (int i = 0; i < gpu->count; i++)
        set_pace(s, s->place + gpu->places[i], slow[i] / gpu->speed);
}

/* Record the state of a GPU, and when its next event is. */
static void read(Simulation *s, int number) {
    GPU *gpu = s->gpu + number;
    Load loads[MOST_JOBS];
    double slow[MOST_JOBS];
    gpu->next = INFINITY;
    for (int i = 0; i < gpu->count; i++) {
        const Run *run = s->run + s->place[gpu->places[i]].run;
        slow[i] = run->pace * gpu->speed;
        gpu->next = fmin(gpu->next, run->ends);
    }
    double busy = utilization(loads, slow, loads_on(s, gpu, loads), s->sharing);
    s->reading[s->readings++] = (Reading){s->now, busy, used(s, gpu), number, 0};
    gpu->version = ++s->versions;
    gpu->changed = 0;
}

/* Grant the memory requests in order, and then compute the paces on changed GPUs. If the memory
 * for a request is not free, return its run: the request comes up again in the next call, unless
 * the run has ended. Return -1 when all is done. */
int settle(Simulation *s) {
    for (; s->answered < s->asked; s->answered++) {
        Run *run = s->run + s->asking[s->answered];
        if (run->active && !grant(s, run)) return s->asking[s->answered];
    }
    s->answered = s->asked = 0;
    for (int i = 0, count = s->changes; i < count; i++) {
        const GPU *gpu = s->gpu + s->changed[i];
        set_paces(s, gpu);
        for (int j = 0; j < gpu->count; j++) { /* runs here that have other GPUs, too */
            const Run *run = s->run + s->place[gpu->places[j]].run;
            for (int k = run->place; k < run->place + run->places; k++) change(s, s->place[k].gpu);
        }
    }
    for (int i = 0; i < s->changes; i++) read(s, s->changed[i]);
    s->changes = 0;
    return -1;
}

/* The GPU of the next event; of simultaneous ones the one whose event was known first. -1: none. */
static int earliest(const Simulation *s) {
    int first = -1;
    double time = INFINITY;
    for (int i = 0; i < s->gpus; i++) {
        const GPU *gpu = s->gpu + i;
        if (gpu->next < time ||
            (gpu->next == time && first >= 0 && gpu->version < s->gpu[first].version)) {
            time = gpu->next;
            first = i;
        }
    }
    return first;
}

/* Begin the next part of the runs of a GPU whose part ends in this instant, or end them. */
static void end_parts(Simulation *s, GPU *gpu) {
    int due[MOST_JOBS], count = 0;
    gpu->next = INFINITY;
    for (int i = 0; i < gpu->count; i++) {
        int number = s->place[gpu->places[i]].run;
        if (s->run[number].ends <= s->horizon) due[count++] = number;
    }
    for (int i = 0; i < count; i++) {
        Run *run = s->run + due[i];
        for (int j = run->place; j < run->place + run->places; j++) change(s, s->place[j].gpu);
        run->done = end_of_part(run);
        run->since = s->now;
        run->ends = INFINITY;
        if (run->next == run->steps) {
            end_run(s, due[i]);
            s->finished[s->finishes] = due[i];
            s->finish[s->finishes++] = s->now;
            continue;
        }
        begin_part(run, run->next);
        if (wanted(run) > run->memory)
            s->asking[s->asked++] = due[i];
        else
            run->memory = wanted(run);
    }
}

/* Handle the events of one instant after the other. Return after one with a memory request that
 * `settle` cannot grant, after that of a time (the next arrival), when there is no room for more
 * readings, and after the given number of finishes, of which 0 is reached at once. Return whether
 * there was an event. */
int advance(Simulation *s, double until, int finishes) {
    s->finishes = 0;
    for (;;) {
        int first = earliest(s);
        double time = first < 0 ? until : fmin(s->gpu[first].next, until);
        if (time == INFINITY) return s->finishes > 0;
        s->now = fmax(s->now, time);
        s->horizon = time + INSTANT;
        for (; first >= 0 && s->gpu[first].next <= s->horizon; first = earliest(s))
            end_parts(s, s->gpu + first);
        if (settle(s) >= 0 || until <= s->horizon || s->finishes >= finishes ||
            s->readings > s->most_readings - 2 * s->gpus)
            return 1;
    }
}
