/* A S5 classifier, written by ssmprune: 1 layers of width 3, states in each: 2.
   Compile with -O3; -march=native -mtune=generic (x86) or -mcpu=native (ARM) and -ffp-contract=fast make it faster.
   Weights are whole numbers of 8 bits, each row with a scale; poles, norms and biases are floats.
   See words.h for how to call it, and the end of this file for a program to try it with. */

#if defined(__GNUC__) && !defined(__clang__)
/* Else gcc makes branches of the clamps in GELU and sigmoid, which keeps them out of vectors. */
#pragma GCC optimize("no-trapping-math", "finite-math-only", "no-signed-zeros")
#if defined(__AVX512F__) && __GNUC__ >= 8
/* Vectors of sixteen would have to wait until the vectors of eight that products store have reached the cache. */
#pragma GCC target("prefer-vector-width=256")
#endif
#endif

#include "words.h"

#include <math.h>
#include <string.h>

#ifdef __cplusplus
#define restrict __restrict
#endif

#if WORDS_DIGEST != 0x71811f6e
#error "words.h belongs to another model; export both files again"
#endif
#define WIDTH 3 /* features of a step */
#define ROW 8 /* the same, filled up to whole panels */
#define DEPTH 1
#define STRIDE 1 /* from one step's input to the next */
#define WIDEST 8
#define DECODER_ROW 8
#define LONGEST 8 /* inputs of a matrix that blocks of steps go through */
#define BLOCK WORDS_BLOCK

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
    const uint32_t *weights;
    const float *scale;   /* panels * PANEL */
    const float *bias;    /* panels * PANEL */
} matrix;

#define BITS(m) 8
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
    for (; k + 4 <= m->inner; k += 4, weights += PANEL)
        add_word(8, panels, 4, x + k, weights, next, even, odd);
    if (k < m->inner) add_word(BITS(m), panels, m->inner - k, x + k, weights, next, even, odd);
    for (int v = 0; v < panels * VECTORS; v++)
        finish(m, (size_t)first * PANEL + (size_t)v * LANES, even[v] + odd[v], y);
}

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

/* ---- Elementwise functions, without branches or calls, so that loops over them become vectors ---- */

/* gelu(x) = max(x, 0) - a p(a)^8 / 2 with a = |x|; p is fitted to an absolute error of less than 1e-6. */
INLINE float gelu(float x) {
    const float size = fabsf(x);
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
    p *= p;
    p *= p;
    p *= p;
    return 0.5f * (x + size - a * p);
}

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

/* ---- What a layer is made of ---- */

typedef struct {
    int n;                /* states */
    const float *pole_re; /* n each */
    const float *pole_im;
    const float *factor_re; /* n each: what the discretisation makes of B */
    const float *factor_im;
    matrix B;             /* u to what it feeds into [Re x, Im x] */
    matrix C;             /* [Re x, Im x] to y */
    const float *D;
    const float *scale;   /* of the norm */
    const float *shift;
    matrix gate;
    matrix value;
} layer;

/* What the layers need while they compute a block of steps; it holds nothing between two calls. */
typedef struct {
    float u[BLOCK * ROW];
    float v[BLOCK * WIDEST];
    float y[BLOCK * ROW];
    float g[BLOCK * ROW];
} scratch;

/* ---- Norm ---- */

#define DISTINCT restrict /* the input stays for the residual connection */

/* The running statistics of the batch norm, folded to a scale and a shift. */
static void normalise(const layer *l, const float *DISTINCT x, float *DISTINCT out, int steps) {
    for (int t = 0; t < steps; t++)
        for (int i = 0; i < ROW; i++) out[t * ROW + i] = x[t * ROW + i] * l->scale[i] + l->shift[i];
}

/* ---- Weights ---- */

