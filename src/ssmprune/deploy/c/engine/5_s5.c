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
