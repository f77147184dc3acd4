#include "choices.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rates.h"

enum {
    BEAM = 8,    /* sets of one size that are extended */
    FOUND = 4 * WINDOW
};
static const double LARGEST = 4;      /* bound of a feature; limits the distance from training */
static const double TOLERANCE = 1.001;
static const double MOST_WORTH = 8;   /* of a nearly finished job, relative to a waiting one */

typedef struct {
    Load load;
    double left, worth, dual;
    int kind, ends;
} Member;

/* What is predicted for jobs on a GPU if no other is started. */
typedef struct {
    double worth, dual, speed, rate; /* sums of the work per second */
    double sm, pcie, busy;
    double first, last;   /* seconds until the first and the last end */
    double slowest, slow; /* largest and mean slowdown over the run */
    double risk;          /* largest slowdown with a margin for what is not known */
    double valued;        /* dual value of all their work */
} Prediction;

double worth_of(const View *view, double dual, double left) {
    if (view->urgency == 0) return dual;
    double worth = pow(fmax(dual, 1e-3), 1 - view->urgency) *
                   pow(view->unit / fmax(left, 1e-3 * view->unit), view->urgency);
    return fmin(view->scale * worth, MOST_WORTH);
}

static void work_of(const Problem *problem, const State *state, int type, double *work) {
    for (int k = 0; k < problem->kinds; k++)
        work[k] = state->waiting[k] * problem->outlook[(size_t)type * problem->kinds + k].duration;
    for (int i = 0; i < problem->gpus; i++) {
        const Gpu *gpu = state->gpu + i;
        for (int j = 0; j < gpu->free.jobs; j++) {
            Load mean;
            int kind = gpu->jobs[j].kind;
            if (!problem->kind[kind].lasting)
                work[kind] += rest_of(problem, gpu, gpu->jobs + j, &mean);
        }
    }
}

void set_programmes(const Problem *problem, const State *state, View *view) {
    int n = problem->kinds, count = 0;
    Load *loads = malloc(sizeof(Load) * n);
    double *memory = malloc(sizeof(double) * n), *work = malloc(sizeof(double) * n);
    double *some = malloc(sizeof(double) * n);
    int *who = malloc(sizeof(int) * n), *of = malloc(sizeof(int) * n);
    for (int type = 0; type < problem->types; type++) {
        double capacity = capacity_of(problem, state, type);
        int *group = view->group + (size_t)type * n;
        work_of(problem, state, type, work);
        count = 0;
        for (int k = 0; k < n; k++) {
            group[k] = -1;
            if (work[k] <= 0) continue;
            const Kind *kind = problem->kind + k;
            loads[count] = problem->outlook[(size_t)type * n + k].mean;
            memory[count] = kind->alone ? 1 : kind->memory / capacity;
            some[count] = work[k];
            who[count++] = k;
        }
        view->programmes[type].groups = 0;
        if (!count) continue;
        programme(view->programmes + type, loads, memory, some, count, problem->sharing, of);
        for (int i = 0; i < count; i++) group[who[i]] = of[i];
    }
    free(loads), free(memory), free(work), free(some), free(who), free(of);
}