static const float NO_BIAS[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float pole_re_0[2] = {
    0.998621583f, 0.98900336f};

static const float pole_im_0[2] = {
    0.0120166922f, 0.0120901139f};

static const float factor_re_0[2] = {
    0.00261216215f, 0.0218449719f};

static const float factor_im_0[2] = {
    1.5712445e-05f, 0.000133273003f};

static const uint32_t B_0[8] = {
    0x5ac70e00, 0xec7ef000, 0x7f25cf00, 0x3d2b0f00, 0x00000000, 0x00000000, 0x00000000, 0x00000000};

static const float B_0_scale[8] = {
    0.00371302315f, 0.00380935031f, 0.00371302315f, 0.00380935031f, 0.0f, 0.0f, 0.0f, 0.0f};

static const uint32_t C_0[8] = {
    0x271a7ebe, 0x7eb68c38, 0xeafa1d81, 0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x00000000};

static const float C_0_scale[8] = {
    0.013268196f, 0.0173543636f, 0.0130126756f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float D_0[8] = {
    -0.178518072f, -0.595893085f, 0.273869753f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float scale_0[8] = {
    0.999994993f, 0.999994993f, 0.999994993f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float shift_0[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const uint32_t gate_0[8] = {
    0x3e7ee800, 0x7ee90d00, 0x7ea22200, 0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x00000000};

static const float gate_0_scale[8] = {
    0.00599498721f, 0.0103003634f, 0.00809885096f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float gate_0_bias[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const uint32_t value_0[8] = {
    0xd37ef300, 0x8161b100, 0x7e9adc00, 0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x00000000};

static const float value_0_scale[8] = {
    0.00427977648f, 0.00175665494f, 0.00347289606f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float value_0_bias[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const int8_t EMBEDDING[40] = {
    28, -127, 84, 0, 0, 0, 0, 0,
    -75, -127, 31, 0, 0, 0, 0, 0,
    127, 82, 68, 0, 0, 0, 0, 0,
    19, 124, -127, 0, 0, 0, 0, 0,
    -127, -3, -115, 0, 0, 0, 0, 0};

static const float EMBEDDING_SCALE[5] = {
    0.00226711412f, 0.00604134519f, 0.00583075313f, 0.00516594248f, 0.00316698663f};

static const uint32_t hidden[24] = {
    0x2180ece9, 0x241c2cad, 0x9bf81319, 0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x00000000,
    0x8c3a8cc6, 0xc852811d, 0x6aeb9d7f, 0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x00000000,
    0x23b6adbb, 0xc622142d, 0xac50d63b, 0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x00000000};

static const float hidden_scale[8] = {
    0.00349706435f, 0.0047406042f, 0.00502778357f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float hidden_bias[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const uint32_t decoder[8] = {
    0xe7017f00, 0x4b7f1500, 0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x00000000};

static const float decoder_scale[8] = {
    0.00499473f, 0.00656842347f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float decoder_bias[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const layer LAYERS[DEPTH] = {
    {2,
     pole_re_0,
     pole_im_0,
     factor_re_0,
     factor_im_0,
     {3, 8, 1, B_0, B_0_scale, NO_BIAS},
     {4, 8, 1, C_0, C_0_scale, NO_BIAS},
     D_0,
     scale_0,
     shift_0,
     {3, 8, 1, gate_0, gate_0_scale, gate_0_bias},
     {3, 8, 1, value_0, value_0_scale, value_0_bias}}};

static const int STATES[DEPTH] = {4}; /* floats of each layer's state */

static const matrix HIDDEN = {12, 12, 1, hidden, hidden_scale, hidden_bias};

static const matrix DECODER = {3, 8, 1, decoder, decoder_scale, decoder_bias};

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

/* y for the next steps, and the state after them. */
static void ssm(const layer *l, float *states, const float *u, scratch *s, int steps) {
    feed(l, u, s->v, steps);
    scan(l, states, s->v, steps, 0);
    product(&l->C, s->v, s->y, steps);
}

/* ---- Gate and residual connection ---- */

/* y += D u, the last part of the state space layer's output, and g = gelu(y). */
static void activate(const layer *l, const float *restrict u, scratch *s, int steps) {
    const float *restrict D = l->D;
    float *restrict y = s->y;
    float *restrict g = s->g;
    for (int t = 0; t < steps * ROW; t += ROW)
        for (int i = 0; i < ROW; i++) {
            y[t + i] += D[i] * u[t + i];
            g[t + i] = gelu(y[t + i]);
        }
}

/* x += gate(gelu(y)), and the norm where it comes last. */
static void gated(const layer *l, float *x, const float *u, scratch *s, int steps) {
    const int count = steps * ROW;
    const float *g = s->g;
    float *gate = s->v;
    activate(l, u, s, steps);
    product(&l->gate, g, gate, steps);
    product(&l->value, g, s->y, steps);
    for (int i = 0; i < count; i++) x[i] += s->y[i] * sigmoid(gate[i]);
}

/* The input u of the state space layer. */
static const float *input_of(const layer *l, const float *x, scratch *s, int steps) {
    normalise(l, x, s->u, steps);
    return s->u;
}

/* ---- First and last layer ---- */

/* The features of the next steps. */
static void encode(const int32_t *in, float *x, int steps) {
    for (int t = 0; t < steps; t++)
        if (in[t] >= 0 && in[t] < WORDS_INPUTS)
            for (size_t i = 0; i < ROW; i++)
                x[(size_t)t * ROW + i] = EMBEDDING_SCALE[in[t]] * (float)EMBEDDING[(size_t)in[t] * ROW + i];
        else /* no token: say nothing rather than read what is not there */
            memset(x + t * ROW, 0, ROW * sizeof *x);
}

/* The logits of features. */
static void decode(const float *features, float *logits) {
    float padded[DECODER_ROW];
    product(&DECODER, features, padded, 1);
    memcpy(logits, padded, WORDS_OUTPUTS * sizeof *logits);
}

void words_compare(const float *a, const float *b, float *logits) {
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

/* What leaves the model. */
static void answer(const float *features, float *out) {
    memcpy(out, features, WIDTH * sizeof *out);
}

/* ---- Step by step, or many steps in blocks ---- */

void words_init(words_state *state) { memset(state, 0, sizeof *state); }

/* The features x of the next steps, in place of their encoding. */
static void advance(words_state *state, float *x, scratch *s, int steps) {
    float *states = state->states;
    for (int i = 0; i < DEPTH; states += STATES[i], i++) {
        const layer *l = &LAYERS[i];
        const float *u = input_of(l, x, s, steps);
        ssm(l, states, u, s, steps);
        gated(l, x, u, s, steps);
    }
}

/* The mean of all features so far. */
static void mean(const words_state *state, float *features) {
    for (int i = 0; i < ROW; i++) features[i] = state->total[i] / (float)state->steps;
}

void words_run(words_state *state, const words_input *in, size_t length, float *out) {
    float x[BLOCK * ROW];
    scratch s;
    int steps = 0;
    for (size_t done = 0; done < length; done += (size_t)steps) {
        steps = length - done < BLOCK ? (int)(length - done) : BLOCK;
        encode(in + done * STRIDE, x, steps);
        advance(state, x, &s, steps);
        add_up(state->total, state->rounded_off, x, steps);
        state->steps += (uint32_t)steps;
    }
    if (out && state->steps) mean(state, x), answer(x, out);
}

void words_step(words_state *state, const words_input *in, float *out) { words_run(state, in, 1, out); }

typedef float logit; /* what leaves the model, and its workspace */

/* ---- Which model this is, and whether it computes what it should ---- */

const char words_id[] = "ssmprune 0.3.0, 0x71811f6e, words.safetensors (SHA-256 0cef9a11f4d08768aa8585f8e91b76b8fe19a4eb97396fed8540671fd37aef51)";

#ifdef SSMPRUNE_SELF_TEST
#define GOLDEN_STEPS 19
#define GOLDEN_NUMBERS 2
#define GOLDEN_BOUND 2.73269725e-07f
static const int32_t GOLDEN_IN[38] = {
    0, 2, 4, 1, 3, 0, 2, 4,
    1, 3, 0, 2, 4, 1, 3, 0,
    2, 4, 1, 3, 0, 2, 4, 1,
    3, 0, 2, 4, 1, 3, 0, 2,
    4, 1, 3, 0, 2, 4};

static const float GOLDEN_OUT[2] = {
    -0.00722878333f, -0.0273269732f};

/* What the model makes of GOLDEN_STEPS steps; a stream takes the last ones step by step. */
static void golden_run(const words_input *in, logit *out) {
    words_state state;
    words_init(&state);
    words_run(&state, in, GOLDEN_STEPS - 3, out);
    for (int t = GOLDEN_STEPS - 3; t < GOLDEN_STEPS; t++) {
        words_step(&state, in + t * STRIDE, out);
    }
}

/* The bits of how far a logit is off; their order is that of sizes, and NaN is above them, whatever compilers assume of NaN. */
static uint32_t golden_error(float ours, float golden) {
    const float number = ours - golden;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits & 0x7FFFFFFFu;
}

logit words_self_test(void) {
    uint32_t worst = 0;
    logit out[GOLDEN_NUMBERS];
    logit a[WIDTH], b[WIDTH];
    golden_run(GOLDEN_IN, a);
    golden_run(GOLDEN_IN + GOLDEN_STEPS * STRIDE, b);
    words_compare(a, b, out);
    for (int i = 0; i < GOLDEN_NUMBERS; i++)
        if (golden_error(out[i], GOLDEN_OUT[i]) > worst) worst = golden_error(out[i], GOLDEN_OUT[i]);
    const uint32_t most = worst < 0x7F7FFFFFu ? worst : 0x7F7FFFFFu; /* the largest float */
    float deviation;
    memcpy(&deviation, &most, sizeof deviation);
    return worst > golden_error(GOLDEN_BOUND, 0.0f) ? deviation : 0.0f;
}
#endif

/* ---- A program that reads a pipe, to try the model: cc -O3 -DSSMPRUNE_MAIN this.c -lm && ./a.out < numbers ---- */

#ifdef SSMPRUNE_MAIN
#include <stdio.h>
#include <stdlib.h>

#define VALUES "tokens"
#define LEAST 0L
#define MOST (WORDS_INPUTS - 1L)

/* The next value of stdin; 1 if there is one, 0 at the end, -1 if it is not a number, -2 with a message if it is too large
   or too small. `samples`: 16 bits each, little-endian, whatever this machine's own order is. */
static int next_value(int samples, words_input *value) {
    long number;
    if (samples) {
        unsigned char bytes[2];
        if (fread(bytes, 1, 2, stdin) != 2) return 0;
        number = bytes[0] + 256L * bytes[1];
        if (LEAST < 0 && number > 32767) number -= 65536;
    } else {
        char word[32], *end; /* the largest number that fits is what strtol makes of larger ones */
        if (scanf("%31s", word) != 1) return 0;
        number = strtol(word, &end, 10);
        if (*end || strlen(word) == 31) return -1;
    }
    if (number < LEAST || number > MOST) return fprintf(stderr, "expected " VALUES " from %ld to %ld\n", LEAST, MOST), -2;
    *value = (words_input)number;
    return 1;
}

/* The next step of stdin, like `next_value`. */
static int next_step(int samples, words_input *in) {
    for (int i = 0; i < STRIDE; i++) {
        const int found = next_value(samples, in + i);
        if (found != 1) return i ? -1 : found;
    }
    return 1;
}

#define FORMAT "%.9g"
#define PRINTED double

/* The logits, or the class. */
static void print(const logit *logits, int class_only) {
    int best = 0;
    for (int i = 1; i < WORDS_OUTPUTS; i++)
        if (logits[i] > logits[best]) best = i;
    if (class_only) printf("%d\n", best);
    for (int i = 0; !class_only && i < WORDS_OUTPUTS; i++)
        printf(FORMAT "%c", (PRINTED)logits[i], i + 1 < WORDS_OUTPUTS ? ' ' : '\n');
}

#ifndef SSMPRUNE_LONGEST
#define SSMPRUNE_LONGEST 16384 /* steps that the program can hold */
#endif
static words_input sequence_in[SSMPRUNE_LONGEST * STRIDE];

/* What the model gives for a part of the sequence. */
static void respond_to(const words_input *in, size_t length, logit *out) {
    words_state state;
    words_init(&state);
    words_run(&state, in, length, out);
}

/* Whether stdin goes on after the last step that the program can hold; says so if it does. */
static int goes_on(int samples, size_t length) {
    char first;
    if (length < SSMPRUNE_LONGEST || scanf(samples ? "%c" : " %c", &first) != 1) return 0;
    fprintf(stderr, "read %d steps, and there are more; compile with -DSSMPRUNE_LONGEST=... to read them too\n",
            SSMPRUNE_LONGEST);
    return 1;
}

/* 0 if all went well, -1 if the input is not what is expected, -2 if that has been said. */
static int answer_stdin(int samples, int class_only) {
    size_t length = 0;
    int found = 0;
    while (length < SSMPRUNE_LONGEST && (found = next_step(samples, sequence_in + length * STRIDE)) == 1) length++;
    if (found < 0) return found;
    logit a[WIDTH], b[WIDTH], logits[WORDS_OUTPUTS];
    if (goes_on(samples, length)) return -2; /* where the second document begins depends on the end */
    if (length < 2 || length % 2) return -1; /* two documents of one length, one after the other */
    respond_to(sequence_in, length / 2, a);
    respond_to(sequence_in + length / 2 * STRIDE, length / 2, b);
    words_compare(a, b, logits);
    print(logits, class_only);
    return 0;
}

#ifdef SSMPRUNE_SELF_TEST
#define SELF_TEST "  --self-test  print 0, or by how much the logits of a known input are off\n"
#else
#define SELF_TEST ""
#endif

/* What the program takes. */
static void explain(FILE *to, const char *name) {
    fprintf(to,
            "usage: %s [--s16] [--class] < input, or %s --id\n"
            "Reads " VALUES " as text, %d per step, and prints the logits.\n"
            "  --s16    the input is binary: 16 bits a value, little-endian, as in raw audio\n"
            "  --class  print the most likely class instead, counted from 0\n"
            "  --id     print which model this is\n" SELF_TEST,
            name, name, STRIDE);
}

int main(int count, char **options) {
    int samples = 0, class_only = 0;
    for (int i = 1; i < count; i++)
        if (!strcmp(options[i], "--s16"))
            samples = 1;
        else if (!strcmp(options[i], "--class"))
            class_only = 1;
        else if (!strcmp(options[i], "--id"))
            return puts(words_id), 0;
#ifdef SSMPRUNE_SELF_TEST
        else if (!strcmp(options[i], "--self-test"))
            return printf(FORMAT "\n", (PRINTED)words_self_test()), 0;
#endif
        else if (!strcmp(options[i], "--help"))
            return explain(stdout, options[0]), 0;
        else
            return explain(stderr, options[0]), 2;
    const int done = answer_stdin(samples, class_only);
    if (done == -1) fprintf(stderr, "expected " VALUES ", %d per step, and at least one step\n", STRIDE);
    return done ? 1 : 0;
}
#endif
