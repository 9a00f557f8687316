#include "region.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace ngpc {

namespace {

constexpr int MAX_THREADS = 256;
constexpr int MAX_PHASES = 4;

// Waiting threads sleep: on a busy machine a spinning one would take the core from whom it waits for.
class Meeting {
  public:
    void set_size(int size) {
        std::lock_guard<std::mutex> lock(mutex_);
        size_ = size;
        changed_.notify_all();
    }

    void wait_for_size() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return size_ > 0; });
    }

    void arrive_and_wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        const int round = round_;
        if (++arrived_ == size_) {
            arrived_ = 0;
            ++round_;
            changed_.notify_all();
            return;
        }
        changed_.wait(lock, [this, round] { return round_ != round; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int size_ = 0;
    int arrived_ = 0;
    int round_ = 0;
};

}  // namespace

void run_region(int num_threads, const Phase* phases, int num_phases, void* context) {
    int64_t most_items = 1;
    for (int phase = 0; phase < num_phases; ++phase) {
        most_items = phases[phase].num_items > most_items ? phases[phase].num_items : most_items;
    }
    int wanted = num_threads < MAX_THREADS ? num_threads : MAX_THREADS;
    wanted = most_items < wanted ? static_cast<int>(most_items) : wanted;
    std::atomic<int64_t> next[MAX_PHASES] = {};
    Meeting meeting;
    const auto walk = [&](int thread) {
        for (int phase = 0; phase < num_phases; ++phase) {
            for (;;) {
                const int64_t item = next[phase].fetch_add(1, std::memory_order_relaxed);
                if (item >= phases[phase].num_items) break;
                phases[phase].run(context, item, thread);
            }
            if (phase + 1 < num_phases) meeting.arrive_and_wait();
        }
    };
    std::thread threads[MAX_THREADS];
    int started = 1;
    try {
        for (; started < wanted; ++started) {
            threads[started] = std::thread([&, thread = started] {
                meeting.wait_for_size();
                walk(thread);
            });
        }
    } catch (const std::system_error&) {  // no more threads to be had: fewer do the work
    }
    meeting.set_size(started);
    walk(0);
    for (int thread = 1; thread < started; ++thread) threads[thread].join();
}

void* allocate(size_t size_bytes) {
    return ::operator new(size_bytes > 0 ? size_bytes : 1, std::align_val_t(64), std::nothrow);
}

void release(void* memory) { ::operator delete(memory, std::align_val_t(64)); }

}  // namespace ngpc

// The widest instructions that this processor and its operating system offer.
extern "C" __attribute__((visibility("default"))) const char* ngpc_best_instructions() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        const bool is_512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
        return is_512 ? "avx512" : "avx2";
    }
#endif
    return "portable";
}
