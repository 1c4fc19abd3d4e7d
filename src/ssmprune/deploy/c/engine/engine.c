/* A @FAMILY@ classifier, written by ssmprune: @DEPTH@ layers of width @WIDTH@, states in each: @PAIRS@.
   Compile with -O3; -march=native -mtune=generic (x86) or -mcpu=native (ARM) and -ffp-contract=fast make it faster.
#if INTEGERS
   Weights are whole numbers of @BITS@, each row with a scale; poles, norms and biases are floats.
#if S4D
   So is C: times B, as loops need it, it takes less room than whole numbers with a complex B beside them.
#endif
#endif
   See @HEADER@ for how to call it, and the end of this file for a program to try it with. */

#if defined(__GNUC__) && !defined(__clang__)
/* Else gcc makes branches of the clamps in GELU and sigmoid, which keeps them out of vectors. */
#pragma GCC optimize("no-trapping-math", "finite-math-only", "no-signed-zeros")
#if defined(__AVX512F__) && __GNUC__ >= 8
/* Vectors of sixteen would have to wait until the vectors of eight that products store have reached the cache. */
#pragma GCC target("prefer-vector-width=256")
#endif
#endif

#include "model.h"

#include <math.h>
#include <string.h>

#ifdef __cplusplus
#define restrict __restrict
#endif

#include "sizes.h"
#define BLOCK MODEL_BLOCK

/* ---- Vectors ----
   Outputs are computed in panels of eight. Where the compiler knows GNU's vector types (gcc, clang, zig, on any
   processor) a panel is one or two vectors, elsewhere eight numbers; the same lines serve all of them. */

#define PANEL 8
#if defined(__GNUC__) && defined(__AVX__)
#define LANES 8
#elif defined(__GNUC__) && (defined(__SSE__) || defined(__ARM_NEON) || defined(__ALTIVEC__) || defined(__wasm_simd128__))
#define LANES 4
#else
#define LANES 1
#endif
#define VECTORS (PANEL / LANES) /* of a panel */

#if LANES > 1
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef float lanes_in_memory __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#else
typedef float lanes;
typedef float lanes_in_memory;
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif
#define LOAD(from) (*(const lanes_in_memory *)(from))
#define STORE(to, value) (*(lanes_in_memory *)(to) = (value))

/* How many steps and panels share a register tile: as many sums as there are registers to hold them. */
#if LANES == 8 || (LANES == 4 && defined(__aarch64__))
#define TILE_STEPS 4
#define TILE_PANELS 2
#elif LANES > 1
#define TILE_STEPS 4
#define TILE_PANELS 1
#else
#define TILE_STEPS 2
#define TILE_PANELS 1
#endif
#if LANES > 1
#define STEP_PANELS (LANES / 2) /* of a single step */
#else
#define STEP_PANELS 1
#endif

#if INTEGERS
/* ---- Matrix products ----
   Weights are whole numbers, times a scale for each output. Those of neighbouring inputs share a word, as digits share a
   number: first * 2^24 + second * 2^16 + ... (for 8 bits). Shifted until weight j is on top, which processors do to many
   words at once, a word is that weight with those after it as a fraction: w_j + w_(j+1) / 256 + ...
   A step leaves the fractions in and takes them out of its input, for many outputs at once: from x_j goes x_(j-1) / 256. */

#if LANES > 1
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef uint32_t words_in_memory __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t numbers __attribute__((vector_size(4 * LANES)));
#else
typedef uint32_t words;
typedef uint32_t words_in_memory;
typedef int32_t numbers;
#endif

INLINE lanes to_floats(numbers whole) {
#if LANES == 1
    return (float)whole;
#elif defined(__clang__) || __GNUC__ >= 9
    return __builtin_convertvector(whole, lanes);
#else
    lanes all = {0};
    for (int i = 0; i < LANES; i++) all[i] = (float)whole[i];
    return all;
#endif
}

/* y = scale (W x) + bias. Weights lie as the loops read them: weights[panel][word][PANEL], zeros where a panel or a
   word is not full. */
typedef struct {
    int inner;            /* length of x */
    int row;              /* from one step's x to the next */
    int panels;           /* outputs / PANEL, rounded up; also the way from one step's y to the next, in panels */
#if FOUR_BITS
    int bits;             /* of a weight: 4, but 8 in the first and last layers and short rows */
#endif
    const uint32_t *weights;
    const float *scale;   /* panels * PANEL */
    const float *bias;    /* panels * PANEL */
} matrix;