void update_view(const Problem *problem, const State *state, View *view) {
    int n = problem->kinds, jobs = state->queued + state->running, idle = 0;
    double *work = malloc(sizeof(double) * n), all = 0, waiting = 0, most = 0, total = 0, free_ = 0;
    double bound = 0;
    view->sm = view->memory = view->longest = 0;
    for (int i = 0; i < problem->gpus; i++) {
        idle += !state->gpu[i].free.jobs;
        total += (double)state->gpu[i].free.capacity;
        free_ += fmax(0, (double)state->gpu[i].free.memory);
    }
    double mean_capacity = fmax(total / problem->gpus, 1);
    for (int type = problem->types - 1; type >= 0; type--) {
        double sums[GROUPS] = {0}, of_group[GROUPS];
        const Programme *of = view->programmes + type;
        const int *group = view->group + (size_t)type * n;
        work_of(problem, state, type, work);
        for (int k = 0; k < n; k++)
            if (group[k] >= 0) sums[group[k]] += work[k] / problem->gpus;
        if (of->groups) solve_duals(of, sums, of_group);
        for (int k = 0; k < n; k++)
            view->dual[type * n + k] = group[k] < 0 ? 0 : of_group[group[k]];
        if (type) continue;
        for (int g = 0; g < of->groups; g++) bound += of_group[g] * sums[g];
    }
    for (int k = 0; k < n; k++) {
        all += work[k];
        if (!state->waiting[k]) continue;
        const Outlook *outlook = problem->outlook + k;
        double part = state->waiting[k] * outlook->duration;
        waiting += part;
        view->sm += part * outlook->mean.sm;
        view->memory += part * (problem->kind[k].alone ? 1 : problem->kind[k].memory / mean_capacity);
        view->longest = fmax(view->longest, outlook->duration);
    }
    view->unit = fmax(all / (jobs ? jobs : 1), 1e-3);
    view->bound = fmax(bound, 1e-3);
    view->sm /= fmax(waiting, 1e-9);
    view->memory /= fmax(waiting, 1e-9);
    view->idle = (double)idle / problem->gpus;
    view->fullness = 1 - free_ / fmax(total, 1);
    view->scale = 1;
    for (int round = 0; round < 2; round++) {
        for (int type = 0; type < problem->types; type++)
            for (int k = 0; k < n; k++) {
                size_t at = (size_t)type * n + k;
                if (!state->waiting[k]) continue;
                view->worth[at] =
                    worth_of(view, view->dual[at], problem->outlook[at].duration);
                if (!round) most = fmax(most, view->worth[at]);
            }
        if (view->urgency == 0) break;
        view->scale = most > 0 ? 1 / most : 1;
    }
    free(work);
}

static double value(const Problem *problem, const Member *members, int count) {
    Load loads[JOBS];
    int kinds[JOBS];
    double slow[JOBS], sum = 0;
    for (int i = 0; i < count; i++) loads[i] = members[i].load, kinds[i] = members[i].kind;
    slower(problem, kinds, loads, count, slow);
    for (int i = 0; i < count; i++) sum += members[i].worth / slow[i];
    return sum;
}

/* Factor of the slowdown of a member that allows for what is not known of its pairs: one standard
 * deviation, in proportion to the time in which both are busy. Jobs that are hardly busy cannot slow
 * each other much, and without evidence a budget would keep all applications apart. */
static double margin(const Problem *problem, const Member *members, int count, int i) {
    double factor = 1;
    if (!problem->spreads) return factor;
    const double *row = problem->spreads +
                        (size_t)problem->kind[members[i].kind].application * problem->applications;
    for (int j = 0; j < count; j++)
        if (j != i)
            factor *= 1 + row[problem->kind[members[j].kind].application] *
                              members[i].load.busy * members[j].load.busy;
    return factor;
}

