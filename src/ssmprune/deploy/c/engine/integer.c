/* A @FAMILY@ classifier in whole numbers, written by ssmprune: @DEPTH@ layers of width @WIDTH@, states in each: @PAIRS@.
   Weights have 8 bits, activations 16, states and the residual stream 32. A quantity is a whole number times a unit;
   from one unit to another leads a multiplication by number / 2^shift. What is stored in 16 bits is clamped to them.
   States are not: their units were chosen so that no input whatever can make them overflow.
   See @HEADER@ for how to call it, and the end of this file for a program to try it with. */

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8 && defined(__AVX512F__)
/* Rows of a pruned model are too short for vectors of 512 bits. */
#pragma GCC target("prefer-vector-width=256")
#endif

#include "model.h"

#include <string.h>

#include "sizes.h"

/* ---- Arithmetic: shifts of negative numbers and overflow, which C leaves open, do not occur ---- */

/* value / 2^shift, to the nearest, halves up. */
static int64_t shift_right(int64_t value, int shift) {
    value += ((int64_t)1 << shift) >> 1;
    return value < 0 ? ~(~value >> shift) : value >> shift;
}

static int64_t rescale(int64_t value, int32_t number, int shift) { return shift_right(value * number, shift); }

static int32_t clamp(int64_t value, int32_t most) {
    return value > most ? most : value < -most ? -most : (int32_t)value;
}

static int16_t short_of(int64_t value) { return (int16_t)clamp(value, 32767); }

/* Weights were chosen so that the sum fits, whatever x is. */
static int32_t dot(const int8_t *weights, const int16_t *x, int count) {
    int32_t sum = 0;
    for (int i = 0; i < count; i++) sum += (int32_t)weights[i] * x[i];
    return sum;
}
#if MEAN || LAYER_NORM

/* (2^61 - 1) / number for a number from 2^30 to 2^31 - 1, by long division: processors without one need no library. */
static int32_t inverse(int64_t number) {
    int64_t rest = ((int64_t)1 << 61) - 1;
    int32_t quotient = 0;
    for (int bit = 30; bit >= 0; bit--)
        if (rest >= number << bit) {
            rest -= number << bit;
            quotient |= (int32_t)1 << bit;
        }
    return quotient;
}
#endif

/* ---- What a layer is made of ---- */

typedef struct {
    int32_t number;
    int shift;
} factor;

/* y = factor x + bias for each feature */
typedef struct {
    const int32_t *numbers;
    int shift;
    const int32_t *bias;
} affine;

/* y = factor (W x) + bias */
typedef struct {
    int inputs;
    const int8_t *weights; /* a row for each output */
    const int32_t *numbers;
    int shift;
    const int32_t *bias;
} matrix;

/* Where a table is read: |y| in its steps, 2^7 to each. */
typedef struct {
    factor argument;
    factor value; /* from the table's value to y's unit */
} curve;

typedef struct {
    affine enter;             /* from the stream x to the input u of the states */
    int n;                    /* states; a state is a complex number: n real parts, then n imaginary ones */
    const int32_t *pole_re;   /* n each: x += pole x + feed v; this pole is the model's minus one, so slow ones are small */
    const int32_t *pole_im;
    const uint8_t *pole_shift;
    const int32_t *feed_re;
#if S5
    const int32_t *feed_im;
#endif
    const uint8_t *feed_shift;
#if S5
    const int8_t *drive;      /* 2n rows: B, so that v = B u */
    const int32_t *read;      /* n: from a state to the 16 bits that C reads */
    int read_shift;
    matrix C;
#if BIDIRECTIONAL
    matrix C_back;
#endif
#endif
#if S4D
    const uint16_t *channel;  /* n: v is the u of a state's channel */
    const int32_t *weight_re; /* n each: C B */
    const int32_t *weight_im;
    int weight_shift;
#if BIDIRECTIONAL
    const int32_t *back_re;
    const int32_t *back_im;
    int back_shift;
#endif
#endif
    const int32_t *D;
    int D_shift;
    curve gelu;
#if GATED
    matrix gate;
    factor sigmoid;           /* from the gate to the table's argument */
#endif
#if FULL_GLU
    matrix value;
#endif
    factor residual;          /* from what the gate lets through to the stream */
#if !PRENORM
    affine leave;
#endif
} layer;

