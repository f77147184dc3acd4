/* Plans: simulations to the end of all jobs by the rule `best_kind`, each with weights of its own.
 *
 * Even plans weight the work of a kind by its dual, odd ones by the largest share that it takes of any
 * resource of a GPU; the first of both as they are, the others perturbed. */
#include "decide.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEWEST = 16, PLANS = 32 }; /* for each choice; fewer say less than the network */
static const double LEAST = 0.02; /* work per second that a job must add; less is an error of any
                                     model */
static const double SPREAD = 0.4; /* of the logarithms of the perturbed duals */
static const double TILT = 0.3;   /* spread of the exponents with which plans favour long jobs */

typedef struct {
    const Problem *problem;
    const Settings *settings;
    const View *view;
    double *dual, *worth; /* [types][kinds]: weights of a plan */
    uint8_t *closed;       /* [gpus]: no waiting job is worth starting there */
} Planner;

static double gauss(uint64_t *random) {
    double radius = sqrt(-2 * log(uniform(random)));
    return radius * cos(6.283185307179586 * uniform(random));
}

/* The perturbation depends on what the jobs of a kind are, not on how many there are: so the next
 * decision finds the rest of a good plan again. */
static double perturbed(const Planner *planner, int kind, int number) {
    const Outlook *one = planner->problem->outlook + kind;
    uint64_t bits, of_plan = (uint64_t)number, random;
    double told[] = {one->duration, one->mean.sm, (double)planner->problem->kind[kind].memory};
    random = of_plan;
    for (int i = 0; i < 3; i++) {
        memcpy(&bits, told + i, sizeof bits);
        random ^= bits;
        uniform(&random);
    }
    double tilt = TILT * gauss(&of_plan), length = one->duration / planner->view->unit;
    return exp(SPREAD * gauss(&random) + tilt * log(fmax(length, 1e-3)));
}

static void set_weights(const Planner *planner, const State *state, int number) {
    const Problem *problem = planner->problem;
    for (int type = 0; type < problem->types; type++) {
        double capacity = capacity_of(problem, state, type);
        for (int k = 0; k < problem->kinds; k++) {
            size_t at = (size_t)type * problem->kinds + k;
            const Outlook *one = problem->outlook + at;
            const Kind *kind = problem->kind + k;
            double dual = planner->view->dual[at];
            if (number % 2)
                dual = kind->alone ? 1
                                    : fmin(1, fmax(kind->memory / capacity,
                                                   fmax(one->mean.sm, one->mean.pcie)));
            if (number > 1 && state->waiting[k]) dual *= perturbed(planner, k, number);
            planner->dual[at] = dual;
            planner->worth[at] = worth_of(planner->view, dual, one->duration);
        }
    }
}

/* Start the best job for a GPU; return its kind, or -1. */
static int add(const Planner *planner, State *state, int place) {
    Gpu *gpu = state->gpu + place;
    int kind = state->queued ? best_kind(planner->problem, state, planner->view, planner->dual,
                                         planner->worth, gpu, LEAST)
                             : -1;
    if (kind >= 0) start(planner->problem, state, gpu, kind);
    return kind;
}

/* Start jobs now, each time on the GPU with the fewest. Return how many. */
static int fill(const Planner *planner, State *state, Placement *started) {
    int count = 0, gpus = planner->problem->gpus;
    memset(planner->closed, 0, gpus);
    while (state->queued) {
        int place = -1;
        for (int i = 0; i < gpus; i++)
            if (!planner->closed[i] &&
                (place < 0 || state->gpu[i].free.jobs < state->gpu[place].free.jobs))
                place = i;
        if (place < 0) break;
        int kind = add(planner, state, place);
        planner->closed[place] = kind < 0;
        if (kind >= 0) started[count++] = (Placement){kind, place};
    }
    return count;
}

static double cost_to_end(const Planner *planner, State *state) {
    double jobs = fmax(1, state->queued + state->running), now = state->now;
    double before = state->total, completion = planner->settings->completion;
    for (int place; (place = go_on(planner->problem, state, DBL_MAX)) >= 0;)
        while (add(planner, state, place) >= 0) {}
    double late = state->queued * planner->view->unit; /* jobs that never start */
    return (1 - completion) * (state->makespan - now + late) +
           completion * ((state->total - before) / jobs + late);
}

int best_plan(const Problem *problem, const State *state, const Settings *settings,
              const View *view, const Choice *const *some, int count, Placement *starts,
              int *started) {
    int waiting = 0, cells = problem->types * problem->kinds, best = -1;
    for (int k = 0; k < problem->kinds; k++) waiting += state->waiting[k] > 0;
    int64_t each = (int64_t)(state->queued + state->running) * (2 + waiting);
    int64_t most = settings->work / (each * count);
    int plans = most < PLANS ? (int)most : PLANS;
    if (plans < FEWEST) return -1;
    size_t hosts = state->host ? (size_t)problem->nodes * HOST : 0;
    Planner planner = {problem, settings, view, malloc(sizeof(double) * cells),
                       malloc(sizeof(double) * cells), malloc(problem->gpus)};
    Gpu *gpus = malloc(sizeof(Gpu) * problem->gpus);
    int32_t *waits = malloc(sizeof(int32_t) * problem->kinds);
    int64_t *host = malloc(sizeof(int64_t) * (hosts + 1));
    Placement *these = malloc(sizeof(Placement) * (state->queued + 1));
    double least = DBL_MAX;
    int there = planner.dual && planner.worth && planner.closed && gpus && waits && host && these;
    for (int p = 0; p < plans && there; p++) {
        set_weights(&planner, state, p);
        for (int c = 0; c < count; c++) {
            State then = *state;
            then.gpu = memcpy(gpus, state->gpu, sizeof(Gpu) * problem->gpus);
            then.waiting = memcpy(waits, state->waiting, sizeof(int32_t) * problem->kinds);
            if (hosts) then.host = memcpy(host, state->host, sizeof(int64_t) * hosts);
            for (int i = 0; i < some[c]->size; i++)
                start(problem, &then, gpus + some[c]->gpu, some[c]->kinds[i]);
            int now = some[c]->size ? fill(&planner, &then, these) : 0;
            double cost = cost_to_end(&planner, &then);
            if (cost >= least * (1 - 1e-9)) continue;
            least = cost;
            best = c;
            *started = now;
            memcpy(starts, these, sizeof(Placement) * now);
        }
    }
    free(planner.dual), free(planner.worth), free(planner.closed);
    free(gpus), free(waits), free(host), free(these);
    return best;
}