#if FOUR_BITS
#define BITS(m) (m)->bits
#else
#define BITS(m) 8
#endif
#define IN_WORD(m) (32 / BITS(m))
#define WORDS_OF(m) (((m)->inner + IN_WORD(m) - 1) / IN_WORD(m)) /* for each output */

/* A word as a float: too large by a power of two that the end of a sum takes out. */
#define WITH_FRACTION(word) to_floats((numbers)(word))
#define UNIT(m) (1.0f / (float)((uint32_t)1 << (32 - BITS(m))))
/* Its first weight alone; fractions are less than a half, so that half of one more makes the others vanish. */
#define FIRST(word, bits) to_floats((numbers)(((word) + (0x80000000u >> (bits))) & ~(0xFFFFFFFFu >> (bits))))

/* y of a vector of outputs, from its sum. */
INLINE void finish(const matrix *m, size_t output, lanes sum, float *y) {
    STORE(y + output, sum * UNIT(m) * LOAD(m->scale + output) + LOAD(m->bias + output));
}

/* Some panels as floats: out[panel][k][PANEL], with k filled up to whole words. */
INLINE void unpack(const matrix *m, int first, int panels, float *out) {
    const int count = panels * WORDS_OF(m);
    const uint32_t *weights = m->weights + (size_t)first * (size_t)WORDS_OF(m) * PANEL;
    for (int i = 0; i < count; i++, weights += PANEL, out += IN_WORD(m) * PANEL)
        for (int v = 0; v < PANEL; v += LANES) {
            words word = *(const words_in_memory *)(weights + v);
            for (int j = 0; j < IN_WORD(m); j++, word <<= BITS(m)) STORE(out + j * PANEL + v, FIRST(word, BITS(m)));
        }
}

/* Some panels of some steps at once, from unpacked weights; with constant counts every sum stays in a register. */
INLINE void tile(const matrix *m, const float *weights, int first, const int panels, const int steps, const float *x,
                 float *y) {
    const size_t inner = (size_t)m->inner, next = (size_t)(WORDS_OF(m) * IN_WORD(m)) * PANEL;
    const lanes nothing = {0};
    lanes sum[TILE_STEPS][TILE_PANELS * VECTORS];
    for (int t = 0; t < steps; t++)
        for (int v = 0; v < panels * VECTORS; v++) sum[t][v] = nothing;
    for (size_t k = 0; k < inner; k++)
        for (int v = 0; v < panels * VECTORS; v++) {
            const lanes weight = LOAD(weights + (size_t)(v / VECTORS) * next + k * PANEL + v % VECTORS * LANES);
            for (int t = 0; t < steps; t++) sum[t][v] += x[(size_t)t * (size_t)m->row + k] * weight;
        }
    for (int t = 0; t < steps; t++)
        for (int v = 0; v < panels * VECTORS; v++)
            finish(m, (size_t)first * PANEL + (size_t)v * LANES, sum[t][v], y + (size_t)(t * m->panels) * PANEL);
}

/* Add the products of a word's first `inputs` weights to the sums over even and odd inputs of some panels; `weights` points
   into the first panel, and panels are `next` apart. */
INLINE void add_word(const int bits, const int panels, const int inputs, const float *x, const uint32_t *weights,
                     size_t next, lanes *even, lanes *odd) {
    const float base = 1.0f / (float)(1 << bits);
    words word[STEP_PANELS * VECTORS];
    for (int v = 0; v < panels * VECTORS; v++)
        word[v] = *(const words_in_memory *)(weights + (size_t)(v / VECTORS) * next + v % VECTORS * LANES);
    for (int j = 0; j < inputs; j++) {
        const float z = j ? x[j] - base * x[j - 1] : x[j]; /* the first of a word is in nobody's fraction */
        lanes *const sum = j % 2 ? odd : even;
        for (int v = 0; v < panels * VECTORS; v++, word[v - 1] <<= bits) sum[v] += z * WITH_FRACTION(word[v]);
    }
}

/* Some panels of one step, with a sum over even and one over odd inputs: few sums would wait for each addition. */
INLINE void panels_of_step(const matrix *m, int first, const int panels, const float *x, float *y) {
    const size_t next = (size_t)WORDS_OF(m) * PANEL;
    const uint32_t *weights = m->weights + (size_t)first * next;
    const lanes nothing = {0};
    lanes even[STEP_PANELS * VECTORS], odd[STEP_PANELS * VECTORS];
    int k = 0;
    for (int v = 0; v < panels * VECTORS; v++) even[v] = odd[v] = nothing;
#if FOUR_BITS
    for (; m->bits == 4 && k + 8 <= m->inner; k += 8, weights += PANEL)
        add_word(4, panels, 8, x + k, weights, next, even, odd);
    for (; m->bits == 8 && k + 4 <= m->inner; k += 4, weights += PANEL)
#else
    for (; k + 4 <= m->inner; k += 4, weights += PANEL)
#endif
        add_word(8, panels, 4, x + k, weights, next, even, odd);
    if (k < m->inner) add_word(BITS(m), panels, m->inner - k, x + k, weights, next, even, odd);
    for (int v = 0; v < panels * VECTORS; v++)
        finish(m, (size_t)first * PANEL + (size_t)v * LANES, even[v] + odd[v], y);
}
#else
/* ---- Matrix products ---- */

