// Perceptron without biases: values, and gradients with respect to inputs and matrices.
//
// Points go through all layers in tiles that stay in cache. Every product, also those of the
// gradients, is made of one block: a few rows of the left factor, one number at a time, times
// PANEL columns of the right one, with all sums in registers.
//
// The backward pass computes the tile's layers again instead of reading them: a third more products,
// and no memory that grows with points times layers. Matrix gradients are summed over fixed runs of
// points, and then over the runs in order: the same bits however many threads.
//
// The definition of every number is ngpc/backends/reference/mlp.py.
#include <math.h>

#include "region.h"
#include "vectors.h"

extern "C" struct NgpcMlp {
    int32_t num_layers;
    int32_t activation;
    int32_t output_activation;
    const int64_t* widths;         // inputs, then the rows of every matrix
    const float* const* matrices;  // rows x columns, no gaps
};

namespace {

// The order of ngpc.config.Activation.
enum Activation {
    NONE,
    RELU,
    LEAKY_RELU,
    SILU,
    EXPONENTIAL,
    SINE,
    SIGMOID,
    SQUAREPLUS,
    SOFTPLUS,
    TANH,
};

constexpr int MAX_LAYERS = 64;
constexpr int PANEL = 16;
constexpr int PANEL_VECTORS = PANEL / LANES;
#if defined(__AVX512F__)
constexpr int ROWS = 12;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int ROWS = 6;
#else
constexpr int ROWS = 3;
#endif
constexpr int TILE = 96;                   // points; a multiple of ROWS
constexpr int64_t FORWARD_RUN = 10 * TILE;  // points of one item
constexpr int64_t MIN_RUN = 40 * TILE;      // points whose matrix gradients are summed in place
constexpr int64_t MAX_RUNS = 64;
constexpr int64_t RUN_BYTES = 256 << 20;  // of all runs' matrix gradients
constexpr int64_t SLICE = 1 << 12;
constexpr float SHARPNESS = 10.0f;

static_assert(TILE % ROWS == 0, "a tile is whole blocks");

int64_t round_up(int64_t size, int64_t multiple) {
    return (size + multiple - 1) / multiple * multiple;
}

// Columns of a tile's row: whole panels, and room to read a block of ROWS beyond the width.
int64_t stride_of(int64_t width) { return round_up(width, PANEL) + PANEL; }

// Floats between which the left factor of a product lies.
struct Left {
    const float* data;
    int64_t row, step;
};

// c[m][n] (+)= sum over k of a[m][k] b[k][n], for ROWS rows and one panel.
NGPC_INLINE void multiply_block(Left a, const float* b, int64_t b_step, int64_t num_steps, float* c,
                                int64_t c_row, bool is_added) {
    FloatLanes sum[ROWS][PANEL_VECTORS];
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row) {
#pragma GCC unroll 16
        for (int part = 0; part < PANEL_VECTORS; ++part) sum[row][part] = FloatLanes{};
    }
    for (int64_t step = 0; step < num_steps; ++step) {
        FloatLanes right[PANEL_VECTORS];
#pragma GCC unroll 16
        for (int part = 0; part < PANEL_VECTORS; ++part) right[part] = load_lanes(b + LANES * part);
#pragma GCC unroll 16
        for (int row = 0; row < ROWS; ++row) {
            const float left = a.data[row * a.row];
#pragma GCC unroll 16
            for (int part = 0; part < PANEL_VECTORS; ++part) sum[row][part] += left * right[part];
        }
        a.data += a.step;
        b += b_step;
    }
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row) {
#pragma GCC unroll 16
        for (int part = 0; part < PANEL_VECTORS; ++part) {
            float* to = c + row * c_row + LANES * part;
            store_lanes(to, is_added ? load_lanes(to) + sum[row][part] : sum[row][part]);
        }
    }
}