#include "weights.h"

static int64_t output(const matrix *m, const int16_t *x, int i) {
    const size_t row = (size_t)i * (size_t)m->inputs;
    return rescale(dot(m->weights + row, x, m->inputs), m->numbers[i], m->shift) + m->bias[i];
}

/* ---- Tables: on the line between two of 257 points ---- */

static int32_t look_up(const uint16_t *table, int32_t size, factor argument) {
    const int32_t at = clamp(rescale(size, argument.number, argument.shift), 32767), step = at >> 7, rest = at & 127;
    return (table[step] * (128 - rest) + table[step + 1] * rest + 64) >> 7;
}

/* gelu(y) = max(y, 0) - t(|y|); a step of the table is 1/32, so its error is below 1e-4. */
static int16_t gelu(int32_t y, const curve *c) {
    const int32_t below = look_up(GELU, y < 0 ? -y : y, c->argument);
    return short_of((y < 0 ? 0 : y) - rescale(below, c->value.number, c->value.shift));
}
#if GATED

/* With 15 bits after the binary point; a step of the table is 1/16, so its error is below 1e-4. */
static int32_t sigmoid(int32_t gate, factor argument) {
    const int32_t value = look_up(SIGMOID, gate < 0 ? -gate : gate, argument);
    return gate < 0 ? 32768 - value : value;
}
#endif

/* ---- Norm ---- */

static int64_t affine_of(const affine *a, int32_t x, int i) { return rescale(x, a->numbers[i], a->shift) + a->bias[i]; }
#if LAYER_NORM

/* The whole square root of a number below 2^62. */
static int64_t root(int64_t number) {
    int64_t found = 0;
    for (int bit = 30; bit >= 0; bit--) {
        const int64_t more = found | (int64_t)1 << bit;
        if (more * more <= number) found = more;
    }
    return found;
}

/* x minus its mean, over the root of the sum of squares; with 30 bits after the binary point. */
static void standardise(const int32_t *x, int32_t *out) {
    int64_t sum = 0, squares = 0;
    int32_t top = 0;
    int cut = 0, doubled = 0;
    for (int i = 0; i < WIDTH; i++) sum += x[i];
    const int64_t centre = rescale(shift_right(sum, WIDTH_BITS), WIDTH_SHARE, 29);
    for (int i = 0; i < WIDTH; i++) {
        out[i] = (int32_t)(x[i] - centre);
        if (out[i] > top || -out[i] > top) top = out[i] < 0 ? -out[i] : out[i];
    }
    for (int i = 0; i < 16; i++) cut += top >> cut > 32767; /* bits beyond 16 */
    for (int i = 0; i < WIDTH; i++) {
        out[i] = (int32_t)shift_right(out[i], cut);
        squares += (int64_t)out[i] * out[i];
    }
    squares += EPSILON >> 2 * cut;
    for (int i = 0; i < 30; i++)
        if (squares < (int64_t)1 << 60) {
            squares *= 4;
            doubled++;
        }
    const int32_t scale = inverse(root(squares));
    for (int i = 0; i < WIDTH; i++) out[i] = (int32_t)rescale(out[i], scale, 31 - doubled);
}
#endif

/* The input u of the states. */
static void enter(const layer *l, const int32_t *x, int16_t *u) {
#if LAYER_NORM && PRENORM
    int32_t standard[WIDTH];
    standardise(x, standard);
    x = standard;
#endif
    for (int i = 0; i < WIDTH; i++) u[i] = short_of(affine_of(&l->enter, x[i], i));
}

/* ---- States: x += (pole - 1) x + B u ---- */