static Prediction predict(const Problem *problem, const View *view, const Member *members,
                          int count) {
    Prediction out = {0};
    Load loads[JOBS];
    int kinds[JOBS], who[JOBS], n = 0, ending = 0;
    double left[JOBS], slow[JOBS], now = 0;
    for (int i = 0; i < count; i++) {
        who[n] = i;
        kinds[n] = members[i].kind;
        loads[n] = members[i].load;
        left[n++] = members[i].ends ? members[i].left : DBL_MAX;
        ending += members[i].ends;
        out.valued += members[i].ends ? members[i].dual * members[i].left : 0;
        out.sm += members[i].load.sm;
        out.pcie += members[i].load.pcie;
        out.busy += members[i].load.busy;
    }
    int all = ending;
    while (ending) {
        double step = DBL_MAX;
        slower(problem, kinds, loads, n, slow);
        if (now == 0)
            for (int i = 0; i < n; i++) {
                const Member *one = members + who[i];
                out.worth += one->worth / slow[i];
                out.dual += one->dual / slow[i];
                out.speed += one->ends / slow[i];
                out.rate += one->ends * fmin(view->unit / one->left, MOST_WORTH) / slow[i];
            }
        for (int i = 0; i < n; i++)
            if (left[i] < DBL_MAX) step = fmin(step, left[i] * slow[i]);
        now += step;
        if (out.first == 0) out.first = now;
        int kept = 0;
        for (int i = 0; i < n; i++) {
            if (left[i] < DBL_MAX) {
                left[i] -= step / slow[i];
                if (left[i] <= 1e-9 * (1 + step)) {
                    double much = now / members[who[i]].left;
                    out.slowest = fmax(out.slowest, much);
                    out.risk = fmax(out.risk, much * margin(problem, members, count, who[i]));
                    out.slow += much / all;
                    ending--;
                    continue;
                }
            }
            who[kept] = who[i], kinds[kept] = kinds[i], loads[kept] = loads[i];
            left[kept++] = left[i];
        }
        n = kept;
    }
    out.last = now;
    return out;
}

static int members_of(const Problem *problem, const View *view, const Gpu *gpu, Member *members) {
    for (int i = 0; i < gpu->free.jobs; i++) {
        const Running *job = gpu->jobs + i;
        Member *one = members + i;
        one->kind = job->kind;
        one->left = fmax(rest_of(problem, gpu, job, &one->load), 1e-6);
        one->ends = !problem->kind[job->kind].lasting;
        one->dual = one->ends ? view->dual[(size_t)gpu->type * problem->kinds + job->kind] : 0;
        one->worth = one->ends ? worth_of(view, one->dual, one->left) : 0;
    }
    return gpu->free.jobs;
}

static void join(const Problem *problem, const View *view, const Gpu *gpu, int kind, Member *one) {
    size_t at = (size_t)gpu->type * problem->kinds + kind;
    const Outlook *outlook = problem->outlook + at;
    *one = (Member){outlook->mean, outlook->duration, view->worth[at], view->dual[at], kind, 1};
}

static void describe(const Problem *problem, const State *state, const View *view, const Gpu *gpu,
                     const Member *members, int before, int count, const Prediction *old,
                     const Prediction *now, Choice *out) {
    double unit = view->unit, capacity = fmax(1, (double)gpu->free.capacity);
    double memory = fmax(0, (double)gpu->free.memory) / capacity, takes = 0, sm = 0, work = 0;
    double longest = 0, turns = old->last;
    int added = count - before, size = added ? added : 1;
    for (int i = before; i < count; i++) {
        const Kind *kind = problem->kind + members[i].kind;
        takes += kind->alone ? 1 : kind->memory / capacity;
        sm += members[i].load.sm;
        work += members[i].left;
        longest = fmax(longest, members[i].left);
    }
    turns += work;
    double values[FEATURES] = {
        !added, added / 3., count / 4., now->dual, now->dual - old->dual, now->worth,
        now->worth - old->worth, now->speed / 2, now->speed - old->speed, now->rate / 2,
        now->rate - old->rate, memory - takes, takes, fmin(now->sm, 2), now->pcie, now->busy / 2,
        added ? sm / size - view->sm - takes / size + view->memory : 0,
        now->slowest ? now->slowest - 1 : 0, now->slow ? now->slow - 1 : 0,
        log1p(now->last / unit), log1p(now->first / unit), (now->last - now->valued) / unit,
        now->last / view->bound, longest / fmax(view->longest, 1e-3), work / size / unit,
        now->last / fmax(turns, 1e-3), (now->last - old->last) / unit,
        log1p((double)state->queued / problem->gpus) / 2, log1p(view->bound / unit), view->idle,
        view->memory, view->fullness,
    };
    for (int i = 0; i < FEATURES; i++)
        out->inputs[i] = (float)fmax(-LARGEST, fmin(LARGEST, values[i]));
}

