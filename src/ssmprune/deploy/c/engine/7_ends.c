/* ---- First and last layer ---- */

/* The features of the next steps. */
#if TOKENS
static void encode(const int32_t *in, float *x, int steps) {
    for (int t = 0; t < steps; t++)
        if (in[t] >= 0 && in[t] < MODEL_INPUTS)
#if INTEGERS
            for (int i = 0; i < ROW; i++) x[t * ROW + i] = EMBEDDING_SCALE[in[t]] * EMBEDDING[(size_t)in[t] * ROW + i];
#else
            memcpy(x + t * ROW, EMBEDDING + (size_t)in[t] * ROW, ROW * sizeof *x);
#endif
        else /* no token: say nothing rather than read what is not there */
            memset(x + t * ROW, 0, ROW * sizeof *x);
}
#else
static void encode(const float *in, float *x, int steps) { product(&ENCODER, in, x, steps); }
#endif

/* The logits of features. */
static void decode(const float *features, float *logits) {
    float padded[DECODER_ROW];
    product(&DECODER, features, padded, 1);
    memcpy(logits, padded, MODEL_OUTPUTS * sizeof *logits);
}
#if RETRIEVAL

void model_compare(const float *a, const float *b, float *logits) {
    float joint[4 * WIDTH], hidden[ROW];
    for (int i = 0; i < WIDTH; i++) {
        joint[i] = a[i];
        joint[WIDTH + i] = b[i];
        joint[2 * WIDTH + i] = a[i] - b[i];
        joint[3 * WIDTH + i] = a[i] * b[i];
    }
    product(&HIDDEN, joint, hidden, 1);
    for (int i = 0; i < ROW; i++) hidden[i] = gelu(hidden[i]);
    decode(hidden, logits);
}
#endif
#if MEAN

/* Add the features of the next steps to their sum, those of a block first among themselves. What rounding takes from
   the sum, in units of ROUNDED times its size, is kept and added the next time, so that millions of steps lose nothing
   (unless -ffast-math drops the correction). */
#define ROUNDED (1.0f / 16777216.0f / 32000.0f) /* a sum is rounded by at most 2^-24 of its size, which is 32,000 units */
static void add_up(float *total, int16_t *lost, const float *x, int steps) {
    float sum[ROW] = {0};
    for (int t = 0; t < steps; t++)
        for (int i = 0; i < ROW; i++) sum[i] += x[t * ROW + i];
    for (int i = 0; i < ROW; i++) {
        const float before = total[i], more = sum[i] + (float)lost[i] * (ROUNDED * fabsf(before));
        const float after = before + more, unit = ROUNDED * fabsf(after);
        const float units = unit > 0.0f ? (more - (after - before)) / unit : 0.0f;
        total[i] = after;
        lost[i] = (int16_t)(fabsf(units) < 32767.0f ? (int)(units + 32768.5f) - 32768 : 0); /* the nearest */
    }
}
#endif

/* What leaves the model. */
static void answer(const float *features, float *out) {
#if RETRIEVAL
    memcpy(out, features, WIDTH * sizeof *out);
#else
    decode(features, out);
#endif
}
