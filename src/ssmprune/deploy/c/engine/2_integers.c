/* ---- Matrix products ----
   Weights are whole numbers, times a scale for each output. Those of neighbouring inputs share a word, as digits share a
   number: first * 2^24 + second * 2^16 + ... (for 8 bits). Shifted until weight j is on top, which processors do to many
   words at once, a word is that weight with those after it as a fraction: w_j + w_(j+1) / 256 + ...
   A step leaves the fractions in and takes them out of its input, once for all outputs: from x_j goes x_(j-1) / 256. */

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

/* Words for the v-th vector of outputs, where `weights` is in the first panel and the others are `next`. */
#define WORDS(v) (*(const words_in_memory *)(weights + (size_t)((v) / VECTORS) * next + (v) % VECTORS * LANES))

/* The input z that takes out what fractions add, with zeros up to a whole word. */
static void take_out(const matrix *m, const float *restrict x, float *restrict z) {
    const int inner = m->inner, each = IN_WORD(m);
    const float base = 1.0f / (float)(1 << BITS(m));
    for (int k = 1; k < inner; k++) z[k] = x[k] - base * x[k - 1];
    for (int k = 0; k < inner; k += each) z[k] = x[k]; /* the first of a word is in nobody's fraction */
    for (int k = inner; k < WORDS_OF(m) * each; k++) z[k] = 0;
}

/* Some panels of one step, with a sum over even and one over odd inputs: few sums would wait for each addition. */
INLINE void panels_of_step(const matrix *m, int first, const int panels, const float *z, float *y) {
    const int bits = BITS(m), count = WORDS_OF(m);
    const size_t next = (size_t)count * PANEL;
    const uint32_t *weights = m->weights + (size_t)first * next;
    const lanes nothing = {0};
    lanes even[STEP_PANELS * VECTORS], odd[STEP_PANELS * VECTORS];
    for (int v = 0; v < panels * VECTORS; v++) even[v] = odd[v] = nothing;
    for (int i = 0; i < count; i++, weights += PANEL, z += IN_WORD(m))
        for (int v = 0; v < panels * VECTORS; v++) {
            words word = WORDS(v);
            for (int j = 0; j < IN_WORD(m); j += 2, word <<= 2 * bits) {
                even[v] += z[j] * WITH_FRACTION(word);
                odd[v] += z[j + 1] * WITH_FRACTION(word << bits);
            }
        }
    for (int v = 0; v < panels * VECTORS; v++)
        finish(m, (size_t)first * PANEL + (size_t)v * LANES, even[v] + odd[v], y);
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
        float z[LONGEST_OF_ALL];
        take_out(m, x + t * x_row, z);
        for (panel = 0; panel + STEP_PANELS <= m->panels; panel += STEP_PANELS)
            panels_of_step(m, panel, STEP_PANELS, z, y + t * y_row);
        for (; panel < m->panels; panel++) panels_of_step(m, panel, 1, z, y + t * y_row);
    }
}
