#include "cluster.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "rates.h"

static const double OVERDUE = 0.05; /* least share of its work that a running job has left */
static const double ENOUGH = 1e-6;

double capacity_of(const Problem *problem, const State *state, int type) {
    double capacity = 1;
    for (int i = 0; i < problem->gpus; i++)
        if (state->gpu[i].type == type) capacity = fmax(1, (double)state->gpu[i].free.capacity);
    return capacity;
}

const Outlook *outlook_of(const Problem *problem, const Gpu *gpu, int kind) {
    return problem->outlook + (size_t)gpu->type * problem->kinds + kind;
}

void slower(const Problem *problem, const int *kinds, const Load *loads, int count, double *out) {
    double factors[JOBS * JOBS];
    if (problem->factors && count > 1) {
        for (int i = 0; i < count; i++)
            for (int j = 0; j < count; j++)
                factors[i * count + j] =
                    problem->factors[(size_t)problem->kind[kinds[i]].application *
                                         problem->applications +
                                     problem->kind[kinds[j]].application];
        slowdowns(loads, count, problem->sharing, factors, out);
    } else {
        slowdowns(loads, count, problem->sharing, NULL, out);
    }
}

int64_t *host_of(const State *state, const Gpu *gpu) {
    return state->host ? state->host + (size_t)gpu->node * HOST : NULL;
}

int fits(const Problem *problem, const Gpu *gpu, const int64_t *host, int kind) {
    if (gpu->free.jobs >= (problem->sharing == EXCLUSIVE ? 1 : JOBS) ||
        !has_room(problem->kind + kind, &gpu->free, host))
        return 0;
    return outlook_of(problem, gpu, kind)->allowed &&
           (!problem->eligible || problem->eligible[(size_t)kind * problem->nodes + gpu->node]);
}

static void run(Gpu *gpu, double now) {
    double seconds = now - gpu->since;
    for (int i = 0; i < gpu->free.jobs; i++) gpu->jobs[i].left -= seconds * gpu->jobs[i].speed;
    gpu->since = now;
}

static void set_speeds(const Problem *problem, Gpu *gpu) {
    int kinds[JOBS], phases[JOBS];
    double slow[JOBS];
    gpu->next = DBL_MAX;
    for (int i = 0; i < gpu->free.jobs; i++) {
        kinds[i] = gpu->jobs[i].kind;
        phases[i] = gpu->jobs[i].phase;
    }
    rates_of(problem, gpu->type, kinds, phases, gpu->free.jobs, slow);
    for (int i = 0; i < gpu->free.jobs; i++) {
        Running *job = gpu->jobs + i;
        job->speed = 1 / slow[i];
        if (!problem->kind[kinds[i]].lasting)
            gpu->next = fmin(gpu->next, gpu->since + job->left * slow[i]);
    }
}

void start(const Problem *problem, State *state, Gpu *gpu, int kind) {
    run(gpu, state->now);
    Running *job = gpu->jobs + gpu->free.jobs;
    *job = (Running){kind, 0, outlook_of(problem, gpu, kind)->phase[0].seconds, 1};
    hold(problem->kind + kind, &gpu->free, host_of(state, gpu), 1);
    state->running++;
    state->waiting[kind]--;
    state->queued--;
    gpu->next = -1; /* speeds are stale */
}

/* Whether the phase of a job ends now. After a very long time, a short rest is less than the least
 * step of the clock. */
static int is_over(const Gpu *gpu, const Running *job, const Outlook *outlook) {
    return job->left <= ENOUGH * outlook->duration ||
           gpu->since + job->left / job->speed <= gpu->since;
}

/* Begin the next phases of jobs whose phase has ended. Return how many jobs have ended. */
static int end_phases(const Problem *problem, State *state, Gpu *gpu) {
    int kept = 0, ended = 0, count = gpu->free.jobs;
    for (int i = 0; i < count; i++) {
        Running job = gpu->jobs[i];
        const Outlook *outlook = outlook_of(problem, gpu, job.kind);
        int last = job.phase + 1 >= outlook->phases;
        if (!problem->kind[job.kind].lasting && is_over(gpu, &job, outlook)) {
            if (last) {
                hold(problem->kind + job.kind, &gpu->free, host_of(state, gpu), -1);
                state->running--;
                ended++;
                continue;
            }
            job.left = outlook->phase[++job.phase].seconds;
        }
        gpu->jobs[kept++] = job;
    }
    gpu->next = -1;
    return ended;
}