/* y = W x + bias. Weights lie as the loops read them: weights[panel][k][PANEL], zeros where a panel is not full. */
typedef struct {
    int inner;            /* length of x */
    int row;              /* from one step's x to the next */
    int panels;           /* outputs / PANEL, rounded up; also the way from one step's y to the next, in panels */
    const float *weights;
    const float *bias;    /* panels * PANEL */
} matrix;

/* Those of input k for the v-th vector of outputs, where `weights` is the first panel and the others are `next`. */
#define WEIGHTS(v, k) LOAD(weights + (size_t)((v) / VECTORS) * next + (k) * PANEL + (v) % VECTORS * LANES)

/* Some panels of some steps at once; with constant counts every sum stays in a register. */
INLINE void tile(const matrix *m, int first, const int panels, const int steps, const float *x, float *y) {
    const size_t inner = (size_t)m->inner, next = inner * PANEL;
    const float *weights = m->weights + (size_t)first * next;
    lanes sum[TILE_STEPS][TILE_PANELS * VECTORS];
    for (int t = 0; t < steps; t++)
        for (int v = 0; v < panels * VECTORS; v++) sum[t][v] = LOAD(m->bias + first * PANEL + v * LANES);
    for (size_t k = 0; k < inner; k++)
        for (int v = 0; v < panels * VECTORS; v++) {
            const lanes weight = WEIGHTS(v, k);
            for (int t = 0; t < steps; t++) sum[t][v] += x[(size_t)t * (size_t)m->row + k] * weight;
        }
    for (int t = 0; t < steps; t++)
        for (int v = 0; v < panels * VECTORS; v++)
            STORE(y + (size_t)(t * m->panels + first) * PANEL + v * LANES, sum[t][v]);
}

/* Some panels of one step, with a sum over even and one over odd k: few sums would wait for each addition. */
INLINE void panels_of_step(const matrix *m, int first, const int panels, const float *x, float *y) {
    const size_t inner = (size_t)m->inner, next = inner * PANEL;
    const float *weights = m->weights + (size_t)first * next;
    lanes even[STEP_PANELS * VECTORS], odd[STEP_PANELS * VECTORS];
    for (int v = 0; v < panels * VECTORS; v++) {
        even[v] = LOAD(m->bias + first * PANEL + v * LANES);
        odd[v] = (inner % 2 ? x[inner - 1] : 0.0f) * WEIGHTS(v, inner - 1); /* the k without a partner */
    }
    for (size_t k = 0; k + 1 < inner; k += 2)
        for (int v = 0; v < panels * VECTORS; v++) {
            even[v] += x[k] * WEIGHTS(v, k);
            odd[v] += x[k + 1] * WEIGHTS(v, k + 1);
        }
    for (int v = 0; v < panels * VECTORS; v++) STORE(y + first * PANEL + v * LANES, even[v] + odd[v]);
}
#endif

/* All outputs of one step, with as many panels at once as registers hold: they need not wait for each other. */
static void product_of_step(const matrix *m, const float *x, float *y) {
    int panel = 0;
    for (; panel + STEP_PANELS <= m->panels; panel += STEP_PANELS) panels_of_step(m, panel, STEP_PANELS, x, y);
#if STEP_PANELS > 1
    const int left = m->panels - panel;
#if STEP_PANELS > 2
    if (left == 3) panels_of_step(m, panel, 3, x, y);
    if (left == 2) panels_of_step(m, panel, 2, x, y);
#endif
    if (left == 1) panels_of_step(m, panel, 1, x, y);
#endif
}

