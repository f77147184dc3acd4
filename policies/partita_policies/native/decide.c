#include "decide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 24, FEW = 4, ALL = 96, COMPARED = 16, CROWD = 4 };

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
    dense(choice->features, weights, FEATURES, first);
    weights += FEATURES * HIDDEN + HIDDEN;
    dense(first, weights, HIDDEN, second);
    weights += HIDDEN * HIDDEN + HIDDEN;
    float sum = weights[HIDDEN];
    for (int j = 0; j < HIDDEN; j++) sum += second[j] * weights[j];
    choice->score += sum;
}

/* The choices of all GPUs, and which of them have to be found again. */
typedef struct {
    Choice *choice; /* [gpus][MOST] */
    int32_t *count; /* [gpus] */
    uint8_t *fresh; /* [gpus] */
    int most, size;
} Board;

static int is_open(const Problem *problem, const State *state, int place) {
    for (int k = 0; k < problem->kinds; k++)
        if (state->waiting[k] && fits(problem, state, state->gpu + place, k)) return 1;
    return 0;
}

/* Find choices that are missing. Idle GPUs of one type are alike: one stands for all. */
static void refresh(const Problem *problem, const State *state, const Settings *settings,
                    const View *view, Board *board) {
    int alike = !problem->eligible && !state->host;
    uint8_t seen[64] = {0};
    for (int i = 0; i < problem->gpus; i++) {
        const Gpu *gpu = state->gpu + i;
        if (alike && !gpu->count && gpu->type < 64) {
            if (seen[gpu->type]) {
                board->count[i] = 0;
                board->fresh[i] = 0;
                continue;
            }
            seen[gpu->type] = 1;
        }
        if (board->fresh[i]) continue;
        Choice *here = board->choice + (size_t)i * MOST;
        board->count[i] = choices(problem, state, view, i, board->most, board->size, here);
        for (int c = 0; c < board->count[i]; c++) score(settings, here + c);
        board->fresh[i] = 1;
    }
}

/* Mark the choices that a start has changed. */
static void change(const Problem *problem, const State *state, Board *board, int place) {
    for (int i = 0; i < problem->gpus; i++) {
        if (state->host && state->gpu[i].node == state->gpu[place].node) board->fresh[i] = 0;
        for (int c = 0; c < board->count[i] && board->fresh[i]; c++) {
            const Choice *one = board->choice + (size_t)i * MOST + c;
            int run = 0;
            for (int j = 0; j < one->size; j++) {
                run = j && one->kinds[j] == one->kinds[j - 1] ? run + 1 : 1;
                if (state->waiting[one->kinds[j]] < run) board->fresh[i] = 0;
            }
        }
    }
    board->fresh[place] = 0;
}

static int by_score(const void *one, const void *other) {
    const Choice *a = *(Choice *const *)one, *b = *(Choice *const *)other;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a < b ? -1 : a > b;
}

static void note(Record *record, const State *state, Choice **all, int count, int chosen) {
    if (record->decisions >= record->most_decisions || record->rows + count > record->most_rows)
        return;
    int d = record->decisions++;
    record->time[d] = state->now;
    record->total[d] = state->total;
    record->chosen[d] = record->rows + chosen;
    for (int i = 0; i < count; i++) {
        memcpy(record->features + (size_t)record->rows * FEATURES, all[i]->features,
               sizeof all[i]->features);
        record->gain[record->rows++] = (float)all[i]->gain;
    }
    record->first[d + 1] = record->rows;
}

/* Return the index of the choice to make. */
static int choose(const Problem *problem, const State *state, const Settings *settings,
                  const View *view, Choice **all, int count, uint64_t *random) {
    if (random) {
        int best = 0;
        double most = -HUGE_VAL;
        for (int i = 0; i < count; i++) {
            double with = settings->sharpness * all[i]->score - log(-log(uniform(random)));
            if (with > most) most = with, best = i;
        }
        return best;
    }
    int some = settings->actions < count ? settings->actions : count;
    if (some > COMPARED) some = COMPARED;
    double cost[COMPARED];
    const Choice *first[COMPARED];
    for (int i = 0; i < some; i++) first[i] = all[i];
    if (!settings->work || !compare(problem, state, settings, view, first, some, cost)) return 0;
    int best = 0;
    for (int i = 1; i < some; i++)
        if (cost[i] < cost[best] * (1 - 1e-9)) best = i;
    return best;
}

int decide(const Problem *problem, State *state, const Settings *settings, View *view,
           uint64_t *random, Record *record, Placement *out) {
    int gpus = problem->gpus, open = 0, made = 0;
    for (int i = 0; i < gpus; i++) open += is_open(problem, state, i);
    if (!open) return 0;
    int most = ALL / open, size = (state->queued + open - 1) / open;
    Board board = {malloc(sizeof(Choice) * MOST * gpus), calloc(gpus, sizeof(int32_t)),
                   calloc(gpus, 1), most > MOST ? MOST : most < FEW ? FEW : most,
                   open > CROWD && size > 2 ? 2 : size > SET ? SET : size};
    Choice **all = malloc(sizeof(Choice *) * (MOST * gpus + 1)), wait;
    if (!board.choice || !board.count || !board.fresh || !all) made = -2;
    while (made >= 0 && state->queued) {
        int count = 0, idle = 0;
        refresh(problem, state, settings, view, &board);
        for (int i = 0; i < gpus; i++)
            for (int c = 0; c < board.count[i]; c++) {
                idle |= !state->gpu[i].count;
                all[count++] = board.choice + (size_t)i * MOST + c;
            }
        if (!count) break;
        int best = 0;
        for (int i = 1; i < count; i++)
            if (all[i]->gain > all[best]->gain) best = i;
        waiting(problem, state, view, all[best]->gpu, &wait);
        score(settings, &wait);
        if (!idle) all[count++] = &wait;
        for (int i = 0; i < count; i++)
            if (!isfinite(all[i]->score)) made = -1;
        if (made < 0) break;
        if (gpus <= 64 || random) {
            qsort(all, count, sizeof *all, by_score);
        } else { /* only the best matters */
            for (int i = 1; i < count; i++)
                if (all[i]->score > all[0]->score) {
                    Choice *swap = all[0];
                    all[0] = all[i], all[i] = swap;
                }
        }
        int chosen = count > 1 ? choose(problem, state, settings, view, all, count, random) : 0;
        if (record && count > 1) note(record, state, all, count, chosen);
        const Choice taken = *all[chosen];
        if (!taken.size) break;
        for (int i = 0; i < taken.size; i++) {
            start(problem, state, state->gpu + taken.gpu, taken.kinds[i]);
            out[made++] = (Placement){taken.kinds[i], taken.gpu};
        }
        change(problem, state, &board, taken.gpu);
    }
    free(board.choice), free(board.count), free(board.fresh), free(all);
    return made;
}