int go_on(const Problem *problem, State *state, double until) {
    for (;;) {
        int first = -1;
        double when = until;
        for (int i = 0; i < problem->gpus; i++) {
            Gpu *gpu = state->gpu + i;
            if (!gpu->free.jobs) continue;
            if (gpu->next < 0) set_speeds(problem, gpu);
            if (gpu->next < when) {
                when = gpu->next;
                first = i;
            }
        }
        if (when == DBL_MAX) return -1;
        state->total += (when - state->now) * (state->queued + state->running);
        state->now = when;
        if (first < 0) return -1;
        run(state->gpu + first, when);
        if (end_phases(problem, state, state->gpu + first)) {
            state->makespan = when;
            return first;
        }
    }
}

/* Put a job at the place in its run after some work, with the least work left. */
static void put(const Outlook *outlook, Running *job, double done) {
    done = fmin(done, outlook->duration * (1 - OVERDUE));
    job->phase = 0;
    while (job->phase + 1 < outlook->phases && done >= outlook->phase[job->phase].seconds)
        done -= outlook->phase[job->phase++].seconds;
    job->left = fmax(outlook->phase[job->phase].seconds - done, ENOUGH);
}

void catch_up(const Problem *problem, Gpu *gpu, const double *since) {
    double done[JOBS] = {0}, slow[JOBS];
    double oldest = 0;
    for (int i = 0; i < gpu->free.jobs; i++) {
        oldest = fmax(oldest, since[i]);
        put(outlook_of(problem, gpu, gpu->jobs[i].kind), gpu->jobs + i, 0);
    }
    for (double ago = oldest; ago > ENOUGH;) {
        double step = ago;
        Load loads[JOBS];
        int kinds[JOBS], who[JOBS], count = 0;
        for (int i = 0; i < gpu->free.jobs; i++) {
            if (since[i] < ago - ENOUGH) {
                step = fmin(step, ago - since[i]);
                continue;
            }
            kinds[count] = gpu->jobs[i].kind;
            loads[count] =
                outlook_of(problem, gpu, kinds[count])->phase[gpu->jobs[i].phase].load;
            who[count++] = i;
        }
        slower(problem, kinds, loads, count, slow);
        for (int j = 0; j < count; j++) {
            const Running *job = gpu->jobs + who[j];
            const Outlook *outlook = outlook_of(problem, gpu, job->kind);
            int overdue = done[who[j]] >= outlook->duration * (1 - OVERDUE); /* it stays there */
            if (job->phase + 1 < outlook->phases && !overdue)
                step = fmin(step, fmax(job->left * slow[j], 1e-3 * outlook->duration));
        }
        for (int j = 0; j < count; j++) {
            Running *job = gpu->jobs + who[j];
            if (problem->kind[job->kind].lasting) continue;
            done[who[j]] += step / slow[j];
            put(outlook_of(problem, gpu, job->kind), job, done[who[j]]);
        }
        ago -= step;
    }
    gpu->next = -1;
}

double left_of(const Problem *problem, const Gpu *gpu, const Running *job) {
    const Outlook *outlook = outlook_of(problem, gpu, job->kind);
    double left = fmax(job->left, ENOUGH * outlook->duration);
    for (int phase = job->phase + 1; phase < outlook->phases; phase++)
        left += outlook->phase[phase].seconds;
    return left;
}

double rest_of(const Problem *problem, const Gpu *gpu, const Running *job, Load *mean) {
    const Outlook *outlook = outlook_of(problem, gpu, job->kind);
    if (problem->kind[job->kind].lasting || outlook->phases == 1) {
        *mean = outlook->mean;
        return fmax(job->left, ENOUGH * outlook->duration);
    }
    double sums[LOAD_FIELDS] = {0}, seconds = 0;
    for (int phase = job->phase; phase < outlook->phases; phase++) {
        double part = outlook->phase[phase].seconds;
        if (phase == job->phase) part = fmax(job->left, ENOUGH * outlook->duration);
        const LoadAmount *amounts = (const LoadAmount *)&outlook->phase[phase].load;
        for (int i = 0; i < LOAD_FIELDS; i++) sums[i] += part * amounts[i];
        seconds += part;
    }
    LoadAmount *out = (LoadAmount *)mean;
    for (int i = 0; i < LOAD_FIELDS; i++) out[i] = (LoadAmount)(sums[i] / seconds);
    return seconds;
}
