/* Whole decisions and whole workloads, for Python. */
#include "decide.h"
#include "rates.h"

#include <float.h>
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
                        .budget = settings->budget};
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

/* Simulate a workload on idle GPUs to its end. `seed` 0: the best choices, without chance. `result`:
 * makespan and sum of the completion times. As `decide`. */
int play(const Problem *given, const State *initial, const Arrival *arrivals, int count,
         const Settings *settings, uint64_t seed, Record *record, double *result) {
    Room room;
    Problem problem[] = {*given};
    State state = *initial;
    uint64_t random = seed;
    int made = -2, next = 0;
    problem->rates = new_rates();
    state.gpu = malloc(sizeof(Gpu) * problem->gpus);
    state.waiting = calloc(problem->kinds, sizeof(int32_t));
    if (get(problem, settings, count, &room) && state.gpu && state.waiting) {
        memcpy(state.gpu, initial->gpu, sizeof(Gpu) * problem->gpus);
        for (int i = 0; i < count; i++) state.waiting[arrivals[i].kind]++;
        price_all(problem, &state, room.programmes, room.group);
        memset(state.waiting, 0, sizeof(int32_t) * problem->kinds);
        for (made = 0; made >= 0;) {
            for (; next < count && arrivals[next].time <= state.now; next++) {
                state.waiting[arrivals[next].kind]++;
                state.queued++;
            }
            if (state.queued) {
                look(problem, &state, room.programmes, room.group, &room.view);
                made = decide(problem, &state, settings, &room.view, seed ? &random : NULL,
                              record, room.placed);
                if (made < 0) break;
            }
            double until = next < count ? arrivals[next].time : DBL_MAX;
            if (go_on(problem, &state, until) < 0 && next == count) break;
        }
        result[0] = state.makespan;
        result[1] = state.total;
    }
    free(state.gpu), free(state.waiting), free(problem->rates);
    put_away(&room);
    return made;
}
