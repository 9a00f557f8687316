// One parallel region a call: threads start, walk the phases together, end.
//
// Nothing outlives a call, so a process may fork at any time, and no second thread pool spins beside
// PyTorch's. Items are taken from a counter; what an item computes must not depend on who takes it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ngpc {

struct Phase {
    int64_t num_items;
    void (*run)(void* context, int64_t item, int thread);
};

// All items of a phase are done before the next phase begins. `thread` is below `num_threads`.
void run_region(int num_threads, const Phase* phases, int num_phases, void* context);

// Memory at addresses that are multiples of 64, or null; uninitialised.
void* allocate(size_t size_bytes);
void release(void* memory);

}  // namespace ngpc
