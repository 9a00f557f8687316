// Multi-resolution grid encoding: values, first and second derivatives.
//
// Level by level over tiles of many points: a level's table (4 MiB at 2^19 entries of two floats) then
// stays in cache, which is worth three times the order that takes all levels of a point together.
// Within a level points go through in blocks. The rows of one block are fetched ahead while those of
// the one before are mixed.
//
// Three functions, each also along a direction v in space (`directions`), which is what second
// derivatives need:
//
//   values             sum of the corners' rows times weights w            or  (v . dw/dx)
//   position gradient  upstream . rows times dw/dx                         or  d/dx of (v . dw/dx)
//   table gradient     upstream times weights w, added to the rows         or  (v . dw/dx)
//
// The definition of every number is ngpc/backends/reference/hash_grid.py.
#include "region.h"
#include "vectors.h"

extern "C" struct NgpcGrid {
    int32_t num_levels;
    int32_t num_dims;
    int32_t num_features;
    int32_t interpolation;  // 0 nearest, 1 linear, 2 smoothstep
    const double* scales;
    const int64_t* levels;  // resolution, offset, entries, is hashed
};

namespace {

constexpr int BLOCK = 32;
constexpr int MAX_DIMS = 4;
constexpr int MAX_CORNERS = 1 << MAX_DIMS;
constexpr int64_t MAX_TILE = 1 << 17;
constexpr int64_t MIN_TILE = 1 << 10;
constexpr int64_t TILE_BYTES = 32 << 20;
constexpr uint32_t PRIMES[MAX_DIMS] = {1u, 2654435761u, 805459861u, 3674653429u};
constexpr int NEAREST = 0;
constexpr int SMOOTHSTEP = 2;

static_assert(BLOCK % LANES == 0, "a block is whole vectors");

struct Level {
    double scale;
    uint32_t resolution;
    uint32_t num_entries;
    uint64_t reciprocal;  // 2^64 / num_entries, rounded up: remainders without division
    int64_t offset;
    bool is_hashed;
};

Level read_level(const NgpcGrid& grid, int index) {
    const int64_t* row = grid.levels + 4 * index;
    const uint64_t entries = static_cast<uint64_t>(row[2]);
    return {grid.scales[index], static_cast<uint32_t>(row[0]), static_cast<uint32_t>(entries),
            entries > 1 ? ~uint64_t{0} / entries + 1 : 0, row[1], row[3] != 0};
}

// What is known of a block of points on one level.
struct Located {
    alignas(64) float fraction[MAX_DIMS][BLOCK];
    alignas(64) uint32_t entry[MAX_CORNERS][BLOCK];
};

struct Corners {
    alignas(64) float value[MAX_CORNERS][BLOCK];
};

// Lemire, Kaser, Kurz, Faster remainder by direct computation, theorem 1: exact for 32 bits.
NGPC_INLINE uint32_t remainder(uint32_t number, const Level& level) {
    const uint64_t low = level.reciprocal * number;
    return static_cast<uint32_t>((static_cast<unsigned __int128>(low) * level.num_entries) >> 64);
}

// Cells, fractions and the corners' rows of one block; positions axis by axis.
template <int D, int CORNERS>
void locate(const float* const* positions, const Level& level, Located& located) {
    const uint32_t size = level.num_entries;
    for (int first = 0; first < BLOCK; first += LANES) {
        UintLanes along[D][2];
        uint32_t stride = 1;
        for (int axis = 0; axis < D; ++axis) {
            // In double, rounded once: what a fused multiply-add gives, on every processor.
            const DoubleLanes position =
                __builtin_convertvector(load_lanes(positions[axis] + first), DoubleLanes);
            const FloatLanes at =
                __builtin_convertvector(position * level.scale + 0.5, FloatLanes);
            IntLanes cell = __builtin_convertvector(at, IntLanes);
            cell += at < __builtin_convertvector(cell, FloatLanes);  // true is -1: floor
            store_lanes(located.fraction[axis] + first,
                        at - __builtin_convertvector(cell, FloatLanes));
            const uint32_t factor = level.is_hashed ? PRIMES[axis] : stride;
            along[axis][0] = (UintLanes)cell * factor;
            along[axis][1] = along[axis][0] + factor;
            stride *= level.resolution;
        }
        if (level.is_hashed) {
            for (int corner = 0; corner < CORNERS; ++corner) {
                UintLanes index = along[0][corner & 1];
                for (int axis = 1; axis < D; ++axis) index ^= along[axis][corner >> axis & 1];
                store_lanes(located.entry[corner] + first, index & (size - 1));  // a power of two
            }
            continue;
        }
        // Rows beyond the end begin again: the usual overhang by a grid line is subtracted, what is
        // still beyond is divided.
        UintLanes is_beyond{};
        for (int corner = 0; corner < CORNERS; ++corner) {
            UintLanes index = along[0][corner & 1];
            for (int axis = 1; axis < D; ++axis) index += along[axis][corner >> axis & 1];
            store_lanes(located.entry[corner] + first, index);
            is_beyond |= (UintLanes)(index - ((UintLanes)(index >= size) & size) >= size);
        }
        const bool is_divided = any(is_beyond);
        for (int corner = 0; corner < CORNERS; ++corner) {
            uint32_t* entry = located.entry[corner] + first;
            if (is_divided) {
                for (int lane = 0; lane < LANES; ++lane) entry[lane] = remainder(entry[lane], level);
            } else {
                const UintLanes index = load_lanes(entry);
                store_lanes(entry, index - ((UintLanes)(index >= size) & size));
            }
        }
    }
}

// The weight of the upper vertex along an axis, and its first and second derivative by position.
struct Upper {
    FloatLanes weight, slope, curvature;
};

NGPC_INLINE Upper upper_vertex(FloatLanes fraction, int interpolation, float scale) {
    if (interpolation == SMOOTHSTEP) {
        return {fraction * fraction * (3.0f - 2.0f * fraction),
                scale * (6.0f * fraction * (1.0f - fraction)),
                scale * scale * (6.0f - 12.0f * fraction)};
    }
    return {fraction, fraction * 0.0f + scale, fraction * 0.0f};
}

// The weight of every corner.
template <int D, int CORNERS>
void mix_weights(const Located& located, int interpolation, float, const float* const*,
                 Corners& weights) {
    for (int first = 0; first < BLOCK; first += LANES) {
        FloatLanes weight[1 << D];
        weight[0] = FloatLanes{} + 1.0f;
        for (int axis = 0; axis < D; ++axis) {
            const FloatLanes fraction = load_lanes(located.fraction[axis] + first);
            if constexpr (CORNERS == 1) {
                weight[0] += 0.0f * fraction;  // a position that is no number gives no number
            } else {
                const FloatLanes upper = upper_vertex(fraction, interpolation, 1.0f).weight;
                for (int corner = 0; corner < 1 << axis; ++corner) {
                    weight[corner + (1 << axis)] = weight[corner] * upper;
                    weight[corner] *= 1.0f - upper;
                }
            }
        }
        for (int corner = 0; corner < CORNERS; ++corner) {
            store_lanes(weights.value[corner] + first, weight[corner]);
        }
    }
}

// The derivative of every corner's weight along the points' directions.
template <int D, int CORNERS>
void mix_slopes(const Located& located, int interpolation, float scale,
                const float* const* directions, Corners& slopes) {
    for (int first = 0; first < BLOCK; first += LANES) {
        FloatLanes weight[1 << D], slope[1 << D];
        weight[0] = FloatLanes{} + 1.0f;
        slope[0] = FloatLanes{};
        for (int axis = 0; axis < D; ++axis) {
            const Upper upper =
                upper_vertex(load_lanes(located.fraction[axis] + first), interpolation, scale);
            const FloatLanes change = upper.slope * load_lanes(directions[axis] + first);
            for (int corner = 0; corner < 1 << axis; ++corner) {
                const int above = corner + (1 << axis);
                slope[above] = slope[corner] * upper.weight + weight[corner] * change;
                slope[corner] = slope[corner] * (1.0f - upper.weight) - weight[corner] * change;
                weight[above] = weight[corner] * upper.weight;
                weight[corner] *= 1.0f - upper.weight;
            }
        }
        for (int corner = 0; corner < CORNERS; ++corner) {
            store_lanes(slopes.value[corner] + first, slope[corner]);
        }
    }
}

// Fetches a point's rows. One point of the next block is fetched for every point that is mixed: a
// burst of all would fill the queue of what is on its way, and wait.
template <int CORNERS, int F>
NGPC_INLINE void fetch(const float* table, const Located& located, int point) {
    for (int corner = 0; corner < CORNERS; ++corner) {
        __builtin_prefetch(table + size_t{F} * located.entry[corner][point]);
    }
}

template <int CORNERS, int F>
void gather(const float* table, const Located& located, const Located& next, const Corners& weights,
            float* values) {
    for (int point = 0; point < BLOCK; ++point) {
        fetch<CORNERS, F>(table, next, point);
        typename Row<F>::Type sum =
            weights.value[0][point] * load_row<F>(table + size_t{F} * located.entry[0][point]);
        for (int corner = 1; corner < CORNERS; ++corner) {
            sum += weights.value[corner][point] *
                   load_row<F>(table + size_t{F} * located.entry[corner][point]);
        }
        *reinterpret_cast<typename Row<F>::Type*>(values + F * point) = sum;
    }
}

template <int CORNERS, int F>
void scatter(float* table, const Located& located, const Located& next, const Corners& weights,
             const float* upstream) {
    for (int point = 0; point < BLOCK; ++point) {
        fetch<CORNERS, F>(table, next, point);
        const typename Row<F>::Type change = load_row<F>(upstream + F * point);
        for (int corner = 0; corner < CORNERS; ++corner) {
            auto* row = reinterpret_cast<typename Row<F>::Type*>(
                table + size_t{F} * located.entry[corner][point]);
            *row += weights.value[corner][point] * change;
        }
    }
}

// Every corner's row times the point's upstream.
template <int CORNERS, int F>
void project(const float* table, const Located& located, const Located& next, const float* upstream,
             Corners& products) {
    for (int point = 0; point < BLOCK; ++point) {
        fetch<CORNERS, F>(table, next, point);
        const typename Row<F>::Type change = load_row<F>(upstream + F * point);
        for (int corner = 0; corner < CORNERS; ++corner) {
            products.value[corner][point] =
                dot<F>(load_row<F>(table + size_t{F} * located.entry[corner][point]), change);
        }
    }
}

// Corners' numbers, mixed by the derivative of the weights with respect to position, added.
template <int D>
void add_gradient(const Located& located, const Corners& products, int interpolation, float scale,
                  const float* const*, float* const* gradient) {
    for (int first = 0; first < BLOCK; first += LANES) {
        Upper upper[D];
        for (int axis = 0; axis < D; ++axis) {
            upper[axis] =
                upper_vertex(load_lanes(located.fraction[axis] + first), interpolation, scale);
        }
        for (int by = 0; by < D; ++by) {
            FloatLanes value[1 << D];
            for (int corner = 0; corner < 1 << D; ++corner) {
                value[corner] = load_lanes(products.value[corner] + first);
            }
            for (int axis = D - 1; axis >= 0; --axis) {
                for (int corner = 0; corner < 1 << axis; ++corner) {
                    const FloatLanes low = value[corner], high = value[corner + (1 << axis)];
                    value[corner] = axis == by ? (high - low) * upper[axis].slope
                                               : low * (1.0f - upper[axis].weight) +
                                                     high * upper[axis].weight;
                }
            }
            store_lanes(gradient[by] + first, load_lanes(gradient[by] + first) + value[0]);
        }
    }
}

// The same, differentiated once more along the points' directions.
template <int D>
void add_curvature(const Located& located, const Corners& products, int interpolation, float scale,
                   const float* const* directions, float* const* gradient) {
    for (int first = 0; first < BLOCK; first += LANES) {
        Upper upper[D];
        FloatLanes direction[D];
        for (int axis = 0; axis < D; ++axis) {
            upper[axis] =
                upper_vertex(load_lanes(located.fraction[axis] + first), interpolation, scale);
            direction[axis] = load_lanes(directions[axis] + first);
        }
        for (int by = 0; by < D; ++by) {
            FloatLanes value[1 << D], slope[1 << D];
            for (int corner = 0; corner < 1 << D; ++corner) {
                value[corner] = load_lanes(products.value[corner] + first);
                slope[corner] = FloatLanes{};
            }
            for (int axis = D - 1; axis >= 0; --axis) {
                const Upper& along = upper[axis];
                for (int corner = 0; corner < 1 << axis; ++corner) {
                    const int above = corner + (1 << axis);
                    const FloatLanes step = value[above] - value[corner];
                    if (axis == by) {
                        slope[corner] = (slope[above] - slope[corner]) * along.slope +
                                        step * along.curvature * direction[axis];
                        value[corner] = step * along.slope;
                    } else {
                        slope[corner] = slope[corner] * (1.0f - along.weight) +
                                        slope[above] * along.weight +
                                        step * along.slope * direction[axis];
                        value[corner] = value[corner] * (1.0f - along.weight) +
                                        value[above] * along.weight;
                    }
                }
            }
            store_lanes(gradient[by] + first, load_lanes(gradient[by] + first) + slope[0]);
        }
    }
}

// Columns of rows of numbers, each with room for whole blocks; zeros fill the last.
void to_columns(const float* rows, int num_columns, int width, int64_t num_points, int64_t stride,
                float* columns) {
    const int64_t padded = (num_points + BLOCK - 1) / BLOCK * BLOCK;
    for (int64_t first = 0; first < padded; first += BLOCK) {
        const int64_t count = num_points - first < BLOCK ? num_points - first : BLOCK;
        for (int column = 0; column < num_columns; ++column) {
            float* to = columns + (column * stride + first) * width;
            const float* from = rows + (first * num_columns + column) * width;
            for (int64_t point = 0; point < count; ++point) {
                for (int part = 0; part < width; ++part) {
                    to[point * width + part] = from[point * num_columns * width + part];
                }
            }
            std::memset(to + count * width, 0, sizeof(float) * (BLOCK - count) * width);
        }
    }
}

void to_rows(const float* columns, int num_columns, int width, int64_t num_points, int64_t stride,
             float* rows) {
    for (int64_t first = 0; first < num_points; first += BLOCK) {
        const int64_t count = num_points - first < BLOCK ? num_points - first : BLOCK;
        for (int column = 0; column < num_columns; ++column) {
            const float* from = columns + (column * stride + first) * width;
            float* to = rows + (first * num_columns + column) * width;
            for (int64_t point = 0; point < count; ++point) {
                for (int part = 0; part < width; ++part) {
                    to[point * num_columns * width + part] = from[point * width + part];
                }
            }
        }
    }
}

enum class Work { values, position_gradient, table_gradient };

// One call. The scratch of a tile, axis by axis or level by level, every column `tile` points long:
// positions, directions, features (found or upstream), position gradient.
struct Call {
    const NgpcGrid& grid;
    const float* positions;
    const float* directions;
    const float* table;
    const float* upstream;
    float* result;
    int64_t num_points;
    int64_t tile;
    float* scratch;
    size_t scratch_size;

