#if WHOLE_NUMBERS
typedef int32_t logit; /* what leaves the model, and its workspace */
#else
typedef float logit; /* what leaves the model, and its workspace */
#endif

#if CALLS
/* ---- What Python calls: many sequences at once ---- */

#if RETRIEVAL
#define ANSWER WIDTH
#else
#define ANSWER MODEL_OUTPUTS
#endif

#if BIDIRECTIONAL
size_t model_room(size_t length);
size_t model_room(size_t length) { return MODEL_WORKSPACE(length); }

void model_sequences(const model_input *in, const size_t *valid, size_t count, size_t length, logit *out, logit *room);
void model_sequences(const model_input *in, const size_t *valid, size_t count, size_t length, logit *out, logit *room) {
    for (size_t i = 0; i < count; i++)
        model_run(room, in + i * length * STRIDE, length, valid[i], out + i * ANSWER * (EVERY_STEP ? length : 1));
}
#else
size_t model_room(size_t length);
size_t model_room(size_t length) { return (void)length, sizeof(model_state); }

void model_sequences(const model_input *in, const size_t *valid, size_t count, size_t length, logit *out, logit *room);
void model_sequences(const model_input *in, const size_t *valid, size_t count, size_t length, logit *out, logit *room) {
    (void)room;
    for (size_t i = 0; i < count; i++) {
        model_state state;
        model_init(&state);
        model_run(&state, in + i * length * STRIDE, valid[i], out + i * ANSWER * (EVERY_STEP ? length : 1));
    }
}

void model_steps(model_state *states, size_t count, const model_input *in, logit *out);
void model_steps(model_state *states, size_t count, const model_input *in, logit *out) {
    for (size_t i = 0; i < count; i++) model_step(states + i, in + i * STRIDE, out + i * ANSWER);
}
#endif
#endif

/* ---- Which model this is, and whether it computes what it should ---- */

const char model_id[] = "@ID@";

#ifdef SSMPRUNE_SELF_TEST
#include "golden.h"

/* What the model makes of GOLDEN_STEPS steps; a stream takes the last ones step by step. */
static void golden_run(const model_input *in, logit *out) {
#if BIDIRECTIONAL
    static logit golden_workspace[MODEL_WORKSPACE(GOLDEN_STEPS)];
    model_run(golden_workspace, in, GOLDEN_STEPS, GOLDEN_STEPS, out);
#else
    model_state state;
    model_init(&state);
    model_run(&state, in, GOLDEN_STEPS - 3, out);
    for (int t = GOLDEN_STEPS - 3; t < GOLDEN_STEPS; t++) {
#if EVERY_STEP
        model_step(&state, in + t * STRIDE, out + t * MODEL_OUTPUTS);
#else
        model_step(&state, in + t * STRIDE, out);
#endif
    }
#endif
}

#if WHOLE_NUMBERS
/* How far a logit is off. Logits are below 2^30, so their differences fit. */
static uint32_t golden_error(int32_t ours, int32_t golden) { return (uint32_t)(ours < golden ? golden - ours : ours - golden); }
#else
/* The bits of how far a logit is off; their order is that of sizes, and NaN is above them, whatever compilers assume of NaN. */
static uint32_t golden_error(float ours, float golden) {
    const float number = ours - golden;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits & 0x7FFFFFFFu;
}
#endif

logit model_self_test(void) {
    uint32_t worst = 0;
    logit out[GOLDEN_NUMBERS];
#if RETRIEVAL
    logit a[WIDTH], b[WIDTH];
    golden_run(GOLDEN_IN, a);
    golden_run(GOLDEN_IN + GOLDEN_STEPS * STRIDE, b);
    model_compare(a, b, out);
#else
    golden_run(GOLDEN_IN, out);
#endif
    for (int i = 0; i < GOLDEN_NUMBERS; i++)
        if (golden_error(out[i], GOLDEN_OUT[i]) > worst) worst = golden_error(out[i], GOLDEN_OUT[i]);
#if WHOLE_NUMBERS
    return (int32_t)worst;
#else
    const uint32_t most = worst < 0x7F7FFFFFu ? worst : 0x7F7FFFFFu; /* the largest float */
    float deviation;
    memcpy(&deviation, &most, sizeof deviation);
    return worst > golden_error(GOLDEN_BOUND, 0.0f) ? deviation : 0.0f;
#endif
}
#endif

/* ---- A program that reads a pipe, to try the model: cc -O3 -DSSMPRUNE_MAIN this.c -lm && ./a.out < numbers ---- */

#ifdef SSMPRUNE_MAIN
#include <stdio.h>
#include <stdlib.h>

#if TOKENS
#define VALUES "tokens"
#define LEAST 0L
#define MOST (MODEL_INPUTS - 1L)
#else
#if WHOLE_NUMBERS
#define VALUES "whole numbers"
#define LEAST -32768L
#define MOST 32767L
#else
#define VALUES "numbers"
#endif
#endif