#if INTEGERS
/* All outputs of `steps` steps; weights are unpacked once for all steps of a block. */
static void product(const matrix *m, const float *x, float *y, int steps) {
    const size_t x_row = (size_t)m->row, y_row = (size_t)m->panels * PANEL;
    const int tiled = BLOCK < TILE_STEPS ? 0 : steps - steps % TILE_STEPS;
    float unpacked[BLOCK < TILE_STEPS ? 1 : TILE_PANELS * LONGEST * PANEL];
    int panel = 0;
    for (; tiled && panel + TILE_PANELS <= m->panels; panel += TILE_PANELS) {
        unpack(m, panel, TILE_PANELS, unpacked);
        for (size_t t = 0; t < (size_t)tiled; t += TILE_STEPS)
            tile(m, unpacked, panel, TILE_PANELS, TILE_STEPS, x + t * x_row, y + t * y_row);
    }
    for (; tiled && panel < m->panels; panel++) {
        unpack(m, panel, 1, unpacked);
        for (size_t t = 0; t < (size_t)tiled; t += TILE_STEPS)
            tile(m, unpacked, panel, 1, TILE_STEPS, x + t * x_row, y + t * y_row);
    }
    for (size_t t = (size_t)tiled; t < (size_t)steps; t++) product_of_step(m, x + t * x_row, y + t * y_row);
}
#else
/* All outputs of `steps` steps; a panel serves all of them while its weights are at hand. */
static void product(const matrix *m, const float *x, float *y, int steps) {
    const size_t x_row = (size_t)m->row, y_row = (size_t)m->panels * PANEL;
    const int tiled = steps - steps % TILE_STEPS;
    int panel = 0;
    for (; tiled && panel + TILE_PANELS <= m->panels; panel += TILE_PANELS)
        for (size_t t = 0; t < (size_t)tiled; t += TILE_STEPS)
            tile(m, panel, TILE_PANELS, TILE_STEPS, x + t * x_row, y + t * y_row);
    for (; tiled && panel < m->panels; panel++)
        for (size_t t = 0; t < (size_t)tiled; t += TILE_STEPS) tile(m, panel, 1, TILE_STEPS, x + t * x_row, y + t * y_row);
    for (size_t t = (size_t)tiled; t < (size_t)steps; t++) product_of_step(m, x + t * x_row, y + t * y_row);
}
#endif

/* ---- Elementwise functions, without branches or calls, so that loops over them become vectors ---- */

/* gelu(x) = max(x, 0) - a p(a)^8 / 2 with a = |x|; p is fitted to an absolute error of less than 1e-6. */
INLINE float gelu(float x) {
    const float size = fabsf(x);
#if EXACT_GELU
    const float a = size < 5.4f ? size : 5.4f;
    float p = -3.19550367e-07f;
    p = p * a + 8.10853635e-06f;
    p = p * a - 6.54094692e-05f;
    p = p * a + 3.63950348e-05f;
    p = p * a + 0.00164242496f;
    p = p * a - 0.000734856061f;
    p = p * a - 0.0348165631f;
    p = p * a - 0.0997353867f;
    p = p * a + 1.0f;
#else
    const float a = size < 5.2f ? size : 5.2f;
    float p = 5.41410884e-07f;
    p = p * a - 1.23850523e-05f;
    p = p * a + 0.000105506297f;
    p = p * a - 0.000413251255f;
    p = p * a + 0.00057882641f;
    p = p * a + 0.00116970297f;
    p = p * a - 0.000370191614f;
    p = p * a - 0.0348924622f;
    p = p * a - 0.0997277275f;
    p = p * a + 1.0f;
#endif
    p *= p;
    p *= p;
    p *= p;
    return 0.5f * (x + size - a * p);
}
#if GATED

/* 1 / (1 + exp(-x)) = 1/2 + x P(x^2) / Q(x^2), fitted to an absolute error below 1e-6. */
INLINE float sigmoid(float x) {
    const float low = x < 17.0f ? x : 17.0f, c = low > -17.0f ? low : -17.0f, t = c * c;
    float above = 1.37687917e-11f;
    above = above * t + 8.25061193e-08f;
    above = above * t + 5.50909208e-05f;
    above = above * t + 0.00837887824f;
    above = above * t + 0.249999985f;
    float below = 3.15375681e-09f;
    below = below * t + 5.21201537e-06f;
    below = below * t + 0.0016244459f;
    below = below * t + 0.116848789f;
    below = below * t + 1.0f;
    return 0.5f + c * above / below;
}
#endif

/* ---- What a layer is made of ---- */

typedef struct {
#if S5
    int n;                /* states */
    const float *pole_re; /* n each */
    const float *pole_im;
#if INTEGERS
    const float *factor_re; /* n each: what the discretisation makes of B */
    const float *factor_im;
#endif
    matrix B;             /* u to what it feeds into [Re x, Im x] */
    matrix C;             /* [Re x, Im x] to y */
#if BIDIRECTIONAL
    matrix C_back;
#endif
#endif
#if S4D
    const int *slots;     /* states that each channel of a group of PANEL channels has room for */
    const float *modes;   /* [group][slot]: poles and weights, real and imaginary parts, PANEL each */
#endif
    const float *D;
    const float *scale;   /* of the norm */
    const float *shift;
#if GATED
    matrix gate;
#endif
#if FULL_GLU
    matrix value;
#endif
} layer;