    int64_t count(int64_t item) const {
        const int64_t left = num_points - item * tile;
        return left < tile ? left : tile;
    }
};

struct Scratch {
    float* positions[MAX_DIMS];
    float* directions[MAX_DIMS];
    float* gradient[MAX_DIMS];
    float* features;
};

Scratch divide(const Call& call, int64_t part) {
    Scratch scratch{};
    float* next = call.scratch + part * call.scratch_size;
    for (int axis = 0; axis < call.grid.num_dims; ++axis) {
        scratch.positions[axis] = next + axis * call.tile;
        scratch.directions[axis] = next + (call.grid.num_dims + axis) * call.tile;
        scratch.gradient[axis] = next + (2 * call.grid.num_dims + axis) * call.tile;
    }
    scratch.features = next + 3 * call.grid.num_dims * call.tile;
    return scratch;
}

void fill(const Call& call, int64_t item, const Scratch& scratch) {
    const int dims = call.grid.num_dims;
    const int64_t count = call.count(item), first = item * call.tile;
    to_columns(call.positions + first * dims, dims, 1, count, call.tile, scratch.positions[0]);
    if (call.directions != nullptr) {
        to_columns(call.directions + first * dims, dims, 1, count, call.tile,
                   scratch.directions[0]);
    }
    if (call.upstream != nullptr) {
        const int levels = call.grid.num_levels, width = call.grid.num_features;
        to_columns(call.upstream + first * levels * width, levels, width, count, call.tile,
                   scratch.features);
    }
}

// All points of a tile on one level.
template <int D, int CORNERS, int F, Work WORK>
void run_level(const Call& call, const Scratch& scratch, int64_t count, int level_index) {
    const Level level = read_level(call.grid, level_index);
    const float scale = static_cast<float>(level.scale);
    const int interpolation = call.grid.interpolation;
    const bool is_scattered = WORK == Work::table_gradient;
    const float* table = (is_scattered ? call.result : call.table) + level.offset * F;
    float* features = scratch.features + level_index * call.tile * F;
    Located located[2] = {};
    Corners corners;
    const auto columns = [&](float* const* from, int64_t first, const float** to) {
        for (int axis = 0; axis < D; ++axis) to[axis] = from[axis] + first;
    };
    const auto look_up = [&](int64_t first, Located& into) {
        const float* positions[D];
        columns(scratch.positions, first, positions);
        locate<D, CORNERS>(positions, level, into);
    };
    look_up(0, located[0]);
    for (int64_t first = 0; first < count; first += BLOCK) {
        const Located& here = located[first / BLOCK % 2];
        Located& next = located[(first / BLOCK + 1) % 2];  // after the last block, what it was
        if (first + BLOCK < count) look_up(first + BLOCK, next);
        const float* directions[D];
        columns(scratch.directions, first, directions);
        if constexpr (WORK == Work::position_gradient) {
            project<CORNERS, F>(table, here, next, features + first * F, corners);
            float* gradient[D];
            for (int axis = 0; axis < D; ++axis) gradient[axis] = scratch.gradient[axis] + first;
            const auto add = call.directions != nullptr ? add_curvature<D> : add_gradient<D>;
            add(here, corners, interpolation, scale, directions, gradient);
        } else {
            const auto mix =
                call.directions != nullptr ? mix_slopes<D, CORNERS> : mix_weights<D, CORNERS>;
            mix(here, interpolation, scale, directions, corners);
            if constexpr (WORK == Work::values) {
                gather<CORNERS, F>(table, here, next, corners, features + first * F);
            } else {
                scatter<CORNERS, F>(call.result + level.offset * F, here, next, corners, features + first * F);
            }
        }
    }
}

template <int D, int CORNERS, int F, Work WORK>
void run_tile(void* context, int64_t item, int thread) {
    const Call& call = *static_cast<const Call*>(context);
    const Scratch scratch = divide(call, thread);
    const int64_t count = call.count(item);
    fill(call, item, scratch);
    if constexpr (WORK == Work::position_gradient) {
        std::memset(scratch.gradient[0], 0, sizeof(float) * D * call.tile);
    }
    for (int level = 0; level < call.grid.num_levels; ++level) {
        run_level<D, CORNERS, F, WORK>(call, scratch, count, level);
    }
    const int64_t first = item * call.tile;
    if constexpr (WORK == Work::values) {
        const int levels = call.grid.num_levels;
        to_rows(scratch.features, levels, F, count, call.tile, call.result + first * levels * F);
    } else {
        to_rows(scratch.gradient[0], D, 1, count, call.tile, call.result + first * D);
    }
}

void fill_tile(void* context, int64_t item, int) {
    const Call& call = *static_cast<const Call*>(context);
    fill(call, item, divide(call, item));
}

// A level's rows are written by one thread, points in order: the same sums however many threads.
template <int D, int CORNERS, int F>
void scatter_level(void* context, int64_t item, int) {
    const Call& call = *static_cast<const Call*>(context);
    const int level_index = call.grid.num_levels - 1 - static_cast<int>(item);  // long ones first
    const Level level = read_level(call.grid, level_index);
    std::memset(call.result + level.offset * F, 0, sizeof(float) * level.num_entries * F);
    for (int64_t tile = 0; tile * call.tile < call.num_points; ++tile) {
        run_level<D, CORNERS, F, Work::table_gradient>(call, divide(call, tile),
                                                               call.count(tile), level_index);
    }
}

int64_t tile_size(const NgpcGrid& grid, int64_t num_points, int num_threads) {
    const int64_t bytes = sizeof(float) * (3 * grid.num_dims + grid.num_levels * grid.num_features);
    int64_t tile = TILE_BYTES / bytes < MAX_TILE ? TILE_BYTES / bytes : MAX_TILE;
    const int64_t share = (num_points + num_threads - 1) / num_threads;
    tile = share < tile ? share : tile;
    tile = tile < MIN_TILE ? MIN_TILE : tile;
    tile = num_points < tile ? num_points : tile;
    return (tile + BLOCK - 1) / BLOCK * BLOCK;
}

template <int D, int CORNERS, int F>
int run(Call& call, Work work, int num_threads) {
    call.tile = tile_size(call.grid, call.num_points, num_threads);
    call.scratch_size = static_cast<size_t>(call.tile) *
                        (3 * call.grid.num_dims + call.grid.num_levels * call.grid.num_features);
    const int64_t num_tiles = (call.num_points + call.tile - 1) / call.tile;
    const int64_t parts =
        work == Work::table_gradient || num_tiles < num_threads ? num_tiles : num_threads;
    call.scratch = static_cast<float*>(ngpc::allocate(sizeof(float) * call.scratch_size * parts));
    if (call.scratch == nullptr) return 1;
    if (work == Work::table_gradient) {
        const ngpc::Phase phases[] = {{num_tiles, fill_tile},
                                      {call.grid.num_levels, scatter_level<D, CORNERS, F>}};
        ngpc::run_region(num_threads, phases, 2, &call);
    } else {
        const ngpc::Phase phase = {num_tiles,
                                   work == Work::values
                                       ? run_tile<D, CORNERS, F, Work::values>
                                       : run_tile<D, 1 << D, F, Work::position_gradient>};
        ngpc::run_region(num_threads, &phase, 1, &call);
    }
    ngpc::release(call.scratch);
    return 0;
}

template <int D, int CORNERS>
int with_features(Call& call, Work work, int num_threads) {
    switch (call.grid.num_features) {
        case 1: return run<D, CORNERS, 1>(call, work, num_threads);
        case 2: return run<D, CORNERS, 2>(call, work, num_threads);
        case 4: return run<D, CORNERS, 4>(call, work, num_threads);
        case 8: return run<D, CORNERS, 8>(call, work, num_threads);
    }
    return 2;
}

template <int D>
int with_corners(Call& call, Work work, int num_threads) {
    if (call.grid.interpolation == NEAREST) {
        return with_features<D, 1>(call, work, num_threads);
    }
    return with_features<D, 1 << D>(call, work, num_threads);
}

int with_dims(Call& call, Work work, int num_threads) {
    switch (call.grid.num_dims) {
        case 2: return with_corners<2>(call, work, num_threads);
        case 3: return with_corners<3>(call, work, num_threads);
        case 4: return with_corners<4>(call, work, num_threads);
    }
    return 2;
}

}  // namespace