/* Write the images of a choice; those of the GPU and of all jobs that fit it stand in `common`. */
static void draw(const Problem *problem, const State *state, const View *view,
                 const float *common, Choice *out) {
    float *image = out->inputs + FEATURES, *chosen = image + IMAGE, *others = chosen + IMAGE;
    memcpy(image, common, sizeof(float) * IMAGE);
    memset(chosen, 0, sizeof(float) * IMAGE);
    for (int i = 0; i < out->size; i++)
        add_waiting(problem, state->gpu + out->gpu, out->kinds[i], view->unit, 1, chosen);
    float left = common[2 * IMAGE] - out->size;
    for (int i = 0; i < IMAGE; i++)
        others[i] = left > 0 ? (common[IMAGE + i] - chosen[i]) / left : 0;
}

/* Draw the image of a GPU, that of all waiting jobs of some kinds, and their number. */
static void draw_common(const Problem *problem, const State *state, const View *view, int place,
                        const int *kinds, int count, float *common) {
    const Gpu *gpu = state->gpu + place;
    memset(common, 0, sizeof(float) * (2 * IMAGE + 1));
    for (int i = 0; i < gpu->free.jobs; i++)
        add_running(problem, gpu, gpu->jobs + i, view->unit, common);
    for (int i = 0; i < count; i++) {
        int waits = state->waiting[kinds[i]];
        add_waiting(problem, gpu, kinds[i], view->unit, waits, common + IMAGE);
        common[2 * IMAGE] += (float)waits;
    }
}

/* Return the first `wide` waiting kinds that fit a GPU. */
static int visible(const Problem *problem, const State *state, const Gpu *gpu, int wide,
                   int *kinds) {
    int count = 0;
    for (int k = 0; k < problem->kinds && count < wide; k++)
        if (state->waiting[k] && fits(problem, gpu, host_of(state, gpu), k)) kinds[count++] = k;
    return count;
}

typedef struct {
    int kinds[SET];
    int size;
    double gain;
} Set;

static int better(const void *one, const void *other) {
    const Set *a = one, *b = other;
    if (a->gain != b->gain) return a->gain > b->gain ? -1 : 1;
    if (a->size != b->size) return a->size - b->size;
    return memcmp(a->kinds, b->kinds, sizeof a->kinds);
}

static int same(const Set *one, const Set *other) {
    return one->size == other->size && !memcmp(one->kinds, other->kinds, sizeof one->kinds);
}