/* What the layers need while they compute a block of steps; it holds nothing between two calls. */
typedef struct {
#if PRENORM
    float u[BLOCK * ROW];
#endif
#if S5 || GATED
    float v[BLOCK * WIDEST];
#endif
    float y[BLOCK * ROW];
#if NEEDS_G
    float g[BLOCK * ROW];
#endif
} scratch;

/* ---- Norm ---- */

#if PRENORM
#define DISTINCT restrict /* the input stays for the residual connection */
#else
#define DISTINCT
#endif
#if LAYER_NORM

/* The sum of (x - center)^power over the features, in eight parts so that it becomes vectors. */
static float moment(const float *x, float center, int power) {
    float part[PANEL] = {0}, sum = 0;
    for (int i = 0; i < WIDTH; i++) {
        const float off = x[i] - center;
        part[i % PANEL] += power == 2 ? off * off : off;
    }
    for (int i = 0; i < PANEL; i++) sum += part[i];
    return sum;
}

/* Every step to mean 0 and variance 1 over its features, then scaled and shifted. */
static void normalise(const layer *l, const float *DISTINCT x, float *DISTINCT out, int steps) {
    for (int t = 0; t < steps; t++, x += ROW, out += ROW) {
        const float center = moment(x, 0, 1) / WIDTH;
        const float inverse = 1 / sqrtf(moment(x, center, 2) / WIDTH + NORM_EPS);
        for (int i = 0; i < ROW; i++) out[i] = (x[i] - center) * inverse * l->scale[i] + l->shift[i];
    }
}
#else

/* The running statistics of the batch norm, folded to a scale and a shift. */
static void normalise(const layer *l, const float *DISTINCT x, float *DISTINCT out, int steps) {
    for (int t = 0; t < steps; t++)
        for (int i = 0; i < ROW; i++) out[t * ROW + i] = x[t * ROW + i] * l->scale[i] + l->shift[i];
}
#endif

#include "weights.h"

#if S5
/* ---- State space layer: x_k = pole x_{k-1} + B u_k, y_k = Re(C x_k) ---- */

/* One step of the recurrence, on real and imaginary parts: x += pole * before. */
static void decay(const layer *l, const float *restrict before, float *restrict x) {
    const float *restrict pole_re = l->pole_re, *restrict pole_im = l->pole_im;
    const int n = l->n;
    for (int i = 0; i < n; i++) {
        x[i] += pole_re[i] * before[i] - pole_im[i] * before[n + i];
        x[n + i] += pole_re[i] * before[n + i] + pole_im[i] * before[i];
    }
}

#if INTEGERS
/* What u feeds into the states: B u, turned by a complex factor for each state. */
static void feed(const layer *l, const float *u, float *v, int steps) {
    const float *restrict factor_re = l->factor_re, *restrict factor_im = l->factor_im;
    const int n = l->n, row = l->B.panels * PANEL;
    product(&l->B, u, v, steps);
    for (int t = 0; t < steps; t++, v += row)
        for (int i = 0; i < n; i++) {
            const float re = v[i], im = v[n + i];
            v[i] = factor_re[i] * re - factor_im[i] * im;
            v[n + i] = factor_re[i] * im + factor_im[i] * re;
        }
}

#endif
/* From what is fed into the states (rows of v) to the states; `carry` is the state before and then after. */
static void scan(const layer *l, float *carry, float *v, int steps, int backward) {
    const int row = l->B.panels * PANEL;
    const float *before = carry;
    for (int i = 0; i < steps; i++) {
        float *x = v + (backward ? steps - 1 - i : i) * row;
        decay(l, before, x);
        before = x;
    }
    memcpy(carry, before, 2 * (size_t)l->n * sizeof *carry);
}
#if !BIDIRECTIONAL

/* y for the next steps, and the state after them. */
static void ssm(const layer *l, float *states, const float *u, scratch *s, int steps) {
#if INTEGERS
    feed(l, u, s->v, steps);
#else
    product(&l->B, u, s->v, steps);
#endif
    scan(l, states, s->v, steps, 0);
    product(&l->C, s->v, s->y, steps);
}
#endif
#else
/* ---- State space layer: in every channel x_k = pole x_{k-1} + u_k, y_k = sum of Re(weight x_k) ----
   A weight is C B of the model. Channels come in groups of PANEL; a slot holds one state of each of them. The features
   of the model were put in an order in which the channels of a group have about as many states. */