/* The next value of stdin; 1 if there is one, 0 at the end, -1 if it is not a number, -2 with a message if it is too large
   or too small. `samples`: 16 bits each, little-endian, whatever this machine's own order is. */
static int next_value(int samples, model_input *value) {
#if TOKENS || WHOLE_NUMBERS
    long number;
    if (samples) {
        unsigned char bytes[2];
        if (fread(bytes, 1, 2, stdin) != 2) return 0;
        number = bytes[0] + 256L * bytes[1];
        if (LEAST < 0 && number > 32767) number -= 65536;
    } else {
        char word[32], *end; /* the largest number that fits is what strtol makes of larger ones */
        if (scanf("%31s", word) != 1) return 0;
        number = strtol(word, &end, 10);
        if (*end || strlen(word) == 31) return -1;
    }
    if (number < LEAST || number > MOST) return fprintf(stderr, "expected " VALUES " from %ld to %ld\n", LEAST, MOST), -2;
    *value = (model_input)number;
    return 1;
#else
    if (samples) {
        unsigned char bytes[2];
        if (fread(bytes, 1, 2, stdin) != 2) return 0;
        const int sample = bytes[0] | bytes[1] << 8;
        *value = (float)(sample >= 32768 ? sample - 65536 : sample) / 32768.0f;
        return 1;
    }
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

#if WHOLE_NUMBERS
#define FORMAT "%ld"
#define PRINTED long
#else
#define FORMAT "%.9g"
#define PRINTED double
#endif

/* The logits, or the class. */
static void print(const logit *logits, int class_only) {
    int best = 0;
    for (int i = 1; i < MODEL_OUTPUTS; i++)
        if (logits[i] > logits[best]) best = i;
    if (class_only) printf("%d\n", best);
    for (int i = 0; !class_only && i < MODEL_OUTPUTS; i++)
        printf(FORMAT "%c", (PRINTED)logits[i], i + 1 < MODEL_OUTPUTS ? ' ' : '\n');
}
#if BIDIRECTIONAL || RETRIEVAL

#ifndef SSMPRUNE_LONGEST
#define SSMPRUNE_LONGEST 16384 /* steps that the program can hold */
#endif
static model_input sequence_in[SSMPRUNE_LONGEST * STRIDE];
#if BIDIRECTIONAL
static logit workspace[MODEL_WORKSPACE(SSMPRUNE_LONGEST)];
#endif

/* What the model gives for a part of the sequence. */
static void respond_to(const model_input *in, size_t length, logit *out) {
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
    logit a[WIDTH], b[WIDTH], logits[MODEL_OUTPUTS];
    if (goes_on(samples, length)) return -2; /* where the second document begins depends on the end */
    if (length < 2 || length % 2) return -1; /* two documents of one length, one after the other */
    respond_to(sequence_in, length / 2, a);
    respond_to(sequence_in + length / 2 * STRIDE, length / 2, b);
    model_compare(a, b, logits);
    print(logits, class_only);
#else
#if EVERY_STEP
    static logit logits[SSMPRUNE_LONGEST * MODEL_OUTPUTS];
    if (length) respond_to(sequence_in, length, logits);
    for (size_t t = 0; t < length; t++) print(logits + t * MODEL_OUTPUTS, class_only);
#else
    logit logits[MODEL_OUTPUTS];
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
    logit logits[MODEL_OUTPUTS];
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

#ifdef SSMPRUNE_SELF_TEST
#define SELF_TEST "  --self-test  print 0, or by how much the logits of a known input are off\n"
#else
#define SELF_TEST ""
#endif

/* What the program takes. */
static void explain(FILE *to, const char *name) {
    fprintf(to,
            "usage: %s [--s16] [--class] < input, or %s --id\n"
            "Reads " VALUES " as text, %d per step, and prints the logits.\n"
            "  --s16    the input is binary: 16 bits a value, little-endian, as in raw audio\n"
            "  --class  print the most likely class instead, counted from 0\n"
            "  --id     print which model this is\n" SELF_TEST,
            name, name, STRIDE);
}

int main(int count, char **options) {
    int samples = 0, class_only = 0;
    for (int i = 1; i < count; i++)
        if (!strcmp(options[i], "--s16"))
            samples = 1;
        else if (!strcmp(options[i], "--class"))
            class_only = 1;
        else if (!strcmp(options[i], "--id"))
            return puts(model_id), 0;
#ifdef SSMPRUNE_SELF_TEST
        else if (!strcmp(options[i], "--self-test"))
            return printf(FORMAT "\n", (PRINTED)model_self_test()), 0;
#endif
        else if (!strcmp(options[i], "--help"))
            return explain(stdout, options[0]), 0;
        else
            return explain(stderr, options[0]), 2;
    const int done = answer_stdin(samples, class_only);
    if (done == -1) fprintf(stderr, "expected " VALUES ", %d per step, and at least one step\n", STRIDE);
    return done ? 1 : 0;
}
#endif
