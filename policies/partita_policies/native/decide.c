#include "decide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 24, FEW = 4, ALL = 96, CROWD = 4, MANY = 64 };
enum { ACTIONS = 6 };     /* choices compared by plans */
enum { THOROUGH = 4000 }; /* searches in a decision after which a crowd is only searched lazily */

double uniform(uint64_t *random) {
    uint64_t z = *random += 0x9e3779b97f4a7c15u; /* splitmix64, S. Vigna, public domain */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

static void dense(const float *in, const float *weights, int inputs, float *out) {
    const float *bias = weights + inputs * HIDDEN;
    memcpy(out, bias, sizeof(float) * HIDDEN);
    for (int i = 0; i < inputs; i++)
        for (int j = 0; j < HIDDEN; j++) out[j] += in[i] * weights[i * HIDDEN + j];
    for (int j = 0; j < HIDDEN; j++) out[j] = out[j] > 0 ? out[j] : 0;
}

static void score(const Settings *settings, Choice *choice) {
    choice->score = (float)choice->gain;
    if (!settings->weights) return;
    float first[HIDDEN], second[HIDDEN];
    const float *weights = settings->weights;
    dense(choice->inputs, weights, INPUTS, first);
    weights += INPUTS * HIDDEN + HIDDEN;
    dense(first, weights, HIDDEN, second);
    weights += HIDDEN * HIDDEN + HIDDEN;
    float sum = weights[HIDDEN];
    for (int j = 0; j < HIDDEN; j++) sum += second[j] * weights[j];
    choice->score += sum;
}

typedef struct {
    int32_t count, best; /* of its choices, and the one with the best score */
    float score;         /* of that, or -HUGE_VAL */
    uint8_t fresh, idle;
} GpuChoices;

/* The choices of all GPUs, and which of them have to be found again. */
typedef struct {
    Choice *choice; /* [gpus][MOST] */
    GpuChoices *gpu;     /* [gpus] */
    int most, size, window, crowded;
    int searches; /* so far */
} ChoiceTable;

static int64_t least_memory(const Problem *problem, const State *state) {
    int64_t least = INT64_MAX;
    for (int k = 0; k < problem->kinds; k++)
        if (state->waiting[k] && problem->kind[k].memory < least) least = problem->kind[k].memory;
    return least;
}

static int is_open(const Problem *problem, const State *state, int place, int64_t least) {
    const Gpu *gpu = state->gpu + place;
    if (gpu->free.memory < least) return 0;
    for (int k = 0; k < problem->kinds; k++)
        if (state->waiting[k] && fits(problem, gpu, host_of(state, gpu), k)) return 1;
    return 0;
}

/* Search the choices of a GPU. Return 0 if a score is no number. */
static int search(const Problem *problem, const State *state, const Settings *settings,
                  const View *view, ChoiceTable *table, int place) {
    Choice *here = table->choice + (size_t)place * MOST;
    GpuChoices *found = table->gpu + place;
    found->count = choices(problem, state, view, place, table->most, table->size, table->window,
                           here);
    found->score = -HUGE_VALF;
    for (int c = 0; c < found->count; c++) {
        score(settings, here + c);
        if (!isfinite(here[c].score)) return 0;
        if (here[c].score > found->score) found->score = here[c].score, found->best = c;
    }
    found->fresh = 1;
    table->searches++;
    return 1;
}

static int best_place(const Problem *problem, const ChoiceTable *table) {
    int best = 0;
    for (int i = 1; i < problem->gpus; i++)
        if (table->gpu[i].score > table->gpu[best].score) best = i;
    return best;
}

/* Search choices that are missing. Idle GPUs of one type are alike: one stands for all. A decision
 * that has searched very often takes the last scores of a crowd of GPUs for estimates, and searches
 * only the best again, as the lazy greedy algorithm does (M. Minoux, "Accelerated Greedy Algorithms
 * for Maximizing Submodular Set Functions", 1978). Return 0 if a score is no number. */
static int refresh(const Problem *problem, const State *state, const Settings *settings,
                   const View *view, ChoiceTable *table) {
    int alike = !problem->eligible && !state->host;
    int lazy = table->crowded && table->searches > THOROUGH;
    uint8_t seen[64] = {0};
    for (int i = 0; i < problem->gpus; i++) {
        GpuChoices *found = table->gpu + i;
        int type = alike && found->idle ? state->gpu[i].type : 64;
        if (type < 64 && seen[type]) {
            *found = (GpuChoices){0, 0, -HUGE_VALF, 0, 1};
            continue;
        }
        if (type < 64) seen[type] = 1;
        if (found->fresh || (lazy && found->count)) continue;
        if (!search(problem, state, settings, view, table, i)) return 0;
    }
    while (lazy) {
        int best = best_place(problem, table);
        if (table->gpu[best].fresh || !table->gpu[best].count) break;
        if (!search(problem, state, settings, view, table, best)) return 0;
    }
    return 1;
}

/* Mark the choices that a start has changed. */
static void change(const Problem *problem, const State *state, ChoiceTable *table,
                   const Choice *taken) {
    int place = taken->gpu, scarce = state->host != NULL;
    for (int j = 0; j < taken->size; j++) scarce |= state->waiting[taken->kinds[j]] < SET;
    table->gpu[place].fresh = table->gpu[place].idle = 0;
    if (!scarce) return;
    for (int i = 0; i < problem->gpus; i++) {
        GpuChoices *found = table->gpu + i;
        if (state->host && state->gpu[i].node == state->gpu[place].node) found->fresh = 0;
        for (int c = 0; c < found->count && found->fresh; c++) {
            const Choice *one = table->choice + (size_t)i * MOST + c;
            int run = 0;
            for (int j = 0; j < one->size; j++) {
                run = j && one->kinds[j] == one->kinds[j - 1] ? run + 1 : 1;
                if (state->waiting[one->kinds[j]] < run) found->fresh = 0;
            }
        }
    }
}

/* Whether a job on a GPU ends, so that waiting for it may be worth while. */
static int ends(const Problem *problem, const Gpu *gpu) {
    for (int i = 0; i < gpu->free.jobs; i++)
        if (!problem->kind[gpu->jobs[i].kind].lasting) return 1;
    return 0;
}

static int by_score(const void *one, const void *other) {
    const Choice *a = *(Choice *const *)one, *b = *(Choice *const *)other;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Record a decision, and what its choices cost: of the best ones, and of some others at random. */
static void note(Record *record, const Problem *problem, const State *state, const View *view,
                 Choice **all, int count, int chosen, uint64_t *random) {
    if (record->decisions >= record->most_decisions || record->rows + count > record->most_rows)
        return;
    int d = record->decisions++, tried = 0;
    record->unit[d] = view->unit;
    record->chosen[d] = record->rows + chosen;
    if (record->cost_of && random && uniform(random) < record->chance) tried = record->tried;
    if (tried) record->seed = *random;
    for (int i = 0; i < count; i++) {
        size_t row = (size_t)record->rows++;
        memcpy(record->inputs + row * INPUTS, all[i]->inputs, sizeof all[i]->inputs);
        record->gain[row] = (float)all[i]->gain;
        record->cost[row] = NAN;
        int others = tried / 2;
        if (tried && (i == chosen || i < tried - others ||
                      uniform(random) * (count - tried + others) < others))
            record->cost[row] = (float)record->cost_of(record, problem, state, view, all[i]);
    }
    record->first[d + 1] = record->rows;
}

/* Return the index of the choice to make. If a plan was made, write what it starts besides to `starts`
 * and the number of that to `started`, else -1. */
static int choose(const Problem *problem, const State *state, const Settings *settings,
                  const View *view, Choice **all, int count, uint64_t *random,
                  Placement *starts, int *started) {
    *started = -1;
    if (count == 1) return 0;
    if (random) {
        int best = 0;
        double most = -HUGE_VAL;
        for (int i = 0; i < count; i++) {
            double with = settings->sharpness * all[i]->score - log(-log(uniform(random)));
            if (with > most) most = with, best = i;
        }
        return best;
    }
    if (!settings->work) return 0;
    int some = ACTIONS < count ? ACTIONS : count;
    int best = best_plan(problem, state, settings, view, (const Choice *const *)all, some, starts,
                         started);
    if (best < 0) return 0;
    if (isfinite(settings->budget)) *started = -1; /* plans do not know the budget */
    return best;
}

/* Gather all choices, the best first, and to wait unless no job ends on a GPU. Of very many GPUs only the
 * best choice is gathered. Return their number; -1: a score is no number. */
static int gather(const Problem *problem, const State *state, const Settings *settings,
                  const View *view, const ChoiceTable *table, Choice **all, Choice *wait) {
    int count = 0, idle = 0, best = -1;
    for (int i = 0; i < problem->gpus; i++) {
        if (!table->gpu[i].count) continue;
        idle = idle || !ends(problem, state->gpu + i);
        Choice *here = table->choice + (size_t)i * MOST;
        if (best < 0 || table->gpu[i].score > table->gpu[best].score) best = i;
        for (int c = 0; c < table->gpu[i].count && !table->crowded; c++) all[count++] = here + c;
    }
    if (best < 0) return 0;
    if (table->crowded) all[count++] = table->choice + (size_t)best * MOST + table->gpu[best].best;
    if (!idle) {
        int gains = 0;
        for (int i = 1; i < count; i++)
            if (all[i]->gain > all[gains]->gain) gains = i;
        waiting(problem, state, view, all[gains]->gpu, wait);
        score(settings, wait);
        if (!isfinite(wait->score)) return -1;
        all[count++] = wait;
    }
    qsort(all, count, sizeof *all, by_score);
    return count;
}

int decide(const Problem *problem, State *state, const Settings *settings, const View *view,
           uint64_t *random, Record *record, Placement *out) {
    int gpus = problem->gpus, open = 0, made = 0;
    int64_t least = least_memory(problem, state);
    for (int i = 0; i < gpus; i++) open += is_open(problem, state, i, least);
    if (!open) return 0;
    int most = ALL / open, size = (state->queued + open - 1) / open;
    int limit = open > MANY ? 1 : open > CROWD ? 2 : SET;
    ChoiceTable table = {
        .choice = malloc(sizeof(Choice) * MOST * gpus),
        .gpu = calloc(gpus, sizeof(GpuChoices)),
        .most = most > MOST ? MOST : most < FEW ? FEW : most,
        .size = size > limit ? limit : size,
        .window = open > MANY ? WINDOW / 4 : open > CROWD ? WINDOW / 2 : WINDOW,
        .crowded = gpus > MANY};
    Choice **all = malloc(sizeof(Choice *) * (MOST * gpus + 1)), wait;
    Placement *starts = malloc(sizeof(Placement) * (state->queued + 1));
    if (!table.choice || !table.gpu || !all || !starts) made = -2;
    for (int i = 0; i < gpus && made >= 0; i++) table.gpu[i].idle = !state->gpu[i].free.jobs;
    while (made >= 0 && state->queued) {
        int count = -1;
        if (refresh(problem, state, settings, view, &table))
            count = gather(problem, state, settings, view, &table, all, &wait);
        if (count < 0) made = -1;
        if (count <= 0) break;
        int started;
        int chosen = choose(problem, state, settings, view, all, count, random, starts, &started);
        if (record && count > 1)
            note(record, problem, state, view, all, count, chosen, random);
        const Choice taken = *all[chosen];
        if (!taken.size) break;
        for (int i = 0; i < taken.size; i++) {
            start(problem, state, state->gpu + taken.gpu, taken.kinds[i]);
            out[made++] = (Placement){taken.kinds[i], taken.gpu};
        }
        change(problem, state, &table, &taken);
        if (started < 0) continue;
        for (int i = 0; i < started; i++) {
            start(problem, state, state->gpu + starts[i].gpu, starts[i].kind);
            out[made++] = starts[i];
        }
        break;
    }
    free(table.choice), free(table.gpu), free(all), free(starts);
    return made;
}
