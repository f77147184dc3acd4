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

typedef struct {
    Programme *programmes;
    int *group;
    View view;
    Placement *placed;
} Room;

static int get(const Problem *problem, const Settings *settings, int jobs, Room *room) {
    size_t cells = (size_t)problem->types * problem->kinds;
    room->programmes = malloc(sizeof(Programme) * problem->types);
    room->group = malloc(sizeof(int) * cells);
    room->view = (View){.price = calloc(cells, sizeof(double)),
                        .worth = calloc(cells, sizeof(double)),
                        .urgency = settings->urgency,
                        .budget = settings->budget,
                        .images = settings->weights != NULL};
    room->placed = malloc(sizeof(Placement) * (jobs + 1));
    return room->programmes && room->group && room->view.price && room->view.worth && room->placed;
}

static void put_away(Room *room) {
    free(room->programmes), free(room->group), free(room->view.price), free(room->view.worth);
    free(room->placed);
}

/* Decide on a snapshot. `since` has the seconds since the start of each running job, [gpus]
 * [JOBS]. As `decide`. */
int decide_once(const Problem *given, State *state, const Settings *settings,
                const double *since, Placement *out) {
    Room room;
    Problem problem[] = {*given};
    int made = -2;
    problem->rates = settings->work ? new_rates() : NULL;
    if (get(problem, settings, 0, &room)) {
        for (int i = 0; i < problem->gpus; i++)
            catch_up(problem, state->gpu + i, since + (size_t)i * JOBS);
        price_all(problem, state, room.programmes, room.group);
        look(problem, state, room.programmes, room.group, &room.view);
        made = decide(problem, state, settings, &room.view, NULL, NULL, out);
    }
    free(problem->rates);
    put_away(&room);
    return made;
}

/* A simulation: what arrives, and by what is decided. */
typedef struct {
    const Arrival *arrivals;
    int count, next; /* of the arrivals, and how many have arrived */
    const Settings *settings;
    const Room *room;
} Simulation;

/* Simulate until all jobs have ended. Return the number of the last decision's placements, or what
 * is wrong, as `decide`. */
static int to_end(const Problem *problem, State *state, Simulation *of, int decided,
                  uint64_t *random, Record *record) {
    Room room = *of->room;
    int made = 0;
    for (;;) {
        for (; of->next < of->count && of->arrivals[of->next].time <= state->now; of->next++) {
            state->waiting[of->arrivals[of->next].kind]++;
            state->queued++;
        }
        if (state->queued && !decided) {
            look(problem, state, room.programmes, room.group, &room.view);
            made = decide(problem, state, of->settings, &room.view, random, record, room.placed);
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
    if (choice->size)
        made = decide(problem, state, of.settings, view, random, NULL, of.room->placed);
    if (made >= 0) made = to_end(problem, state, &of, 1, random, NULL);
    if (made < 0) return NAN;
    return (1 - completion) * (state->makespan - now) + completion * (state->total - before);
}

/* What the rest of a simulation costs after a choice: the least of some runs. */
static double cost_of(const Record *record, const Problem *problem, const State *state,
                      const View *view, const Choice *choice) {
    Simulation of = *(const Simulation *)record->of_trials;
    View same = *view;
    Room room;
    State then = *state;
    double least = NAN;
    then.gpu = malloc(sizeof(Gpu) * problem->gpus);
    then.waiting = malloc(sizeof(int32_t) * problem->kinds);
    if (get(problem, record->target, of.count, &room) && then.gpu && then.waiting) {
        memcpy(room.programmes, of.room->programmes, sizeof(Programme) * problem->types);
        memcpy(room.group, of.room->group, sizeof(int) * problem->types * problem->kinds);
        same.images = room.view.images;
        of.settings = record->target;
        of.room = &room;
        for (int r = 0; r < record->runs; r++) {
            uint64_t random = record->seed + (uint64_t)r;
            State from = *state;
            from.gpu = memcpy(then.gpu, state->gpu, sizeof(Gpu) * problem->gpus);
            from.waiting = memcpy(then.waiting, state->waiting, sizeof(int32_t) * problem->kinds);
            double cost = run_to_end(problem, &from, &same, choice, of, r ? &random : NULL);
            least = r ? fmin(least, cost) : cost;
        }
    }
    free(then.gpu), free(then.waiting);
    put_away(&room);
    return least;
}

/* Simulate a workload on idle GPUs to its end. `seed` 0: the best choices, without chance. `result`:
 * makespan and sum of the completion times. As `decide`. */
int play(const Problem *given, const State *initial, const Arrival *arrivals, int count,
         const Settings *settings, uint64_t seed, Record *record, double *result) {
    Room room;
    Problem problem[] = {*given};
    State state = *initial;
    uint64_t random = seed;
    int made = -2;
    Simulation of = {arrivals, count, 0, settings, &room};
    problem->rates = new_rates();
    state.gpu = malloc(sizeof(Gpu) * problem->gpus);
    state.waiting = calloc(problem->kinds, sizeof(int32_t));
    if (get(problem, settings, count, &room) && state.gpu && state.waiting) {
        memcpy(state.gpu, initial->gpu, sizeof(Gpu) * problem->gpus);
        for (int i = 0; i < count; i++) state.waiting[arrivals[i].kind]++;
        price_all(problem, &state, room.programmes, room.group);
        memset(state.waiting, 0, sizeof(int32_t) * problem->kinds);
        if (record) {
            room.view.images = 1;
            record->cost_of = record->target ? cost_of : NULL;
            record->of_trials = &of;
        }
        made = to_end(problem, &state, &of, 0, seed ? &random : NULL, record);
        result[0] = state.makespan;
        result[1] = state.total;
    }
    free(state.gpu), free(state.waiting), free(problem->rates);
    put_away(&room);
    return made;
}
