#include "duals.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 100 };
static const double BETTER = 1e-4;

typedef struct {
    double amount, work;
    int kind;
} Point;

static int by_amount(const void *one, const void *other) {
    const Point *a = one, *b = other;
    if (a->amount != b->amount) return a->amount < b->amount ? -1 : 1;
    return a->kind - b->kind;
}

/* Repeatedly split the group with the widest spread at its weighted median along that axis. */
static int split(const Load *loads, const double *memory, const double *work, int kinds, int *of) {
    double most[2] = {-DBL_MAX, -DBL_MAX}, least[2] = {DBL_MAX, DBL_MAX};
    Point *points = malloc(sizeof(Point) * kinds);
    if (!points) return 0;
    for (int k = 0; k < kinds; k++) {
        double axes[2] = {memory[k], loads[k].sm};
        for (int a = 0; a < 2; a++) {
            most[a] = fmax(most[a], axes[a]);
            least[a] = fmin(least[a], axes[a]);
        }
        of[k] = 0;
    }
    double scale[2] = {fmax(most[0] - least[0], 1e-9), fmax(most[1] - least[1], 1e-9)};
    int groups = 1;
    while (groups < GROUPS) {
        double low[GROUPS][2], high[GROUPS][2];
        for (int g = 0; g < groups; g++)
            for (int a = 0; a < 2; a++) low[g][a] = DBL_MAX, high[g][a] = -DBL_MAX;
        for (int k = 0; k < kinds; k++) {
            double axes[2] = {memory[k] / scale[0], loads[k].sm / scale[1]};
            for (int a = 0; a < 2; a++) {
                low[of[k]][a] = fmin(low[of[k]][a], axes[a]);
                high[of[k]][a] = fmax(high[of[k]][a], axes[a]);
            }
        }
        int widest = 0, axis = 0;
        double spread = 0;
        for (int g = 0; g < groups; g++)
            for (int a = 0; a < 2; a++)
                if (high[g][a] - low[g][a] > spread)
                    spread = high[g][a] - low[g][a], widest = g, axis = a;
        if (spread <= 1e-9) break;
        int count = 0;
        double total = 0, reached = 0;
        for (int k = 0; k < kinds; k++)
            if (of[k] == widest) {
                points[count++] = (Point){axis ? loads[k].sm : memory[k], work[k], k};
                total += work[k];
            }
        qsort(points, count, sizeof(Point), by_amount);
        int middle = 0;
        while (middle + 1 < count && (reached += points[middle].work) < total / 2) middle++;
        double cut = points[middle].amount;
        if (cut == points[count - 1].amount) { /* the last group has the largest amounts only */
            for (int i = 0; i < count; i++)
                if (points[i].amount == cut) of[points[i].kind] = groups;
        } else {
            for (int i = 0; i < count; i++)
                if (points[i].amount > cut) of[points[i].kind] = groups;
        }
        groups++;
    }
    free(points);
    return groups;
}

typedef struct {
    Load load[GROUPS];
    double memory[GROUPS];
} Means;

static void average(Means *means, const Load *loads, const double *memory, const double *work,
                    int kinds, const int *of, int groups) {
    double sums[GROUPS][LOAD_FIELDS] = {{0}}, weight[GROUPS] = {0};
    memset(means, 0, sizeof *means);
    for (int k = 0; k < kinds; k++) {
        double part = fmax(work[k], 1e-6);
        const LoadAmount *amounts = (const LoadAmount *)(loads + k);
        for (int i = 0; i < LOAD_FIELDS; i++) sums[of[k]][i] += part * amounts[i];
        means->memory[of[k]] += part * memory[k];
        weight[of[k]] += part;
    }
    for (int g = 0; g < groups; g++) {
        LoadAmount *amounts = (LoadAmount *)(means->load + g);
        for (int i = 0; i < LOAD_FIELDS; i++) amounts[i] = (LoadAmount)(sums[g][i] / weight[g]);
        means->memory[g] /= weight[g];
    }
}

