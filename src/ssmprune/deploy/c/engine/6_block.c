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