/* The next value of state i, to which `re` and `im` are fed. */
static void advance(const layer *l, int32_t *x, int i, int64_t re, int64_t im) {
    const int64_t old_re = x[i], old_im = x[l->n + i], pole_re = l->pole_re[i], pole_im = l->pole_im[i];
    const int shift = l->pole_shift[i];
    x[i] = (int32_t)(old_re + shift_right(pole_re * old_re - pole_im * old_im, shift) + re);
    x[l->n + i] = (int32_t)(old_im + shift_right(pole_re * old_im + pole_im * old_re, shift) + im);
}
#if S5

/* What u feeds into the states: v, n real parts and n imaginary ones. */
static void feed(const layer *l, const int16_t *u, int32_t *v) {
    const int n = l->n;
    for (int i = 0; i < n; i++) {
        const int64_t re = dot(l->drive + (size_t)i * WIDTH, u, WIDTH), im = dot(l->drive + (size_t)(n + i) * WIDTH, u, WIDTH);
        v[i] = (int32_t)shift_right(l->feed_re[i] * re - l->feed_im[i] * im, l->feed_shift[i]);
        v[n + i] = (int32_t)shift_right(l->feed_re[i] * im + l->feed_im[i] * re, l->feed_shift[i]);
    }
}

/* y += what C makes of the states after v was fed into them. */
static void respond(const layer *l, const matrix *C, int32_t *x, const int32_t *v, int32_t *y) {
    const int n = l->n;
    int16_t seen[2 * MOST_STATES];
    for (int i = 0; i < n; i++) {
        advance(l, x, i, v[i], v[n + i]);
        seen[i] = short_of(rescale(x[i], l->read[i], l->read_shift));
        seen[n + i] = short_of(rescale(x[n + i], l->read[i], l->read_shift));
    }
    for (int i = 0; i < WIDTH; i++) y[i] = clamp(y[i] + output(C, seen, i), WIDE);
}
#else

/* y += what the states of each channel give after its u was fed into them, or before: backwards, in some models. */
static void respond(const layer *l, int32_t *x, const int16_t *u, int32_t *y, int backward) {
    const int n = l->n;
    int64_t sum[WIDTH] = {0};
#if BIDIRECTIONAL
    const int32_t *re = backward ? l->back_re : l->weight_re, *im = backward ? l->back_im : l->weight_im;
    const int shift = backward ? l->back_shift : l->weight_shift;
#else
    const int32_t *re = l->weight_re, *im = l->weight_im;
    const int shift = l->weight_shift;
#endif
    const int delayed = backward && BACKWARD_DELAY;
    for (int i = 0; i < n; i++) {
        const int64_t fed = rescale(u[l->channel[i]], l->feed_re[i], l->feed_shift[i]);
        if (delayed) sum[l->channel[i]] += (int64_t)re[i] * x[i] - (int64_t)im[i] * x[n + i];
        advance(l, x, i, fed, 0);
        if (!delayed) sum[l->channel[i]] += (int64_t)re[i] * x[i] - (int64_t)im[i] * x[n + i];
    }
    for (int i = 0; i < WIDTH; i++) y[i] = clamp(y[i] + shift_right(sum[i], shift), WIDE);
}
#endif

/* ---- Gate and residual connection ---- */

/* x += gate(gelu(y + D u)), and the norm where it comes last. */
static void leave(const layer *l, int32_t *x, const int16_t *u, const int32_t *sum) {
    int16_t y[WIDTH], g[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        y[i] = short_of(sum[i] + rescale(u[i], l->D[i], l->D_shift));
        g[i] = gelu(y[i], &l->gelu);
    }
    for (int i = 0; i < WIDTH; i++) {
#if GELU_ONLY
        const int32_t gated = g[i];
#endif
#if HALF_GLU1
        const int32_t gated = g[i] * sigmoid(short_of(output(&l->gate, g, i)), l->sigmoid);
#endif
#if HALF_GLU2
        const int32_t gated = y[i] * sigmoid(short_of(output(&l->gate, g, i)), l->sigmoid);
#endif
#if FULL_GLU
        const int32_t value = short_of(output(&l->value, g, i));
        const int32_t gated = value * sigmoid(short_of(output(&l->gate, g, i)), l->sigmoid);
#endif
        x[i] = clamp(x[i] + rescale(gated, l->residual.number, l->residual.shift), WIDE);
    }
#if !PRENORM
#if LAYER_NORM
    int32_t standard[WIDTH];
    standardise(x, standard);
    memcpy(x, standard, sizeof standard);
#endif
    for (int i = 0; i < WIDTH; i++) x[i] = clamp(affine_of(&l->leave, x[i], i), WIDE);
#endif
}

