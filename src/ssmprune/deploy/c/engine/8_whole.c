/* ---- Whole sequences, in both directions ----
   The workspace holds the features x and the outputs y of all steps and, for S5, what is fed into the states. */

typedef struct {
    float *x;
    float *y;
#if S5
    float *v;
#endif
} sequence;

/* y forwards in time, from u of each block of steps. */
static void forwards(const layer *l, sequence all, size_t length, scratch *s) {
    float states[STATES_ROOM] = {0};
    for (size_t at = 0; at < length; at += BLOCK) {
        const int steps = length - at < BLOCK ? (int)(length - at) : BLOCK;
        const float *u = input_of(l, all.x + at * ROW, s, steps);
#if S5
        const size_t row = (size_t)l->B.panels * PANEL;
#if INTEGERS
        feed(l, u, all.v + at * row, steps);
#else
        product(&l->B, u, all.v + at * row, steps);
#endif
        memcpy(s->v, all.v + at * row, (size_t)steps * row * sizeof(float));
        scan(l, states, s->v, steps, 0);
        product(&l->C, s->v, all.y + at * ROW, steps);
#else
        respond(l, states, u, s, steps, 0);
        memcpy(all.y + at * ROW, s->y, (size_t)steps * ROW * sizeof(float));
#endif
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
#if S5
        const size_t row = (size_t)l->B.panels * PANEL;
        memcpy(s->v, all.v + end * row, (size_t)steps * row * sizeof(float));
        scan(l, states, s->v, steps, 1);
        product(&l->C_back, s->v, s->y, steps);
#else
        respond(l, states, u, s, steps, 1);
#endif
        for (int i = 0; i < steps * ROW; i++) s->y[i] += before[i];
        gated(l, all.x + end * ROW, u, s, steps);
    }
}
#if MEAN

/* The mean of the first steps. */
static void mean(const float *x, size_t valid, float *features) {
    float total[ROW] = {0};
    int16_t lost[ROW] = {0};
    for (size_t at = 0; at < valid; at += BLOCK)
        add_up(total, lost, x + at * ROW, valid - at < BLOCK ? (int)(valid - at) : BLOCK);
    for (int i = 0; i < ROW; i++) features[i] = total[i] / (float)valid;
}
#endif

void model_run(float *workspace, const model_input *in, size_t length, size_t valid, float *out) {
    scratch s;
    sequence all;
    if (valid > length) valid = length;
    if (!valid) return;
#if CUTS_PADDING
    length = valid; /* each direction runs over the true length */
#endif
    all.x = workspace;
    all.y = all.x + length * ROW;
#if S5
    all.v = all.y + length * ROW;
#endif
    for (size_t at = 0; at < length; at += BLOCK)
        encode(in + at * STRIDE, all.x + at * ROW, length - at < BLOCK ? (int)(length - at) : BLOCK);
    for (int i = 0; i < DEPTH; i++) {
        forwards(&LAYERS[i], all, length, &s);
        backwards(&LAYERS[i], all, length, &s);
    }
#if MEAN
    mean(all.x, valid, s.y);
    answer(s.y, out);
#endif
#if LAST
    answer(all.x + (valid - 1) * ROW, out);
#endif
#if EVERY_STEP
    for (size_t t = 0; t < valid; t++) answer(all.x + t * ROW, out + t * MODEL_OUTPUTS);
#endif
}
