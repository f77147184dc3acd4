/* Plans: simulations to the end of all jobs by the rule `best_kind` with perturbed prices.
 *
 * The cost of a choice is the mean of the best quarter of the plans that begin with it: it is the
 * start of several good plans, not of one that is good by chance. */
#include "decide.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LEAST = 0.02; /* work per second that a job must add; less is an error of any
                                     model */

static void fill(const Problem *problem, State *state, const View *view, const double *price,
                 const double *worth, Gpu *gpu) {
    int kind;
    while (state->queued &&
           (kind = best_kind(problem, state, view, price, worth, gpu, LEAST)) >= 0)
        start(problem, state, gpu, kind);
}

static double plan(const Problem *problem, State *state, const Settings *settings,
                   const View *view, const double *price, const double *worth, int refill) {
    double jobs = fmax(1, state->queued + state->running), now = state->now;
    double before = state->total;
    if (refill)
        for (int i = 0; i < problem->gpus; i++)
            fill(problem, state, view, price, worth, state->gpu + i);
    for (int place; (place = go_on(problem, state, DBL_MAX)) >= 0;)
        fill(problem, state, view, price, worth, state->gpu + place);
    double late = state->queued ? state->queued * view->unit : 0; /* jobs that never start */
    return (1 - settings->completion) * (state->makespan - now + late) +
           settings->completion * ((state->total - before) / jobs + late);
}

static int ascending(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int compare(const Problem *problem, const State *state, const Settings *settings, const View *view,
            const Choice *const *some, int count, double *cost) {
    int waiting = 0, cells = problem->types * problem->kinds, jobs = state->queued + state->running;
    for (int k = 0; k < problem->kinds; k++) waiting += state->waiting[k] > 0;
    int64_t each = (int64_t)jobs * (2 + waiting);
    int64_t most = settings->work / (each * count);
    int plans = most < settings->plans ? (int)most : settings->plans;
    if (plans < 4) return 0;
    State then = *state;
    then.gpu = malloc(sizeof(Gpu) * problem->gpus);
    then.waiting = malloc(sizeof(int32_t) * problem->kinds);
    then.host = state->host ? malloc(sizeof(int64_t) * problem->nodes * HOST) : NULL;
    double *price = malloc(sizeof(double) * cells), *worth = malloc(sizeof(double) * cells);
    double *outcome = malloc(sizeof(double) * count * plans);
    int32_t *waits = then.waiting;
    Gpu *gpus = then.gpu;
    int64_t *host = then.host;
    uint64_t random = 1;
    for (int p = 0; p < plans; p++) {
        for (int k = 0; k < problem->kinds; k++) {
            if (!state->waiting[k] && p == 0) {
                for (int t = 0; t < problem->types; t++)
                    price[t * problem->kinds + k] = view->price[t * problem->kinds + k];
            }
            if (!state->waiting[k]) continue;
            double gauss = p ? sqrt(-2 * log(uniform(&random))) * cos(6.283185307179586 * uniform(&random)) : 0;
            double factor = exp(settings->spread * gauss);
            for (int t = 0; t < problem->types; t++) {
                int at = t * problem->kinds + k;
                price[at] = view->price[at] * factor;
                worth[at] = view->worth[at] * factor;
            }
        }
        for (int c = 0; c < count; c++) {
            then = *state;
            then.gpu = gpus, then.waiting = waits, then.host = host;
            memcpy(gpus, state->gpu, sizeof(Gpu) * problem->gpus);
            memcpy(waits, state->waiting, sizeof(int32_t) * problem->kinds);
            if (host) memcpy(host, state->host, sizeof(int64_t) * problem->nodes * HOST);
            for (int i = 0; i < some[c]->size; i++)
                start(problem, &then, gpus + some[c]->gpu, some[c]->kinds[i]);
            outcome[c * plans + p] =
                plan(problem, &then, settings, view, price, worth, some[c]->size > 0);
        }
    }
    int quarter = (plans + 3) / 4;
    for (int c = 0; c < count; c++) {
        qsort(outcome + c * plans, plans, sizeof(double), ascending);
        cost[c] = 0;
        for (int p = 0; p < quarter; p++) cost[c] += outcome[c * plans + p] / quarter;
    }
    free(gpus), free(waits), free(host), free(price), free(worth), free(outcome);
    return 1;
}