// The right factor panel by panel; `b_panel` floats from one to the next.
void multiply(Left a, int64_t num_rows, const float* b, int64_t b_panel, int64_t b_step,
              int64_t num_panels, int64_t num_steps, float* c, int64_t c_row, bool is_added) {
    for (int64_t panel = 0; panel < num_panels; ++panel) {
        for (int64_t row = 0; row < num_rows; row += ROWS) {
            const Left left{a.data + row * a.row, a.row, a.step};
            multiply_block(left, b + panel * b_panel, b_step, num_steps,
                           c + row * c_row + panel * PANEL, c_row, is_added);
        }
    }
}

bool needs_sums(int activation) {
    return activation == SILU || activation == SINE || activation == SQUAREPLUS;
}

void activate(float* values, int64_t count, int activation) {
    const auto apply = [&](auto function) {
        for (int64_t index = 0; index < count; ++index) values[index] = function(values[index]);
    };
    switch (activation) {
        case RELU: return apply([](float x) { return x < 0.0f ? 0.0f : x; });  // keeps NaN
        case LEAKY_RELU: return apply([](float x) { return x < 0.0f ? 0.01f * x : x; });
        case SILU: return apply([](float x) { return x / (1.0f + expf(-x)); });
        case EXPONENTIAL: return apply([](float x) { return expf(x); });
        case SINE: return apply([](float x) { return sinf(x); });
        case SIGMOID: return apply([](float x) { return 1.0f / (1.0f + expf(-x)); });
        case SQUAREPLUS:
            return apply([](float x) {
                const float t = SHARPNESS * x;
                return 0.5f * (t + sqrtf(t * t + 4.0f)) / SHARPNESS;
            });
        case SOFTPLUS:
            return apply([](float x) {
                const float t = SHARPNESS * x;
                return ((t < 0.0f ? 0.0f : t) + log1pf(expf(-fabsf(t)))) / SHARPNESS;
            });
        case TANH: return apply([](float x) { return tanhf(x); });
        default: return;
    }
}

// Multiplies by the derivative, told from the sums before the activation (where needs_sums) or the
// values after it.
void multiply_slope(float* gradient, const float* sums, const float* values, int64_t count,
                    int activation) {
    const auto apply = [&](auto slope) {
        for (int64_t index = 0; index < count; ++index) {
            gradient[index] *= slope(sums[index], values[index]);
        }
    };
    switch (activation) {
        case RELU: return apply([](float, float y) { return y > 0.0f ? 1.0f : 0.0f; });
        case LEAKY_RELU: return apply([](float, float y) { return y > 0.0f ? 1.0f : 0.01f; });
        case SILU:
            return apply([](float x, float) {
                const float sigmoid = 1.0f / (1.0f + expf(-x));
                return sigmoid * (1.0f + x * (1.0f - sigmoid));
            });
        case EXPONENTIAL: return apply([](float, float y) { return y; });
        case SINE: return apply([](float x, float) { return cosf(x); });
        case SIGMOID: return apply([](float, float y) { return y * (1.0f - y); });
        case SQUAREPLUS:
            return apply([](float x, float) {
                const float t = SHARPNESS * x;
                return 0.5f * (1.0f + t / sqrtf(t * t + 4.0f));
            });
        case SOFTPLUS: return apply([](float, float y) { return -expm1f(-SHARPNESS * y); });
        case TANH: return apply([](float, float y) { return 1.0f - y * y; });
        default: return;
    }
}

struct Call {
    const NgpcMlp& mlp;
    const float* inputs;
    const float* upstream;
    float* outputs;
    float* input_gradient;
    float* const* matrix_gradients;
    int64_t num_points;

    int64_t run;                       // points of an item
    float* memory;
    int64_t packed[MAX_LAYERS];        // where panels over a layer's outputs begin
    int64_t transposed[MAX_LAYERS];    // and panels over its inputs
    int64_t values[MAX_LAYERS + 1];    // in a thread's scratch: what goes into a layer, and comes out
    int64_t sums[MAX_LAYERS];          // before the activation
    int64_t gradients[2];              // of what goes in and comes out of the layer at hand
    int64_t scratch, scratch_size;     // the first thread's, and from one to the next
    int64_t sum_of[MAX_LAYERS];        // in a run's matrix gradients
    int64_t runs, run_size;

