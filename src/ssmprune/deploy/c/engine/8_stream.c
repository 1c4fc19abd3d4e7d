/* ---- Step by step, or many steps in blocks ---- */

void model_init(model_state *state) { memset(state, 0, sizeof *state); }

/* The features x of the next steps, in place of their encoding. */
static void advance(model_state *state, float *x, scratch *s, int steps) {
    float *states = state->states;
    for (int i = 0; i < DEPTH; states += STATES[i], i++) {
        const layer *l = &LAYERS[i];
        const float *u = input_of(l, x, s, steps);
        ssm(l, states, u, s, steps);
        gated(l, x, u, s, steps);
    }
}
#if MEAN

/* The mean of all features so far. */
static void mean(const model_state *state, float *features) {
    for (int i = 0; i < ROW; i++) features[i] = state->total[i] / (float)state->steps;
}
#endif

void model_run(model_state *state, const model_input *in, size_t length, float *out) {
    float x[BLOCK * ROW];
    scratch s;
    int steps = 0;
    for (size_t done = 0; done < length; done += (size_t)steps) {
        steps = length - done < BLOCK ? (int)(length - done) : BLOCK;
        encode(in + done * STRIDE, x, steps);
        advance(state, x, &s, steps);
#if MEAN
        add_up(state->total, state->lost, x, steps);
        state->steps += (uint32_t)steps;
#endif
#if EVERY_STEP
        for (int t = 0; out && t < steps; t++) answer(x + t * ROW, out + (done + (size_t)t) * MODEL_OUTPUTS);
#endif
    }
#if MEAN
    if (out && state->steps) mean(state, x), answer(x, out);
#endif
#if LAST
    if (out && steps) answer(x + (steps - 1) * ROW, out);
#endif
}

void model_step(model_state *state, const model_input *in, float *out) { model_run(state, in, 1, out); }