#define MODE (MODE_PARTS * PANEL) /* numbers of a slot: pole_re, pole_im, then weight_re, weight_im per direction */

/* y += what some slots of a vector of channels give; each slot's states stay in registers for all steps. */
INLINE void slots_of_vector(const float *modes, float *states, const int slots, const float *u, float *y, int steps,
                            const int backward) {
    lanes re[4], im[4];
    for (int s = 0; s < slots; s++) re[s] = LOAD(states + 2 * s * PANEL), im[s] = LOAD(states + (2 * s + 1) * PANEL);
    for (int i = 0; i < steps; i++) {
        const int t = (backward ? steps - 1 - i : i) * ROW;
        const lanes input = LOAD(u + t);
        lanes sum = LOAD(y + t);
        for (int s = 0; s < slots; s++) {
            const float *mode = modes + s * MODE, *weight = mode + (backward ? 4 : 2) * PANEL;
            const lanes old_re = re[s], old_im = im[s];
            re[s] = LOAD(mode) * old_re + input - LOAD(mode + PANEL) * old_im;
            im[s] = LOAD(mode) * old_im + LOAD(mode + PANEL) * old_re;
#if BACKWARD_DELAY
            sum += LOAD(weight) * (backward ? old_re : re[s]) - LOAD(weight + PANEL) * (backward ? old_im : im[s]);
#else
            sum += LOAD(weight) * re[s] - LOAD(weight + PANEL) * im[s];
#endif
        }
        STORE(y + t, sum);
    }
    for (int s = 0; s < slots; s++) STORE(states + 2 * s * PANEL, re[s]), STORE(states + (2 * s + 1) * PANEL, im[s]);
}

/* y += the output of all channels; `states` are those before and then after. */
INLINE void recurrence(const layer *l, float *states, const float *u, float *y, int steps, const int backward) {
    const float *modes = l->modes;
    for (int group = 0; group < ROW / PANEL; group++) {
        const int slots = l->slots[group];
        for (int v = 0; v < PANEL; v += LANES) {
            const int at = group * PANEL + v;
            int s = 0;
            for (; s + 4 <= slots; s += 4)
                slots_of_vector(modes + s * MODE + v, states + 2 * s * PANEL + v, 4, u + at, y + at, steps, backward);
            for (; s + 2 <= slots; s += 2)
                slots_of_vector(modes + s * MODE + v, states + 2 * s * PANEL + v, 2, u + at, y + at, steps, backward);
            for (; s < slots; s++)
                slots_of_vector(modes + s * MODE + v, states + 2 * s * PANEL + v, 1, u + at, y + at, steps, backward);
        }
        modes += slots * MODE;
        states += 2 * slots * PANEL;
    }
}

/* y of the next steps (or, backwards, of those before), and the state after them. */
INLINE void respond(const layer *l, float *states, const float *u, scratch *s, int steps, const int backward) {
    memset(s->y, 0, (size_t)steps * ROW * sizeof(float));
    recurrence(l, states, u, s->y, steps, backward);
}
#if !BIDIRECTIONAL

static void ssm(const layer *l, float *states, const float *u, scratch *s, int steps) {
    respond(l, states, u, s, steps, 0);
}
#endif
#endif

/* ---- Gate and residual connection ---- */

/* y += D u, the last part of the state space layer's output, and g = gelu(y). */
static void activate(const layer *l, const float *restrict u, scratch *s, int steps) {
    const float *restrict D = l->D;
    float *restrict y = s->y;
#if NEEDS_G
    float *restrict g = s->g;
#endif
    for (int t = 0; t < steps * ROW; t += ROW)
        for (int i = 0; i < ROW; i++) {
#if NEEDS_G
            y[t + i] += D[i] * u[t + i];
            g[t + i] = gelu(y[t + i]);
#else
            y[t + i] = gelu(y[t + i] + D[i] * u[t + i]);
#endif
        }
}

/* x += gate(gelu(y)), and the norm where it comes last. */
static void gated(const layer *l, float *x, const float *u, scratch *s, int steps) {
    const int count = steps * ROW;
#if NEEDS_G
    const float *g = s->g;
#else
    const float *g = s->y;
#endif
#if GATED
    float *gate = s->v;
#endif
    activate(l, u, s, steps);
#if GATED
    product(&l->gate, g, gate, steps);
#endif
#if FULL_GLU
    product(&l->value, g, s->y, steps);
#endif
#if GELU_ONLY
    for (int i = 0; i < count; i++) x[i] += g[i];
#endif
#if HALF_GLU1
    for (int i = 0; i < count; i++) x[i] += g[i] * sigmoid(gate[i]);
#endif
#if HALF_GLU2 || FULL_GLU
    for (int i = 0; i < count; i++) x[i] += s->y[i] * sigmoid(gate[i]);
#endif
#if !PRENORM
    normalise(l, x, x, steps);
#endif
}

