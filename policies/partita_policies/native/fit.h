/* Whether a job fits a GPU, for all that decides in C. Memory is in bytes. */
#ifndef PARTITA_FIT_H
#define PARTITA_FIT_H

#include <stddef.h>
#include <stdint.h>

enum { HOST = 3 }; /* CPU, memory and storage of a node */

/* What a job of a kind asks for. */
typedef struct {
    int64_t memory;
    int64_t host[HOST];
    int32_t slots, clients;
    int32_t alone; /* its GPU must be idle, and it gets all of the memory */
    int32_t lasting;
    int32_t application; /* row in `factors` and `spreads` of a problem */
    int32_t unused;
} Kind;

typedef struct {
    int64_t capacity, memory; /* in all, and not allocated */
    int32_t slots, clients;   /* not allocated */
    int32_t jobs;             /* on it */
    int32_t alone;            /* whether one of them must be alone */
} FreeGPU;

/* Whether a GPU has enough left. host: what its node has left, or NULL if unknown. */
static inline int has_room(const Kind *kind, const FreeGPU *gpu, const int64_t *host) {
    if (gpu->alone || (kind->alone && gpu->jobs) || kind->memory > gpu->memory ||
        kind->slots > gpu->slots || kind->clients > gpu->clients)
        return 0;
    for (int i = 0; host && i < HOST; i++)
        if (kind->host[i] > 0 && kind->host[i] > host[i]) return 0;
    return 1;
}

/* Take (1) or give back (-1) what a job holds of a GPU, and of its node if that is not NULL. */
static inline void hold(const Kind *kind, FreeGPU *gpu, int64_t *host, int sign) {
    gpu->memory -= sign * (kind->alone ? gpu->capacity : kind->memory);
    gpu->slots -= sign * kind->slots;
    gpu->clients -= sign * kind->clients;
    gpu->jobs += sign;
    if (kind->alone) gpu->alone = sign > 0;
    for (int i = 0; host && i < HOST; i++) host[i] -= sign * kind->host[i];
}

#endif