void programme(Programme *out, const Load *loads, const double *memory, const double *work,
               int kinds, int sharing, int *of) {
    Means means;
    if (kinds <= GROUPS) {
        out->groups = kinds;
        for (int k = 0; k < kinds; k++) of[k] = k;
    } else {
        out->groups = split(loads, memory, work, kinds, of);
    }
    average(&means, loads, memory, work, kinds, of, out->groups);
    out->sets = 0;
    int members[SET];
    for (int size = 1; size <= (sharing == EXCLUSIVE ? 1 : SET); size++) {
        for (int i = 0; i < size; i++) members[i] = 0;
        for (;;) { /* all multisets of `size` groups, in ascending order */
            double slow[SET], allocated = 0;
            Load of_set[SET];
            for (int i = 0; i < size; i++) {
                allocated += means.memory[members[i]];
                of_set[i] = means.load[members[i]];
            }
            /* A job that needs more memory than this GPU has runs on another: it is assumed to
             * run alone. */
            if (size == 1 || allocated <= 1 + 1e-6) {
                double *rate = out->rate[out->sets];
                memset(rate, 0, sizeof(double) * GROUPS);
                slowdowns(of_set, size, sharing, NULL, slow);
                for (int i = 0; i < size; i++) rate[members[i]] += 1 / slow[i];
                if (size == 1) out->alone[members[0]] = out->sets;
                out->sets++;
            }
            int place = size - 1;
            while (place >= 0 && members[place] == out->groups - 1) place--;
            if (place < 0) break;
            int next = members[place] + 1;
            for (int i = place; i < size; i++) members[i] = next;
        }
    }
}

static double value(const double *rate, const double *dual, int groups) {
    double sum = 0;
    for (int g = 0; g < groups; g++) sum += rate[g] * dual[g];
    return sum;
}

void solve_duals(const Programme *programme, const double *work, double *dual) {
    int n = programme->groups;
    double inverse[GROUPS][GROUPS] = {{0}}, runs[GROUPS], cost[GROUPS];
    for (int g = 0; g < n; g++) { /* initially every job runs alone */
        inverse[g][g] = 1 / programme->rate[programme->alone[g]][g];
        runs[g] = inverse[g][g] * fmax(work[g], 1e-3);
        dual[g] = inverse[g][g];
        cost[g] = 1;
    }
    for (int round = 0; round < STEPS; round++) {
        int best = 0, least = 0, leaving = -1;
        double most = -DBL_MAX;
        for (int s = 0; s < programme->sets; s++) {
            double of_set = value(programme->rate[s], dual, n);
            if (of_set > most) most = of_set, best = s;
        }
        for (int g = 1; g < n; g++)
            if (dual[g] < dual[least]) least = g;
        double entering[GROUPS] = {0}, spends = 1, gain = most - 1;
        if (gain > -dual[least]) {
            memcpy(entering, programme->rate[best], sizeof entering);
        } else { /* the surplus variable of the group with the lowest dual */
            entering[least] = -1;
            spends = 0;
            gain = -dual[least];
        }
        if (gain < BETTER) break;
        double step[GROUPS], ratio = DBL_MAX;
        for (int i = 0; i < n; i++) {
            step[i] = value(inverse[i], entering, n);
            if (step[i] > 1e-12 && runs[i] / step[i] < ratio) ratio = runs[i] / step[i], leaving = i;
        }
        if (leaving < 0) break;
        for (int i = 0; i < n; i++) runs[i] = fmax(runs[i] - ratio * step[i], 0);
        runs[leaving] = ratio;
        for (int g = 0; g < n; g++) inverse[leaving][g] /= step[leaving];
        for (int i = 0; i < n; i++)
            if (i != leaving)
                for (int g = 0; g < n; g++) inverse[i][g] -= step[i] * inverse[leaving][g];
        cost[leaving] = spends;
        for (int g = 0; g < n; g++) {
            dual[g] = 0;
            for (int i = 0; i < n; i++) dual[g] += cost[i] * inverse[i][g];
        }
    }
    double most = 1e-9;
    for (int g = 0; g < n; g++) dual[g] = fmax(dual[g], 0);
    for (int s = 0; s < programme->sets; s++)
        most = fmax(most, value(programme->rate[s], dual, n));
    for (int g = 0; g < n; g++) dual[g] /= most;
}