    int64_t width(int layer) const { return mlp.widths[layer]; }
    int activation(int layer) const {
        return layer == mlp.num_layers - 1 ? mlp.output_activation : mlp.activation;
    }
    bool is_backward() const { return upstream != nullptr; }
};

// Decides where everything lies; returns the number of floats.
int64_t lay_out(Call& call, int64_t num_parts, int64_t num_runs) {
    const int num_layers = call.mlp.num_layers;
    int64_t end = 0, widest = 0;
    const auto reserve = [&](int64_t& at, int64_t size) {
        at = end;
        end += round_up(size, PANEL);
    };
    for (int layer = 0; layer < num_layers; ++layer) {
        const int64_t columns = call.width(layer), rows = call.width(layer + 1);
        reserve(call.packed[layer], round_up(rows, PANEL) * columns);
        reserve(call.transposed[layer], call.is_backward() ? round_up(columns, PANEL) * rows : 0);
    }
    const int64_t shared = end;
    end = 0;
    for (int layer = 0; layer <= num_layers; ++layer) {
        const int64_t stride = stride_of(call.width(layer));
        widest = stride > widest ? stride : widest;
        reserve(call.values[layer], TILE * stride);
        if (layer > 0) {
            const bool is_kept = call.is_backward() && needs_sums(call.activation(layer - 1));
            reserve(call.sums[layer - 1], is_kept ? TILE * stride : 0);
        }
    }
    for (int64_t& gradient : call.gradients) {
        reserve(gradient, call.is_backward() ? TILE * widest : 0);
    }
    call.scratch_size = end;
    end = 0;
    for (int layer = 0; layer < num_layers; ++layer) {
        const int64_t rows = round_up(call.width(layer + 1), ROWS);
        reserve(call.sum_of[layer], rows * round_up(call.width(layer), PANEL));
    }
    call.run_size = end;
    call.scratch = shared;
    call.runs = shared + num_parts * call.scratch_size;
    return call.runs + num_runs * call.run_size;
}

void pack(const Call& call) {
    for (int layer = 0; layer < call.mlp.num_layers; ++layer) {
        const float* matrix = call.mlp.matrices[layer];
        const int64_t columns = call.width(layer), rows = call.width(layer + 1);
        float* packed = call.memory + call.packed[layer];
        for (int64_t first = 0; first < rows; first += PANEL) {
            for (int64_t column = 0; column < columns; ++column) {
                for (int64_t row = first; row < first + PANEL; ++row) {
                    *packed++ = row < rows ? matrix[row * columns + column] : 0.0f;
                }
            }
        }
        if (!call.is_backward()) continue;
        float* transposed = call.memory + call.transposed[layer];
        for (int64_t first = 0; first < columns; first += PANEL) {
            for (int64_t row = 0; row < rows; ++row) {
                for (int64_t column = first; column < first + PANEL; ++column) {
                    *transposed++ = column < columns ? matrix[row * columns + column] : 0.0f;
                }
            }
        }
    }
}

void copy_in(const float* from, int64_t width, int64_t count, float* tile) {
    const int64_t stride = stride_of(width);
    for (int64_t point = 0; point < count; ++point) {
        std::memcpy(tile + point * stride, from + point * width, sizeof(float) * width);
    }
    std::memset(tile + count * stride, 0, sizeof(float) * (TILE - count) * stride);
}

void copy_out(const float* tile, int64_t width, int64_t count, float* to) {
    const int64_t stride = stride_of(width);
    for (int64_t point = 0; point < count; ++point) {
        std::memcpy(to + point * width, tile + point * stride, sizeof(float) * width);
    }
}