int choices(const Problem *problem, const State *state, const View *view, int place, int most,
            int size, int wide, Choice *out) {
    const Gpu *gpu = state->gpu + place;
    Member members[JOBS + SET];
    int window[WINDOW], before = members_of(problem, view, gpu, members);
    int fitting = visible(problem, state, gpu, wide, window);
    if (!fitting) return 0;
    Prediction old = predict(problem, view, members, before);
    double had = before ? value(problem, members, before) : 0;
    Set found[SET * FOUND], level[BEAM] = {{{0}, 0, 0}};
    int count = 0, beam = 1, ending = 0;
    for (int i = 0; i < before; i++) ending += members[i].ends;
    for (int n = 1; n <= size && beam; n++) {
        int from = count;
        for (int b = 0; b < beam; b++) {
            Gpu then = *gpu;
            int64_t left[HOST], *host = host_of(state, gpu);
            if (host) host = memcpy(left, host, sizeof left);
            for (int i = 0; i < level[b].size; i++) {
                join(problem, view, gpu, level[b].kinds[i], members + before + i);
                hold(problem->kind + level[b].kinds[i], &then.free, host, 1);
            }
            for (int i = 0; i < fitting && count < SET * FOUND; i++) {
                Set next = level[b];
                int k = window[i], used = 0, at = next.size++;
                for (int j = 0; j < at; j++) used += next.kinds[j] == k;
                if (used >= state->waiting[k] || (at && !fits(problem, &then, host, k))) continue;
                for (; at > 0 && next.kinds[at - 1] > k; at--) next.kinds[at] = next.kinds[at - 1];
                next.kinds[at] = k;
                int known = 0;
                for (int j = from; j < count && !known; j++) known = same(found + j, &next);
                if (known) continue;
                join(problem, view, gpu, k, members + before + n - 1);
                next.gain = value(problem, members, before + n) - had;
                found[count++] = next;
            }
        }
        qsort(found + from, count - from, sizeof(Set), better);
        beam = most < BEAM ? most : BEAM;
        if (beam > count - from) beam = count - from;
        memcpy(level, found + from, sizeof(Set) * beam);
        count = from + (count - from < FOUND / 2 ? count - from : FOUND / 2);
    }
    qsort(found, count, sizeof(Set), better);
    int made = 0;
    float common[2 * IMAGE + 1];
    if (view->images) draw_common(problem, state, view, place, window, fitting, common);
    for (int i = 0; i < count && made < most; i++) {
        double turns = old.last;
        for (int j = 0; j < found[i].size; j++) {
            join(problem, view, gpu, found[i].kinds[j], members + before + j);
            turns += members[before + j].left;
        }
        int all = before + found[i].size;
        Prediction now = predict(problem, view, members, all);
        /* Beside services alone nothing is gained by waiting. */
        int alone = !ending && found[i].size == 1;
        if (!alone && (now.last > turns * TOLERANCE || now.risk > view->budget)) continue;
        Choice *one = out + made++;
        *one = (Choice){place, found[i].size, {0}, found[i].gain, {0}, 0};
        memcpy(one->kinds, found[i].kinds, sizeof one->kinds);
        describe(problem, state, view, gpu, members, before, all, &old, &now, one);
        if (view->images) draw(problem, state, view, common, one);
    }
    return made;
}

void waiting(const Problem *problem, const State *state, const View *view, int place,
             Choice *out) {
    const Gpu *gpu = state->gpu + place;
    Member members[JOBS];
    int count = members_of(problem, view, gpu, members);
    Prediction old = predict(problem, view, members, count);
    *out = (Choice){place, 0, {0}, 0, {0}, 0};
    describe(problem, state, view, gpu, members, count, count, &old, &old, out);
    if (!view->images) return;
    int window[WINDOW], fitting = visible(problem, state, gpu, WINDOW, window);
    float common[2 * IMAGE + 1];
    draw_common(problem, state, view, place, window, fitting, common);
    draw(problem, state, view, common, out);
}

int best_kind(const Problem *problem, const State *state, const View *view, const double *dual,
              const double *worth, const Gpu *gpu, double least) {
    int kinds[JOBS + 1] = {0}, phases[JOBS + 1] = {0};
    int count = gpu->free.jobs, best = -1, seen = 0;
    double gains[JOBS + 1], slow[JOBS + 1], had = count ? least : -1;
    size_t row = (size_t)gpu->type * problem->kinds;
    for (int i = 0; i < count; i++) {
        const Running *job = gpu->jobs + i;
        kinds[i] = job->kind, phases[i] = WHOLE;
        gains[i] = 0;
        if (!problem->kind[job->kind].lasting)
            gains[i] = worth_of(view, dual[row + job->kind], left_of(problem, gpu, job));
    }
    if (count) rates_of(problem, gpu->type, kinds, phases, count, slow);
    for (int i = 0; i < count; i++) had += gains[i] / slow[i];
    phases[count] = WHOLE;
    for (int k = 0; k < problem->kinds && seen < WINDOW; k++) {
        if (!state->waiting[k] || !fits(problem, gpu, host_of(state, gpu), k)) continue;
        seen++;
        kinds[count] = k;
        gains[count] = worth[row + k];
        rates_of(problem, gpu->type, kinds, phases, count + 1, slow);
        double sum = 0;
        for (int i = 0; i <= count; i++) sum += gains[i] / slow[i];
        if (sum > had) had = sum, best = k;
    }
    return best;
}