/* ---- First and last layer ---- */

/* The features of a step. */
static void encode(const model_input *in, int32_t *x) {
#if TOKENS
    const int known = *in >= 0 && *in < MODEL_INPUTS; /* no token: say nothing rather than read what is not there */
    for (int i = 0; i < WIDTH; i++)
        x[i] = known ? clamp(rescale(EMBEDDING[(size_t)*in * WIDTH + (size_t)i], EMBEDDING_NUMBERS[*in], EMBEDDING_SHIFT), WIDE) : 0;
#else
    for (int i = 0; i < WIDTH; i++) x[i] = clamp(output(&ENCODER, in, i), WIDE);
#endif
}
#if MEAN

/* The mean of a sum over some steps, fewer than 2^31. */
static int32_t mean(int64_t total, int32_t scale, int doubled) { return (int32_t)rescale(shift_right(total, 31 - doubled), scale, 30); }

/* The means of all features. */
static void means(const int64_t *total, uint32_t steps, int32_t *x) {
    int64_t number = steps;
    int doubled = 0;
    for (int i = 0; i < 30; i++)
        if (number < (int64_t)1 << 30) {
            number *= 2;
            doubled++;
        }
    const int32_t scale = inverse(number);
    for (int i = 0; i < WIDTH; i++) x[i] = mean(total[i], scale, doubled);
}
#endif

static void decode(const int16_t *features, int32_t *logits) {
    for (int i = 0; i < MODEL_OUTPUTS; i++) logits[i] = clamp(output(&DECODER, features, i), WIDE);
}

/* What leaves the model, from the stream of a step or its mean. */
static void answer(const int32_t *x, int32_t *out) {
    int16_t features[WIDTH];
    for (int i = 0; i < WIDTH; i++) features[i] = short_of(rescale(x[i], POOL.number, POOL.shift));
#if RETRIEVAL
    for (int i = 0; i < WIDTH; i++) out[i] = features[i];
#else
    decode(features, out);
#endif
}
#if RETRIEVAL

void model_compare(const int32_t *a, const int32_t *b, int32_t *logits) {
    int16_t joint[4 * WIDTH], features[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        joint[i] = short_of(rescale(a[i], JOINT.number, JOINT.shift));
        joint[WIDTH + i] = short_of(rescale(b[i], JOINT.number, JOINT.shift));
        joint[2 * WIDTH + i] = short_of(rescale((int64_t)a[i] - b[i], JOINT.number, JOINT.shift));
        joint[3 * WIDTH + i] = short_of(rescale((int64_t)a[i] * b[i], JOINT_PRODUCT.number, JOINT_PRODUCT.shift));
    }
    for (int i = 0; i < WIDTH; i++) features[i] = gelu(short_of(output(&HIDDEN, joint, i)), &HIDDEN_GELU);
    decode(features, logits);
}
#endif
#if BIDIRECTIONAL

/* ---- Whole sequences, in both directions ----
   The workspace holds for each step the features x, the outputs y and, for S5, what is fed into the states. */

