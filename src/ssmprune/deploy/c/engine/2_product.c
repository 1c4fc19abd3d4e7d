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
    for (size_t t = (size_t)tiled; t < (size_t)steps; t++) {
        for (panel = 0; panel + STEP_PANELS <= m->panels; panel += STEP_PANELS)
            panels_of_step(m, panel, STEP_PANELS, x + t * x_row, y + t * y_row);
        for (; panel < m->panels; panel++) panels_of_step(m, panel, 1, x + t * x_row, y + t * y_row);
    }
}
