/* A S4D classifier, written by ssmprune: 1 layers of width 3, states in each: 5.
   Compile with -O3; -march=native -mtune=generic (x86) or -mcpu=native (ARM) and -ffp-contract=fast make it faster.
   See both.h for how to call it, and the end of this file for a program to try it with. */

#if defined(__GNUC__) && !defined(__clang__)
/* Else gcc makes branches of the clamps in GELU and sigmoid, which keeps them out of vectors. */
#pragma GCC optimize("no-trapping-math", "finite-math-only", "no-signed-zeros")
#if defined(__AVX512F__) && __GNUC__ >= 8
/* Vectors of sixteen would have to wait until the vectors of eight that products store have reached the cache. */
#pragma GCC target("prefer-vector-width=256")
#endif
#endif

#include "both.h"

#include <math.h>
#include <string.h>

#ifdef __cplusplus
#define restrict __restrict
#endif

#if BOTH_DIGEST != 0xc0431bd8
#error "both.h belongs to another model; export both files again"
#endif
#define WIDTH 3 /* features of a step */
#define ROW 8 /* the same, filled up to whole panels */
#define DEPTH 1
#define STRIDE 1 /* from one step's input to the next */
#define WIDEST 8
#define DECODER_ROW 8
#define NORM_EPS 1e-05f
#define MODE_PARTS 6
#define STATES_ROOM 64 /* floats of the largest layer's state */
#define BLOCK BOTH_BLOCK

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
    const int *slots;     /* states that each channel of a group of PANEL channels has room for */
    const float *modes;   /* [group][slot]: poles and weights, real and imaginary parts, PANEL each */
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

/* ---- Weights ---- */

static const int slots_0[1] = {
    2};

