/* ---- What Python calls: many sequences at once ---- */

#if BIDIRECTIONAL
size_t model_room(size_t length);
size_t model_room(size_t length) { return MODEL_WORKSPACE(length); }

void model_sequences(const model_input *in, const size_t *valid, size_t count, size_t length, float *out, float *room);
void model_sequences(const model_input *in, const size_t *valid, size_t count, size_t length, float *out, float *room) {
    for (size_t i = 0; i < count; i++)
        model_run(room, in + i * length * STRIDE, length, valid[i], out + i * @ANSWER@ * (@PER_STEP@ ? length : 1));
}
#else
size_t model_room(size_t length);
size_t model_room(size_t length) { return (void)length, sizeof(model_state); }

void model_sequences(const model_input *in, const size_t *valid, size_t count, size_t length, float *out, float *room);
void model_sequences(const model_input *in, const size_t *valid, size_t count, size_t length, float *out, float *room) {
    (void)room;
    for (size_t i = 0; i < count; i++) {
        model_state state;
        model_init(&state);
        model_run(&state, in + i * length * STRIDE, valid[i], out + i * @ANSWER@ * (@PER_STEP@ ? length : 1));
    }
}

void model_steps(model_state *states, size_t count, const model_input *in, float *out);
void model_steps(model_state *states, size_t count, const model_input *in, float *out) {
    for (size_t i = 0; i < count; i++) model_step(states + i, in + i * STRIDE, out + i * @ANSWER@);
}
#endif
