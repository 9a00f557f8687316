// Vectors as wide as the instructions this file is compiled for, by the compiler's own extension.
//
// Every kernel file is compiled once for each instruction set, with NGPC_INSTRUCTIONS naming it; its
// exported functions end in that name. Kernel files use no templates of the standard library: the
// linker would keep one copy of each, perhaps one with instructions that the processor lacks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#define NGPC_JOIN_(a, b) a##_##b
#define NGPC_JOIN(a, b) NGPC_JOIN_(a, b)
#define NGPC_EXPORT(name) \
    extern "C" __attribute__((visibility("default"))) int NGPC_JOIN(name, NGPC_INSTRUCTIONS)
#define NGPC_INLINE static inline __attribute__((always_inline))

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float FloatLanes __attribute__((vector_size(4 * LANES)));
typedef int32_t IntLanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t UintLanes __attribute__((vector_size(4 * LANES)));
typedef double DoubleLanes __attribute__((vector_size(8 * LANES)));
typedef float UnalignedFloatLanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t UnalignedUintLanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

NGPC_INLINE FloatLanes load_lanes(const float* from) {
    return *reinterpret_cast<const UnalignedFloatLanes*>(from);
}

NGPC_INLINE UintLanes load_lanes(const uint32_t* from) {
    return *reinterpret_cast<const UnalignedUintLanes*>(from);
}

NGPC_INLINE void store_lanes(float* to, FloatLanes values) {
    *reinterpret_cast<UnalignedFloatLanes*>(to) = values;
}

NGPC_INLINE void store_lanes(uint32_t* to, UintLanes values) {
    *reinterpret_cast<UnalignedUintLanes*>(to) = values;
}

// Whether any lane is not zero.
NGPC_INLINE bool any(UintLanes lanes) {
    uint64_t halves[LANES / 2];
    std::memcpy(halves, &lanes, sizeof(halves));
    uint64_t together = 0;
    for (int index = 0; index < LANES / 2; ++index) together |= halves[index];
    return together != 0;
}

// F features of one entry.
template <int F>
struct Row {
    typedef float Type __attribute__((vector_size(4 * F), aligned(4), may_alias));
};
template <>
struct Row<1> {
    typedef float Type;
};

template <int F>
NGPC_INLINE typename Row<F>::Type load_row(const float* from) {
    return *reinterpret_cast<const typename Row<F>::Type*>(from);
}

template <int F>
NGPC_INLINE float dot(typename Row<F>::Type a, typename Row<F>::Type b) {
    if constexpr (F == 1) {
        return a * b;
    } else {
        float sum = a[0] * b[0];
        for (int feature = 1; feature < F; ++feature) sum += a[feature] * b[feature];
        return sum;
    }
}

}  // namespace
