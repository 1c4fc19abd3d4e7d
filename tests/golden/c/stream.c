/* A S5 classifier, written by ssmprune: 2 layers of width 4, states in each: 2 1.
   Compile with -O3; -march=native -mtune=generic (x86) or -mcpu=native (ARM) and -ffp-contract=fast make it faster.
   See stream.h for how to call it, and the end of this file for a program to try it with. */

#if defined(__GNUC__) && !defined(__clang__)
/* Else gcc makes branches of the clamps in GELU and sigmoid, which keeps them out of vectors. */
#pragma GCC optimize("no-trapping-math", "finite-math-only", "no-signed-zeros")
#if defined(__AVX512F__) && __GNUC__ >= 8
/* Vectors of sixteen would have to wait until the vectors of eight that products store have reached the cache. */
#pragma GCC target("prefer-vector-width=256")
#endif
#endif

#include "stream.h"

#include <math.h>
#include <string.h>

#ifdef __cplusplus
#define restrict __restrict
#endif

#if STREAM_DIGEST != 0x4e66aa44
#error "stream.h belongs to another model; export both files again"
#endif
#define WIDTH 4 /* features of a step */
#define ROW 8 /* the same, filled up to whole panels */
#define DEPTH 2
#define STRIDE 2 /* from one step's input to the next */
#define WIDEST 8
#define DECODER_ROW 8
#define BLOCK STREAM_BLOCK

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
    matrix B;             /* u to what it feeds into [Re x, Im x] */
    matrix C;             /* [Re x, Im x] to y */
    const float *D;
    const float *scale;   /* of the norm */
    const float *shift;
    matrix gate;
} layer;

/* What the layers need while they compute a block of steps; it holds nothing between two calls. */
typedef struct {
    float u[BLOCK * ROW];
    float v[BLOCK * WIDEST];
    float y[BLOCK * ROW];
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
    0.998832345f, 0.995554924f};

static const float pole_im_0[2] = {
    0.0102591338f, 0.00492283562f};

