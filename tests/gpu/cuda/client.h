/* What a process has of the fake GPU: shared by libcuda.c, the library that programs load, and
 * cuda.c, a program of its own. A process uses one GPU, from one thread.
 *
 * The functions return a `CUresult`:
 * https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html.
 */
#ifndef PARTITA_FAKE_CUDA_CLIENT_H
#define PARTITA_FAKE_CUDA_CLIENT_H

#include "../state.h"

enum {
    INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719, NOT_PERMITTED = 800, MPS_CONNECTION_FAILED = 805, MPS_RPC_FAILURE = 806,
    MPS_SERVER_NOT_READY = 807, MPS_MAX_CLIENTS_REACHED = 808, MPS_CLIENT_TERMINATED = 810,
    INVALID_RESOURCE_CONFIGURATION = 915, UNKNOWN = 999,
};
#define MIB (1ull << 20)

const char *error_name(int error);
const char *error_text(int error);

/* Connects to the driver, and to MPS where there is a daemon; a `server` is MPS's own. */
int attach(int server);
/* Makes a context, which takes memory of its own. */
int open_context(void);
void close_context(void);
int has_context(void);
/* Forgets all without a word to anybody: the process is a child that has nothing yet. */
void forget(void);

int visible_gpus(int *found);
int take(u64 bytes);
void give_back(u64 bytes);
/* The use of the SMs from now on, in percent; MPS may allow less. */
int compute(unsigned percent);
/* Memory as the program sees it. */
int memory_info(u64 *free, u64 *total);
u64 taken(void);
/* Makes an illegal access, or an SM's exception; returns what the program learns of it. */
int fault(int of_sm);
/* Waits, and returns the error that has ended this client meanwhile. The same error is the answer
 * to all later calls. */
int listen_for(int milliseconds);

#endif
