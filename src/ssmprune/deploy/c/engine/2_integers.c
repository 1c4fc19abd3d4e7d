/* ---- Matrix products ----
   Weights are whole numbers, times a scale for each output. Those of neighbouring inputs share a word, the first in its
   highest bits; shifts, which processors do to many words at once, bring the others there one by one. */

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
    int bits;             /* of a weight: 4, but 8 in the first and last layers */
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

/* A word's first weight. It stays where it is, and so is too large by a power of two that the end of a sum takes out. */
#define FIRST(word, bits) to_floats((numbers)((word) & ~(0xFFFFFFFFu >> (bits))))
#define UNIT(m) (1.0f / (float)((uint32_t)1 << (32 - BITS(m))))

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

/* Words for the v-th vector of outputs, where `weights` is in the first panel and the others are `next`. */
#define WORDS(v) (*(const words_in_memory *)(weights + (size_t)((v) / VECTORS) * next + (v) % VECTORS * LANES))

/* Some panels of one step, with a sum over even and one over odd inputs: few sums would wait for each addition. */
INLINE void panels_of_step(const matrix *m, int first, const int panels, const float *x, float *y) {
    const int bits = BITS(m), full = m->inner / IN_WORD(m), rest = m->inner % IN_WORD(m);
    const size_t next = (size_t)WORDS_OF(m) * PANEL;
    const uint32_t *weights = m->weights + (size_t)first * next;
    const lanes nothing = {0};
    lanes even[STEP_PANELS * VECTORS], odd[STEP_PANELS * VECTORS];
    for (int v = 0; v < panels * VECTORS; v++) even[v] = odd[v] = nothing;
    for (int i = 0; i < full; i++, weights += PANEL, x += IN_WORD(m))
        for (int v = 0; v < panels * VECTORS; v++) {
            words word = WORDS(v);
            for (int j = 0; j < IN_WORD(m); j += 2, word <<= 2 * bits) {
                even[v] += x[j] * FIRST(word, bits);
                odd[v] += x[j + 1] * FIRST(word << bits, bits);
            }
        }
    for (int v = 0; v < panels * VECTORS; v++) {
        if (rest) { /* a word that is not full */
            words word = WORDS(v);
            for (int j = 0; j < rest; j++, word <<= bits) even[v] += x[j] * FIRST(word, bits);
        }
        finish(m, (size_t)first * PANEL + (size_t)v * LANES, even[v] + odd[v], y);
    }
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
    for (size_t t = (size_t)tiled; t < (size_t)steps; t++) {
        for (panel = 0; panel + STEP_PANELS <= m->panels; panel += STEP_PANELS)
            panels_of_step(m, panel, STEP_PANELS, x + t * x_row, y + t * y_row);
        for (; panel < m->panels; panel++) panels_of_step(m, panel, 1, x + t * x_row, y + t * y_row);
    }
}