// All layers of one tile, in the thread's scratch.
void run_layers(const Call& call, float* scratch, int64_t first, int64_t count) {
    copy_in(call.inputs + first * call.width(0), call.width(0), count, scratch + call.values[0]);
    const int64_t num_rows = round_up(count, ROWS);
    for (int layer = 0; layer < call.mlp.num_layers; ++layer) {
        const int64_t columns = call.width(layer), rows = call.width(layer + 1);
        const int64_t stride = stride_of(rows);
        float* values = scratch + call.values[layer + 1];
        multiply({scratch + call.values[layer], stride_of(columns), 1}, num_rows,
                 call.memory + call.packed[layer], PANEL * columns, PANEL,
                 round_up(rows, PANEL) / PANEL, columns, values, stride, false);
        const int activation = call.activation(layer);
        if (activation == NONE) continue;
        if (call.is_backward() && needs_sums(activation)) {
            std::memcpy(scratch + call.sums[layer], values, sizeof(float) * num_rows * stride);
        }
        for (int64_t point = 0; point < count; ++point) {
            activate(values + point * stride, rows, activation);
        }
    }
}

float* scratch_of(const Call& call, int thread) {
    return call.memory + call.scratch + thread * call.scratch_size;
}

void run_forward(void* context, int64_t item, int thread) {
    const Call& call = *static_cast<const Call*>(context);
    float* scratch = scratch_of(call, thread);
    const int last = call.mlp.num_layers;
    const int64_t end = (item + 1) * call.run < call.num_points ? (item + 1) * call.run
                                                                : call.num_points;
    for (int64_t first = item * call.run; first < end; first += TILE) {
        const int64_t count = end - first < TILE ? end - first : TILE;
        run_layers(call, scratch, first, count);
        copy_out(scratch + call.values[last], call.width(last), count,
                 call.outputs + first * call.width(last));
    }
}

void run_backward(void* context, int64_t item, int thread) {
    const Call& call = *static_cast<const Call*>(context);
    float* scratch = scratch_of(call, thread);
    const int last = call.mlp.num_layers;
    float* sums = call.memory + call.runs + item * call.run_size;
    if (call.matrix_gradients != nullptr) std::memset(sums, 0, sizeof(float) * call.run_size);
    const int64_t end = (item + 1) * call.run < call.num_points ? (item + 1) * call.run
                                                                : call.num_points;
    for (int64_t first = item * call.run; first < end; first += TILE) {
        const int64_t count = end - first < TILE ? end - first : TILE;
        const int64_t num_rows = round_up(count, ROWS);
        run_layers(call, scratch, first, count);
        float* after = scratch + call.gradients[0];
        float* before = scratch + call.gradients[1];
        copy_in(call.upstream + first * call.width(last), call.width(last), count, after);
        for (int layer = last - 1; layer >= 0; --layer) {
            const int64_t columns = call.width(layer), rows = call.width(layer + 1);
            const int64_t stride = stride_of(rows), panels = round_up(columns, PANEL) / PANEL;
            for (int64_t point = 0; point < count; ++point) {
                multiply_slope(after + point * stride, scratch + call.sums[layer] + point * stride,
                               scratch + call.values[layer + 1] + point * stride, rows,
                               call.activation(layer));
            }
            if (call.matrix_gradients != nullptr) {
                multiply({after, 1, stride}, rows, scratch + call.values[layer], PANEL,
                         stride_of(columns), panels, count, sums + call.sum_of[layer],
                         PANEL * panels, true);
            }
            if (layer == 0 && call.input_gradient == nullptr) break;
            multiply({after, stride, 1}, num_rows, call.memory + call.transposed[layer],
                     PANEL * rows, PANEL, panels, rows, before, stride_of(columns), false);
            float* swapped = after;
            after = before;
            before = swapped;
        }
        if (call.input_gradient != nullptr) {
            copy_out(after, call.width(0), count, call.input_gradient + first * call.width(0));
        }
    }
}

