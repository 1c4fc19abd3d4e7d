/* ---- A program that reads a pipe, to try the model: cc -O3 -DSSMPRUNE_MAIN this.c -lm && ./a.out < numbers ---- */

#ifdef SSMPRUNE_MAIN
#include <stdio.h>

/* The next value of stdin; 1 if there is one, 0 at the end, -1 if it is not a number. */
static int next_value(int samples, model_input *value) {
    if (samples) { /* 16 bits, little-endian, whatever this machine's own order is */
        unsigned char bytes[2];
        if (fread(bytes, 1, 2, stdin) != 2) return 0;
        const int sample = bytes[0] | bytes[1] << 8;
#if TOKENS
        *value = sample;
#else
        *value = (float)(sample >= 32768 ? sample - 65536 : sample) / 32768.0f;
#endif
        return 1;
    }
#if TOKENS
    int token;
    const int found = scanf("%d", &token);
    if (found == 1) *value = token;
#else
    const int found = scanf("%f", value);
#endif
    return found == 1 ? 1 : found == EOF ? 0 : -1;
}

/* The next step of stdin, like `next_value`. */
static int next_step(int samples, model_input *in) {
    for (int i = 0; i < STRIDE; i++) {
        const int found = next_value(samples, in + i);
        if (found != 1) return i ? -1 : found;
#if TOKENS
        if (in[i] < 0 || in[i] >= MODEL_INPUTS) return -1;
#endif
    }
    return 1;
}

/* The logits, or the class. */
static void print(const float *logits, int class_only) {
    int best = 0;
    for (int i = 1; i < MODEL_OUTPUTS; i++)
        if (logits[i] > logits[best]) best = i;
    if (class_only) printf("%d\n", best);
    for (int i = 0; !class_only && i < MODEL_OUTPUTS; i++)
        printf("%.9g%c", (double)logits[i], i + 1 < MODEL_OUTPUTS ? ' ' : '\n');
}
#if BIDIRECTIONAL || RETRIEVAL

#ifndef SSMPRUNE_LONGEST
#define SSMPRUNE_LONGEST 16384 /* steps that the program can hold */
#endif
static model_input sequence_in[SSMPRUNE_LONGEST * STRIDE];
#if BIDIRECTIONAL
static float workspace[MODEL_WORKSPACE(SSMPRUNE_LONGEST)];
#endif

/* What the model gives for a part of the sequence. */
static void respond_to(const model_input *in, size_t length, float *out) {
#if BIDIRECTIONAL
    model_run(workspace, in, length, length, out);
#else
    model_state state;
    model_init(&state);
    model_run(&state, in, length, out);
#endif
}

static int answer_stdin(int samples, int class_only) {
    size_t length = 0;
    int found = 0;
    while (length < SSMPRUNE_LONGEST && (found = next_step(samples, sequence_in + length * STRIDE)) == 1) length++;
    if (found < 0) return 1;
#if RETRIEVAL
    float a[WIDTH], b[WIDTH], logits[MODEL_OUTPUTS];
    if (length < 2 || length % 2) return 1; /* two documents of one length, one after the other */
    respond_to(sequence_in, length / 2, a);
    respond_to(sequence_in + length / 2 * STRIDE, length / 2, b);
    model_compare(a, b, logits);
    print(logits, class_only);
#else
#if EVERY_STEP
    static float logits[SSMPRUNE_LONGEST * MODEL_OUTPUTS];
    if (length) respond_to(sequence_in, length, logits);
    for (size_t t = 0; t < length; t++) print(logits + t * MODEL_OUTPUTS, class_only);
#else
    float logits[MODEL_OUTPUTS];
    if (!length) return 1;
    respond_to(sequence_in, length, logits);
    print(logits, class_only);
#endif
#endif
    return 0;
}
#else

static int answer_stdin(int samples, int class_only) {
    model_state state;
    model_input in[STRIDE];
    float logits[MODEL_OUTPUTS];
    int found, any = 0;
    model_init(&state);
    for (; (found = next_step(samples, in)) == 1; any = 1) {
        model_step(&state, in, logits);
#if EVERY_STEP
        print(logits, class_only);
#endif
    }
    if (found < 0 || !any) return 1;
#if !EVERY_STEP
    print(logits, class_only);
#endif
    return 0;
}
#endif

int main(int count, char **options) {
    int samples = 0, class_only = 0;
    for (int i = 1; i < count; i++)
        if (!strcmp(options[i], "--s16"))
            samples = 1;
        else if (!strcmp(options[i], "--class"))
            class_only = 1;
        else
            return fprintf(stderr, "usage: %s [--s16] [--class] < input\n", options[0]), 2;
    if (answer_stdin(samples, class_only))
        return fprintf(stderr, "expected %d numbers per step, and at least one step\n", STRIDE), 1;
    return 0;
}
#endif