static const float B_0[32] = {
    -7.21044125e-05f, -0.000771001505f, -0.000214006723f, -0.00295221386f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.000204813405f, -0.00377762876f, -0.000148541978f, 0.00213932758f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.000364050065f, -7.60131225e-05f, 0.000844766037f, 0.00010331611f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.000476474786f, 0.00127232959f, -0.00124585256f, -0.0028670351f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float C_0[32] = {
    -1.27654803f, -0.0951028466f, -0.904728889f, 1.1178726f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.942330658f, 1.96980643f, 0.395787895f, 1.63770545f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.0535440147f, 0.397502124f, 0.698019862f, 0.604806483f, 0.0f, 0.0f, 0.0f, 0.0f,
    2.39427781f, 0.355739951f, -1.12809896f, -0.159696698f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float D_0[8] = {
    1.89291048f, 3.11104417f, -0.458395809f, -0.335988075f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float scale_0[8] = {
    0.999994993f, 0.999994993f, 0.999994993f, 0.999994993f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float shift_0[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float gate_0[32] = {
    0.924738109f, -0.0814841241f, 0.309000462f, 0.563334584f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.097924158f, -0.180357769f, 0.0447942764f, -0.442082793f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.916016042f, 0.54974848f, 0.490470052f, 0.178512618f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.272529453f, -0.56335485f, -0.0110783689f, 0.121263519f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float gate_0_bias[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float pole_re_1[1] = {
    0.999029219f};

static const float pole_im_1[1] = {
    0.00167814083f};

static const float B_1[32] = {
    0.00150676852f, 0.00037155312f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.000167160295f, 0.00110686466f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.00105539511f, 0.00154446915f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.000870779972f, -0.0019536796f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float C_1[16] = {
    -1.59783816f, -0.112882316f, -2.60415578f, -1.26374042f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.305290341f, -2.81541348f, 1.59659493f, 0.0650225803f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float D_1[8] = {
    0.198253274f, 1.56706011f, -1.16186345f, 0.418719977f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float scale_1[8] = {
    0.999994993f, 0.999994993f, 0.999994993f, 0.999994993f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float shift_1[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float gate_1[32] = {
    -0.0961625502f, 0.36860764f, 0.221910194f, 0.635338366f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.675673306f, 0.297792673f, 0.0187941492f, -0.47167182f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.0895308852f, 0.123942159f, -0.581753016f, -0.516569555f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.0258852076f, 0.0355400927f, 0.416945219f, -0.38142702f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float gate_1_bias[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float encoder[16] = {
    0.324239403f, -0.57819128f, -0.479618698f, -0.688657045f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.673666239f, -0.324236721f, 0.146334097f, 0.8847453f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float encoder_bias[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float decoder[32] = {
    0.782580972f, 0.880535722f, -0.102805242f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.571525216f, -0.46854502f, -0.555010378f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.139567375f, -0.378821582f, -0.236545756f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.165849745f, -0.649782717f, -0.143768564f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float decoder_bias[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const layer LAYERS[DEPTH] = {
    {2,
     pole_re_0,
     pole_im_0,
     {4, 8, 1, B_0, NO_BIAS},
     {4, 8, 1, C_0, NO_BIAS},
     D_0,
     scale_0,
     shift_0,
     {4, 8, 1, gate_0, gate_0_bias}},
    {1,
     pole_re_1,
     pole_im_1,
     {4, 8, 1, B_1, NO_BIAS},
     {2, 8, 1, C_1, NO_BIAS},
     D_1,
     scale_1,
     shift_1,
     {4, 8, 1, gate_1, gate_1_bias}}};

static const int STATES[DEPTH] = {4, 2}; /* floats of each layer's state */

static const matrix ENCODER = {2, 2, 1, encoder, encoder_bias};

static const matrix DECODER = {4, 8, 1, decoder, decoder_bias};

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
    product(&l->B, u, s->v, steps);
    scan(l, states, s->v, steps, 0);
    product(&l->C, s->v, s->y, steps);
}

/* ---- Gate and residual connection ---- */

/* y += D u, the last part of the state space layer's output, and g = gelu(y). */
static void activate(const layer *l, const float *restrict u, scratch *s, int steps) {
    const float *restrict D = l->D;
    float *restrict y = s->y;
    for (int t = 0; t < steps * ROW; t += ROW)
        for (int i = 0; i < ROW; i++) {
            y[t + i] = gelu(y[t + i] + D[i] * u[t + i]);
        }
}

/* x += gate(gelu(y)), and the norm where it comes last. */
static void gated(const layer *l, float *x, const float *u, scratch *s, int steps) {
    const int count = steps * ROW;
    const float *g = s->y;
    float *gate = s->v;
    activate(l, u, s, steps);
    product(&l->gate, g, gate, steps);
    for (int i = 0; i < count; i++) x[i] += g[i] * sigmoid(gate[i]);
}

/* The input u of the state space layer. */
static const float *input_of(const layer *l, const float *x, scratch *s, int steps) {
    normalise(l, x, s->u, steps);
    return s->u;
}

/* ---- First and last layer ---- */

/* The features of the next steps. */
static void encode(const float *in, float *x, int steps) { product(&ENCODER, in, x, steps); }

/* The logits of features. */
static void decode(const float *features, float *logits) {
    float padded[DECODER_ROW];
    product(&DECODER, features, padded, 1);
    memcpy(logits, padded, STREAM_OUTPUTS * sizeof *logits);
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
    decode(features, out);
}

/* ---- Step by step, or many steps in blocks ---- */

void stream_init(stream_state *state) { memset(state, 0, sizeof *state); }

/* The features x of the next steps, in place of their encoding. */
static void advance(stream_state *state, float *x, scratch *s, int steps) {
    float *states = state->states;
    for (int i = 0; i < DEPTH; states += STATES[i], i++) {
        const layer *l = &LAYERS[i];
        const float *u = input_of(l, x, s, steps);
        ssm(l, states, u, s, steps);
        gated(l, x, u, s, steps);
    }
}

/* The mean of all features so far. */
static void mean(const stream_state *state, float *features) {
    for (int i = 0; i < ROW; i++) features[i] = state->total[i] / (float)state->steps;
}

void stream_run(stream_state *state, const stream_input *in, size_t length, float *out) {
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

void stream_step(stream_state *state, const stream_input *in, float *out) { stream_run(state, in, 1, out); }

typedef float logit; /* what leaves the model, and its workspace */

/* ---- Which model this is, and whether it computes what it should ---- */

const char stream_id[] = "ssmprune 0.3.0, 0x4e66aa44, stream.safetensors (SHA-256 c13612dba4f2765960caa7cfbc6526337ee6f7d7d40a2ba8a02f9ce422833910)";

#ifdef SSMPRUNE_SELF_TEST
#define GOLDEN_STEPS 19
#define GOLDEN_NUMBERS 3
#define GOLDEN_BOUND 2.66783361e-06f
static const float GOLDEN_IN[38] = {
    -1.0f, 0.15625f, -0.6875f, 0.46875f, -0.375f, 0.78125f, -0.0625f, -0.90625f,
    0.25f, -0.59375f, 0.5625f, -0.28125f, 0.875f, 0.03125f, -0.8125f, 0.34375f,
    -0.5f, 0.65625f, -0.1875f, 0.96875f, 0.125f, -0.71875f, 0.4375f, -0.40625f,
    0.75f, -0.09375f, -0.9375f, 0.21875f, -0.625f, 0.53125f, -0.3125f, 0.84375f,
    0.0f, -0.84375f, 0.3125f, -0.53125f, 0.625f, -0.21875f};

static const float GOLDEN_OUT[3] = {
    0.266783357f, -0.199085861f, -0.254341245f};

/* What the model makes of GOLDEN_STEPS steps; a stream takes the last ones step by step. */
static void golden_run(const stream_input *in, logit *out) {
    stream_state state;
    stream_init(&state);
    stream_run(&state, in, GOLDEN_STEPS - 3, out);
    for (int t = GOLDEN_STEPS - 3; t < GOLDEN_STEPS; t++) {
        stream_step(&state, in + t * STRIDE, out);
    }
}

/* The bits of how far a logit is off; their order is that of sizes, and NaN is above them, whatever compilers assume of NaN. */
static uint32_t golden_error(float ours, float golden) {
    const float number = ours - golden;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits & 0x7FFFFFFFu;
}

logit stream_self_test(void) {
    uint32_t worst = 0;
    logit out[GOLDEN_NUMBERS];
    golden_run(GOLDEN_IN, out);
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

#define VALUES "numbers"

/* The next value of stdin; 1 if there is one, 0 at the end, -1 if it is not a number, -2 with a message if it is too large
   or too small. `samples`: 16 bits each, little-endian, whatever this machine's own order is. */
static int next_value(int samples, stream_input *value) {
    if (samples) {
        unsigned char bytes[2];
        if (fread(bytes, 1, 2, stdin) != 2) return 0;
        const int sample = bytes[0] | bytes[1] << 8;
        *value = (float)(sample >= 32768 ? sample - 65536 : sample) / 32768.0f;
        return 1;
    }
    const int found = scanf("%f", value);
    return found == 1 ? 1 : found == EOF ? 0 : -1;
}

/* The next step of stdin, like `next_value`. */
static int next_step(int samples, stream_input *in) {
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
    for (int i = 1; i < STREAM_OUTPUTS; i++)
        if (logits[i] > logits[best]) best = i;
    if (class_only) printf("%d\n", best);
    for (int i = 0; !class_only && i < STREAM_OUTPUTS; i++)
        printf(FORMAT "%c", (PRINTED)logits[i], i + 1 < STREAM_OUTPUTS ? ' ' : '\n');
}

/* 0 if all went well, -1 if the input is not what is expected, -2 if that has been said. */
static int answer_stdin(int samples, int class_only) {
    stream_state state;
    stream_input in[STRIDE];
    logit logits[STREAM_OUTPUTS];
    int found, any = 0;
    stream_init(&state);
    for (; (found = next_step(samples, in)) == 1; any = 1) {
        stream_step(&state, in, logits);
    }
    if (found < 0 || !any) return found < 0 ? found : -1;
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
            return puts(stream_id), 0;
#ifdef SSMPRUNE_SELF_TEST
        else if (!strcmp(options[i], "--self-test"))
            return printf(FORMAT "\n", (PRINTED)stream_self_test()), 0;
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