/* The input u of the state space layer. */
static const float *input_of(const layer *l, const float *x, scratch *s, int steps) {
#if PRENORM
    normalise(l, x, s->u, steps);
    return s->u;
#else
    (void)l, (void)s, (void)steps;
    return x;
#endif
}

/* ---- First and last layer ---- */

/* The features of the next steps. */
#if TOKENS
static void encode(const int32_t *in, float *x, int steps) {
    for (int t = 0; t < steps; t++)
        if (in[t] >= 0 && in[t] < MODEL_INPUTS)
#if INTEGERS
            for (size_t i = 0; i < ROW; i++)
                x[(size_t)t * ROW + i] = EMBEDDING_SCALE[in[t]] * (float)EMBEDDING[(size_t)in[t] * ROW + i];
#else
            memcpy(x + t * ROW, EMBEDDING + (size_t)in[t] * ROW, ROW * sizeof *x);
#endif
        else /* no token: say nothing rather than read what is not there */
            memset(x + t * ROW, 0, ROW * sizeof *x);
}
#else
static void encode(const float *in, float *x, int steps) { product(&ENCODER, in, x, steps); }
#endif

/* The logits of features. */
static void decode(const float *features, float *logits) {
    float padded[DECODER_ROW];
    product(&DECODER, features, padded, 1);
    memcpy(logits, padded, MODEL_OUTPUTS * sizeof *logits);
}
#if RETRIEVAL

void model_compare(const float *a, const float *b, float *logits) {
    float joint[4 * WIDTH], features[ROW];
    for (int i = 0; i < WIDTH; i++) {
        joint[i] = a[i];
        joint[WIDTH + i] = b[i];
        joint[2 * WIDTH + i] = a[i] - b[i];
        joint[3 * WIDTH + i] = a[i] * b[i];
    }
    product(&HIDDEN, joint, features, 1);
    for (int i = 0; i < ROW; i++) features[i] = gelu(features[i]);
    decode(features, logits);
}
#endif
#if MEAN

/* Add the features of the next steps to their sum, those of a block first among themselves. What rounding takes from
   the sum, in units of ROUNDED times its size, is kept and added the next time, so that millions of steps lose nothing
   (unless -ffast-math drops the correction). */
#define ROUNDED (1.0f / 16777216.0f / 32000.0f) /* a sum is rounded by at most 2^-24 of its size, which is 32,000 units */
static void add_up(float *total, int16_t *rounded_off, const float *x, int steps) {
    float sum[ROW] = {0};
    for (int t = 0; t < steps; t++)
        for (int i = 0; i < ROW; i++) sum[i] += x[t * ROW + i];
    for (int i = 0; i < ROW; i++) {
        const float before = total[i], more = sum[i] + (float)rounded_off[i] * (ROUNDED * fabsf(before));
        const float after = before + more, unit = ROUNDED * fabsf(after);
        const float units = (more - (after - before)) / (unit > 0.0f ? unit : 1.0f); /* no branch; 0 if `after` is */
        total[i] = after;
        rounded_off[i] = (int16_t)(fabsf(units) < 32767.0f ? (int)(units + 32768.5f) - 32768 : 0); /* the nearest */
    }
}
#endif

/* What leaves the model. */
static void answer(const float *features, float *out) {
#if RETRIEVAL
    memcpy(out, features, WIDTH * sizeof *out);
#else
    decode(features, out);
#endif
}

#if BIDIRECTIONAL
/* ---- Whole sequences, in both directions ----
   The workspace holds the features x and the outputs y of all steps and, for S5, what is fed into the states. */

typedef struct {
    float *x;
    float *y;
#if S5
    float *v;
#endif
} sequence;

/* y forwards in time, from u of each block of steps. */
static void forwards(const layer *l, sequence all, size_t length, scratch *s) {
    float states[STATES_ROOM] = {0};
    for (size_t at = 0; at < length; at += BLOCK) {
        const int steps = length - at < BLOCK ? (int)(length - at) : BLOCK;
        const float *u = input_of(l, all.x + at * ROW, s, steps);
#if S5
        const size_t row = (size_t)l->B.panels * PANEL;
#if INTEGERS
        feed(l, u, all.v + at * row, steps);
#else
        product(&l->B, u, all.v + at * row, steps);
#endif
        memcpy(s->v, all.v + at * row, (size_t)steps * row * sizeof(float));
        scan(l, states, s->v, steps, 0);
        product(&l->C, s->v, all.y + at * ROW, steps);
#else
        respond(l, states, u, s, steps, 0);
        memcpy(all.y + at * ROW, s->y, (size_t)steps * ROW * sizeof(float));
#endif
    }
}

