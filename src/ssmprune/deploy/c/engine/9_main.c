/* ---- A program that reads a pipe, to try the model: cc -O3 -DSSMPRUNE_MAIN this.c -lm && ./a.out < numbers ---- */

#ifdef SSMPRUNE_MAIN
#include <stdio.h>
#if TOKENS
#include <stdlib.h>
#endif

#if TOKENS

/* A token; 1, or -2 with a message if the model does not know it. */
static int known(long token, int32_t *value) {
    if (token < 0 || token >= MODEL_INPUTS)
        return fprintf(stderr, "expected tokens from 0 to %d\n", MODEL_INPUTS - 1), -2;
    *value = (int32_t)token;
    return 1;
}
#endif

/* The next value of stdin; 1 if there is one, 0 at the end, -1 if it is not a number, -2 if there is no such token. */
static int next_value(int samples, model_input *value) {
    if (samples) { /* 16 bits, little-endian, whatever this machine's own order is */
        unsigned char bytes[2];
        if (fread(bytes, 1, 2, stdin) != 2) return 0;
        const int sample = bytes[0] | bytes[1] << 8;
#if TOKENS
        return known(sample, value);
#else
        *value = (float)(sample >= 32768 ? sample - 65536 : sample) / 32768.0f;
        return 1;
#endif
    }
#if TOKENS
    char word[32], *end; /* the largest number that fits is what strtol makes of larger ones */
    if (scanf("%31s", word) != 1) return 0;
    const long token = strtol(word, &end, 10);
    return *end || strlen(word) == 31 ? -1 : known(token, value);
#else
    const int found = scanf("%f", value);
    return found == 1 ? 1 : found == EOF ? 0 : -1;
#endif
}

/* The next step of stdin, like `next_value`. */
static int next_step(int samples, model_input *in) {
    for (int i = 0; i < STRIDE; i++) {
        const int found = next_value(samples, in + i);
        if (found != 1) return i ? -1 : found;
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

/* Whether stdin goes on after the last step that the program can hold; says so if it does. */
static int goes_on(int samples, size_t length) {
    char first;
    if (length < SSMPRUNE_LONGEST || scanf(samples ? "%c" : " %c", &first) != 1) return 0;
    fprintf(stderr, "read %d steps, and there are more; compile with -DSSMPRUNE_LONGEST=... to read them too\n",
            SSMPRUNE_LONGEST);
    return 1;
}

/* 0 if all went well, -1 if the input is not what is expected, -2 if that has been said. */
static int answer_stdin(int samples, int class_only) {
    size_t length = 0;
    int found = 0;
    while (length < SSMPRUNE_LONGEST && (found = next_step(samples, sequence_in + length * STRIDE)) == 1) length++;
    if (found < 0) return found;
#if RETRIEVAL
    float a[WIDTH], b[WIDTH], logits[MODEL_OUTPUTS];
    if (goes_on(samples, length)) return -2; /* where the second document begins depends on the end */
    if (length < 2 || length % 2) return -1; /* two documents of one length, one after the other */
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
    if (!length) return -1;
    respond_to(sequence_in, length, logits);
    print(logits, class_only);
#endif
    fflush(stdout); /* nobody waits for more input to see the answer */
    goes_on(samples, length);
#endif
    return 0;
}
#else

/* 0 if all went well, -1 if the input is not what is expected, -2 if that has been said. */
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
    if (found < 0 || !any) return found < 0 ? found : -1;
#if !EVERY_STEP
    print(logits, class_only);
#endif
    return 0;
}
#endif

#if TOKENS
#define VALUES "tokens"
#else
#define VALUES "numbers"
#endif

/* What the program takes. */
static void explain(FILE *to, const char *name) {
    fprintf(to,
            "usage: %s [--s16] [--class] < input\n"
            "Reads " VALUES " as text, %d per step, and prints the logits.\n"
            "  --s16    the input is binary: 16 bits a value, little-endian, as in raw audio\n"
            "  --class  print the most likely class instead, counted from 0\n",
            name, STRIDE);
}

int main(int count, char **options) {
    int samples = 0, class_only = 0;
    for (int i = 1; i < count; i++)
        if (!strcmp(options[i], "--s16"))
            samples = 1;
        else if (!strcmp(options[i], "--class"))
            class_only = 1;
        else if (!strcmp(options[i], "--help"))
            return explain(stdout, options[0]), 0;
        else
            return explain(stderr, options[0]), 2;
    const int done = answer_stdin(samples, class_only);
    if (done == -1) fprintf(stderr, "expected " VALUES ", %d per step, and at least one step\n", STRIDE);
    return done ? 1 : 0;
}
#endif