static void through(const layer *l, int32_t *all, size_t length) {
    int32_t states[2 * MOST_STATES] = {0};
    int16_t u[WIDTH];
    for (size_t t = 0; t < length; t++) {
        int32_t *x = all + t * MODEL_NUMBERS_PER_STEP, *y = x + WIDTH;
        memset(y, 0, WIDTH * sizeof *y);
        enter(l, x, u);
#if S5
        feed(l, u, y + WIDTH);
        respond(l, &l->C, states, y + WIDTH, y);
#else
        respond(l, states, u, y, 0);
#endif
    }
    memset(states, 0, sizeof states);
    for (size_t left = length; left > 0; left--) {
        int32_t *x = all + (left - 1) * MODEL_NUMBERS_PER_STEP, *y = x + WIDTH;
        enter(l, x, u);
#if S5
        respond(l, &l->C_back, states, y + WIDTH, y);
#else
        respond(l, states, u, y, 1);
#endif
        leave(l, x, u, y);
    }
}

void model_run(int32_t *workspace, const model_input *in, size_t length, size_t valid, int32_t *out) {
    if (valid > length) valid = length;
    if (!valid) return;
#if CUTS_PADDING
    length = valid; /* each direction runs over the true length */
#endif
    for (size_t t = 0; t < length; t++) encode(in + t * STRIDE, workspace + t * MODEL_NUMBERS_PER_STEP);
    for (int i = 0; i < DEPTH; i++) through(&LAYERS[i], workspace, length);
#if MEAN
    int64_t total[WIDTH] = {0};
    int32_t x[WIDTH];
    if (valid > MOST_STEPS) valid = MOST_STEPS;
    for (size_t t = 0; t < valid; t++)
        for (int i = 0; i < WIDTH; i++) total[i] += workspace[t * MODEL_NUMBERS_PER_STEP + (size_t)i];
    means(total, (uint32_t)valid, x);
    answer(x, out);
#endif
#if LAST
    answer(workspace + (valid - 1) * MODEL_NUMBERS_PER_STEP, out);
#endif
#if EVERY_STEP
    for (size_t t = 0; t < valid; t++) answer(workspace + t * MODEL_NUMBERS_PER_STEP, out + t * MODEL_OUTPUTS);
#endif
}
#else

/* ---- Step by step ---- */

void model_init(model_state *state) { memset(state, 0, sizeof *state); }

/* The features of the next step. */
static void advance_all(model_state *state, const model_input *in, int32_t *x) {
    int32_t *states = state->states;
    encode(in, x);
    for (int i = 0; i < DEPTH; i++) {
        const layer *l = &LAYERS[i];
        int16_t u[WIDTH];
        int32_t y[WIDTH] = {0};
        enter(l, x, u);
#if S5
        int32_t v[2 * MOST_STATES];
        feed(l, u, v);
        respond(l, &l->C, states, v, y);
#else
        respond(l, states, u, y, 0);
#endif
        leave(l, x, u, y);
        states += 2 * l->n;
    }
#if MEAN
    if (state->steps < MOST_STEPS) {
        for (int i = 0; i < WIDTH; i++) state->total[i] += x[i];
        state->steps++;
    }
#endif
}

void model_run(model_state *state, const model_input *in, size_t length, int32_t *out) {
    int32_t x[WIDTH];
    for (size_t t = 0; t < length; t++) {
        advance_all(state, in + t * STRIDE, x);
#if EVERY_STEP
        if (out) answer(x, out + t * MODEL_OUTPUTS);
#endif
    }
#if MEAN
    if (out && state->steps) means(state->total, state->steps, x), answer(x, out);
#endif
#if LAST
    if (out && length) answer(x, out);
#endif
}

void model_step(model_state *state, const model_input *in, int32_t *out) { model_run(state, in, 1, out); }
#endif
#if !TOKENS

#ifdef MODEL_FLOATS
void model_samples(const float *x, model_input *in) {
    static const float scale[MODEL_INPUTS] = {@SCALES@}, offset[MODEL_INPUTS] = {@OFFSETS@};
    for (int i = 0; i < MODEL_INPUTS; i++) {
        const float raw = (x[i] - offset[i]) / scale[i], near = raw < 0.0f ? raw - 0.5f : raw + 0.5f;
        in[i] = (model_input)(near > 32767.0f ? 32767 : near > -32767.0f ? (int32_t)near : -32767);
    }
}
#endif
#endif

#include "end.c"
