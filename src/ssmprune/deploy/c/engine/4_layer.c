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
    float v[BLOCK * WIDEST];
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
        const float mean = moment(x, 0, 1) / WIDTH;
        const float inverse = 1 / sqrtf(moment(x, mean, 2) / WIDTH + NORM_EPS);
        for (int i = 0; i < ROW; i++) out[i] = (x[i] - mean) * inverse * l->scale[i] + l->shift[i];
    }
}
#else

/* The running statistics of the batch norm, folded to a scale and a shift. */
static void normalise(const layer *l, const float *DISTINCT x, float *DISTINCT out, int steps) {
    for (int t = 0; t < steps; t++)
        for (int i = 0; i < ROW; i++) out[t * ROW + i] = x[t * ROW + i] * l->scale[i] + l->shift[i];
}
#endif