/* y backwards in time, added to y forwards; then the gate, which ends the layer. */
static void backwards(const layer *l, sequence all, size_t length, scratch *s) {
    float states[STATES_ROOM] = {0};
    for (size_t end = length; end > 0;) {
        const int steps = end % BLOCK ? (int)(end % BLOCK) : BLOCK;
        end -= (size_t)steps;
        const float *u = input_of(l, all.x + end * ROW, s, steps);
        const float *before = all.y + end * ROW;
#if S5
        const size_t row = (size_t)l->B.panels * PANEL;
        memcpy(s->v, all.v + end * row, (size_t)steps * row * sizeof(float));
        scan(l, states, s->v, steps, 1);
        product(&l->C_back, s->v, s->y, steps);
#else
        respond(l, states, u, s, steps, 1);
#endif
        for (int i = 0; i < steps * ROW; i++) s->y[i] += before[i];
        gated(l, all.x + end * ROW, u, s, steps);
    }
}
#if MEAN

/* The mean of the first steps. */
static void mean(const float *x, size_t valid, float *features) {
    float total[ROW] = {0};
    int16_t rounded_off[ROW] = {0};
    for (size_t at = 0; at < valid; at += BLOCK)
        add_up(total, rounded_off, x + at * ROW, valid - at < BLOCK ? (int)(valid - at) : BLOCK);
    for (int i = 0; i < ROW; i++) features[i] = total[i] / (float)valid;
}
#endif

void model_run(float *workspace, const model_input *in, size_t length, size_t valid, float *out) {
    scratch s;
    sequence all;
    if (valid > length) valid = length;
    if (!valid) return;
#if CUTS_PADDING
    length = valid; /* each direction runs over the true length */
#endif
    all.x = workspace;
    all.y = all.x + length * ROW;
#if S5
    all.v = all.y + length * ROW;
#endif
    for (size_t at = 0; at < length; at += BLOCK)
        encode(in + at * STRIDE, all.x + at * ROW, length - at < BLOCK ? (int)(length - at) : BLOCK);
    for (int i = 0; i < DEPTH; i++) {
        forwards(&LAYERS[i], all, length, &s);
        backwards(&LAYERS[i], all, length, &s);
    }
#if MEAN
    mean(all.x, valid, s.y);
    answer(s.y, out);
#endif
#if LAST
    answer(all.x + (valid - 1) * ROW, out);
#endif
#if EVERY_STEP
    for (size_t t = 0; t < valid; t++) answer(all.x + t * ROW, out + t * MODEL_OUTPUTS);
#endif
}
#else
/* ---- Step by step, or many steps in blocks ---- */

void model_init(model_state *state) { memset(state, 0, sizeof *state); }

/* The features x of the next steps, in place of their encoding. */
static void advance(model_state *state, float *x, scratch *s, int steps) {
    float *states = state->states;
    for (int i = 0; i < DEPTH; states += STATES[i], i++) {
        const layer *l = &LAYERS[i];
        const float *u = input_of(l, x, s, steps);
        ssm(l, states, u, s, steps);
        gated(l, x, u, s, steps);
    }
}
#if MEAN

/* The mean of all features so far. */
static void mean(const model_state *state, float *features) {
    for (int i = 0; i < ROW; i++) features[i] = state->total[i] / (float)state->steps;
}
#endif

void model_run(model_state *state, const model_input *in, size_t length, float *out) {
    float x[BLOCK * ROW];
    scratch s;
    int steps = 0;
    for (size_t done = 0; done < length; done += (size_t)steps) {
        steps = length - done < BLOCK ? (int)(length - done) : BLOCK;
        encode(in + done * STRIDE, x, steps);
        advance(state, x, &s, steps);
#if MEAN
        add_up(state->total, state->rounded_off, x, steps);
        state->steps += (uint32_t)steps;
#endif
#if EVERY_STEP
        for (int t = 0; out && t < steps; t++) answer(x + t * ROW, out + (done + (size_t)t) * MODEL_OUTPUTS);
#endif
    }
#if MEAN
    if (out && state->steps) mean(state, x), answer(x, out);
#endif
#if LAST
    if (out && steps) answer(x + (steps - 1) * ROW, out);
#endif
}

void model_step(model_state *state, const model_input *in, float *out) { model_run(state, in, 1, out); }
#endif

#include "end.c"