static const float modes_0[96] = {
    0.976527333f, 0.99871105f, 0.992313981f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.0254527703f, 0.00143252988f, 0.00848144107f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.0443004668f, -0.00179536117f, 0.0138237718f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.0550875738f, 0.000903632608f, 0.00960425567f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.0134964893f, 0.00189865055f, 0.0260257553f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.0487796292f, 0.00838778634f, 0.0019401476f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.95425272f, 0.998641789f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.208938494f, 0.0118493969f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.0759837925f, 0.00159924792f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.119618706f, 0.000418979384f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.0191814266f, -0.005316447f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.00138278049f, -0.00581155578f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float D_0[8] = {
    -0.606451213f, -1.24273169f, -0.476231575f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float scale_0[8] = {
    1.0f, 1.0f, 1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float shift_0[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float gate_0[24] = {
    0.438027322f, 0.741230547f, -0.0872641802f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.682831645f, -0.762978911f, -0.0307806097f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.316333205f, -0.104529992f, -0.183888599f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float gate_0_bias[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float encoder[8] = {
    1.43749642f, -0.78149879f, 0.182328999f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float encoder_bias[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float decoder[24] = {
    0.354490608f, -0.699738503f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    0.52816236f, -0.669775844f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
    -0.865472257f, 1.30986071f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const float decoder_bias[8] = {
    0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

static const layer LAYERS[DEPTH] = {
    {slots_0,
     modes_0,
     D_0,
     scale_0,
     shift_0,
     {3, 8, 1, gate_0, gate_0_bias}}};

static const matrix ENCODER = {1, 1, 1, encoder, encoder_bias};

static const matrix DECODER = {3, 8, 1, decoder, decoder_bias};

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
            sum += LOAD(weight) * re[s] - LOAD(weight + PANEL) * im[s];
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
    memcpy(logits, padded, BOTH_OUTPUTS * sizeof *logits);
}

/* What leaves the model. */
static void answer(const float *features, float *out) {
    decode(features, out);
}

/* ---- Whole sequences, in both directions ----
   The workspace holds the features x and the outputs y of all steps and, for S5, what is fed into the states. */

typedef struct {
    float *x;
    float *y;
} sequence;

/* y forwards in time, from u of each block of steps. */
static void forwards(const layer *l, sequence all, size_t length, scratch *s) {
    float states[STATES_ROOM] = {0};
    for (size_t at = 0; at < length; at += BLOCK) {
        const int steps = length - at < BLOCK ? (int)(length - at) : BLOCK;
        const float *u = input_of(l, all.x + at * ROW, s, steps);
        respond(l, states, u, s, steps, 0);
        memcpy(all.y + at * ROW, s->y, (size_t)steps * ROW * sizeof(float));
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
        respond(l, states, u, s, steps, 1);
        for (int i = 0; i < steps * ROW; i++) s->y[i] += before[i];
        gated(l, all.x + end * ROW, u, s, steps);
    }
}

void both_run(float *workspace, const both_input *in, size_t length, size_t valid, float *out) {
    scratch s;
    sequence all;
    if (valid > length) valid = length;
    if (!valid) return;
    length = valid; /* each direction runs over the true length */
    all.x = workspace;
    all.y = all.x + length * ROW;
    for (size_t at = 0; at < length; at += BLOCK)
        encode(in + at * STRIDE, all.x + at * ROW, length - at < BLOCK ? (int)(length - at) : BLOCK);
    for (int i = 0; i < DEPTH; i++) {
        forwards(&LAYERS[i], all, length, &s);
        backwards(&LAYERS[i], all, length, &s);
    }
    answer(all.x + (valid - 1) * ROW, out);
}

typedef float logit; /* what leaves the model, and its workspace */

/* ---- Which model this is, and whether it computes what it should ---- */

const char both_id[] = "ssmprune 0.3.0, 0xc0431bd8, both.safetensors (SHA-256 da90fe91724349901fac54410cf30977919b136afdd0da63a249aa780c8cfae7)";

#ifdef SSMPRUNE_SELF_TEST
#define GOLDEN_STEPS 19
#define GOLDEN_NUMBERS 2
#define GOLDEN_BOUND 2.32328288e-06f
static const float GOLDEN_IN[19] = {
    -1.0f, 0.15625f, -0.6875f, 0.46875f, -0.375f, 0.78125f, -0.0625f, -0.90625f,
    0.25f, -0.59375f, 0.5625f, -0.28125f, 0.875f, 0.03125f, -0.8125f, 0.34375f,
    -0.5f, 0.65625f, -0.1875f};

static const float GOLDEN_OUT[2] = {
    0.141430616f, -0.232328281f};

/* What the model makes of GOLDEN_STEPS steps; a stream takes the last ones step by step. */
static void golden_run(const both_input *in, logit *out) {
    static logit golden_workspace[BOTH_WORKSPACE(GOLDEN_STEPS)];
    both_run(golden_workspace, in, GOLDEN_STEPS, GOLDEN_STEPS, out);
}

/* The bits of how far a logit is off; their order is that of sizes, and NaN is above them, whatever compilers assume of NaN. */
static uint32_t golden_error(float ours, float golden) {
    const float number = ours - golden;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits & 0x7FFFFFFFu;
}

logit both_self_test(void) {
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
static int next_value(int samples, both_input *value) {
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
static int next_step(int samples, both_input *in) {
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
    for (int i = 1; i < BOTH_OUTPUTS; i++)
        if (logits[i] > logits[best]) best = i;
    if (class_only) printf("%d\n", best);
    for (int i = 0; !class_only && i < BOTH_OUTPUTS; i++)
        printf(FORMAT "%c", (PRINTED)logits[i], i + 1 < BOTH_OUTPUTS ? ' ' : '\n');
}

#ifndef SSMPRUNE_LONGEST
#define SSMPRUNE_LONGEST 16384 /* steps that the program can hold */
#endif
static both_input sequence_in[SSMPRUNE_LONGEST * STRIDE];
static logit workspace[BOTH_WORKSPACE(SSMPRUNE_LONGEST)];

/* What the model gives for a part of the sequence. */
static void respond_to(const both_input *in, size_t length, logit *out) {
    both_run(workspace, in, length, length, out);
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
    logit logits[BOTH_OUTPUTS];
    if (!length) return -1;
    respond_to(sequence_in, length, logits);
    print(logits, class_only);
    fflush(stdout); /* nobody waits for more input to see the answer */
    goes_on(samples, length);
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
            return puts(both_id), 0;
#ifdef SSMPRUNE_SELF_TEST
        else if (!strcmp(options[i], "--self-test"))
            return printf(FORMAT "\n", (PRINTED)both_self_test()), 0;
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
