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
#if BACKWARD_DELAY
            sum += LOAD(weight) * (backward ? old_re : re[s]) - LOAD(weight + PANEL) * (backward ? old_im : im[s]);
#else
            sum += LOAD(weight) * re[s] - LOAD(weight + PANEL) * im[s];
#endif
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
#if !BIDIRECTIONAL

static void ssm(const layer *l, float *states, const float *u, scratch *s, int steps) {
    respond(l, states, u, s, steps, 0);
}
#endif