// Every function: `directions` (points x dims) or null. Returns 0, or 1 where memory is short, or 2 for a
// size that is not covered.

// `result`: points x (levels * features).
NGPC_EXPORT(ngpc_grid_values)(const NgpcGrid* grid, const float* positions, const float* directions,
                              const float* table, float* result, int64_t num_points,
                              int num_threads) {
    Call call{*grid, positions, directions, table, nullptr, result, num_points, 0, nullptr, 0};
    return with_dims(call, Work::values, num_threads);
}

// `upstream`: points x (levels * features); `result`: points x dims.
NGPC_EXPORT(ngpc_grid_position_gradient)(const NgpcGrid* grid, const float* positions,
                                         const float* directions, const float* table,
                                         const float* upstream, float* result, int64_t num_points,
                                         int num_threads) {
    Call call{*grid, positions, directions, table, upstream, result, num_points, 0, nullptr, 0};
    return with_dims(call, Work::position_gradient, num_threads);
}

// `result`: entries x features, overwritten.
NGPC_EXPORT(ngpc_grid_table_gradient)(const NgpcGrid* grid, const float* positions,
                                      const float* directions, const float* upstream, float* result,
                                      int64_t num_points, int num_threads) {
    Call call{*grid, positions, directions, nullptr, upstream, result, num_points, 0, nullptr, 0};
    return with_dims(call, Work::table_gradient, num_threads);
}