// One slice of the rows of all matrices: the runs' gradients in order, in double precision.
void sum_runs(void* context, int64_t item, int) {
    const Call& call = *static_cast<const Call*>(context);
    const int64_t num_runs = (call.num_points + call.run - 1) / call.run;
    int64_t begin = 0;  // of a matrix, in the row of all numbers
    for (int layer = 0; layer < call.mlp.num_layers; ++layer) {
        const int64_t columns = call.width(layer), rows = call.width(layer + 1);
        const int64_t padded = round_up(columns, PANEL);
        const int64_t from = item * SLICE > begin ? item * SLICE - begin : 0;
        const int64_t to = (item + 1) * SLICE - begin < rows * columns ? (item + 1) * SLICE - begin
                                                                       : rows * columns;
        for (int64_t index = from; index < to; ++index) {
            const int64_t at =
                call.runs + call.sum_of[layer] + index / columns * padded + index % columns;
            double sum = 0.0;
            for (int64_t run = 0; run < num_runs; ++run) {
                sum += call.memory[at + run * call.run_size];
            }
            call.matrix_gradients[layer][index] = static_cast<float>(sum);
        }
        begin += rows * columns;
    }
}

int64_t num_weights(const NgpcMlp& mlp) {
    int64_t count = 0;
    for (int layer = 0; layer < mlp.num_layers; ++layer) {
        count += mlp.widths[layer] * mlp.widths[layer + 1];
    }
    return count;
}

int start(Call& call, int num_threads) {
    if (call.mlp.num_layers > MAX_LAYERS) return 2;
    const bool is_summed = call.matrix_gradients != nullptr;
    call.run = FORWARD_RUN;
    if (is_summed) {
        int64_t most = RUN_BYTES / (sizeof(float) * num_weights(call.mlp));
        most = most < 4 ? 4 : most > MAX_RUNS ? MAX_RUNS : most;
        call.run = round_up((call.num_points + most - 1) / most, TILE);
        call.run = call.run < MIN_RUN ? MIN_RUN : call.run;
    }
    const int64_t num_runs = (call.num_points + call.run - 1) / call.run;
    const int64_t num_parts = num_runs < num_threads ? num_runs : num_threads;
    const int64_t size = sizeof(float) * lay_out(call, num_parts, is_summed ? num_runs : 0);
    call.memory = static_cast<float*>(ngpc::allocate(size));
    if (call.memory == nullptr) return 1;
    // Padding is read, and multiplied into columns that nobody reads: any finite number will do.
    std::memset(call.memory + call.scratch, 0, sizeof(float) * num_parts * call.scratch_size);
    pack(call);
    const ngpc::Phase phases[] = {{num_runs, call.is_backward() ? run_backward : run_forward},
                                  {(num_weights(call.mlp) + SLICE - 1) / SLICE, sum_runs}};
    ngpc::run_region(num_threads, phases, is_summed ? 2 : 1, &call);
    ngpc::release(call.memory);
    return 0;
}

Call new_call(const NgpcMlp& mlp, const float* inputs, int64_t num_points) {
    Call call{mlp, inputs, nullptr, nullptr, nullptr, nullptr, num_points, 0, nullptr,
              {}, {}, {}, {}, {}, 0, 0, {}, 0, 0};
    return call;
}

}  // namespace

// Both return 0, or 1 where memory is short, or 2 for too many layers.

NGPC_EXPORT(ngpc_mlp_values)(const NgpcMlp* mlp, const float* inputs, float* outputs,
                             int64_t num_points, int num_threads) {
    Call call = new_call(*mlp, inputs, num_points);
    call.outputs = outputs;
    return start(call, num_threads);
}

// `input_gradient` and `matrix_gradients` (one a matrix) may be null: not wanted.
NGPC_EXPORT(ngpc_mlp_gradients)(const NgpcMlp* mlp, const float* inputs, const float* upstream,
                                float* input_gradient, float* const* matrix_gradients,
                                int64_t num_points, int num_threads) {
    Call call = new_call(*mlp, inputs, num_points);
    call.upstream = upstream;
    call.input_gradient = input_gradient;
    call.matrix_gradients = matrix_gradients;
    return start(call, num_threads);
}
