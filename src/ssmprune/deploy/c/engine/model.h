#ifndef MODEL_H
#define MODEL_H

/* A classifier of the family @FAMILY@, written by ssmprune @VERSION@.
   From: @ORIGIN@.
   Inputs are taken as they come: scale them as those were that the model was trained on.
   Logit k is that of class k, as the training labels count classes, from 0; the largest logit names the class.
   Re-entrant: nothing is kept outside the memory that a caller hands in, so threads may call at once, each with a state
   or a workspace that no other thread is using. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "public_sizes.h"
#if TOKENS
typedef int32_t model_input; /* a token */
#else
typedef float model_input;
#endif

#if INTEGERS
/* Steps that are computed together; more is faster, fewer need less of the stack (about @STACK@ bytes per step and, unless
   it is a single step, up to @UNPACKED@ for weights as floats). */
#else
/* Steps that are computed together; more is faster, fewer need less of the stack (about @STACK@ bytes per step). */
#endif
#ifndef MODEL_BLOCK
#define MODEL_BLOCK 16
#endif
#if BIDIRECTIONAL

/* This model reads a sequence from both ends, so it needs all of it, and a workspace of this many floats. */
#define MODEL_WORKSPACE(length) ((size_t)(length) * MODEL_FLOATS_PER_STEP)
#else

/* A stream, @STATE_BYTES@ bytes: everything that is carried from one step to the next. Copy it to start a branch. */
typedef struct {
    float states[MODEL_STATES];
#if MEAN
    float total[MODEL_ROW]; /* the features of all steps, added up */
    /* What rounding took from each sum, in 32,000ths of the most that it can take at once. */
    int16_t rounded_off[MODEL_ROW];
    uint32_t steps; /* so far; the count holds up to four billion */
#endif
} model_state;

/* Start a stream. */
void model_init(model_state *state);
#endif
#if RETRIEVAL

/* The logits of two documents, each represented by MODEL_FEATURES numbers. */
void model_compare(const float *a, const float *b, float *logits);
#endif
#if BIDIRECTIONAL

/* A sequence of `length` steps, @A_STEP@ each. The first `valid` steps count, 1 <= valid <= length; the rest is
   padding, which the layers treat as those of the trained model do. `out` gets @OUT_WHOLE@.
   A `valid` beyond `length` is taken for `length`; if it is 0, `out` stays as it is. */
void model_run(float *workspace, const model_input *in, size_t length, size_t valid, float *out);
#else

/* The next step, @A_STEP@. `out`, unless NULL, gets @OUT_STEP@. */
void model_step(model_state *state, const model_input *in, float *out);

/* The next `length` steps: the same as that many calls of model_step, but faster. `out`, unless NULL, gets
   @OUT_RUN@. */
void model_run(model_state *state, const model_input *in, size_t length, float *out);
#endif

/* The version of ssmprune, the digest above, and the checkpoint with its SHA-256. */
extern const char model_id[];

#ifdef SSMPRUNE_SELF_TEST
/* 0 if the logits of a known input are right to 1e-5 of the largest; else the largest deviation. */
float model_self_test(void);
#endif

#ifdef __cplusplus
}
#endif
#endif
