/* Whole decisions and whole workloads, for Python. */
#include "decide.h"
#include "rates.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Jobs that arrive. */
typedef struct {
    int32_t kind;
    int32_t unused;
    double time;
} Arrival;

static int new_view(const Problem *problem, const Settings *settings, View *view) {
    size_t cells = (size_t)problem->types * problem->kinds;
    *view = (View){.programmes = malloc(sizeof(Programme) * problem->types),
                   .group = malloc(sizeof(int) * cells),
                   .dual = calloc(cells, sizeof(double)),
                   .worth = calloc(cells, sizeof(double)),
                   .urgency = settings->urgency,
                   .budget = settings->budget,
                   .images = settings->weights != NULL};
    return view->programmes && view->group && view->dual && view->worth;
}

static void free_view(View *view) {
    free(view->programmes), free(view->group), free(view->dual), free(view->worth);
}

/* Decide on a snapshot. `since` has the seconds since the start of each running job, [gpus]
 * [JOBS]. As `decide`. */
int decide_once(const Problem *given, State *state, const Settings *settings,
                const double *since, Placement *out) {
    View view;
    Problem problem[] = {*given};
    int made = -2;
    problem->rates = settings->work ? new_rates() : NULL;
    if (new_view(problem, settings, &view)) {
        for (int i = 0; i < problem->gpus; i++)
            catch_up(problem, state->gpu + i, since + (size_t)i * JOBS);
        set_programmes(problem, state, &view);
        update_view(problem, state, &view);
        made = decide(problem, state, settings, &view, NULL, NULL, out);
    }
    free(problem->rates);
    free_view(&view);
    return made;
}

/* A simulation: what arrives, and by what is decided. */
typedef struct {
    const Arrival *arrivals;
    int count, next; /* of the arrivals, and how many have arrived */
    const Settings *settings;
    const View *view;
    Placement *placed; /* by a decision */
} Simulation;

/* Simulate until all jobs have ended. Return the number of the last decision's placements, or what
 * is wrong, as `decide`. */
static int to_end(const Problem *problem, State *state, Simulation *of, int decided,
                  uint64_t *random, Record *record) {
    View view = *of->view;
    int made = 0;
    for (;;) {
        for (; of->next < of->count && of->arrivals[of->next].time <= state->now; of->next++) {
            state->waiting[of->arrivals[of->next].kind]++;
            state->queued++;
        }
        if (state->queued && !decided) {
            update_view(problem, state, &view);
            made = decide(problem, state, of->settings, &view, random, record, of->placed);
            if (made < 0) return made;
        }
        decided = 0;
        double until = of->next < of->count ? of->arrivals[of->next].time : DBL_MAX;
        if (go_on(problem, state, until) < 0 && of->next == of->count) return made;
    }
}

/* Start a choice, and simulate to the end. Return what that costs in seconds, by the objective. */
static double run_to_end(const Problem *problem, State *state, const View *view,
                         const Choice *choice, Simulation of, uint64_t *random) {
    double completion = of.settings->completion, now = state->now, before = state->total;
    int made = 0;
    for (int i = 0; i < choice->size; i++)
        start(problem, state, state->gpu + choice->gpu, choice->kinds[i]);
    if (choice->size) made = decide(problem, state, of.settings, view, random, NULL, of.placed);
    if (made >= 0) made = to_end(problem, state, &of, 1, random, NULL);
    if (made < 0) return NAN;
    return (1 - completion) * (state->makespan - now) + completion * (state->total - before);
}

/* What the rest of a simulation costs after a choice: the least of some runs. */
static double cost_of(const Record *record, const Problem *problem, const State *state,
                      const View *view, const Choice *choice) {
    Simulation of = *(const Simulation *)record->of_trials;
    View same = *view, later;
    Gpu *gpus = malloc(sizeof(Gpu) * problem->gpus);
    int32_t *waiting = malloc(sizeof(int32_t) * problem->kinds);
    double least = NAN;
    of.placed = malloc(sizeof(Placement) * (of.count + 1));
    if (new_view(problem, record->target, &later) && gpus && waiting && of.placed) {
        memcpy(later.programmes, view->programmes, sizeof(Programme) * problem->types);
        memcpy(later.group, view->group, sizeof(int) * problem->types * problem->kinds);
        same.images = later.images;
        of.settings = record->target;
        of.view = &later;
        for (int r = 0; r < record->runs; r++) {
            uint64_t random = record->seed + (uint64_t)r;
            State from = *state;
            from.gpu = memcpy(gpus, state->gpu, sizeof(Gpu) * problem->gpus);
            from.waiting = memcpy(waiting, state->waiting, sizeof(int32_t) * problem->kinds);
            double cost = run_to_end(problem, &from, &same, choice, of, r ? &random : NULL);
            least = r ? fmin(least, cost) : cost;
        }
    }
    free(gpus), free(waiting), free(of.placed);
    free_view(&later);
    return least;
}

/* Simulate a workload on idle GPUs to its end. `seed` 0: the best choices, without chance. `result`:
 * makespan and sum of the completion times. As `decide`. */
int play(const Problem *given, const State *initial, const Arrival *arrivals, int count,
         const Settings *settings, uint64_t seed, Record *record, double *result) {
    View view;
    Problem problem[] = {*given};
    State state = *initial;
    uint64_t random = seed;
    int made = -2;
    Simulation of = {arrivals, count, 0, settings, &view,
                     malloc(sizeof(Placement) * (count + 1))};
    problem->rates = new_rates();
    state.gpu = malloc(sizeof(Gpu) * problem->gpus);
    state.waiting = calloc(problem->kinds, sizeof(int32_t));
    if (new_view(problem, settings, &view) && of.placed && state.gpu && state.waiting) {
        memcpy(state.gpu, initial->gpu, sizeof(Gpu) * problem->gpus);
        for (int i = 0; i < count; i++) state.waiting[arrivals[i].kind]++;
        set_programmes(problem, &state, &view);
        memset(state.waiting, 0, sizeof(int32_t) * problem->kinds);
        if (record) {
            view.images = 1;
            record->cost_of = record->target ? cost_of : NULL;
            record->of_trials = &of;
        }
        made = to_end(problem, &state, &of, 0, seed ? &random : NULL, record);
        result[0] = state.makespan;
        result[1] = state.total;
    }
    free(state.gpu), free(state.waiting), free(problem->rates), free(of.placed);
    free_view(&view);
    return made;
}
